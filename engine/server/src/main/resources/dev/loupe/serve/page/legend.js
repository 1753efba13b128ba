// What the colours of a map mean: numbers for its ramp, and words.
import { position } from './colour.js';
import { minus, short } from './spelling.js';
import { state } from './state.js';
import { mapKind } from './tiles.js';

/** Where numbers stand on a ramp 0 to 1, and which. */
export function ticks(diverging, largest) {
  const values = state.scale === 'head' ? [0, 0.25, 0.5, 0.75, 1].map(part => part * largest) : [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1];
  const both = diverging ? [...values.slice(1).reverse().map(v => -v), ...values] : values;
  return both.map(v => ({ at: position(v, diverging, state.scale, largest),
    text: diverging && v > 0 ? `+${number(v)}` : minus(number(v)) }));
}
const number = v => state.scale === 'head' && v !== 0 ? (v < 0 ? '-' : '') + short(Math.abs(v)) : String(v);

const NAMES = { sqrt: 'square root of the', linear: '', head: '' };
/** What a map shows: the choice, its unit, and how a cell is said. */
export const KINDS = {
  weights: ['Weights', 'attention weight', 'reads'],
  values: ['Value-weighted', 'part of the row’s |weight × value × W_O|', 'reads, by norms of values,'],
  rollout: ['Rollout', 'attention rollout up to this layer, one map for its heads', 'has, by rollout,'],
};

/** The scale in words, for the legend and for a figure's caption. */
export function scaleWords(diverging) {
  const kind = mapKind(), unit = kind === 'weights' && diverging ? 'attention weights' : KINDS[kind][1];
  const what = diverging ? `difference of ${unit}; blue less, orange more` : unit;
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
