// What to read, and how to go on: the prompt, Generate and Stop, sampling.
import { html, nothing, render } from './lit-html.js';
import { countTokens } from './api.js';
import { generate, stop } from './runs.js';
import { count } from './spelling.js';
import { state, subscribe, update } from './state.js';
import { textOf } from './words.js';

const integer = (least, most) => text => /^\d+$/.test(text) && Number(text) >= least && Number(text) <= most;
const decimal = valid => text => /^\d*\.?\d+$/.test(text) && valid(Number(text));
const FIELDS = [
  { name: 'tokens', title: 'Tokens to write', start: '40', words: 'a whole number; 0 only reads', valid: text => integer(0, state.info.n_ctx)(text) },
  { name: 'temperature', title: 'Temperature', start: '0.8', words: '0 always takes the likeliest; above 1 is wilder', valid: decimal(x => x <= 100) },
  { name: 'top_k', title: 'Top-k', start: '40', words: 'only the k likeliest tokens; 0 is all', valid: integer(0, 1e6) },
  { name: 'top_p', title: 'Top-p', start: '0.95', words: 'only the likeliest up to this probability; above 0, up to 1', valid: decimal(x => x > 0 && x <= 1) },
  { name: 'min_p', title: 'Min-p', start: '0', words: 'only tokens this much as likely as the first; 0 to 1', valid: decimal(x => x <= 1) },
  { name: 'repetition_penalty', title: 'Repetition penalty', start: '1', words: 'above 1 discourages tokens seen before', valid: decimal(x => x > 0) },
  { name: 'seed', title: 'Seed', start: '', words: 'the same seed gives the same text; empty: a new one', valid: text => text === '' || integer(0, Number.MAX_SAFE_INTEGER)(text) },
];

let element, wrong = [], since = 0, late = false;
let counted = { text: null, tokens: 0 }, counting = 0; // tokens of what is in the box

export function mount(where) {
  element = where;
  subscribe(draw);
}

const idsOf = text => text.trim().split(/[\s,]+/).map(part => /^\d+$/.test(part) ? Number(part) : NaN);

const field = name => element.querySelector(`[name="${name}"]`);

/** Checks the fields, then sends them; `only` reads the text and writes nothing. */
export function go(only = false) {
  if (state.busy) return;
  wrong = FIELDS.filter(f => !f.valid(field(f.name).value.trim()));
  if (wrong.length) {
    element.querySelector('details').open = true;
    update({ error: `${wrong[0].title}: ${wrong[0].words}.` }, { history: 'none' });
    drawAll();
    field(wrong[0].name).focus();
    return;
  }
  const text = element.querySelector('textarea').value;
  if ((state.info.text ? text : text.trim()) === '' && state.info.bos === null) {
    update({ error: 'Write something first: this model has no beginning-of-text token to start from.' }, { history: 'none' });
    element.querySelector('textarea').focus();
    return;
  }
  const body = state.info.text ? { text } : text.trim() === '' ? { ids: [state.info.bos] } : { ids: idsOf(text) };
  if (body.ids?.some(Number.isNaN)) {
    update({ error: 'This model takes token ids alone: give them as 17, 4, 256.' }, { history: 'none' });
    element.querySelector('textarea').focus();
    return;
  }
  for (const { name } of FIELDS) {
    const value = field(name).value.trim();
    if (value !== '') body[name] = Number(value);
  }
  if (only) body.tokens = 0;
  update({ typed: false });
  generate(body);
}

function draw(_state, names) {
  if (names.has('busy')) {
    // Only what takes a while is worth a word: a flash of one is not.
    if (state.busy && !since) {
      since = setTimeout(() => {
        late = true;
        drawAll();
      }, 300);
    } else if (!state.busy) {
      clearTimeout(since);
      since = 0;
      late = false;
    }
  }
  if (['info', 'busy', 'run', 'error'].some(n => names.has(n))) drawAll();
  if (names.has('run') && state.run && !state.typed) {
    const prompt = state.run.tokens.slice(0, state.run.prompt_length).filter(t => !t.special);
    if (!state.info.text) {
      element.querySelector('textarea').value = prompt.map(t => t.id).join(', ');
      drawAll();
      return;
    }
    try {
      element.querySelector('textarea').value = textOf(prompt, true);
      drawAll();
    } catch { // tokens that are no text
      element.querySelector('textarea').value = '';
      drawAll();
    }
  }
}

/** Counts the tokens of what is in the box, once nobody has typed for a moment. */
function countSoon() {
  clearTimeout(counting);
  counting = setTimeout(async () => {
    const text = element.querySelector('textarea').value;
    if (text === counted.text) return;
    try {
      counted = { text, tokens: state.info.text ? await countTokens(text) : text.trim() === '' ? 0 : idsOf(text).length };
      drawAll();
    } catch { /* the count is a help, not a need */ }
  }, 250);
}

/** The count beside the buttons: of what was typed, and whether it fits. */
function countWords() {
  const text = element.querySelector('textarea')?.value ?? '';
  if (text === '' || counted.text !== text) return nothing;
  const over = counted.tokens - state.info.n_ctx;
  return html`<span class=${over > 0 ? 'over' : 'muted'}>${count(counted.tokens)} of ${count(state.info.n_ctx)} tokens${over > 0 ? `: remove ${count(over)}` : ''}</span>`;
}

function drawAll() {
  if (!state.info) return;
  const empty = (element.querySelector('textarea')?.value ?? '') === '';
  render(html`
    <div class="row">
      <textarea aria-label="Prompt" spellcheck="false" placeholder=${!state.info.text ? 'Token ids to go on with: 17, 4, 256' : state.info.bos === null ? 'A text to go on with' : 'Starts from <|endoftext|>.'}
        @input=${() => { update({ typed: true }, { history: 'none' }); drawAll(); countSoon(); }} @keydown=${key}></textarea>
      <div class="go">${state.busy
        ? html`<button type="button" @click=${stop}>Stop</button>`
        : html`<button type="button" class="main" title="Reads the text and continues it" @click=${() => go()}>Generate</button>
        <button type="button" title="Reads the text and writes nothing" @click=${() => go(true)}>Read only</button>`}</div>
    </div>
    <div class="under">
      <details>
        <summary>Sampling</summary>
        <div class="fields">${FIELDS.map(f => html`<label>${f.title}
          <input name=${f.name} value=${f.start} inputmode=${f.name === 'tokens' || f.name === 'top_k' || f.name === 'seed' ? 'numeric' : 'decimal'} autocomplete="off"
            aria-describedby="about-${f.name}" aria-invalid=${wrong.includes(f)} @input=${() => checkAgain(f)} @keydown=${key}>
          <small id="about-${f.name}">${f.words}</small></label>`)}</div>
      </details>
      ${countWords()}
      <span class="muted">${late && state.busy ? state.busy.what : empty && state.info.bos !== null ? 'Starts from <|endoftext|>.' : nothing}</span>
      ${late && state.busy?.of ? html`<progress max=${state.busy.of} .value=${state.busy.done} aria-label="Progress"></progress>` : nothing}
    </div>`, element);
}

function checkAgain(f) {
  if (!wrong.includes(f) || !f.valid(field(f.name).value.trim())) return;
  wrong = wrong.filter(w => w !== f);
  update({ error: null }, { history: 'none' });
  drawAll();
}

function key(e) {
  if (e.key === 'Enter' && (e.ctrlKey || e.metaKey || e.target.tagName === 'INPUT')) {
    e.preventDefault();
    go();
  } else if (e.key === 'Escape') {
    e.target.blur();
  }
}
