// The colours of a map from one end to the other, with numbers under them.
import { colourAt, css, fill } from './colour.js';

const WIDEST = 440, HEIGHT = 34, BAR = 12, INSET = 6;

/** Draws a ramp. `room` is the CSS pixels that are there for it; ticks are {at: 0 to 1, text}, both ends among them. */
export function drawRamp(canvas, room, diverging, ticks, d) {
  const width = Math.round(Math.min(WIDEST, room) * d), height = Math.round(HEIGHT * d);
  canvas.width = width;
  canvas.height = height;
  const g = canvas.getContext('2d'), inset = INSET * d, length = width - 2 * inset;
  for (let x = 0; x < length; x++) {
    g.fillStyle = fill(colourAt(x / Math.max(1, length - 1), diverging));
    g.fillRect(inset + x, 0, 1, BAR * d);
  }
  g.font = `${12 * d}px system-ui, sans-serif`;
  g.fillStyle = css('--muted');
  g.textBaseline = 'top';
  g.textAlign = 'center';
  // The ends first, then what has room between them.
  const taken = [];
  for (const tick of [ticks[0], ticks.at(-1), ...ticks.filter(t => t.at === 0.5), ...ticks.slice(1, -1).reverse()]) {
    const x = inset + tick.at * (length - 1), half = g.measureText(tick.text).width / 2;
    const middle = Math.max(half, Math.min(x, width - half));
    if (taken.some(([a, b]) => middle - half < b + 4 * d && middle + half > a - 4 * d)) continue;
    taken.push([middle - half, middle + half]);
    g.fillRect(x - d / 2, BAR * d, d, 3 * d);
    g.fillText(tick.text, middle, (BAR + 5) * d);
  }
}
