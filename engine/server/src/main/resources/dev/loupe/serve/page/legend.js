// What the colours of a map mean: a ramp with numbers, and words.
import { state } from './state.js';
import { colourAt, css, fill, position } from './colour.js';
import { minus, short } from './words.js';

const WIDEST = 440, HEIGHT = 34, BAR = 12, INSET = 6;

/** Where numbers stand on a ramp 0 to 1, and which. */
export function ticks(diverging, largest) {
  const values = state.scale === 'head' ? [0, 0.25, 0.5, 0.75, 1].map(part => part * largest) : [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1];
  const both = diverging ? [...values.slice(1).reverse().map(v => -v), ...values] : values;
  return both.map(v => ({ at: position(v, diverging, state.scale, largest),
    text: diverging && v > 0 ? `+${number(v)}` : minus(number(v)) }));
}
const number = v => state.scale === 'head' && v !== 0 ? (v < 0 ? '-' : '') + short(Math.abs(v)) : String(v);

/** Draws the ramp; room is CSS pixels that are there for it. */
export function drawLegend(canvas, room, diverging, largest, d) {
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
  const all = ticks(diverging, largest), taken = [];
  for (const tick of [all[0], all.at(-1), ...all.filter(t => t.at === 0.5), ...all.slice(1, -1).reverse()]) {
    const x = inset + tick.at * (length - 1), half = g.measureText(tick.text).width / 2;
    const middle = Math.max(half, Math.min(x, width - half));
    if (taken.some(([a, b]) => middle - half < b + 4 * d && middle + half > a - 4 * d)) continue;
    taken.push([middle - half, middle + half]);
    g.fillRect(x - d / 2, BAR * d, d, 3 * d);
    g.fillText(tick.text, middle, (BAR + 5) * d);
  }
}

const NAMES = { sqrt: 'square root of the', linear: '', head: '' };
/** The scale in words, for the legend and for a figure's caption. */
export function scaleWords(diverging) {
  const what = diverging ? 'difference of attention weights; blue less, orange more' : 'attention weight';
  const range = state.scale === 'head' ? 'to this head’s largest' : diverging ? '−1 to 1 in every head' : '0 to 1 in every head';
  return `${NAMES[state.scale]} ${what}, ${range}`.trim();
}

export function legendWords(diverging, scale) {
  const parts = [`Colour: ${scaleWords(diverging)}.`];
  if (scale < 1) parts.push(`A pixel is the largest of about ${Math.round(1 / scale)} × ${Math.round(1 / scale)} weights.`);
  parts.push('Rows are queries, the tokens that read; columns are keys, the tokens they read.');
  if (state.run.mask !== 'none') parts.push('Grey: later tokens, which cannot be read.');
  if (state.ignoreFirst) parts.push('The first token is hatched and left out.');
  return parts.join(' ');
}
