// The server's endpoints. A run that the server dropped is made again by its ids and asked for once
// more; where the server is busy the page waits, and says so.
import { state, update } from './state.js';

class ApiError extends Error {
  constructor(message, status = 0, code = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Set by main.js: what needs a person, or is worth telling one. */
export const hooks = {
  askKey: async () => null, // the API key, or null
  waiting: _seconds => {}, // null: no longer
};

export const STOPPED = 'Loupe has stopped. Start `loupe serve`; your text is kept.';
const made = new Map(); // run id -> the body that makes it again

/** Keeps how to make a run again, should the server drop it. */
export function remember(run) {
  made.set(run.id, bodyOf(run));
}

/** What to post for this very run, or for one that differs from it in some fields. */
export function bodyOf(run, change = {}) {
  const { changes, n_head, mask } = { changes: run.changes, n_head: run.n_head, mask: run.mask, ...change };
  const body = { ids: run.tokens.map(t => t.id), prompt_length: run.prompt_length, tokens: 0, ...change };
  delete body.changes;
  delete body.n_head;
  delete body.mask;
  if (changes.length) body.changes = changes;
  if (n_head && n_head !== state.info.n_head) body.n_head = n_head;
  if (mask === 'none') body.mask = mask;
  return body;
}

const sleep = (ms, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener('abort', () => {
    clearTimeout(timer);
    reject(signal.reason);
  }, { once: true });
});

async function once(path, options) {
  const key = sessionStorage.getItem('key');
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  try {
    return await fetch(path, { ...options, headers });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(STOPPED, 0, 'stopped');
  }
}

async function failure(response) {
  try {
    const { error } = await response.json();
    return new ApiError(error.message, response.status, error.code);
  } catch {
    return new ApiError(`The server answered ${response.status}.`, response.status);
  }
}

async function request(path, options = {}, again = true) {
  for (;;) {
    const response = await once(path, options);
    if (state.error === STOPPED) update({ error: null }, { history: 'none' });
    if (response.ok) return response;
    const error = await failure(response);
    if (response.status === 429) {
      for (let left = Number(response.headers.get('Retry-After')) || 3; left > 0; left--) {
        hooks.waiting(left);
        try {
          await sleep(1000, options.signal);
        } finally {
          hooks.waiting(null);
        }
      }
    } else if (response.status === 401 && error.code === 'invalid_api_key') {
      const key = await hooks.askKey();
      if (!key) throw error;
      sessionStorage.setItem('key', key);
    } else if (response.status === 410 && again) {
      await Promise.all([...made.keys()].filter(id => path.includes(id)).map(remake));
      return request(path, options, false);
    } else {
      throw error;
    }
  }
}

const remaking = new Map();
function remake(id) {
  if (!remaking.has(id)) {
    remaking.set(id, startRun(made.get(id), () => {}).finally(() => remaking.delete(id)));
  }
  return remaking.get(id);
}

export async function getJson(path, signal) {
  return (await request(path, { signal })).json();
}

export async function getBinary(path, signal) {
  return (await request(path, { signal })).arrayBuffer();
}

export async function getBlob(path, signal) {
  return (await request(path, { signal })).blob();
}

/** How many tokens a text is. */
export async function countTokens(text) {
  const answer = await request('/tokenize', {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ prompt: text }) });
  return (await answer.json()).count;
}

/** Posts a run and hands its events on; answers the last one, {event: 'done', id, finish}. */
export async function startRun(body, onEvent, signal) {
  return events(await request('/api/runs', {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body), signal }), onEvent, signal);
}

/** Asks for what is answered by events and hands them on; answers the last one, {event: 'done', ...}. */
export async function getEvents(path, onEvent, signal) {
  return events(await request(path, { signal }), onEvent, signal);
}

async function events(response, onEvent, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      text += value;
      const events = text.split('\n\n');
      text = events.pop();
      for (const event of events) {
        if (!event.startsWith('data:')) continue;
        const data = JSON.parse(event.slice(5));
        if (data.error) throw new ApiError(data.error.message, 500, data.error.code);
        if (data.event === 'done') return data;
        onEvent(data);
      }
    }
  } catch (error) {
    if (error instanceof ApiError || signal?.aborted) throw error;
  }
  throw new ApiError(STOPPED, 0, 'stopped');
}
