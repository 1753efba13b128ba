// What makes runs and shows them: writing, reading, comparing, opening a link.
import { bodyOf, getJson, getBinary, remember, startRun } from './api.js';
import { count, plural } from './spelling.js';
import { modelKey, parse, state, update } from './state.js';

const known = new Map(); // what makes a run -> the run, so that Back asks nothing
const keyOf = body => JSON.stringify([body.ids, body.prompt_length, body.changes ?? [], body.n_head ?? 0, body.mask ?? 'causal']);

let current = null; // the run being made: {controller, done}

/** Ends what is being made. Text written so far is kept. */
export function stop() {
  current?.controller.abort();
}

/** Does one thing at a time; what goes wrong becomes the page's one sentence. */
async function alone(task) {
  const before = current;
  before?.controller.abort();
  const controller = new AbortController();
  const mine = current = { controller };
  mine.done = (async () => {
    await before?.done;
    if (current !== mine) return;
    update({ error: null, draft: null }, { history: 'none' });
    try {
      await task(controller.signal);
    } catch (error) {
      if (error.name !== 'AbortError') update({ error: tooLong(error) ?? error.message }, { history: 'none' });
    }
    if (current === mine) {
      current = null;
      update({ busy: null, draft: null }, { history: 'none' });
    }
  })();
  return mine.done;
}

/** What to do about a text that does not fit, or null where that is not what is wrong. */
function tooLong(error) {
  if (error.code !== 'context_length_exceeded') return null;
  const [ids, tokens] = (error.message.match(/\d+/g) ?? []).map(Number), room = state.info.n_ctx;
  return ids > room ? `${count(ids)} tokens; this model reads ${count(room)}. Remove ${count(ids - room)}.`
    : `${count(ids)} tokens and ${count(tokens)} to write; this model reads ${count(room)}. Write at most ${count(room - ids)}, or remove ${count(ids + tokens - room)}.`;
}

const fetchRun = async id => {
  const run = await getJson(`/api/runs/${id}`);
  remember(run);
  known.set(keyOf(bodyOf(run)), run);
  if (known.size > 32) known.delete(known.keys().next().value);
  return run;
};

/** Reads a body's ids; the run is there afterwards. */
async function read(body, signal) {
  const here = known.get(keyOf(body));
  if (here) return here;
  const { id } = await startRun(body, progress(body.ids.length), signal);
  return fetchRun(id);
}

const progress = tokens => event => {
  if (event.event === 'reading') {
    update({ busy: { what: `Reading ${plural(tokens, 'token')}…`, done: event.done, of: event.layers } }, { history: 'none' });
  }
};

// ---- showing

const clamp = (value, most) => Math.max(0, Math.min(value, most));

/** Makes a run the one that all views show. */
export function show(run, selection = {}, { history = 'push', base = null, compare = null } = {}) {
  const T = run.tokens.length;
  const step = clamp(selection.step ?? T, T) || T;
  const query = clamp(selection.query ?? T - 1, step - 1);
  const last = run.mask === 'none' ? T - 1 : query;
  update({
    run, base, compare, stats: null, draft: null, why: null, hover: null, step, query,
    layer: clamp(selection.layer ?? state.layer, state.info.n_layer - 1), head: clamp(selection.head ?? state.head, run.n_head - 1),
    key: (selection.key ?? -1) > last ? -1 : selection.key ?? -1,
    changes: run.changes, written: base === null ? null : state.written,
    ...('view' in selection ? { view: selection.view } : {}),
    ...('ignoreFirst' in selection ? { ignoreFirst: selection.ignoreFirst } : {}),
    ...('asked' in selection ? { asked: selection.asked } : {}),
    ...('of' in selection ? { of: selection.of } : {}),
  }, { history });
  askStatistics(run);
}

/** Statistics of a run; the views do without until they come. */
export function askStatistics(run) {
  if (run.mask !== 'causal') return;
  getJson(`/api/runs/${run.id}/stats`).then(stats => {
    if (state.run === run) update({ stats }, { history: 'none' });
  }, () => {});
}

/** The head that looks hardest at one token before the last, neither the first nor the token itself. */
async function strongestHead(run) {
  const q = run.tokens.length - 1;
  if (q < 2) return {};
  const rows = new Float32Array(await getBinary(`/api/runs/${run.id}/rows?q=${q}`));
  let best = -1, at = 0;
  for (let i = 0; i < rows.length; i++) {
    const key = i % (q + 1);
    if (key > 0 && key < q && rows[i] > best) {
      best = rows[i];
      at = Math.floor(i / (q + 1));
    }
  }
  return { layer: Math.floor(at / run.n_head), head: at % run.n_head };
}

/** First load: what the address asks for, else the server's example. */
export async function open() {
  const link = parse(location.hash);
  if (link) {
    if (link.model === modelKey()) {
      await follow(link, 'replace');
      if (state.run) return;
    } else {
      update({ error: `This link is of another model (${link.model}…); here is ${state.info.model}.` }, { history: 'none' });
    }
  }
  if (!state.info.example) return;
  try {
    const run = await fetchRun(state.info.example);
    show(run, await strongestHead(run), { history: 'replace' });
  } catch (error) {
    update({ error: error.message }, { history: 'none' });
  }
}

/** Goes where a link says: another selection, or another run. */
export async function follow(link, history = 'none') {
  const { n_layer, n_head, vocab_size, n_ctx } = state.info;
  const heads = link.n_head || n_head;
  const wrong = link.ids.length === 0 || link.ids.length > n_ctx || link.ids.some(id => id >= vocab_size)
    || link.changes.some(c => c.layer >= n_layer || c.head >= heads);
  if (wrong) {
    update({ error: 'This link is damaged: it does not fit this model.' }, { history: 'none' });
    return;
  }
  const plain = { tokens: link.ids.map(id => ({ id })), prompt_length: link.prompt_length, changes: [], n_head, mask: 'causal' };
  const body = bodyOf(plain, { changes: link.changes, n_head: heads, mask: link.mask });
  const compares = link.compare && keyOf(body) !== keyOf(bodyOf(plain));
  const isHere = state.run && keyOf(bodyOf(state.run)) === keyOf(body) && compares === (state.base !== null);
  if (isHere) {
    const { step, query, key, layer, head, view, ignoreFirst, asked, of } = link.selection;
    const shown = clamp(step, link.ids.length) || link.ids.length;
    update({ step: shown, query: clamp(query, shown - 1), key: key > query && link.mask === 'causal' ? -1 : key,
      layer: clamp(layer, n_layer - 1), head: clamp(head, heads - 1), view, ignoreFirst, asked, of, why: null, hover: null }, { history });
    return;
  }
  await alone(async signal => {
    const run = await read(body, signal);
    if (!compares) return show(run, link.selection, { history });
    const base = await read(bodyOf(plain), signal);
    const compare = await getJson(`/api/runs/${run.id}/compare?with=${base.id}`, signal);
    show(run, link.selection, { history, base, compare });
  });
}

// ---- writing

/** Reads a text and writes on, token by token. */
export const generate = body => alone(async signal => {
  const draft = { tokens: [], prompt_length: 0 };
  update({ busy: { what: 'Reading…', done: 0, of: 0 } }, { history: 'none' });
  const onEvent = event => {
    if (event.event === 'prompt') {
      draft.tokens = event.tokens;
      draft.prompt_length = event.tokens.length;
    } else if (event.event === 'token') {
      draft.tokens.push({ ...event, generated: true });
      update({ busy: { what: `Writing, ${draft.tokens.length - draft.prompt_length} of ${body.tokens}`,
        done: draft.tokens.length - draft.prompt_length, of: body.tokens } }, { history: 'none' });
    }
    progress(draft.prompt_length)(event);
    update({ draft: { ...draft } }, { history: 'none' });
  };
  let id;
  try {
    ({ id } = await startRun(body, onEvent, signal));
  } catch (error) {
    // What was written is kept, whether it was stopped or the server went away.
    if (draft.tokens.length === draft.prompt_length) throw error;
    const kept = bodyOf({ tokens: draft.tokens, prompt_length: draft.prompt_length, changes: [], n_head: 0, mask: 'causal' });
    show(await read(kept, null));
    if (error.name !== 'AbortError') throw error;
    return;
  }
  show(await fetchRun(id));
});

/** Shows a text of ids, as the model is. */
export const readIds = (ids, selection = {}) => alone(async signal => {
  const body = bodyOf({ tokens: ids.map(id => ({ id })), prompt_length: ids.length, changes: [], n_head: 0, mask: 'causal' });
  update({ busy: { what: `Reading ${plural(ids.length, 'token')}…`, done: 0, of: 0 } }, { history: 'none' });
  show(await read(body, signal), selection);
});

/** A text beside the one that is shown, read and not shown. */
export const readIdsBeside = (ids, signal) => read(bodyOf({
  tokens: ids.map(id => ({ id })), prompt_length: ids.length, changes: [], n_head: 0, mask: 'causal' }), signal);
export const readTextBeside = async text => fetchRun((await startRun({ text, tokens: 0 }, () => {})).id);

const texts = new Map(); // a text that was read -> its run

/** Shows a text, read once; selection: a function that says what to select in it. */
export const readText = (text, selection) => alone(async signal => {
  if (!texts.has(text)) {
    update({ busy: { what: 'Reading…', done: 0, of: 0 } }, { history: 'none' });
    texts.set(text, await fetchRun((await startRun({ text, tokens: 0 }, () => {}, signal)).id));
  }
  const run = texts.get(text);
  if (state.run !== run) show(run, {}, { history: 'none' });
  show(run, selection());
});

// ---- comparing

/** The same text again, with something changed: {changes}, {mask} or {n_head}, beside the model as it is. */
export const compareWith = (change, selection = {}) => alone(async signal => {
  const base = state.base ?? state.run;
  const plain = base.changes.length || base.mask !== 'causal' || base.n_head !== state.info.n_head;
  const { layer, head, query, key, step } = state;
  update({ busy: { what: `Reading ${plural(base.tokens.length, 'token')}…`, done: 0, of: 0 } }, { history: 'none' });
  const from = plain ? await read(bodyOf(base, { changes: [], n_head: 0, mask: 'causal' }), signal) : base;
  const run = await read(bodyOf(from, change), signal);
  const compare = await getJson(`/api/runs/${run.id}/compare?with=${from.id}`, signal);
  const most = mostChanged(compare) ?? { layer, head };
  show(run, { ...most, query, key: change.n_head || compare.variation ? -1 : key, step, ...selection }, { base: from, compare });
});

/** The head whose map changed most; the changed head's own is as it was. */
function mostChanged({ variation }) {
  let best = null, most = 0;
  variation?.forEach((heads, layer) => heads.forEach((v, head) => {
    if (v > most) [most, best] = [v, { layer, head }];
  }));
  return best;
}

/** Back to the model as it is, same text and place. */
export function leaveComparison() {
  if (!state.base) return;
  const { layer, head, query, key, step } = state;
  show(state.base, { layer, head, query, key, step });
}

/** Both models write on from the prompt, each its likeliest tokens, so that only the change tells them apart. */
export const letWrite = changes => alone(async signal => {
  const { run } = state;
  const prompt = run.tokens.slice(0, run.prompt_length).map(t => t.id);
  const room = state.info.n_ctx - prompt.length;
  const tokens = Math.min(room, Math.max(30, run.tokens.length - run.prompt_length));
  if (tokens < 1) throw new Error('The prompt fills the context: there is no room to write.');
  const write = async (what, change) => {
    let written = 0;
    const { id } = await startRun({ ids: prompt, prompt_length: prompt.length, tokens, temperature: 0, ...change }, event => {
      if (event.event === 'token') update({ busy: { what, done: ++written, of: tokens } }, { history: 'none' });
    }, signal);
    return fetchRun(id);
  };
  const base = await write('Writing as it is', {});
  const changed = await write('Writing with the change', { changes });
  update({ written: { base, run: changed } }, { history: 'none' });
});
