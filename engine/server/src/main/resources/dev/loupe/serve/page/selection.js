// What is selected, with the numbers that the server has sent for it.
import { largestKeys } from './spelling.js';
import { state } from './state.js';
import { rowOf } from './tiles.js';

/** The keys of a row by weight, largest first; the first token left out where it is ignored and not alone. */
export const topKeys = (row, count, query = row.length - 1) =>
  largestKeys(row, count, state.ignoreFirst && query > 0 ? 1 : 0, state.step);

/** What to show now: the selection under what the pointer previews, with its row, and its key settled. */
export function shown() {
  const { layer, head, query, key } = { ...state, ...state.hover };
  const row = state.run && query < state.run.tokens.length ? rowOf(layer, head, query) : null;
  const top = row ? topKeys(row, 1, query)[0] : -1;
  const asked = state.hover && state.hover.key === undefined ? -1 : key;
  return { layer, head, query, row, top, key: asked < 0 || (row && asked >= row.length) ? top : asked };
}
