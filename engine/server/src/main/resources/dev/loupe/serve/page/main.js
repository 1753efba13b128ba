// Starts the page: mounts the views, listens to keys, and speaks the selection.
import { html, nothing, render } from './lit-html.js';
import { retryAnswers } from './answers.js';
import { getJson, hooks, STOPPED } from './api.js';
import { dress } from './colour.js';
import * as exporting from './export.js';
import * as grid from './grid.js';
import { keysOn, openHelp } from './help.js';
import * as inspector from './inspector.js';
import * as lens from './lens.js';
import * as lessons from './lessons.js';
import * as lines from './lines.js';
import * as map from './map.js';
import * as numbers from './numbers.js';
import * as prompt from './prompt.js';
import * as ribbon from './ribbon.js';
import { askStatistics, follow, open, stop } from './runs.js';
import { shown } from './selection.js';
import { count, headName } from './spelling.js';
import { parse, state, subscribe, update } from './state.js';
import { retry } from './tiles.js';
import * as trace from './trace.js';
import { sentence } from './words.js';

const $ = id => document.getElementById(id);
const narrow = matchMedia('(max-width: 759px)');

// ---- theme

const dark = matchMedia('(prefers-color-scheme: dark)');
const THEMES = ['system', 'light', 'dark'];
const chosenTheme = () => THEMES.includes(localStorage.getItem('theme')) ? localStorage.getItem('theme') : 'system';
function applyTheme() {
  const theme = chosenTheme();
  const palette = theme === 'system' ? dark.matches ? 'dark' : 'light' : theme;
  document.documentElement.dataset.theme = palette;
  $('theme').textContent = `Theme: ${theme}`;
  dress({ theme: palette });
  update({ palette }, { history: 'none' });
}
$('theme').addEventListener('click', () => {
  localStorage.setItem('theme', THEMES[(THEMES.indexOf(chosenTheme()) + 1) % 3]);
  applyTheme();
});
dark.addEventListener('change', applyTheme);

// ---- bar, tabs, messages

$('copy').addEventListener('click', async () => {
  let words = 'Copied';
  try {
    await navigator.clipboard.writeText(location.href);
  } catch {
    words = 'Copy the address';
  }
  $('copy').textContent = words;
  setTimeout(() => { $('copy').textContent = 'Copy link'; }, 1500);
});
$('ask-help').addEventListener('click', () => openHelp($('help')));

const VIEWS = [['map', 'Map'], ['lines', 'Lines'], ['lens', 'Lens'], ['numbers', 'Numbers'], ['trace', 'Trace']];
const SCALES = { sqrt: '√ weight', linear: 'weight', head: 'this head’s range' };
const nextScale = () => ({ sqrt: 'linear', linear: 'head', head: 'sqrt' })[state.scale];
const setView = view => update({ view }, { history: 'push' });

function drawBar(names) {
  const { info, run, draft } = state;
  if (names.has('info') && info) {
    $('model').textContent = info.model;
    $('about').textContent = `${info.n_layer} layers × ${info.n_head} heads, ${info.dtype}; ${info.device}`;
    document.title = `${info.model} in Loupe`;
  }
  const T = draft?.tokens.length ?? run?.tokens.length ?? 0;
  $('count').textContent = info ? `${count(T)}/${count(info.n_ctx)} tokens` : '';
}

function drawStage() {
  const { view, run } = state;
  document.body.dataset.view = view;
  const stage = view === 'grid' ? 'map' : view;
  for (const [id] of VIEWS) $(id).hidden = id !== stage;
  $('head-name').textContent = run ? `Head ${headName(shown().layer, shown().head)}` : 'Head';
  render(VIEWS.map(([id, title]) => html`<button type="button" role="tab" id="tab-${id}" aria-controls=${id} aria-selected=${id === stage}
    tabindex=${id === stage ? 0 : -1} @click=${() => setView(id)} @keydown=${walkTabs}>${title}</button>`), $('tabs'));
  render([['grid', 'Grid'], ...VIEWS].map(([id, title]) => html`<button type="button" aria-pressed=${id === view} @click=${() => setView(id)}>${title}</button>`), $('switch'));
  render(stage !== 'map' && stage !== 'lines' ? nothing : html`
    ${stage === 'map' ? html`<button type="button" @click=${() => update({ scale: nextScale() })}>Colour: ${SCALES[state.scale]}</button>` : nothing}
    <button type="button" aria-pressed=${state.ignoreFirst} @click=${() => update({ ignoreFirst: !state.ignoreFirst })}>Ignore first token</button>`, $('options'));
}
function walkTabs(e) {
  const to = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
  if (!to || e.shiftKey) return;
  e.preventDefault();
  e.stopPropagation();
  const at = (VIEWS.findIndex(([id]) => id === state.view) + to + VIEWS.length) % VIEWS.length;
  setView(VIEWS[at][0]);
  $(`tab-${VIEWS[at][0]}`).focus();
}

/** What was not answered: heads, and the statistics of the run. */
function askAgain() {
  if (!state.heads) getJson('/api/heads').then(heads => update({ heads }, { history: 'none' }), () => {});
  if (state.run && !state.stats) askStatistics(state.run);
}

let waiting = null;
hooks.waiting = seconds => {
  waiting = seconds;
  drawMessage();
};
let before = null; // the sentence that was shown
function drawMessage() {
  const words = waiting !== null ? `Busy. Trying again in ${waiting} s.` : state.error;
  // Once the server is back, or somebody thinks so, what failed is asked for again.
  if (before === STOPPED && !words) {
    retry();
    retryAnswers();
    askAgain();
  }
  before = words;
  $('message').hidden = !words;
  render(words ? html`${words.split('`').map((part, i) => i % 2 ? html`<code>${part}</code>` : part)}
    ${waiting === null ? html`<button class="link" type="button" @click=${() => update({ error: null }, { history: 'none' })}>${words === STOPPED ? 'Retry' : 'Close'}</button>` : nothing}` : nothing, $('message'));
}

let asking = null; // one dialog, however many requests wait for the key
hooks.askKey = () => asking ??= new Promise(resolve => {
  const dialog = $('key-dialog');
  render(html`<form method="dialog">
    <h2 id="key-name">This server asks for its API key</h2>
    <input type="password" name="key" aria-label="API key" autocomplete="off" required>
    <p class="muted">Kept in this tab only.</p>
    <p class="buttons"><button class="main" value="ok">Go on</button></p></form>`, dialog);
  dialog.addEventListener('close', () => {
    asking = null;
    resolve(dialog.returnValue === 'ok' ? dialog.querySelector('input').value : null);
  }, { once: true });
  dialog.showModal();
});

// ---- speech

let speaking = 0;
function speak(names) {
  if (names.has('busy') && state.busy?.what.startsWith('Reading')) $('status').textContent = state.busy.what;
  if (!state.run || !['layer', 'head', 'query', 'key', 'run', 'rows', 'ignoreFirst'].some(n => names.has(n))) return;
  speaking ||= setTimeout(() => {
    speaking = 0;
    const words = sentence(shown());
    if (!state.hover && shown().row && $('status').textContent !== words) $('status').textContent = words;
  }, 500);
}

// ---- keys

const clamp = (value, most) => Math.max(0, Math.min(value, most));
const chosen = () => ({ query: state.query, key: shown().key });
const KEYS = {
  1: () => setView('map'), 2: () => setView('lines'), 3: () => setView('lens'), 4: () => setView('numbers'), 5: () => setView('trace'),
  ' ': () => ribbon.play(),
  ',': () => ribbon.setStep(state.step - 1), '.': () => ribbon.setStep(state.step + 1),
  i: () => update({ ignoreFirst: !state.ignoreFirst }), s: () => update({ scale: nextScale() }),
  m: () => update({ gridOpen: !state.gridOpen }),
  a: () => inspector.toggleAblation(), c: () => inspector.compare(),
  e: () => document.querySelector('#export button, #export summary')?.click(),
  '/': () => document.querySelector('#prompt textarea').focus(),
  '?': () => openHelp($('help')), n: () => lessons.move(1), b: () => lessons.move(-1),
};
function arrow(e, down, right) {
  const { run } = state;
  if (e.shiftKey) {
    update({ layer: clamp(state.layer + down, state.info.n_layer - 1), head: clamp(state.head + right, run.n_head - 1), hover: null });
  } else if (down) {
    const query = clamp(state.query + down, state.step - 1);
    update({ query, key: run.mask === 'causal' && state.key > query ? -1 : state.key, hover: null, why: null });
  } else {
    update({ hover: null }, { history: 'none' });
    const { query, key } = chosen();
    update({ key: clamp(key + right, run.mask === 'none' ? state.step - 1 : query) });
  }
}
addEventListener('keydown', e => {
  if (e.key === 'Escape') {
    if (state.busy) stop();
    trace.stop();
    ribbon.hideCard();
    update({ error: null, hover: null }, { history: 'none' });
    return;
  }
  if (!keysOn() || e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || !state.run || document.querySelector('dialog[open]')) return;
  if (e.target.closest('input, textarea, select, [contenteditable]')) return;
  if (e.key === ' ' && e.target.closest('button, summary, a')) return;
  const down = { ArrowUp: -1, ArrowDown: 1 }[e.key] ?? 0, right = { ArrowLeft: -1, ArrowRight: 1 }[e.key] ?? 0;
  if (down || right) {
    e.preventDefault();
    arrow(e, down, right);
  } else if (Object.hasOwn(KEYS, e.key)) {
    e.preventDefault();
    KEYS[e.key]();
  }
});
addEventListener('popstate', () => {
  const link = parse(location.hash);
  if (link && state.info) follow(link);
});

// ---- start

prompt.mount($('prompt'));
ribbon.mount($('ribbon'));
grid.mount($('grid'));
map.mount($('map'));
lines.mount($('lines'));
lens.mount($('lens'));
lessons.mount($('lesson'), $('lessons'));
numbers.mount($('numbers'));
trace.mount($('trace'));
inspector.mount($('inspector'));
exporting.mount($('export'));
subscribe((_state, names) => {
  drawBar(names);
  drawStage();
  drawMessage();
  speak(names);
});
narrow.addEventListener('change', () => { if (!narrow.matches && state.view === 'grid') update({ view: 'map' }); });
applyTheme();

try {
  const heads = getJson('/api/heads');
  heads.then(answer => update({ heads: answer }, { history: 'none' }), () => {}); // roles are a help, not a need
  const info = await getJson('/api/info');
  dress(info);
  update({ info }, { history: 'none' });
  await open();
  const asked = parse(location.hash)?.lesson;
  if (asked && lessons.LESSONS[asked.id]?.steps[asked.step]) update({ lesson: asked }, { history: 'none' });
} catch (error) {
  update({ error: error.message }, { history: 'none' });
}
