// What is selected, in a sentence and in numbers: what it reads, why it was chosen, what the head does,
// and what changes without it.
import { html, nothing, render } from './lit-html.js';
import { plainRun, retryAnswers } from './answers.js';
import { headButton, headsByPush, lensAt, push } from './lens.js';
import { onPictures, pair, paintPair } from './pair.js';
import { deltaOf, rankWords } from './ribbon.js';
import { compareWith, leaveComparison, letWrite, readIds } from './runs.js';
import { shown, topKeys } from './selection.js';
import { brief, headName, label, plural, short, signed } from './spelling.js';
import { state, subscribe, update } from './state.js';
import { rowOf } from './tiles.js';
import { traceToken } from './trace.js';
import { mark, ROLES, SCORES, scoreText, sentence, sentenceWords, tokenLabel, tokenWords } from './words.js';

let element, open = false, mean = false, copied = 0, compared = null; // the run that was compared with when it was drawn last

export function mount(where) {
  element = where;
  subscribe(draw);
  onPictures(draw);
}

function draw() {
  const { run } = state;
  if (!run) return render(nothing, element);
  const now = shown();
  element.classList.toggle('open', open);
  render(html`
    <button class="sheet" type="button" aria-expanded=${open} @click=${() => { open = !open; draw(); }}>${open ? 'Less' : 'More'}</button>
    <p id="sentence">${sentenceWords(now)}</p>
    ${state.ignoreFirst && now.query > 0 && now.row ? html`<p class="chip">first token: ${brief(now.row[0])}</p>` : nothing}
    ${reads(now)}
    ${why(now)}
    ${comparison(now)}
    ${ofHead(now)}
    ${ablation()}
    ${experiments()}`, element);
  paintPair(now);
  if (state.base !== compared) { // the result of a press is shown where one looks
    compared = state.base;
    const result = compared && element.querySelector('[aria-label="Comparison"]');
    if (result && element.scrollHeight > element.clientHeight) element.scrollTop = result.offsetTop - 8;
    else if (result && !state.lesson) result.scrollIntoView({ block: 'nearest' });
  }
}

// ---- what it reads

function reads({ layer, head, query, key, row }) {
  const token = state.run.tokens[query];
  const facts = token.logprob == null ? 'nothing predicted it' : `p ${short(Math.exp(token.logprob))}, ${rankWords(token.rank)}`;
  const top = row ? topKeys(row, 5, query) : [];
  const T = state.step;
  const select = to => update({ query: to, key: -1, hover: null, why: null }, { history: 'push' });
  return html`
    <table class="top">
      <caption>Reads most</caption>
      <thead><tr><th scope="col">Token</th><th scope="col" class="number">Position</th><th scope="col" class="number">Weight</th><td aria-hidden="true"></td></tr></thead>
      <tbody>${[0, 1, 2, 3, 4].map(i => top[i] === undefined ? html`<tr aria-hidden="true"><td>&nbsp;</td><td></td><td></td><td></td></tr>` : html`<tr>
        <td><button class="link" type="button" aria-pressed=${top[i] === key} @click=${() => update({ query, key: top[i], hover: null }, { history: 'push' })}>${mark(tokenLabel(top[i]))}</button></td>
        <td class="number">${top[i]}</td><td class="number">${short(row[top[i]])}</td>
        <td aria-hidden="true"><span class="bar" .style=${`width: ${100 * Math.min(1, row[top[i]])}%`}></span></td></tr>`)}</tbody>
    </table>
    <p class="muted">${tokenWords(query)}: token id ${token.id}, ${facts}.</p>
    <div class="buttons">
      <button type="button" ?disabled=${query === 0} @click=${explain}>Why this token?</button>
      <button type="button" ?disabled=${query === 0} @click=${() => traceToken(query)}>Trace it</button>
      ${query + 1 < T ? html`<button type="button" @click=${() => select(query + 1)}>Predicts ${tokenWords(query + 1)} next</button>` : nothing}
      <button type="button" @click=${() => copy(sentence(shown(), '`'))}>${copied ? 'Copied' : 'Copy sentence'}</button>
    </div>`;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    clearTimeout(copied);
    copied = setTimeout(() => { copied = 0; draw(); }, 1500);
    draw();
  } catch {
    update({ error: 'The browser does not let this page copy.' }, { history: 'none' });
  }
}

// ---- why this token

/** Row i - 1 predicted token i: goes there, and tells why. */
function explain() {
  if (state.query > 0) update({ why: state.query, query: state.query - 1, key: -1, hover: null }, { history: 'push' });
}

function why() {
  const token = state.why, { run } = state;
  if (token === null || state.query !== token - 1 || token >= run.tokens.length) return nothing;
  const { top, logprob, rank } = run.tokens[token];
  const of = plainRun(), lens = of && lensAt(of, token - 1);
  return html`<section class="panel" aria-label="Why this token">
    <h3>Why ${tokenWords(token)}?</h3>
    <p>Predicted after ${tokenWords(token - 1)}: p ${short(Math.exp(logprob))}, ${rankWords(rank)}.</p>
    <table class="top"><caption>Top 5 here</caption>
      <tbody>${top.map(t => html`<tr><td>${mark(label(t))}${t.id === run.tokens[token].id ? ' (this)' : ''}</td><td class="number">${short(Math.exp(t.logprob))}</td>
        <td aria-hidden="true"><span class="bar" .style=${`width: ${100 * Math.exp(t.logprob)}%`}></span></td></tr>`)}</tbody></table>
    ${!of ? html`<p class="muted">Layer by layer only for the model as it is.</p>`
      : !lens ? html`<div class="skeleton" aria-busy="true"></div>`
      : lens.error ? html`<p>${lens.error} <button type="button" @click=${retryAnswers}>Retry</button></p>`
      : html`
    <p>${reached(lens)}</p>
    <table class="top"><caption>Largest direct effects on its logit</caption>
      <tbody>${headsByPush(lens).slice(0, 5).map(h => html`<tr><td>${headButton(h.layer, h.head)}</td>${push(h.adds, Math.abs(headsByPush(lens)[0].adds) || 1)}</tr>`)}</tbody></table>`}
    <div class="buttons"><button type="button" @click=${() => update({ view: 'lens' }, { history: 'push' })}>Open the lens</button>
      <button type="button" @click=${() => update({ why: null })}>Close</button></div>
  </section>`;
}

/** From which layer on the token was the model's first choice. */
function reached(lens) {
  const last = lens.layers.length - 1;
  if (lens.layers[last].rank !== 0) return `It is ${rankWords(lens.layers[last].rank)} after the last layer, and ${rankWords(lens.layers[0].rank)} before the first.`;
  let from = last;
  while (from > 0 && lens.layers[from - 1].rank === 0) from--;
  return from === 0 ? 'It is the first choice from the embedding on.' : `It is the first choice from layer ${from - 1} on; before the first layer it is ${rankWords(lens.layers[0].rank)}.`;
}

// ---- the head

const rolesOf = (layer, head) => state.heads?.heads.find(h => h.layer === layer && h.head === head);
const asItIs = () => state.run.n_head === state.info.n_head;

function ofHead({ layer, head }) {
  const own = asItIs() ? rolesOf(layer, head) : null, here = state.stats?.scores;
  const counting = state.run.mask === 'causal' && !state.stats;
  return html`<section class="panel" aria-label="The head">
    <h3>Head ${headName(layer, head)}</h3>
    ${!asItIs() ? html`<p>Not a head that was trained: the model has ${state.info.n_head} a layer.</p>`
      : !own ? nothing
      : own.role ? html`<p>${ROLES[own.role][0]}: ${ROLES[own.role][1]}, ${short(own.scores[own.role])} of its attention on repeated random tokens.</p>`
      : html`<p>No role above ${state.info.threshold}${strongest(own)}</p>`}
    <table class="scores"><thead><tr><th scope="col">Score</th><th scope="col" class="number">on this text</th><th scope="col" class="number">on repeated tokens</th></tr></thead>
      <tbody>${Object.entries(SCORES).map(([key, title]) => html`<tr><th scope="row">${title}</th>
        <td class="number">${counting ? html`<span class="muted">counting</span>` : scoreText(key, here?.[key]?.[layer]?.[head])}</td><td class="number">${scoreText(key, own?.scores[key])}</td></tr>`)}</tbody></table>
    ${['induction', 'previous_token', 'duplicate_token'].map(noHead)}
    <div class="buttons"><button type="button" ?disabled=${!state.heads} @click=${showRepeated}>Show on repeated text</button></div>
  </section>`;
}

function strongest(own) {
  const best = Object.keys(ROLES).filter(r => own.scores[r] != null).sort((a, b) => own.scores[b] - own.scores[a])[0];
  return best ? `; most: ${ROLES[best][0]}, ${short(own.scores[best])}.` : '.';
}

/** Said only where a whole model has no such head, so that nobody looks for it. */
function noHead(role) {
  const heads = state.heads?.heads;
  if (!heads || heads.some(h => h.role === role)) return nothing;
  const best = heads.reduce((a, b) => (b.scores[role] ?? -1) > (a.scores[role] ?? -1) ? b : a);
  return html`<p class="muted">${SCORES[role]}: No head above ${state.info.threshold}; strongest ${headName(best.layer, best.head)}: ${brief(best.scores[role])}.</p>`;
}

/** The open head on a text of random tokens, read twice. */
function showRepeated() {
  const { layer, head } = state;
  update({ onRepeated: true, typed: false });
  readIds(state.heads.repeated.ids, { layer, head });
}

// ---- without a head

const isAblated = (layer, head) => state.changes.some(c => c.layer === layer && c.head === head);

export function toggleAblation(layer = state.layer, head = state.head) {
  if (!asItIs() || state.busy) return;
  const rest = state.changes.filter(c => c.layer !== layer || c.head !== head);
  update({ changes: isAblated(layer, head) ? rest : [...rest, mean ? { layer, head, mean: true } : { layer, head, factor: 0 }] });
}

/** Runs the same text with what is chosen; with nothing chosen it leaves the comparison. */
export function compare() {
  if (state.busy || !state.run) return;
  if (!state.changes.length || state.changes === state.run.changes) leaveComparison();
  else compareWith({ changes: state.changes });
}

const changeWords = c => `Output of head ${headName(c.layer, c.head)} ${c.mean ? 'set to its mean' : c.factor === 0 ? 'set to zero' : `times ${c.factor}`}`;

/** What stands in for a head, also where it is left out already. */
function chooseMean(chosen) {
  mean = chosen;
  const { layer, head } = state;
  if (isAblated(layer, head)) {
    update({ changes: state.changes.map(c => c.layer === layer && c.head === head ? mean ? { layer, head, mean: true } : { layer, head, factor: 0 } : c) });
  }
  draw();
}

function ablation() {
  const { changes, run, layer, head } = state, busy = state.busy !== null;
  return html`<section class="panel" aria-label="Ablation">
    <h3>Without a head</h3>
    <div class="buttons">
      <button type="button" aria-pressed=${isAblated(layer, head)} ?disabled=${!asItIs() || busy} @click=${() => toggleAblation()}>Ablate ${headName(layer, head)}</button>
      <label class="muted">to <select aria-label="What stands in for it" @change=${e => chooseMean(e.target.value === 'mean')}>
        <option value="zero" ?selected=${!mean}>zero</option><option value="mean" ?selected=${mean}>its mean</option></select></label>
    </div>
    ${changes.length ? html`<ul aria-label="Ablated heads">${changes.map(c => html`<li>${changeWords(c)}
      <button class="link" type="button" aria-label=${`Put ${headName(c.layer, c.head)} back`} @click=${() => toggleAblation(c.layer, c.head)}>Put back</button></li>`)}</ul>`
      : html`<p class="muted">Nothing is ablated.</p>`}
    <div class="buttons">
      <button type="button" ?disabled=${busy || !changes.length || changes === run.changes} @click=${compare}>Compare</button>
      <button type="button" ?disabled=${busy || !changes.length} @click=${() => letWrite(changes)}>Generate with and without</button>
    </div>
  </section>`;
}

// ---- beside the model as it is

const average = list => list.reduce((a, b) => a + b, 0) / list.length;

/** Parts of the text whose means are told apart: random tokens and their repetition, or the prompt and the rest. */
function partsOf({ tokens, prompt_length: prompt }) {
  const { ids, length } = state.heads?.repeated ?? {}, all = tokens.length;
  if (ids?.length === all && ids.every((id, i) => id === tokens[i].id)) return [['the random tokens', 1, all - length], ['their repetition', all - length, all]];
  return prompt < all ? [['the prompt', 1, prompt], ['what was generated', prompt, all]] : [['the text', 1, all]];
}

function comparison({ layer, head, query }) {
  const { run, base } = state;
  if (!base) return nothing;
  const what = run.mask === 'none' ? 'Every token sees the later ones too'
    : run.n_head !== base.n_head ? `Cut into ${plural(run.n_head, 'head')} a layer instead of ${base.n_head}`
    : run.changes.map(changeWords).join('; ');
  const means = partsOf(run).map(([part, from, to]) => [part, run.tokens.slice(from, to).map((_, i) => deltaOf(from + i)).filter(d => d !== null)])
    .filter(([, deltas]) => deltas.length).map(([part, deltas]) => `${signed(average(deltas))} in ${part}`);
  const far = state.compare.divergences.map((kl, i) => [kl, i]).sort((a, b) => b[0] - a[0]).slice(0, 3);
  const moved = (state.compare.variation ?? []).flatMap((heads, l) => heads.map((v, h) => [v, l, h])).sort((a, b) => b[0] - a[0]).slice(0, 3);
  return html`<section class="panel" aria-label="Comparison">
    <h3>Compared with the model as it is</h3>
    <p>${what}. ${run.mask === 'none' ? 'Each token now sees the one it has to predict, so its probability means nothing here: look at the maps.'
      : `Mean change of log-probability, nats a token: ${means.join(', ')}.`}</p>
    ${query < base.tokens.length && head < base.n_head && run.n_head === base.n_head ? html`<p>${beside(base, 'As it is', layer, head, query)}<br>${beside(run, 'Changed', layer, head, query)}</p>` : nothing}
    ${pair(layer, head)}
    <p>After ${tokenWords(query)}: KL ${short(state.compare.divergences[query])} nats.</p>
    <p class="buttons">Predictions that changed most, after: ${far.map(([kl, i]) => html`<button class="link" type="button" @click=${() => update({ query: i, key: -1, hover: null, why: null }, { history: 'push' })}>${tokenWords(i)}: ${short(kl)}</button>`)}</p>
    ${moved.length ? html`<p class="buttons">Heads that changed most: ${moved.map(([v, l, h]) => html`<span>${headButton(l, h)} ${short(v)}</span>`)}</p>` : nothing}
    <div class="buttons"><button type="button" @click=${leaveComparison}>Leave the comparison</button></div>
  </section>`;
}

function beside(run, title, layer, head, query) {
  const row = rowOf(layer, head, query, run);
  if (!row) return `${title}: …`;
  const top = topKeys(row, 1, query)[0];
  return html`${title}: most at ${tokenWords(top)}, ${brief(row[top])}.`;
}

function experiments() {
  const { n_embd, n_head } = state.info, busy = state.busy !== null;
  const cuts = Array.from({ length: Math.min(n_embd, 64) }, (_, i) => i + 1).filter(k => n_embd % k === 0 && k !== n_head);
  return html`<section class="panel" aria-label="What if">
    <h3>What if…</h3>
    <div class="buttons">
      <button type="button" ?disabled=${busy} @click=${() => compareWith({ changes: [], mask: 'none' })}>every token could see the later ones?</button>
      <label class="muted">it were cut into <select aria-label="Heads a layer" ?disabled=${busy}
        @change=${e => { if (e.target.value) compareWith({ changes: [], mask: 'causal', n_head: Number(e.target.value) }); e.target.value = ''; }}>
        <option value="">…</option>${cuts.map(k => html`<option value=${k}>${k}</option>`)}</select> heads?</label>
    </div>
    <p class="muted">It was trained for neither: a look at what the mask and the heads are for.</p>
  </section>`;
}
