// From values to colours. A pixel of a map is its palette's colour at the value, nothing between.
import { state } from './state.js';

const SIZE = 1024;

/** One colour a head; beyond twelve they repeat, dashed. */
const HEADS = {
  light: '#3295f6 #174018 #9b9370 #514765 #2759d6 #270798 #609d10 #e469ae #856851 #566609 #277d7b #7b4149'.split(' '),
  dark: '#6992eb #906b0a #d1f339 #fcd4e7 #f3817c #c5256d #864ad2 #2b807e #e4e4be #9e9b13 #9a8fb0 #93bcab'.split(' '),
};

export const theme = () => state.palette || 'light';
export const headColour = head => HEADS[theme()][head % HEADS.light.length];
export const headDashed = head => head >= HEADS.light.length;

/** 1,024 colours from position 0 to 1 between stops, mixed in sRGB; each a pixel, little-endian RGBA. */
function table(stops) {
  const colours = new Uint32Array(SIZE), rgb = stops.map(s => parseInt(s.slice(1), 16));
  for (let i = 0; i < SIZE; i++) {
    const place = i / (SIZE - 1) * (stops.length - 1), below = Math.min(Math.floor(place), stops.length - 2);
    const mix = shift => {
      const a = rgb[below] >> shift & 255, b = rgb[below + 1] >> shift & 255;
      return Math.round(a + (place - below) * (b - a));
    };
    colours[i] = (255 << 24 | mix(0) << 16 | mix(8) << 8 | mix(16)) >>> 0;
  }
  return colours;
}

const tables = {};
function palette(diverging) {
  const name = theme() + diverging;
  return tables[name] ??= table(state.info.palettes[theme()][diverging ? 1 : 0]);
}

/** The colour at a position 0 to 1; of a difference, 0.5 is none. */
export const colourAt = (position, diverging = false) =>
  palette(diverging)[Math.round((SIZE - 1) * Math.max(0, Math.min(position, 1)))];

/** Where a weight, or a difference of weights, lies in its palette; largest is the end of scale 'head'. */
export function position(w, diverging, scale, largest = 1) {
  const size = Math.abs(w), part = Math.min(1, scale === 'sqrt' ? Math.sqrt(size) : scale === 'head' ? size / largest : size);
  return diverging ? 0.5 + Math.sign(w) * part / 2 : part;
}

/** The value that a byte of a tile stands for: a weight, or a difference of weights. */
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

const variables = new Map();
/** A colour of the style sheet by its variable; kept, as asking makes the browser settle the page's styles. */
export function css(name) {
  const key = theme() + name;
  if (!variables.has(key)) variables.set(key, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return variables.get(key);
}
/** #rrggbb as a pixel. */
export function pixel(colour) {
  const n = parseInt(colour.slice(1), 16);
  return (255 << 24 | (n & 255) << 16 | (n & 0xff00) | n >> 16) >>> 0;
}
export const fill = c => `#${[c & 255, c >> 8 & 255, c >> 16 & 255].map(v => v.toString(16).padStart(2, '0')).join('')}`;

/** Black or white text, whichever reads better on the colour. */
export function inkOn(c) {
  const linear = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = 0.2126 * linear(c & 255) + 0.7152 * linear(c >> 8 & 255) + 0.0722 * linear(c >> 16 & 255);
  return light > 0.179 ? '#000000' : '#ffffff';
}
