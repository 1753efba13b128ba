// Trace: which heads make the model predict what follows the selected token. Every effect is measured by an
// intervention: a part is replaced, and the text read again.
import { html, nothing, render } from './lit-html.js';
import { answerTo, plainRun } from './answers.js';
import { getEvents } from './api.js';
import { save } from './files.js';
import * as patching from './patching.js';
import { readIdsBeside, readTextBeside } from './runs.js';
import { count, headName, label, plural, signed } from './spelling.js';
import { state, subscribe, update } from './state.js';
import { mark, textOf, tokenWords } from './words.js';

const KINDS = [['circuit', 'Circuit'], ['layers', 'Layers'], ['heads', 'Heads'], ['head', 'This head']];
const PHASES = { effects: 'Replacing each part', search: 'Looking for a small circuit', edges: 'Measuring paths' };
const KEPT = 16;

let element, running = null; // {controller, key, what, done, of}
let chosen = null, saved = ''; // a name in the drawing; what the second text's field was filled with
const results = new Map(); // key -> {trace, html, drawing}, {grid} or {error}

export function mount(where) {
  element = where;
  subscribe((_state, names) => {
    if (names.has('run') || names.has('base')) stop();
    if (state.view !== 'trace' || !state.run) return;
    if (['view', 'run', 'base', 'query', 'asked', 'rows', 'layer', 'head', 'info', 'palette'].some(n => names.has(n))) draw();
  });
}

/** Ends what is being measured. */
export function stop() {
  running?.controller.abort();
}

/** Goes to the row that predicted a token, and traces it. */
export function traceToken(token) {
  if (token > 0) update({ view: 'trace', query: token - 1, key: -1, hover: null, why: null, asked: { ...state.asked, what: 'circuit' } }, { history: 'push' });
  requestAnimationFrame(() => requestAnimationFrame(begin));
}

/** The page of the trace that is shown, or null. */
export const tracePage = () => results.get(keyOf())?.html ?? null;

/** What the trace that is shown says; nothing before there is one. */
export const sentencesOfTrace = () => results.get(keyOf())?.trace?.words ?? [];

// ---- asking

function keyOf() {
  const { query, asked, layer, head } = state;
  return JSON.stringify([plainRun()?.id, query, asked, asked.what === 'head' ? [layer, head] : 0]);
}

function parameters() {
  const { against, ablation, mlps } = state.asked, next = plainRun().tokens[state.query + 1];
  return [`q=${state.query}`, next && `target=${next.id}`, against && `against=${against}`, ablation && `ablation=${ablation}`, mlps && 'mlps=true'].filter(Boolean).join('&');
}

export async function begin() {
  const run = plainRun();
  if (!run) return;
  stop();
  const key = keyOf(), { what, second } = state.asked, { layer, head } = state;
  const mine = running = { controller: new AbortController(), key, what: 'Waiting for the server', done: 0, of: 0 };
  const { signal } = mine.controller;
  let path = `/api/runs/${run.id}/${what === 'circuit' ? 'trace' : 'patch'}?${parameters()}`;
  results.delete(key);
  chosen = null;
  draw();
  try {
    if (second) path += `&with=${(await readIdsBeside(second, signal)).id}`;
    if (what !== 'circuit') path += `&of=${what}&l=${layer}&h=${head}`;
    keep(key, await getEvents(path, event => {
      if (event.event !== 'tracing') return;
      Object.assign(mine, { what: PHASES[event.phase] ?? 'Patching', done: event.done, of: event.total });
      if (state.view === 'trace') draw();
    }, signal));
  } catch (error) {
    if (!signal.aborted) keep(key, { error: error.message });
  }
  if (running === mine) running = null;
  update({ rows: state.rows + 1 }, { history: 'none' }); // a lesson may wait for it
}

function keep(key, answer) {
  if (results.size >= KEPT) results.delete(results.keys().next().value);
  results.set(key, { ...answer, drawing: answer.html ? drawing(answer.html) : null });
}

/** The drawing of a trace's page, with parts that can be pressed. */
function drawing(page) {
  const from = page.indexOf('<svg');
  if (from < 0) return null;
  const found = new DOMParser().parseFromString(page.slice(from, page.indexOf('</svg>') + 6), 'text/html').querySelector('svg');
  const picture = document.importNode(found, true);
  picture.setAttribute('role', 'group');
  for (const part of picture.querySelectorAll('[data-name]')) {
    part.setAttribute('role', 'button');
    part.setAttribute('tabindex', '0');
    part.setAttribute('aria-label', part.querySelector('title').textContent);
  }
  const press = e => {
    const part = e.target.closest('[data-name]');
    if (!part || (e.type === 'keydown' && e.key !== 'Enter' && e.key !== ' ')) return;
    e.preventDefault();
    chosen = part.dataset.name;
    draw();
  };
  picture.addEventListener('click', press);
  picture.addEventListener('keydown', press);
  return picture;
}

const ask = change => update({ asked: { ...state.asked, ...change } });

// ---- drawing

function draw() {
  const run = plainRun();
  if (!run) return render(html`<p>A trace is of the model as it is: no heads left out, no other mask.</p>`, element);
  const mine = running?.key === keyOf() ? running : null, result = results.get(keyOf());
  for (const part of result?.drawing?.querySelectorAll('[data-name]') ?? []) part.classList.toggle('chosen', part.dataset.name === chosen);
  render(html`
    ${form(run, mine)}
    ${mine ? progress(mine) : result?.error ? html`<p role="alert">${result.error}</p>` : nothing}
    ${result?.trace ? circuit(result) : result?.grid ? patching.view(result.grid, draw) : mine ? nothing : html`
      <p class="muted">A trace replaces every head and MLP in turn, reads the text again, and looks for the fewest heads
        that keep the prediction. An effect is what the replacement changed.</p>`}`, element);
  if (result?.grid) patching.paint(result.grid);
}

function form(run, mine) {
  const { what, against, ablation, mlps, second } = state.asked, next = run.tokens[state.query + 1];
  const effort = second || what !== 'circuit' ? null : answerTo(`/api/runs/${run.id}/effort?${parameters()}`);
  return html`
    <h3 class="question">Which heads make the model predict ${next ? mark(label(next)) : 'its likeliest token'} after ${tokenWords(state.query)}?</h3>
    <div class="buttons ask">
      <span class="together" role="group" aria-label="What to measure">${KINDS.map(([id, title]) => html`<button type="button" aria-pressed=${id === what} ?disabled=${id !== 'circuit' && !second}
        title=${id !== 'circuit' && !second ? 'Takes a second text' : nothing} @click=${() => ask({ what: id })}>${id === 'head' ? headName(state.layer, state.head) : title}</button>`)}</span>
      ${choice('Quantity', against, [['', 'log-probability'], ['runner-up', 'logit above the runner-up']], value => ask({ against: value }))}
      ${what !== 'circuit' ? nothing : html`
      ${choice('Replace by', ablation, [['', second ? 'the second text' : 'the mean'], ...(second ? [['mean', 'the mean']] : []), ['zero', 'zero']], value => ask({ ablation: value }))}
      <label class="muted"><input type="checkbox" .checked=${mlps} @change=${e => ask({ mlps: e.target.checked })}> MLPs too</label>`}
    </div>
    ${secondText(run)}
    <div class="buttons">
      ${mine ? html`<button type="button" @click=${stop}>Stop</button>` : html`<button type="button" class="main" @click=${begin}>${what === 'circuit' ? 'Start trace' : 'Start patching'}</button>`}
      ${effort?.cuts ? html`<span class="muted">At most ${plural(effort.cuts, 'reading')} of ${plural(state.query + 1, 'token')}.</span>` : nothing}
      ${effort?.error ? html`<span role="alert">${effort.error}</span>` : nothing}
    </div>`;
}

const choice = (title, value, options, put) => html`<label class="muted">${title} <select aria-label=${title} @change=${e => put(e.target.value)}>
  ${options.map(([id, words]) => html`<option value=${id} ?selected=${id === value}>${words}</option>`)}</select></label>`;

const progress = ({ what, done, of }) => html`<p class="muted" aria-live="polite">${what}…
  <progress max=${of || 1} .value=${done} aria-label="Progress"></progress></p>`;

// ---- the second text

function secondText(run) {
  const { second } = state.asked, read = run.tokens.slice(0, state.query + 1).filter(t => !t.special);
  const usual = state.info.text ? textOf(read) : read.map(t => t.id).join(', ');
  return html`<details class="second" ?open=${second !== null}><summary>Second text${second ? `: ${plural(second.length, 'token')}` : ''}</summary>
    <p class="muted">Patching replaces an activation by what it is in a second text of as many tokens: change one word.</p>
    <textarea rows="2" aria-label="Second text" spellcheck="false" .value=${saved || usual} @input=${e => { saved = e.target.value; }}></textarea>
    <div class="buttons"><button type="button" @click=${() => takeSecond(usual)}>Use it</button>
      ${second ? html`<button type="button" @click=${() => { saved = ''; ask({ second: null, what: 'circuit', ablation: '' }); }}>Leave it out</button>` : nothing}</div>
  </details>`;
}

async function takeSecond(usual) {
  const text = saved || usual;
  try {
    const other = state.info.text ? await readTextBeside(text) : await readIdsBeside(text.split(/[\s,]+/).map(Number));
    const ids = other.tokens.map(t => t.id), here = plainRun().tokens;
    if (ids.length !== state.query + 1 && ids.length !== here.length) {
      throw new Error(`The second text has ${plural(ids.length, 'token')}; give ${count(state.query + 1)}, as many as the text has up to the selected one.`);
    }
    if (ids.slice(0, state.query + 1).every((id, i) => id === here[i].id)) throw new Error('The second text is the same: change one word.');
    ask({ second: ids });
  } catch (error) {
    update({ error: error.message }, { history: 'none' });
  }
}

// ---- the circuit

function circuit({ trace, html: page, drawing: picture }) {
  const unit = trace.quantity.against ? 'logits' : 'nats';
  return html`
    <div class="drawing" tabindex="0" role="region" aria-label="Circuit">${picture ?? nothing}</div>
    ${picture ? html`<p class="muted">Lines: measured effect of a path; <b class="q">q</b>, <b class="k">k</b>, <b class="v">v</b> say whether the head reads it as query, key or value.
      Dashed: attention. Press a head or a line.</p>` : nothing}
    ${details(trace, unit)}
    <h3>In words</h3>
    <ol class="sentences">${trace.words.map(w => html`<li class=${w.basis}>${w.text}</li>`)}</ol>
    <p class="buttons">
      <button type="button" @click=${() => save(new Blob([page], { type: 'text/html' }), `loupe-trace-${trace.position}.html`)}>Save as HTML</button>
      <button type="button" @click=${() => save(new Blob([JSON.stringify(trace)], { type: 'application/json' }), `loupe-trace-${trace.position}.json`)}>JSON</button></p>
    <details><summary>Effects of all parts, in ${unit}</summary>${effects(trace)}</details>`;
}

const go = (layer, head, view, more = {}) => update({ layer, head, view, hover: null, why: null, ...more }, { history: 'push' });
const partOf = name => /^(\d+)\.(\d+)$/.exec(name)?.slice(1).map(Number);
const nodeName = node => node.head === 'mlp' ? `MLP ${node.layer}` : headName(node.layer, node.head);

function details(trace, unit) {
  const [, part, position, key] = /^([^@>]+)@(\d+)>(\d+)$/.exec(chosen ?? '') ?? [];
  if (part !== undefined) {
    const node = trace.nodes.find(n => nodeName(n) === part), at = node.positions.find(p => p.position === Number(position));
    return html`<div class="panel chosen"><h3>${part} at ${tokenWords(Number(position))}</h3>
      <p>Replaced at this token alone: ${signed(at.effect)} ${unit}. Replaced at all tokens: ${signed(node.effect.mean)} by its mean, ${signed(node.effect.zero)} by zero${node.effect.patched === null ? '' : `, ${signed(node.effect.patched)} from the second text`}.
        Straight to the logits alone: ${signed(node.direct)}.</p>
      ${node.head === 'mlp' ? nothing : html`<p class="buttons">Open
        <button type="button" @click=${() => go(node.layer, node.head, 'numbers', { query: Number(position), key: Number(key) })}>Its numbers</button>
        <button type="button" @click=${() => go(node.layer, node.head, 'map', { query: Number(position), key: Number(key) })}>Its map</button></p>`}</div>`;
  }
  const [, from, to, via] = /^([^>]+)>(.+)\.([a-z]+)$/.exec(chosen ?? '') ?? [];
  const edge = trace.edges.find(e => e.from === from && e.to === to && e.via === via);
  if (!edge) return nothing;
  const where = { q: `in the queries of ${to}`, k: `in the keys of ${to}`, v: `in the values of ${to}`, mlp: `in what ${to} reads`, logit: 'on the path straight to the logits' }[via];
  return html`<div class="panel chosen"><h3>${from} → ${to === 'logit' ? 'logits' : to}</h3>
    <p>With ${from} replaced ${where} alone, the quantity changes by ${signed(edge.effect)} ${unit}.</p>
    <p class="buttons">Open ${[from, to].map(partOf).filter(Boolean).map(([l, h]) => html`<button type="button" @click=${() => go(l, h, 'map')}>${headName(l, h)}</button>`)}</p></div>`;
}

function effects(trace) {
  const size = node => Math.abs(node.effect[trace.ablation === 'patch' ? 'patched' : trace.ablation]);
  return html`<table><thead><tr><th scope="col">Part</th><th scope="col" class="number">Zero</th><th scope="col" class="number">Mean</th>
      <th scope="col" class="number">Patched</th><th scope="col" class="number">Direct</th></tr></thead>
    <tbody>${trace.nodes.toSorted((a, b) => size(b) - size(a)).map(node => html`<tr>
      <th scope="row">${nodeName(node)}${node.member ? ' (in the circuit)' : ''}</th>
      ${[node.effect.zero, node.effect.mean, node.effect.patched, node.direct].map(v => html`<td class="number">${v === null ? '' : signed(v)}</td>`)}</tr>`)}</tbody></table>`;
}
