// Numbers from the server: tiles of a map, thumbnails, rows. Each is known by its path, which never
// means anything else. What nobody wants any more is not fetched, and dropped where it is under way.
import { getBinary, STOPPED } from './api.js';
import { state, update } from './state.js';

/** Cells along a side of a tile. */
export const SIDE = 256;
const MOST_BYTES = 64 << 20, AT_ONCE = 4, ROWS_AT_ONCE = 8, FORGET = 3000;

const cache = new Map(); // path -> numbers, longest unused first
let held = 0;
const failures = new Map(); // path -> why
const wanted = new Map(); // owner -> paths, most wanted first; who asked last comes last
const underWay = new Map(); // path -> AbortController
const listeners = [];

/** Calls fn(path) when something has come, or failed to. */
export function onArrival(fn) {
  listeners.push(fn);
}

/** The numbers of a path, or null. */
export function cached(path) {
  const numbers = cache.get(path);
  if (!numbers) return null;
  cache.delete(path);
  cache.set(path, numbers);
  return numbers;
}

/** Whether the numbers of a path have come. */
export const here = path => cache.has(path);

/** Why a path did not come, or null. */
export const failed = path => failures.get(path) ?? null;

/** Fetches paths, the first first, instead of what the same owner wanted before. */
export function want(owner, paths) {
  wanted.delete(owner);
  wanted.set(owner, paths.filter(path => !cache.has(path) && !failures.has(path)));
  const all = new Set([...wanted.values()].flat());
  for (const [path, abort] of underWay) {
    if (!all.has(path)) {
      underWay.delete(path);
      abort.abort();
    }
  }
  start();
}

/** Fetches paths and answers when all are here; fails as the first that fails does. */
export function fetchAll(owner, paths) {
  return new Promise((resolve, reject) => {
    const look = () => {
      const wrong = paths.find(failed), done = paths.every(here);
      if (!wrong && !done) return;
      listeners.splice(listeners.indexOf(look), 1);
      want(owner, []);
      if (wrong) reject(new Error(failed(wrong)));
      else resolve();
    };
    listeners.push(look);
    want(owner, paths);
    look();
  });
}

/** Tries again what failed, and what its views have given up since. */
export function retry() {
  const paths = [...failures.keys()];
  failures.clear();
  for (const path of paths) arrived(path);
  update({ rows: state.rows + 1 }, { history: 'none' });
}

function start() {
  for (const paths of [...wanted.values()].reverse()) {
    for (const path of paths) {
      if (underWay.size >= AT_ONCE) return;
      if (!underWay.has(path) && !cache.has(path) && !failures.has(path)) load(path);
    }
  }
}

async function load(path) {
  const abort = new AbortController();
  underWay.set(path, abort);
  try {
    const buffer = await getBinary(path, abort.signal);
    if (abort.signal.aborted) return;
    keep(path, path.includes('/rows?') ? new Float32Array(buffer) : new Uint8Array(buffer));
  } catch (error) {
    if (abort.signal.aborted) return;
    failures.set(path, error.message);
  }
  underWay.delete(path);
  arrived(path);
  start();
}

function keep(path, numbers) {
  cache.set(path, numbers);
  held += numbers.byteLength;
  for (const [oldest, old] of cache) {
    if (held <= MOST_BYTES) break;
    held -= old.byteLength;
    cache.delete(oldest);
  }
}

function arrived(path) {
  for (const fn of [...listeners]) fn(path);
}

/** The run that the shown one is compared with, where their maps may be subtracted. */
export const beside = () => state.base && state.base.n_head === state.run.n_head && state.base.mask === state.run.mask ? state.base : null;

// ---- rows

/** Which maps a run can show: rollout needs the causal mask, value-weighted maps the model's own heads. */
export const kindsOf = run => ['weights', ...(run.n_head === state.info.n_head ? ['values'] : []), ...(run.mask === 'none' ? [] : ['rollout'])];
/** What the map shows of the run: weights where it can't show what was chosen. */
export const mapKind = () => kindsOf(state.run).includes(state.of) ? state.of : 'weights';
/** The end of a path that asks for maps of a kind. */
export const ofKind = kind => kind === 'weights' ? '' : `&of=${kind}`;

/** The path of one query's rows, of all heads of a layer: f32 [heads][keys], of rollout [keys]. */
export const rowsPath = (run, layer, query, kind = 'weights') => `/api/runs/${run.id}/rows?q=${query}&l=${layer}${ofKind(kind)}`;

let rowsAsked = []; // newest first
/** What a query reads in a head, by key; null until it came, and then state.rows is raised. */
export function rowOf(layer, head, query, run = state.run, kind = 'weights') {
  if (!run || head >= run.n_head || layer >= state.info.n_layer || query < 0 || query >= run.tokens.length) return null;
  const path = rowsPath(run, layer, query, kind), rows = cached(path);
  if (!rows) {
    if (rowsAsked[0] !== path) {
      rowsAsked = [path, ...rowsAsked.filter(p => p !== path)].slice(0, ROWS_AT_ONCE);
      want('rows', rowsAsked);
    }
    return null;
  }
  const keys = run.mask === 'none' ? run.tokens.length : query + 1;
  return kind === 'rollout' ? rows : rows.subarray(head * keys, (head + 1) * keys);
}

onArrival(path => {
  if (!path.includes('/rows?')) return;
  rowsAsked = rowsAsked.filter(p => p !== path);
  const why = failed(path);
  // Whoever asks later tries again; once the server is back, the views ask by themselves.
  if (why) setTimeout(() => {
    failures.delete(path);
    rowsAsked = rowsAsked.filter(p => p !== path); // or it would count as asked for
    if (why === STOPPED) update({ rows: state.rows + 1 }, { history: 'none' });
  }, FORGET);
  update(failed(path) ? { error: failed(path) } : { rows: state.rows + 1 }, { history: 'none' });
});
