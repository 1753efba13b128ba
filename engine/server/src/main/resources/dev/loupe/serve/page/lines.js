// Lines from queries on the left to the keys that they read on the right, of any heads of the layer.
// Width is weight. Only rows in view are drawn, and of each only what is worth a line; the rest is said.
import { html, render } from './lit-html.js';
import { FONT } from './axes.js';
import { css } from './colour.js';
import { element } from './dom.js';
import { shown, topKeys } from './selection.js';
import { brief, headName, label, plural } from './spelling.js';
import { state, update, subscribe } from './state.js';
import { here, rowsPath, want, rowOf } from './tiles.js';

const ROW = 22, EDGE = 20; // CSS pixels: of a token, and above and below them for what is out of view
const PER_ROW = 8, LEAST = 0.02, MOST_SEGMENTS = 4000, BATCHES = 8;

/** One colour a head; beyond twelve they repeat, dashed. */
const HEADS = {
  light: '#3295f6 #174018 #9b9370 #514765 #2759d6 #270798 #609d10 #e469ae #856851 #566609 #277d7b #7b4149'.split(' '),
  dark: '#6992eb #906b0a #d1f339 #fcd4e7 #f3817c #c5256d #864ad2 #2b807e #e4e4be #9e9b13 #9a8fb0 #93bcab'.split(' '),
};
const headColour = head => HEADS[state.palette || 'light'][head % HEADS.light.length];
const headDashed = head => head >= HEADS.light.length;

let tools, box, space, canvas, foot, frame = 0;
let heads = new Set(), every = false, layer = -1, lastHead = -1;

export function mount(where) {
  tools = element('div', 'lines-tools');
  box = element('div', 'lines-box');
  space = element('div', 'lines-space');
  canvas = element('canvas');
  foot = element('div', 'lines-foot');
  box.tabIndex = 0;
  box.setAttribute('role', 'application');
  box.setAttribute('aria-roledescription', 'attention lines');
  space.append(canvas);
  box.append(space);
  where.append(tools, box, foot);
  box.addEventListener('scroll', schedule, { passive: true });
  box.addEventListener('pointermove', e => {
    if (e.pointerType === 'mouse') preview(tokenAt(e));
  });
  box.addEventListener('pointerleave', () => preview(null));
  box.addEventListener('click', e => {
    const at = tokenAt(e);
    if (at) update({ ...(at.query === undefined ? { key: at.key } : { query: at.query, key: -1 }), hover: null }, { history: 'push' });
  });
  new ResizeObserver(() => {
    const appeared = width === 0;
    if (!box.clientWidth) width = 0;
    if (!state.run || !box.clientWidth) return;
    if (appeared) reveal();
    draw();
  }).observe(box);
  subscribe((_, names) => {
    if (!state.run || state.view !== 'lines') {
      want('lines', []);
      return;
    }
    follow();
    if (!box.clientWidth) return; // hidden until the page has changed over
    if (names.has('query') || names.has('run')) reveal();
    draw();
  });
}

/** The selected head is always drawn; alone, where the one before it was alone. */
function follow() {
  if (layer !== state.layer || (heads.size === 1 && heads.has(lastHead))) heads = new Set([state.head]);
  heads.add(state.head);
  layer = state.layer;
  lastHead = state.head;
  for (const head of heads) if (head >= state.run.n_head) heads.delete(head);
}

// ---- geometry, CSS pixels

let top = 0, width = 0, height = 0; // read once a drawing, as reading may make the browser lay out
const columns = () => {
  const text = Math.min(150, width * 0.28);
  return { left: text + 6, right: width - text - 6, text };
};
const yOf = token => EDGE + token * ROW + ROW / 2 - top;
const inView = () => {
  return [Math.max(0, Math.ceil((top - ROW / 2) / ROW)), Math.min(state.step, Math.ceil((top + height - 2 * EDGE - ROW / 2) / ROW))];
};

function reveal() {
  size();
  const inside = height - 2 * EDGE;
  if (yOf(state.query) < EDGE + ROW / 2) box.scrollTop = state.query * ROW;
  else if (yOf(state.query) > EDGE + inside - ROW / 2) box.scrollTop = (state.query + 1) * ROW - inside;
}

function size() {
  const all = state.run.tokens.length * ROW + 2 * EDGE, shown = Math.min(all, Math.max(340, innerHeight - 440));
  box.style.height = `${shown + 2}px`; // with its border
  space.style.height = `${all}px`;
  width = box.clientWidth;
  height = box.clientHeight;
  top = box.scrollTop;
  const d = window.devicePixelRatio || 1, w = Math.round(width * d), h = Math.round(height * d);
  canvas.style.height = `${height}px`;
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  return d;
}

function tokenAt(e) {
  if (!state.run) return null;
  const bounds = box.getBoundingClientRect(), x = e.clientX - bounds.left;
  const token = Math.floor((e.clientY - bounds.top - EDGE + box.scrollTop) / ROW), { left, right } = columns();
  if (token < 0 || token >= state.step) return null;
  if (x < left) return { query: token };
  const { query } = shown();
  return x > right && (state.run.mask === 'none' || token <= query) ? { key: token } : null;
}
function preview(at) {
  const hover = at === null ? null : at.query === undefined ? { query: state.query, key: at.key } : { query: at.query };
  if (hover?.query === state.hover?.query && hover?.key === state.hover?.key) return;
  update({ hover }, { history: 'none' });
}

// ---- drawing

function schedule() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    if (state.run && state.view === 'lines') draw();
  });
}

/** What is drawn of the rows in view, and what is left out. */
function segments() {
  const { query } = shown(), [first, end] = inView(), segments = [], rows = [];
  const queries = every ? Array.from({ length: Math.max(0, end - first) }, (_, i) => first + i) : [query];
  let mass = 0, drawn = 0, waiting = 0;
  for (const q of queries) {
    for (const head of heads) {
      const row = peek(head, q, rows);
      if (!row) {
        waiting++;
        continue;
      }
      const { sum, largest } = summary(row, head, q);
      mass += sum;
      segments.push(...largest);
    }
  }
  want('lines', rows);
  segments.sort((a, b) => b.weight - a.weight);
  segments.length = Math.min(segments.length, MOST_SEGMENTS);
  for (const s of segments) drawn += s.weight;
  return { segments, omitted: mass > 0 ? Math.max(0, 1 - drawn / mass) : 0, waiting, queries: queries.length };
}
/** A row if it is here; else its path is noted, and all are asked for at once. */
function peek(head, query, missing) {
  const path = rowsPath(state.run, state.layer, query);
  if (!here(path)) {
    if (missing.at(-1) !== path) missing.push(path);
    return null;
  }
  return rowOf(state.layer, head, query);
}

const summaries = new Map();
/** What a row has to give, less the first token where that is left out, and its lines; kept while one scrolls. */
function summary(row, head, query) {
  const id = [state.run.id, state.layer, head, query, state.ignoreFirst, state.step].join(' ');
  if (!summaries.has(id)) {
    if (summaries.size > 20_000) summaries.clear();
    let sum = 0;
    for (let key = state.ignoreFirst && query > 0 ? 1 : 0; key < row.length; key++) sum += row[key];
    const largest = topKeys(row, PER_ROW, query).filter((key, i) => i === 0 || row[key] >= LEAST).map(key => ({ query, key, head, weight: row[key] }));
    summaries.set(id, { sum, largest });
  }
  return summaries.get(id);
}

function draw() {
  const d = size(), g = canvas.getContext('2d'), found = segments(), { left, right, text } = columns();
  g.setTransform(d, 0, 0, d, 0, 0);
  g.clearRect(0, 0, width, height);
  g.save();
  g.beginPath();
  g.rect(0, EDGE, width, height - 2 * EDGE);
  g.clip();
  drawSegments(g, found.segments, left, right);
  drawTokens(g, text);
  g.restore();
  drawStubs(g, found.segments);
  drawTools();
  drawFoot(found);
}

/** In batches of one head and one opacity, so that a path is stroked 8 times a head and width, not thousands. */
function drawSegments(g, segments, left, right) {
  const batches = new Map();
  for (const s of segments) {
    const opacity = Math.max(1, Math.ceil(Math.sqrt(Math.min(1, s.weight)) * BATCHES));
    const id = s.head * 16 + opacity;
    if (!batches.has(id)) batches.set(id, []);
    batches.get(id).push(s);
  }
  for (const [id, some] of [...batches].sort((a, b) => a[0] % 16 - b[0] % 16)) {
    const head = Math.floor(id / 16);
    g.globalAlpha = 0.3 + 0.7 * (id % 16) / BATCHES;
    g.strokeStyle = headColour(head);
    g.setLineDash(headDashed(head) ? [6, 4] : []);
    g.lineWidth = Math.max(1, 6 * ((id % 16) / BATCHES) ** 2);
    g.beginPath();
    for (const { query, key, head: h } of some) {
      const shift = (h - (state.run.n_head - 1) / 2) * Math.min(1.2, 14 / state.run.n_head); // heads side by side
      const a = yOf(query) + shift, b = yOf(key) + shift, bend = (right - left) * 0.4;
      g.moveTo(left, a);
      g.bezierCurveTo(left + bend, a, right - bend, b, right, b);
    }
    g.stroke();
  }
  g.globalAlpha = 1;
  g.setLineDash([]);
}

function drawTokens(g, text) {
  const { query, key } = shown(), [first, end] = inView();
  g.font = FONT;
  g.textBaseline = 'middle';
  const fit = token => {
    const number = ` ${token}`;
    let words = label(state.run.tokens[token]);
    if (g.measureText(words + number).width > text) {
      const points = [...words];
      while (points.length && g.measureText(`${points.join('')}…${number}`).width > text) points.pop();
      words = `${points.join('')}…`;
    }
    return words + number;
  };
  for (let token = Math.max(0, first - 1); token < Math.min(state.step, end + 1); token++) {
    const y = yOf(token), words = fit(token);
    for (const [side, marked, x] of [['right', token === query, text], ['left', token === key, width - text]]) {
      if (marked) {
        g.fillStyle = css('--raised');
        g.strokeStyle = css(side === 'right' ? '--text' : '--accent');
        g.lineWidth = 2;
        const from = side === 'right' ? 1 : x - 4;
        g.beginPath();
        g.roundRect(from, y - ROW / 2 + 2, text + 3, ROW - 4, 4);
        g.fill();
        g.stroke();
      }
      g.textAlign = side;
      g.fillStyle = marked ? css('--text') : token < state.run.prompt_length ? css('--muted') : css('--written');
      g.fillText(words, x, y);
    }
  }
}

/** Keys out of view are counted, with what they are read: ▲ 3, 0.21. */
function drawStubs(g, segments) {
  const out = { up: { keys: new Set(), mass: 0 }, down: { keys: new Set(), mass: 0 } };
  for (const { key, weight } of segments) {
    const y = yOf(key), to = y < EDGE ? out.up : y > height - EDGE ? out.down : null;
    to?.keys.add(key);
    if (to) to.mass += weight;
  }
  g.font = FONT;
  g.textAlign = 'right';
  g.textBaseline = 'middle';
  g.fillStyle = css('--text');
  const say = ({ keys, mass }, arrow, y) => { if (keys.size) g.fillText(`${arrow} ${keys.size}, ${brief(mass)}`, width - 8, y); };
  say(out.up, '▲', EDGE / 2);
  say(out.down, '▼', height - EDGE / 2);
  const { query } = shown(), y = yOf(query);
  g.textAlign = 'left';
  if (!every && y < EDGE) g.fillText(`▲ ${label(state.run.tokens[query])} ${query}`, 4, EDGE / 2);
  if (!every && y > height - EDGE) g.fillText(`▼ ${label(state.run.tokens[query])} ${query}`, 4, height - EDGE / 2);
}

// ---- around the canvas

function drawTools() {
  render(html`<div class="chips" role="group" aria-label="Heads of layer ${state.layer}">
    ${Array.from({ length: state.run.n_head }, (_, head) => html`<button type="button" class="head-chip" aria-pressed=${heads.has(head)}
      title="Click: show or hide. Double-click: alone." @click=${e => toggle(head, e)} @dblclick=${() => solo(head)}>
      <span class=${`swatch${headDashed(head) ? ' dashed' : ''}`} .style=${`color:${headColour(head)}`}></span>${headName(state.layer, head)}</button>`)}
    </div><span class="buttons">
      <button type="button" @click=${all}>All heads</button>
      <button type="button" aria-pressed=${every} @click=${() => { every = !every; draw(); }}>Every row in view</button></span>`, tools);
}
function toggle(head, e) {
  if (e.detail > 1) return; // the second click of two
  if (heads.has(head) && heads.size > 1) {
    heads.delete(head);
    if (head === state.head) update({ head: [...heads][0] });
  } else if (!heads.has(head)) heads.add(head);
  draw();
}
function solo(head) {
  heads = new Set([head]);
  lastHead = head;
  update({ head });
  draw();
}
function all() {
  heads = new Set(Array.from({ length: state.run.n_head }, (_, head) => head));
  draw();
}

function drawFoot({ segments, omitted, waiting, queries }) {
  box.setAttribute('aria-label', `Lines of ${[...heads].map(h => headName(state.layer, h)).join(', ')}, ${plural(segments.length, 'line')}.`);
  render(html`<p class="muted">${waiting ? `Waiting for ${plural(waiting, 'row')}. ` : ''}Left: queries, the tokens that read; right: the keys they read.
    Width is weight: ${plural(segments.length, 'line')}, the largest of a row and head, and up to ${PER_ROW} of at least ${LEAST}.
    Not drawn: ${brief(omitted)} of what ${queries === 1 ? 'this row reads' : 'these rows read'}.</p>`, foot);
}
