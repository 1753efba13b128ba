// What the model would say after each layer, and which parts of it push a token up or down.
import { html, render } from './lit-html.js';
import { answerTo, plainRun, retryAnswers } from './answers.js';
import { count, headName, label, short, signed } from './spelling.js';
import { state, subscribe, update } from './state.js';
import { mark, tokenWords } from './words.js';

let element, left = '';

export function mount(where) {
  element = where;
  subscribe(draw);
}

/** The lens after a row, towards the token that followed (the likeliest where none did); null until it came. */
export function lensAt(run, query) {
  const next = run.tokens[query + 1];
  const path = `/api/runs/${run.id}/lens?q=${query}&top=5${next ? `&target=${next.id}` : ''}`;
  return answerTo(path);
}

/** Heads by how much they add to the token's logit, the largest push first, either way. */
export const headsByPush = lens => lens.adds.heads
  .flatMap((heads, layer) => heads.map((adds, head) => ({ layer, head, adds })))
  .sort((a, b) => Math.abs(b.adds) - Math.abs(a.adds));

export const headButton = (layer, head) => html`<button class="link" type="button"
  @click=${() => update({ layer, head, key: -1 }, { history: 'push' })}>${headName(layer, head)}</button>`;

export const push = (adds, most) => html`<td class="number">${signed(adds)}</td>
  <td class="bar-cell"><span class="bar ${adds < 0 ? 'down' : 'up'}" .style=${`width: ${100 * Math.abs(adds) / most}%`}></span></td>`;

function draw(_state, names) {
  if (state.view !== 'lens' || !state.run) return;
  if (!['view', 'run', 'base', 'query', 'rows', 'step', 'busy'].some(n => names.has(n))) return;
  const run = plainRun();
  if (!run) return render(html`<p>The lens reads the model as it is: no heads left out, no other mask.</p>`, element);
  const lens = lensAt(run, state.query);
  if (lens?.error) {
    return render(html`<p>${lens.error} <button type="button" @click=${retryAnswers}>Retry</button></p>`, element);
  }
  // While the next row loads the last one stays, so that nothing jumps.
  if (!lens) return left ? undefined : render(html`<div class="skeleton" aria-busy="true"></div>`, element);
  left = 'table';
  render(table(run, lens), element);
}

function table(run, lens) {
  const { query } = state, next = run.tokens[query + 1];
  const most = Math.max(...headsByPush(lens).map(h => Math.abs(h.adds)), ...lens.adds.mlps.map(Math.abs), 1e-9);
  return html`
    <table class="layers">
      <caption>What the model would say after ${tokenWords(query)}, layer by layer, after the final layer norm.
        ${next ? 'Boxed: the token that followed, ' : 'Boxed: the likeliest token, '}${mark(lens.target.label)}.${state.base ? ' Of the model as it is.' : ''}</caption>
      <thead><tr><th scope="col">After</th>${[1, 2, 3, 4, 5].map(n => html`<th scope="col">choice ${n}</th>`)}</tr></thead>
      <tbody>${lens.layers.map((layer, i) => html`<tr>
        <th scope="row">${i === 0 ? 'embedding' : `layer ${i - 1}`}<br>
          <small>${mark(lens.target.label)} rank ${count(layer.rank + 1)}<br>p ${short(Math.exp(layer.logprob))}</small></th>
        ${layer.top.map(t => html`<td><div class="cell ${t.id === lens.target.id ? 'target' : ''}">
          ${mark(label(t))}<small>${short(Math.exp(t.logprob))}</small>
          <i class="bar" .style=${`width: ${100 * Math.exp(t.logprob)}%`}></i></div></td>`)}</tr>`)}</tbody>
    </table>
    <h3>What each head adds to the logit of ${mark(lens.target.label)}</h3>
    <table class="pushes">
      <thead><tr><th scope="col">Head</th><th scope="col" class="number">Adds</th><th aria-hidden="true"></th></tr></thead>
      <tbody>${headsByPush(lens).slice(0, 10).map(h => html`<tr><td>${headButton(h.layer, h.head)}</td>${push(h.adds, most)}</tr>`)}</tbody>
    </table>
    <table class="pushes">
      <caption>What the rest adds</caption>
      <tbody>
        ${lens.adds.mlps.map((adds, i) => html`<tr><th scope="row">MLP ${i}</th>${push(adds, most)}</tr>`)}
        <tr><th scope="row">token embedding</th>${push(lens.adds.token, most)}</tr>
        <tr><th scope="row">position</th>${push(lens.adds.position, most)}</tr>
        <tr><th scope="row">attention biases</th>${push(lens.adds.attention_biases.reduce((a, b) => a + b, 0), most)}</tr>
        <tr><th scope="row">bias of the final norm</th>${push(lens.adds.ln_f_bias, most)}</tr>
      </tbody>
    </table>
    <p class="muted">Together they are its logit above the mean of the vocabulary: ${signed(lens.target.logit)}.</p>`;
}
