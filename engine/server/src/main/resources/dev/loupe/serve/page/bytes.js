// What the bytes of a tile stand for: weights, or differences of weights.
import { colourAt, position } from './colour.js';

/** The value of a byte. */
export function valueOf(byte, diverging) {
  if (!diverging) return (byte / 255) ** 2;
  const signed = byte << 24 >> 24;
  return Math.sign(signed) * (signed / 127) ** 2;
}

/** The colours of the 256 bytes that a tile may hold. */
export function byteColours(diverging, scale, largest) {
  return Uint32Array.from({ length: 256 }, (_, byte) => colourAt(position(valueOf(byte, diverging), diverging, scale, largest), diverging));
}

/** How much a byte stands for, whatever its sign. */
export const RANKS = {
  false: Uint8Array.from({ length: 256 }, (_, byte) => byte),
  true: Uint8Array.from({ length: 256 }, (_, byte) => Math.abs(byte << 24 >> 24)),
};
