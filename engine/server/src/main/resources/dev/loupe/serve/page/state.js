// One selection drives every view, and lives in the address. Views read `state`, never write it:
// update() does, and all who subscribed run once in the next frame.

export const state = {
  info: null, heads: null, // what /api/info and /api/heads answered
  run: null, // as /api/runs/ID answers; while comparing, the changed one
  stats: null, // /stats of run; null while it loads
  base: null, compare: null, // while comparing: the run of the model as it is, and what /compare answered
  written: null, // {base, run}: two texts, each written by its own model, under the ribbon
  layer: 0, head: 0, query: 0, key: -1, // key -1: whatever the query reads most
  step: 0, // tokens shown; rows and keys from here on are clipped
  view: 'map', // 'map', 'lines', 'lens', 'numbers', 'trace'; on narrow screens also 'grid'
  asked: { what: 'circuit', against: '', ablation: '', mlps: false, second: null }, // of a trace; second: ids of another text
  scale: 'sqrt', // 'sqrt', 'linear', 'head'
  of: 'weights', // what the map shows: 'weights', 'values' (value-weighted), 'rollout'
  ignoreFirst: false, rowMode: false, sort: 'place', onRepeated: false, gridOpen: false,
  hover: null, // {layer, head, query, key}, some of them: under the pointer, shown and not selected
  changes: [], // heads chosen for ablation, as the API takes them; run or not yet
  rows: 0, // raised when rows arrived from the server
  palette: '', // 'light' or 'dark', as the page looks now
  typed: false, // the prompt's box holds what somebody wrote and nobody read yet
  draft: null, // {tokens, prompt_length} of a run that is being made; the other views still show `run`
  why: null, // the token whose choice the inspector explains, by row why - 1
  lesson: null, // {id, step} of the lesson that is open
  busy: null, // {what, done, of}
  error: null, // one sentence
};

const subscribers = [];
const changed = new Set();
let frame = 0, record = 'none';

/** Calls fn(state, names that changed) in the frame after an update. */
export function subscribe(fn) {
  subscribers.push(fn);
}

/** Merges changes. history: 'push' makes a step that Back returns to, 'none' leaves the address alone. */
export function update(changes, { history = 'replace' } = {}) {
  for (const [name, value] of Object.entries(changes)) {
    if (Object.is(state[name], value)) continue;
    state[name] = value;
    changed.add(name);
  }
  if (history !== 'none' && record !== 'push') record = history;
  frame ||= requestAnimationFrame(flush);
}

function flush() {
  frame = 0;
  const names = new Set(changed);
  changed.clear();
  if (record !== 'none' && state.run && state.info) write(record === 'push');
  record = 'none';
  for (const fn of subscribers) fn(state, names);
}

// ---- the address

/** Which ablations, for the address: 2.1 is zero, 2.1m is mean. */
const spell = changes => changes.map(c => `${c.layer}.${c.head}${c.mean ? 'm' : c.factor ? `*${c.factor}` : ''}`).join('_');
function parseChanges(text) {
  return (text || '').split('_').flatMap(part => {
    const [, layer, head, mean, factor] = /^(\d+)\.(\d+)(m?)(?:\*([\d.]+))?$/.exec(part) ?? [];
    if (layer === undefined) return [];
    return [{ layer: Number(layer), head: Number(head), ...(mean ? { mean: true } : { factor: Number(factor ?? 0) }) }];
  });
}

const spelled = new WeakMap();
function ids(run) {
  if (!spelled.has(run)) spelled.set(run, spellIds(run.tokens.map(t => t.id)));
  return spelled.get(run);
}
function spellIds(list) {
  let bytes = '';
  for (const id of list) bytes += String.fromCharCode(id & 255, id >> 8);
  return btoa(bytes).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}
function parseIds(text) {
  try {
    const bytes = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
    return Array.from({ length: bytes.length >> 1 }, (_, i) => bytes.charCodeAt(2 * i) | bytes.charCodeAt(2 * i + 1) << 8);
  } catch {
    return [];
  }
}

/** What tells this model from another in a link. */
export const modelKey = () => (state.info.sha256 ?? state.info.model).slice(0, 12);

/** The fragment that shows what is shown now. */
function fragment() {
  const { run } = state, T = run.tokens.length;
  const parts = [`m=${modelKey()}`, `t=${ids(run)}`];
  if (run.prompt_length !== T) parts.push(`p=${run.prompt_length}`);
  if (run.changes.length) parts.push(`x=${spell(run.changes)}`);
  if (run.n_head !== state.info.n_head) parts.push(`n=${run.n_head}`);
  if (run.mask === 'none') parts.push('mask=none');
  if (state.base) parts.push('c=1');
  parts.push(`l=${state.layer}`, `h=${state.head}`, `q=${state.query}`);
  if (state.key >= 0) parts.push(`k=${state.key}`);
  if (state.step < T) parts.push(`s=${state.step}`);
  if (state.view !== 'map') parts.push(`v=${state.view}`);
  if (state.ignoreFirst) parts.push('i=1');
  if (state.of !== 'weights') parts.push(`o=${state.of}`);
  if (state.lesson) parts.push(`y=${state.lesson.id}.${state.lesson.step}`);
  if (state.view === 'trace') parts.push(...spellAsked(state.asked));
  return `#${parts.join('&')}`;
}

/** What is asked of a trace, but for what is usual. */
function spellAsked({ what, against, ablation, mlps, second }) {
  const parts = [['w', what === 'circuit' ? '' : what], ['g', against], ['a', ablation], ['b', mlps ? '1' : ''], ['u', second ? spellIds(second) : '']];
  return parts.filter(([, value]) => value).map(([name, value]) => `${name}=${value}`);
}
function parseAsked(ask) {
  const one = (name, ...of) => of.includes(ask.get(name)) ? ask.get(name) : of[0];
  const second = ask.get('u') ? parseIds(ask.get('u')) : [];
  return { what: second.length ? one('w', 'circuit', 'layers', 'heads', 'head') : 'circuit', against: one('g', '', 'runner-up'),
    ablation: one('a', '', 'zero', 'mean'), mlps: ask.get('b') === '1', second: second.length ? second : null };
}

const parseLesson = text => {
  const [, id, step] = /^(\d)\.(\d)$/.exec(text ?? '') ?? [];
  return id === undefined ? null : { id: Number(id), step: Number(step) };
};

/** What an address asks for, or null. */
export function parse(hash) {
  const ask = new URLSearchParams(hash.slice(1));
  if (!ask.get('t')) return null;
  const number = (name, otherwise) => /^\d{1,9}$/.test(ask.get(name) ?? '') ? Number(ask.get(name)) : otherwise;
  const tokens = parseIds(ask.get('t'));
  return {
    model: ask.get('m') ?? '', ids: tokens, prompt_length: Math.min(number('p', tokens.length), tokens.length),
    changes: parseChanges(ask.get('x')), n_head: number('n', 0), mask: ask.get('mask') === 'none' ? 'none' : 'causal',
    compare: ask.get('c') === '1', lesson: parseLesson(ask.get('y')),
    selection: {
      layer: number('l', 0), head: number('h', 0), query: number('q', tokens.length - 1), key: number('k', -1),
      step: number('s', tokens.length), view: ['lines', 'lens', 'numbers', 'trace', 'grid'].includes(ask.get('v')) ? ask.get('v') : 'map',
      ignoreFirst: ask.get('i') === '1', asked: parseAsked(ask),
      of: ['values', 'rollout'].includes(ask.get('o')) ? ask.get('o') : 'weights',
    },
  };
}

let held = 0, last = 0;
function write(push) {
  const hash = fragment();
  if (hash === location.hash) return;
  clearTimeout(held);
  if (push) {
    history.pushState(null, '', hash);
    return;
  }
  // Browsers forbid more than about a hundred a half minute; a key held down writes more.
  const put = () => {
    last = Date.now();
    history.replaceState(null, '', fragment());
  };
  if (Date.now() - last > 400) put();
  else held = setTimeout(put, 400);
}
