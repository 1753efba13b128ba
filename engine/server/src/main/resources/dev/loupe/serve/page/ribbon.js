// The tokens: what the model read and wrote, how surprised it was, and which one is selected.
import { html, nothing, render } from './lit-html.js';
import { css } from './colour.js';
import { element } from './dom.js';
import { show } from './runs.js';
import { shown } from './selection.js';
import { count, headName, label, minus, plural, short, signed } from './spelling.js';
import { state, subscribe, update } from './state.js';
import { rowOf } from './tiles.js';
import { bytesOf, mark, name, textOf } from './words.js';

let ribbon, tokens, card, foot, texts;
let buttons = [], built = null; // the list of tokens that the buttons are of
let pointed = -1; // the token whose card is open

export function mount(where) {
  ribbon = where;
  tokens = document.createElement('div');
  tokens.id = 'tokens';
  tokens.setAttribute('role', 'group');
  tokens.setAttribute('aria-label', 'Tokens: arrow keys walk them');
  card = document.createElement('div');
  card.id = 'card';
  card.hidden = true;
  foot = document.createElement('div');
  foot.id = 'ribbon-foot';
  texts = document.createElement('div');
  where.append(tokens, card, foot, texts);
  tokens.addEventListener('click', e => {
    const i = at(e);
    if (i >= 0 && !state.draft) select(i);
  });
  tokens.addEventListener('pointerover', e => {
    if (e.pointerType !== 'mouse') return;
    const i = at(e);
    if (i === pointed) return;
    pointed = i;
    if (state.draft) drawCard();
    else update({ hover: i < 0 ? null : { query: i } }, { history: 'none' });
  });
  tokens.addEventListener('pointerleave', hideCard);
  tokens.addEventListener('focusin', e => {
    if (!e.target.matches(':focus-visible')) return;
    pointed = at(e);
    drawCard();
  });
  tokens.addEventListener('focusout', hideCard);
  tokens.addEventListener('scroll', () => drawCard());
  tokens.addEventListener('keydown', move);
  subscribe(draw);
}

const at = e => Number(e.target.closest?.('.token')?.dataset.i ?? -1);

export function hideCard() {
  const had = state.hover;
  pointed = -1;
  card.hidden = true;
  if (had) update({ hover: null }, { history: 'none' });
}

function select(i) {
  update({ query: i, key: -1, hover: null, why: null }, { history: 'push' });
}

/** Arrow keys walk the tokens also where the page's own keys are switched off. */
function move(e) {
  if (e.shiftKey || e.ctrlKey || e.metaKey || e.altKey || state.draft || !state.run) return;
  const to = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity }[e.key];
  if (to === undefined) return;
  e.preventDefault();
  e.stopPropagation();
  const query = Math.max(0, Math.min(state.query + to, state.step - 1));
  update({ query, key: -1, hover: null, why: null });
  buttons[query].focus({ preventScroll: true });
  pointed = query;
}

// ---- building

const continues = byte => (byte & 0xc0) === 0x80;

/** Runs of tokens that are parts of one character: [first, end, text]. */
function characters(list) {
  const groups = [];
  for (let i = 1; i < list.length; i++) {
    const bytes = bytesOf(list[i]);
    if (!bytes?.length || !continues(bytes[0])) continue;
    const last = groups.at(-1);
    if (last?.[1] === i) last[1] = i + 1;
    else groups.push([i - 1, i + 1]);
  }
  return groups.flatMap(([first, end]) => {
    const text = textOf(list.slice(first, end)).replace(/^ +/, '');
    return text.includes('�') ? [] : [[first, end, text]];
  });
}

function tokenButton(token, i, generated) {
  const button = element('button', 'token');
  button.type = 'button';
  button.dataset.i = i;
  button.tabIndex = -1;
  button.append(element('span', '', label(token)), element('i'));
  if (token.special) button.classList.add('special');
  const facts = token.logprob == null ? '' : `, p ${short(Math.exp(token.logprob))}`;
  button.setAttribute('aria-label', `${label(token)} ${i}${facts}${generated ? ', generated' : ''}`);
  if (token.logprob != null) {
    button.surprise = -token.logprob / 7;
    button.style.setProperty('--p', (100 * Math.exp(token.logprob)).toFixed(1));
  }
  return button;
}

function build(list, promptLength) {
  const same = built && list.length >= built.list.length && promptLength === built.promptLength && built.base === state.base
    && state.draft && built.draft && list[0] === built.list[0] && !bytesOf(list.at(-1))?.subarray(0, 1).some(continues);
  const from = same ? built.list.length : 0;
  const groups = new Map(same ? [] : characters(list).map(group => [group[0], group]));
  if (!same) {
    tokens.replaceChildren();
    buttons = [];
  }
  let into = tokens, end = -1, text = '';
  for (let i = from; i < list.length; i++) {
    if (i > 0 && i === promptLength) {
      const rule = element('span', 'rule');
      rule.setAttribute('role', 'separator');
      rule.setAttribute('aria-label', 'generated from here');
      into.append(rule);
    }
    if (groups.has(i)) {
      [, end, text] = groups.get(i);
      const character = element('span', 'character');
      into = element('span');
      character.append(into);
      tokens.append(character);
    }
    const button = tokenButton(list[i], i, i >= promptLength);
    buttons.push(button);
    if (state.base && !state.draft) {
      const pair = element('span', 'pair');
      pair.append(button, element('span', 'delta'), element('span', 'kl'));
      into.append(pair);
    } else {
      into.append(button);
    }
    if (i === end - 1) {
      const whole = element('b', '', text);
      whole.setAttribute('aria-hidden', 'true');
      into.parentElement.append(whole);
      into = tokens;
    }
    if (into === tokens && list[i].label?.includes('\\n')) tokens.append(element('span', 'break'));
  }
  built = { list: [...list], promptLength, base: state.base, draft: state.draft !== null };
  if (same) tokens.scrollTop = tokens.scrollHeight;
}

// ---- drawing

function draw(_state, names) {
  const { draft, run } = state;
  document.body.classList.toggle('drafting', draft !== null);
  if (!tints || ['palette', 'rowMode', 'draft'].some(n => names.has(n))) chooseTints();
  if (draft) {
    if (names.has('draft')) {
      build(draft.tokens, draft.prompt_length);
      for (const b of buttons) tint(b, b.surprise);
    }
  } else if (run) {
    const anew = names.has('run') || names.has('base') || names.has('draft') || !built;
    if (anew) {
      build(run.tokens, run.prompt_length);
      drawDeltas();
    }
    drawMarks(names, anew);
  }
  drawCard();
  if (['info', 'run', 'base', 'draft', 'step', 'rowMode'].some(n => names.has(n))) drawFoot();
  if (names.has('written')) drawTexts();
}

// Only what changed is touched: a thousand tokens follow the pointer.
let marked = {};
function drawMarks(names, built) {
  const { layer, head, query, key, row } = shown();
  if (built || names.has('step')) buttons.forEach((b, i) => b.classList.toggle('later', i >= state.step));
  const now = { query, chosen: query + 1, key: key === query ? -1 : key };
  for (const [mark, i] of Object.entries(now)) {
    if (!built && marked[mark] === i) continue;
    if (!built) buttons[marked[mark]]?.classList.remove(mark);
    buttons[i]?.classList.add(mark);
  }
  if (built || marked.selected !== state.query) {
    const old = built ? null : buttons[marked.selected], chosen = buttons[state.query];
    if (old) old.tabIndex = -1;
    old?.removeAttribute('aria-current');
    if (chosen) chosen.tabIndex = 0;
    chosen?.setAttribute('aria-current', 'true');
  }
  marked = { ...now, selected: state.query };
  if (!state.rowMode) buttons.forEach(b => tint(b, b.surprise));
  else buttons.forEach((b, i) => tint(b, row && i < row.length ? Math.sqrt(row[i]) : 0));
  if (built || ['rowMode', 'query', 'layer', 'head'].some(n => names.has(n))) {
    tokens.setAttribute('aria-description', state.rowMode ? `Colour: what ${name(query)} reads in head ${headName(layer, head)}` : 'Colour: surprise');
  }
  if (names.has('query') || names.has('run') || names.has('step')) reveal(buttons[state.query]);
}

const LEVELS = 32;
let tints = null; // colours of the levels, as the page looks now
function tint(button, part) {
  const level = Math.round(LEVELS * Math.max(0, Math.min(1, part || 0)));
  if (button.level === level && button.tints === tints) return;
  button.level = level;
  button.tints = tints;
  button.style.backgroundColor = tints[level];
}
function chooseTints() {
  const rgb = name => {
    const n = parseInt(css(name).slice(1), 16);
    return [n >> 16, n >> 8 & 255, n & 255];
  };
  const from = rgb('--raised'), to = rgb(state.rowMode && !state.draft ? '--weight' : '--surprise');
  tints = Array.from({ length: LEVELS + 1 }, (_, i) => `rgb(${from.map((c, k) => Math.round(c + i / LEVELS * (to[k] - c))).join(' ')})`);
}

/** Scrolls the ribbon alone, never the page. */
function reveal(button) {
  if (!button || state.hover) return;
  let whole = button; // with what hangs below it
  while (whole.parentElement !== tokens) whole = whole.parentElement;
  const box = tokens.getBoundingClientRect(), place = whole.getBoundingClientRect();
  if (place.top < box.top + 6) tokens.scrollTop -= box.top + 6 - place.top;
  else if (place.bottom > box.bottom - 6) tokens.scrollTop += place.bottom - box.bottom + 6;
}

/** While comparing: by how much each token became more or less likely, and how far the next-token guesses moved. */
function drawDeltas() {
  if (!state.base) return;
  const largest = Math.max(0.01, ...state.compare?.divergences ?? []);
  buttons.forEach((button, i) => {
    const [, delta, kl] = button.parentElement.children;
    const change = deltaOf(i);
    delta.textContent = change === null ? '' : `${change > 0.005 ? '▲' : change < -0.005 ? '▼' : ''}${signed(change)}`;
    delta.className = `delta ${change > 0.005 ? 'more' : change < -0.005 ? 'less' : ''}`;
    kl.style.setProperty('--kl', (100 * (state.compare?.divergences[i] ?? 0) / largest).toFixed(1));
  });
}
export const deltaOf = i => {
  const now = state.run.tokens[i].logprob, before = state.base.tokens[i].logprob;
  return now == null || before == null ? null : now - before;
};

function drawCard() {
  const list = state.draft?.tokens ?? state.run?.tokens;
  const button = buttons[pointed], token = list?.[pointed];
  card.hidden = !button || !token || (pointed >= state.step && !state.draft);
  if (card.hidden) return;
  render(cardWords(token, pointed), card);
  // Above the line, or below where there is no room: never over the row that it is about.
  const outer = ribbon.getBoundingClientRect(), place = button.getBoundingClientRect(), { offsetWidth, offsetHeight } = card;
  const left = place.left - outer.left + (place.width - offsetWidth) / 2;
  card.style.left = `${Math.max(0, Math.min(left, outer.width - offsetWidth))}px`;
  card.style.top = `${place.top < offsetHeight + 8 ? place.bottom - outer.top + 8 : place.top - outer.top - offsetHeight - 8}px`;
}

const cardWords = (token, i) => html`
  <strong>${mark(label(token))} ${i}</strong>
  ${token.logprob == null ? html`<div>${i === 0 ? 'The first token: nothing predicted it.' : 'Not read yet.'}</div>` : html`
  <div>p ${short(Math.exp(token.logprob))}, surprise ${minus((-token.logprob).toFixed(1))} nats${token.rank == null ? '' : `, ${rankWords(token.rank)}`}</div>`}
  ${state.base && !state.draft && deltaOf(i) !== null ? html`<div>Δ log p ${signed(deltaOf(i))}; after it KL ${short(state.compare.divergences[i])} nats</div>` : nothing}
  ${token.top?.length ? html`<table><tbody>${token.top.map(t => html`<tr>
    <td>${mark(label(t))}</td><td class="number">${short(Math.exp(t.logprob))}</td>
    <td class="bar-cell"><span class="bar" .style=${`width: ${100 * Math.exp(t.logprob)}%`}></span></td></tr>`)}</tbody></table>` : nothing}`;
export const rankWords = rank => rank === 0 ? 'its first choice' : `rank ${count(rank + 1)}`;

// ---- replay

let timer = 0;
export function play() {
  const { run, step } = state;
  if (!run || state.draft) return;
  const T = run.tokens.length;
  if (timer) return pause();
  if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
    setStep(step < T ? T : Math.max(1, run.prompt_length === T ? 1 : run.prompt_length));
    return;
  }
  if (step >= T) setStep(run.prompt_length === T ? 1 : Math.max(1, run.prompt_length), 'none');
  timer = setInterval(() => {
    if (state.run !== run || state.step >= T) return pause();
    setStep(state.step + 1, state.step + 1 >= T ? 'replace' : 'none');
    if (state.step < T) rowOf(state.layer, state.head, state.step); // what the next step reads is here by then
  }, 140);
  drawFoot();
}
function pause() {
  clearInterval(timer);
  timer = 0;
  update({}); // the address follows where the replay stands
  drawFoot();
}
export function setStep(step, history = 'replace') {
  if (!state.run) return;
  const to = Math.max(1, Math.min(step, state.run.tokens.length));
  update({ step: to, query: to - 1, key: -1, hover: null, why: null }, { history });
}

function drawFoot() {
  const { run, draft } = state, T = (draft ?? run)?.tokens.length ?? 0, step = draft ? T : state.step;
  render(!run && !draft ? html`<span class="muted">Write a text, then Generate.</span>` : html`
    <span class="legend muted">${state.rowMode && !draft
      ? html`<span class="ramp weights"></span> weight 0–1, √`
      : html`<span class="ramp"></span> surprise 0–7 nats`}</span>
    <span class="muted">Bar: probability. Solid: selected. Dashed: the token it predicts.${state.base ? ' Under it: Δ log p and KL.' : ''}</span>
    <button type="button" aria-pressed=${state.rowMode} ?disabled=${draft !== null}
      @click=${() => update({ rowMode: !state.rowMode })}>Colour by what it reads</button>
    <span class="replay">
      <button type="button" ?disabled=${draft !== null || T < 2} @click=${play}>${timer ? 'Pause' : 'Play'}</button>
      <label class="muted" for="step">Step</label>
      <input id="step" type="range" min="1" max=${Math.max(1, T)} .value=${String(step)} ?disabled=${draft !== null || T < 2}
        aria-valuetext=${`${step} of ${T} tokens`} @input=${e => setStep(Number(e.target.value))}>
      <span class="muted">${step}/${T}</span>
    </span>`, foot);
}

// ---- two texts

function drawTexts() {
  const { written } = state;
  if (!written) return render(nothing, texts);
  const [a, b] = [written.base.tokens, written.run.tokens];
  let split = 0;
  while (split < a.length && split < b.length && a[split].id === b[split].id) split++;
  const from = written.base.prompt_length;
  const title = (words, run) => html`<th scope="col">${words} <button class="link" type="button" @click=${() => show(run)}>Show it</button></th>`;
  const cell = list => html`<td>${textOf(list.slice(from, split))}<mark>${textOf(list.slice(split))}</mark></td>`;
  render(html`<table class="texts">
    <caption>${split === a.length && split === b.length ? 'Both write the same.' : split === from
      ? 'They differ from the first token.' : `Alike for ${plural(split - from, 'token')}, then they differ.`}
      <button class="link" type="button" @click=${() => update({ written: null })}>Close</button></caption>
    <thead><tr>${title('As it is', written.base)}${title('With the change', written.run)}</tr></thead>
    <tbody><tr>${cell(a)}${cell(b)}</tr></tbody></table>`, texts);
}
