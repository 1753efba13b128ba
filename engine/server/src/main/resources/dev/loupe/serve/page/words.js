// The tokens of the run that is shown, in words. Tokens only ever become text nodes.
import { html } from './lit-html.js';
import { label, sentenceParts, short } from './spelling.js';
import { state } from './state.js';

export const tokenLabel = i => label(state.run.tokens[i]);
/** A token by label and position: `·king 41`. */
export const name = i => `${tokenLabel(i)} ${i}`;

/** A label, or a token by its position, as text in its own direction. */
export const mark = text => html`<bdi>${text}</bdi>`;
export const tokenWords = i => html`<bdi>${tokenLabel(i)}</bdi> ${i}`;

/** The sentence as text, to speak and to copy; tokens in backticks where asked. */
export const sentence = (selection, tick = '') =>
  sentenceParts(selection).map(p => typeof p === 'number' ? `${tick}${tokenLabel(p)}${tick} ${p}` : p).join('');
export const sentenceWords = selection => sentenceParts(selection).map(p => typeof p === 'number' ? tokenWords(p) : p);

/** A token's bytes; while a text is being written only the label tells them. */
export function bytesOf(token) {
  const hex = token.bytes ?? /^<([0-9A-F]{2}(?: [0-9A-F]{2})*)>$/.exec(token.label)?.[1].replaceAll(' ', '');
  return hex === undefined ? null : Uint8Array.from(hex.match(/../g) ?? [], h => parseInt(h, 16));
}
/** The text of tokens; bytes that are none become U+FFFD, or are an error where that is asked for. */
export const textOf = (list, fatal = false) =>
  new TextDecoder('utf-8', { fatal }).decode(Uint8Array.from(list.flatMap(t => [...bytesOf(t) ?? []])));

/** What a head may be said to do, in plain words. */
export const ROLES = {
  previous_token: ['previous token', 'looks at the token just before'],
  duplicate_token: ['duplicate token', 'looks at earlier copies of the same token'],
  induction: ['induction', 'looks at what came after earlier copies of the same token'],
  first_token: ['first token (sink)', 'rests on the first token'],
  self: ['self', 'looks at the token itself'],
};
/** A score as it is shown. */
export const scoreText = (name, v) => v == null ? '–' : name === 'normalised_entropy' ? `${Math.round(100 * v)}%` : short(v);
export const SCORES = {
  induction: 'Induction', previous_token: 'Previous token', duplicate_token: 'Duplicate token',
  first_token: 'First token', self: 'Self', entropy: 'Entropy, nats', normalised_entropy: 'Entropy, % of maximum',
  mean_distance: 'Mean distance, tokens',
};
