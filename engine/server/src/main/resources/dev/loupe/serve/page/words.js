// One spelling of tokens, numbers and sentences. Tokens only ever become text nodes.
import { html } from './lit-html.js';
import { state } from './state.js';

/** Short, for reading: three digits, never a false zero. */
export const short = w => w > 0 && w < 0.0005 ? '<0.001' : w < 0 && w > -0.0005 ? '>−0.001' : Number.isFinite(w) ? minus(w.toFixed(3)) : 'not a number';
/** Two digits, for sentences. */
export const brief = w => w < 0.005 ? short(w) : w.toFixed(2);
/** With its sign, for differences. */
export const signed = (w, digits = 2) => Math.abs(w) < 0.5 * 10 ** -digits ? '0' : (w > 0 ? '+' : '') + minus(w.toFixed(digits));
export const minus = text => text.replace('-', '−');
export const count = n => String(n).replace(/\B(?=(\d{3})+$)/g, ','); // toLocaleString loads its tables: 80 ms at the first number
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** The shortest decimal that is this very float. */
export function exact(w) {
  for (let digits = 1; digits < 9; digits++) {
    const text = Number(w.toPrecision(digits));
    if (Math.fround(text) === w) return minus(String(text));
  }
  return minus(String(Number(w.toPrecision(9))));
}

export const label = token => token?.label || '∅';
export const tokenLabel = i => label(state.run.tokens[i]);
/** A token by label and position: `·king 41`. */
export const name = i => `${tokenLabel(i)} ${i}`;
export const headName = (layer, head) => `${layer}.${head}`;

/** A label, or a token by its position, as text in its own direction. */
export const mark = text => html`<bdi>${text}</bdi>`;
export const tokenWords = i => html`<bdi>${tokenLabel(i)}</bdi> ${i}`;

/** The parts of a selection's sentence: strings and token positions. */
function parts({ layer, head, query, key, row, top }) {
  if (!row) return [query, `, head ${headName(layer, head)}.`];
  return key === top
    ? [query, `, head ${headName(layer, head)}, looks most at `, top, `: ${brief(row[top])}.`]
    : [query, `, head ${headName(layer, head)}, reads `, key, `: ${short(row[key])}.`];
}
/** The sentence as text, to speak and to copy; tokens in backticks where asked. */
export const sentence = (selection, tick = '') =>
  parts(selection).map(p => typeof p === 'number' ? `${tick}${tokenLabel(p)}${tick} ${p}` : p).join('');
export const sentenceWords = selection => parts(selection).map(p => typeof p === 'number' ? tokenWords(p) : p);

/** What a head may be said to do, in plain words. */
export const ROLES = {
  previous_token: ['previous token', 'looks at the token just before'],
  duplicate_token: ['duplicate token', 'looks at earlier copies of the same token'],
  induction: ['induction', 'looks at what came after earlier copies of the same token'],
  first_token: ['first token (sink)', 'rests on the first token'],
  self: ['self', 'looks at the token itself'],
};
export const SCORES = {
  induction: 'Induction', previous_token: 'Previous token', duplicate_token: 'Duplicate token',
  first_token: 'First token', self: 'Self', entropy: 'Entropy, nats', normalised_entropy: 'Entropy, part of the largest',
  mean_distance: 'Mean distance, tokens',
};
