// One spelling of numbers, tokens and sentences, and the keys that a sentence names.

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
export const headName = (layer, head) => `${layer}.${head}`;

/** The keys from `first` to `end` of a row by weight, largest first. */
export function largestKeys(row, count, first = 0, end = row.length) {
  const keys = [];
  for (let key = first; key < Math.min(end, row.length); key++) {
    let place = keys.length;
    while (place > 0 && row[keys[place - 1]] < row[key]) place--;
    if (place < count) {
      keys.splice(place, 0, key);
      if (keys.length > count) keys.pop();
    }
  }
  return keys;
}

/** What a selection's sentence is made of: strings, and tokens by their positions. */
export function sentenceParts({ layer, head, query, key, row, top }) {
  if (!row) return [query, `, head ${headName(layer, head)}.`];
  return key === top
    ? [query, `, head ${headName(layer, head)}, looks most at `, top, `: ${brief(row[top])}.`]
    : [query, `, head ${headName(layer, head)}, reads `, key, `: ${short(row[key])}.`];
}
