// All numbers behind the selected row of the open head, from the query to what it adds to a logit.
import { html, nothing, render, svg } from './lit-html.js';
import { answerTo, plainRun, retryAnswers } from './answers.js';
import { take } from './files.js';
import { shown } from './selection.js';
import { headName, minus, plural, short, signed } from './spelling.js';
import { state, subscribe, update } from './state.js';
import { mark, tokenWords } from './words.js';

const LISTED = 10; // keys, until all are asked for
const BAR = 6, HALF = 40; // pixels: of a dimension across, and of the largest product up or down

let element, all = false, left = false;

export function mount(where) {
  element = where;
  subscribe(draw);
}

function draw(_state, names) {
  if (state.view !== 'numbers' || !state.run) return;
  if (!['view', 'run', 'base', 'layer', 'head', 'query', 'key', 'rows', 'hover', 'step'].some(n => names.has(n))) return;
  const run = plainRun();
  if (!run) {
    left = false;
    return render(html`<p>Numbers are of the model as it is: no heads left out, no other mask.</p>`, element);
  }
  const row = numbersAt();
  if (row?.error) return render(html`<p>${row.error} <button type="button" @click=${retryAnswers}>Retry</button></p>`, element);
  // While the next row loads the last one stays, so that nothing jumps.
  if (!row) return left ? undefined : render(html`<div class="skeleton" aria-busy="true"></div>`, element);
  left = true;
  render(table(run, row), element);
}

function pathOf(run) {
  const { layer, head, query } = state, next = run.tokens[query + 1];
  return `/api/runs/${run.id}/numbers?q=${query}&l=${layer}&h=${head}${next ? `&target=${next.id}` : ''}`;
}

/** The numbers behind the selected row; null until they came, or where there are none. */
export const numbersAt = () => {
  const run = plainRun();
  return run ? answerTo(pathOf(run)) : null;
};

/** A number as it is, but for digits that nobody reads. */
const digits = v => minus(Number(v.toPrecision(4)).toString());
const sum = list => list.reduce((a, b) => a + b, 0);

function table(run, row) {
  const { key } = shown(), at = row.keys[Math.max(0, Math.min(key, row.query))];
  const listed = all ? row.keys : row.keys.toSorted((a, b) => b.weight - a.weight).slice(0, LISTED);
  const name = `loupe-row-${headName(row.layer, row.head)}-${row.query}`;
  return html`
    <p>Head ${headName(row.layer, row.head)}: how ${tokenWords(row.query)} reads ${tokenWords(at.position)}, step by step.</p>
    <ol class="steps">
      <li>Query · key, summed over ${row.q.length} dimensions: <b>${digits(sum(at.products))}</b>.${products(at)}</li>
      <li>Scale: × ${digits(row.scale)} gives the score <b>${digits(at.score)}</b>.</li>
      <li>Mask: ${row.masked.length ? `the ${plural(row.masked.length, 'later token')} cannot be read` : 'no later token is there to leave out'}; ${plural(row.keys.length, 'key')} can.</li>
      <li>Softmax: e to the score, divided by the sum over all keys, gives the weight <b>${short(at.weight)}</b>.</li>
      <li>Value: a vector of length ${digits(at.value_norm)}. Weight × value, through c_proj, adds a vector of length <b>${digits(at.added_norm)}</b> to the residual stream.</li>
      <li>Direct effect of that vector on the logit of ${mark(row.target.label)}: <b>${signed(at.direct, 3)}</b>. All keys together: ${signed(row.target.direct, 3)}.</li>
    </ol>
    <table class="keys">
      <caption>${all ? 'All keys of the row' : `The ${plural(listed.length, 'key')} of largest weight`}</caption>
      <thead><tr><th scope="col">Token</th><th scope="col" class="number">Position</th><th scope="col" class="number">Score</th><th scope="col" class="number">Weight</th>
        <th scope="col" class="number">Length of value</th><th scope="col" class="number">Length added</th><th scope="col" class="number">To the logit</th></tr></thead>
      <tbody>${listed.map(k => html`<tr class=${k === at ? 'chosen' : ''}>
        <td><button class="link" type="button" aria-pressed=${k === at} @click=${() => update({ key: k.position, hover: null }, { history: 'push' })}>${mark(k.label)}</button></td>
        <td class="number">${k.position}</td><td class="number">${digits(k.score)}</td><td class="number">${short(k.weight)}</td>
        <td class="number">${digits(k.value_norm)}</td><td class="number">${digits(k.added_norm)}</td><td class="number">${signed(k.direct, 3)}</td></tr>`)}</tbody>
    </table>
    <p class="buttons">
      ${row.keys.length > LISTED ? html`<button type="button" aria-pressed=${all} @click=${() => { all = !all; update({ rows: state.rows + 1 }, { history: 'none' }); }}>All ${row.keys.length} keys</button>` : nothing}
      ${['json', 'csv'].map(as => html`<a class="button" href=${`${pathOf(run)}&as=${as}`} download=${`${name}.${as}`} @click=${take}>${as}</a>`)}</p>
    <p class="muted">Queries, keys and values are what the model computed; the rest is computed from them in double precision.
      Direct effects leave out what later layers make of the vector.</p>`;
}

/** q times k by dimension, as bars. */
function products({ products: values }) {
  const most = Math.max(...values.map(Math.abs), 1e-12), width = values.length * BAR;
  return html`<svg class="products" role="img" aria-label="Query times key by dimension" viewBox=${`0 0 ${width} ${2 * HALF}`} width=${width} height=${2 * HALF}>
    ${values.map((v, i) => svg`<rect class=${v < 0 ? 'down' : 'up'} x=${i * BAR} width=${BAR - 1} y=${HALF - Math.max(0, v) / most * HALF} height=${Math.max(0.5, Math.abs(v) / most * HALF)}>
      <title>dimension ${i}: ${digits(v)}</title></rect>`)}</svg>`;
}
