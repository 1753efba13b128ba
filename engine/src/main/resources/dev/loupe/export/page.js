// The map page: one run, its maps as blocks of the page, and one selection that drives every view.
import { axisLabel, drawLabels, ink, labelFont, widestLabel } from './axes.js';
import { colourAt, css, dress, fill, inkOn, pixel, position } from './colour.js';
import { element } from './dom.js';
import { drawMarks, hatch } from './marks.js';
import { drawRamp } from './ramp.js';
import { brief, exact, headName, label, largestKeys, minus, sentenceParts, short } from './spelling.js';

const $ = id => document.getElementById(id);
const run = JSON.parse($('run').textContent);
run.tokens = run.tokens.map(([label, id, logprob, rank]) => ({ label, id, logprob, rank }));
run.prompt_length = run.promptLength;
const T = run.tokens.length, L = run.layers.length, H = run.heads.length;
const dark = matchMedia('(prefers-color-scheme: dark)');

// One selection drives every view. key -1 is whatever the query reads most.
const state = { layer: run.start[0], head: run.start[1], query: T - 1, key: -1,
  scale: run.scale, kind: 'weights', ignoreFirst: false, lines: false };
let hover = null; // {query, key} under the pointer, shown but not selected
const view = { side: 0, size: 0, pool: 1, row: 0, column: 0, left: 0, top: 0, bottom: 0, rows: 0, columns: 0, zoomed: false };

// ---- numbers

const decoded = new Map();
/** The packed rows of one head: q + 1 floats for query q. */
function packed(kind, l, h) {
  const id = `${kind}-${l}-${h}`;
  if (!decoded.has(id)) {
    const text = atob($(id).textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
    decoded.set(id, new Float32Array(bytes.buffer));
    $(id).remove();
  }
  return decoded.get(id);
}
const rowStart = query => query * (query + 1) / 2;
const rowOf = (query, kind = 'weights') =>
  packed(kind, state.layer, state.head).subarray(rowStart(query), rowStart(query + 1));

/** Keys by weight, largest first; the first token left out where it is ignored and not alone. */
const most = (query, count) => largestKeys(rowOf(query), count, state.ignoreFirst && query > 0 ? 1 : 0);

// ---- colours

const theme = () => dress({ theme: dark.matches ? 'dark' : 'light' });
const colourOf = w => colourAt(position(w, false, state.scale));

// ---- words; tokens only ever become text nodes

const name = i => `${label(run.tokens[i])} ${i}`;
const headTitle = (l = state.layer, h = state.head) => headName(run.layers[l], run.heads[h]);
/** With what the head does on this text, where that is known. */
const headWords = (l = state.layer, h = state.head) => headTitle(l, h) + (run.roles[l][h] ? `, ${run.roles[l][h]}` : '');
function tokenWords(i) {
  const words = document.createDocumentFragment();
  words.append(element('bdi', '', label(run.tokens[i])), ` ${i}`);
  return words;
}
/** The selection's sentence: strings and token numbers. */
function sentence(query, key) {
  const row = rowOf(query), top = most(query, 1)[0];
  return sentenceParts({ layer: run.layers[state.layer], head: run.heads[state.head], query, key: key < 0 ? top : key, row, top });
}
const spoken = parts => parts.map(p => typeof p === 'number' ? name(p) : p).join('');
const shown = parts => parts.map(p => typeof p === 'number' ? tokenWords(p) : p);

// ---- ribbon

const buttons = [];
function buildRibbon() {
  const tokens = $('tokens');
  run.tokens.forEach((token, i) => {
    if (i > 0 && i === run.prompt_length) {
      const rule = element('span', 'rule');
      rule.setAttribute('role', 'separator');
      rule.setAttribute('aria-label', 'generated from here');
      tokens.append(rule);
    }
    const button = element('button', 'token', label(token));
    button.type = 'button';
    button.dataset.token = i;
    button.tabIndex = -1;
    button.setAttribute('aria-label', name(i) + (i < run.prompt_length ? '' : ', generated'));
    if (i >= run.prompt_length) button.classList.add('written');
    buttons.push(button);
    tokens.append(button);
  });
  tokens.addEventListener('click', e => {
    const i = e.target.dataset.token;
    if (i !== undefined) select({ query: Number(i), key: -1 });
  });
  tokens.addEventListener('pointerover', e => {
    const i = e.target.dataset.token;
    if (i !== undefined && e.pointerType === 'mouse') preview({ query: Number(i), key: -1 });
  });
  tokens.addEventListener('pointerleave', () => preview(null));
  const note = $('ribbon-note');
  note.append('Colour: what the outlined token reads in this head. ');
  if (run.prompt_length < T) {
    note.append(element('span', 'sample', 'Underlined'), ': generated. ');
  }
  note.append('Hover to preview, click to select.');
}
function drawRibbon(query, key) {
  const row = rowOf(query), top = key < 0 ? most(query, 1)[0] : key;
  buttons.forEach((button, i) => {
    const c = i <= query ? colourOf(row[i]) : 0;
    const hatched = i === 0 && state.ignoreFirst && query > 0;
    button.classList.toggle('later', i > query);
    button.classList.toggle('query', i === query);
    button.classList.toggle('key', i === top && i !== query);
    button.classList.toggle('hatched', hatched);
    button.style.background = i <= query && !hatched ? fill(c) : '';
    button.style.color = i <= query && !hatched ? inkOn(c) : '';
    button.tabIndex = i === state.query ? 0 : -1;
  });
}
function revealToken() {
  const box = $('ribbon'), b = buttons[state.query];
  if (b.offsetTop < box.scrollTop) box.scrollTop = b.offsetTop - 6;
  const below = b.offsetTop + b.offsetHeight - box.clientHeight;
  if (below > box.scrollTop) box.scrollTop = below + 6;
}

// ---- thumbnails

const thumbs = [];
function buildThumbs() {
  const grid = $('thumbs');
  grid.style.gridTemplateColumns = `auto repeat(${H}, minmax(24px, 64px))`;
  grid.append(element('span'));
  run.heads.forEach(h => grid.append(element('span', 'name', h)));
  for (let l = 0; l < L; l++) {
    grid.append(element('span', 'name', run.layers[l]));
    for (let h = 0; h < H; h++) {
      const button = element('button');
      button.type = 'button';
      button.title = `head ${headWords(l, h)}`;
      button.setAttribute('aria-label', `head ${headWords(l, h)}`);
      button.addEventListener('click', () => select({ layer: l, head: h }));
      const canvas = element('canvas');
      canvas.width = canvas.height = Math.ceil(T / Math.ceil(T / 64));
      button.append(canvas);
      grid.append(button);
      thumbs.push({ l, h, button, canvas });
    }
  }
}
let thumbWork = 0;
/** Draws all thumbnails, a few at a time, so that the page answers meanwhile. */
function drawThumbs() {
  const work = ++thumbWork;
  const queue = thumbs.slice();
  const some = () => {
    const end = performance.now() + 12;
    while (queue.length && performance.now() < end) drawThumb(queue.shift());
    if (queue.length && work === thumbWork) requestAnimationFrame(some);
  };
  requestAnimationFrame(some);
}
function drawThumb({ l, h, canvas }) {
  const side = canvas.width, pool = Math.ceil(T / side);
  const image = pooled(packed('weights', l, h), pool, 0, 0, side, side, w => colourOf(w));
  canvas.getContext('2d').putImageData(image, 0, 0);
}
function markThumbs() {
  for (const { l, h, button } of thumbs) {
    const here = l === state.layer && h === state.head;
    button.setAttribute('aria-pressed', here);
  }
}

/** Cells as pixels: each the largest of pool x pool values, never the mean, which hides peaks. */
function pooled(data, pool, row, column, rows, columns, colour) {
  const image = new ImageData(columns, rows), out = new Uint32Array(image.data.buffer);
  const mask = pixel(css('--mask'));
  const largest = new Float32Array(columns);
  for (let i = 0; i < rows; i++) {
    largest.fill(-Infinity);
    const end = Math.min((row + i + 1) * pool, T);
    for (let q = (row + i) * pool; q < end; q++) {
      const start = rowStart(q), last = Math.min(q + 1, (column + columns) * pool);
      for (let k = Math.max(column * pool, state.ignoreFirst ? 1 : 0); k < last; k++) {
        const cell = Math.floor(k / pool) - column;
        if (data[start + k] > largest[cell]) largest[cell] = data[start + k];
      }
    }
    for (let j = 0; j < columns; j++) out[i * columns + j] = largest[j] === -Infinity ? mask : colour(largest[j]);
  }
  return image;
}

// ---- the map

const ratio = () => window.devicePixelRatio || 1;
const widest = widestLabel(run);

/** Sizes the canvases, and fits the view unless it is zoomed. */
function layout() {
  const d = ratio(), width = $('map').clientWidth;
  view.left = Math.round(Math.min(widest + 10, width * 0.25, 120) * d);
  view.top = Math.round(6 * d); // half a line, for the first label
  view.bottom = Math.round(Math.min(widest + 10, 100) * d);
  const side = view.side = Math.floor(Math.max(32, Math.min(width * d - view.left - view.top, Math.max(340, innerHeight - 170) * d)));
  if (!view.zoomed) {
    view.pool = Math.ceil(T / side);
    view.size = Math.min(Math.floor(side / Math.ceil(T / view.pool)), Math.round(64 * d));
    view.row = view.column = 0;
  }
  const cells = Math.ceil(T / view.pool);
  view.rows = view.columns = Math.min(cells, Math.max(1, Math.floor(side / view.size)));
  view.width = view.columns * view.size;
  view.height = view.rows * view.size;
  clampView();
  const w = Math.round(width * d), h = view.top + view.rows * view.size + view.bottom;
  $('map').style.height = h / d + 'px';
  for (const id of ['cells', 'marks']) {
    $(id).width = w;
    $(id).height = h;
  }
  $('map').classList.toggle('zoomed', view.zoomed);
}
/** The view in tokens, as what is drawn over the cells takes it. */
const plot = () => ({ ...view, scale: view.size / view.pool, row: view.row * view.pool, column: view.column * view.pool });
function clampView() {
  const most = Math.ceil(T / view.pool) - view.rows;
  view.row = Math.max(0, Math.min(view.row, most));
  view.column = Math.max(0, Math.min(view.column, most));
}
function zoom(larger, query = state.query, key = shownKey()) {
  let { pool, size } = view;
  if (larger && pool > 1) pool = Math.ceil(pool / 2);
  else if (larger) size = Math.min(Math.round(64 * ratio()), Math.max(size + 1, Math.round(size * 1.5)));
  else if (size > 1) size = Math.max(1, Math.round(size / 1.5));
  else pool *= 2;
  view.zoomed = Math.ceil(T / pool) * size > view.side;
  if (view.zoomed) Object.assign(view, { pool, size });
  layout();
  view.row = Math.floor(query / view.pool) - (view.rows >> 1);
  view.column = Math.floor(key / view.pool) - (view.columns >> 1);
  resized();
}
/** Moves the view so that a cell is in it. */
function revealCell(query, key) {
  const i = Math.floor(query / view.pool), j = Math.floor(key / view.pool);
  if (i < view.row) view.row = i;
  if (i >= view.row + view.rows) view.row = i - view.rows + 1;
  if (j < view.column) view.column = j;
  if (j >= view.column + view.columns) view.column = j - view.columns + 1;
}
const shownKey = () => state.key < 0 ? most(state.query, 1)[0] : state.key;

function largestScore() {
  let largest = 1e-9;
  for (const s of packed('scores', state.layer, state.head)) if (Math.abs(s) > largest) largest = Math.abs(s);
  return largest;
}
/** From value to colour in the large map. */
function mapColour() {
  if (state.kind === 'weights') return colourOf;
  const largest = largestScore();
  return s => colourAt(position(s, true, 'head', largest), true);
}

function drawCells() {
  const g = $('cells').getContext('2d'), { left, top, rows, columns, width, height } = view;
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.clearRect(0, 0, $('cells').width, $('cells').height);
  g.translate(left, top);
  const image = pooled(packed(state.kind, state.layer, state.head), view.pool, view.row, view.column, rows, columns, mapColour());
  const small = element('canvas');
  small.width = columns;
  small.height = rows;
  small.getContext('2d').putImageData(image, 0, 0);
  g.imageSmoothingEnabled = false;
  g.drawImage(small, 0, 0, width, height);
  hatch(g, plot(), { run, shift: state.ignoreFirst ? 1 : 0, end: T }, ratio());
  drawLabels(g, plot(), run, ratio());
}
function drawLegend() {
  const scores = state.kind === 'scores', largest = scores ? largestScore() : 1;
  const ticks = scores
    ? [-1, -0.5, 0, 0.5, 1].map(t => ({ at: (t + 1) / 2, text: minus((t * largest).toFixed(1)) }))
    : [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1].map(t => ({ at: position(t, false, state.scale), text: String(t) }));
  drawRamp($('ramp'), $('legend').clientWidth, scores, ticks, ratio());
  const parts = [scores
    ? 'Colour: score before the softmax; blue below 0, orange above; the range is this head’s.'
    : `Colour: ${state.scale === 'sqrt' ? 'square root of attention weight' : 'attention weight'}, the same range for all heads.`];
  if (view.pool > 1) parts.push(`A cell is the largest of ${view.pool} × ${view.pool} weights.`);
  parts.push('Rows are queries, the tokens that read; columns are keys, the tokens they read. Grey: later tokens, which cannot be read.');
  $('legend-text').textContent = parts.join(' ');
}

// ---- lines: queries on the left, the keys that they read on the right; width is weight

const ROW = 22, PER_ROW = 8, LEAST = 0.02; // CSS pixels of a token; the lines of a row, and the least weight of one
const margin = () => Math.min(150, $('lines').clientWidth * 0.28);
const lineKeys = (query, row) => most(query, PER_ROW).filter(key => row[key] >= LEAST);
/** Draws what is in view of the box, in which a canvas stays while the box scrolls: T is not bounded, a canvas is. */
function drawLines(query, key) {
  const box = $('lines'), d = ratio();
  box.style.height = `${Math.min(T * ROW, Math.max(320, innerHeight - 170)) + 2}px`; // with its border
  $('lines-space').style.height = `${T * ROW}px`;
  const width = box.clientWidth, height = box.clientHeight, top = box.scrollTop, side = margin();
  $('threads').style.height = `${height}px`;
  $('threads').width = Math.round(width * d);
  $('threads').height = Math.round(height * d);
  const g = $('threads').getContext('2d'), from = Math.floor(top / ROW), to = Math.min(T, Math.ceil((top + height) / ROW));
  const yOf = token => ((token + 0.5) * ROW - top) * d, left = (side + 6) * d, right = (width - side - 6) * d;
  const line = (q, k, w, colour, alpha) => {
    const bend = (right - left) * 0.4;
    g.strokeStyle = colour;
    g.globalAlpha = alpha;
    g.lineWidth = Math.max(1, 6 * Math.min(1, w)) * d;
    g.beginPath();
    g.moveTo(left, yOf(q));
    g.bezierCurveTo(left + bend, yOf(q), right - bend, yOf(k), right, yOf(k));
    g.stroke();
  };
  for (let q = from; q < to; q++) {
    const row = rowOf(q);
    if (q !== query) for (const k of lineKeys(q, row)) line(q, k, row[k], css('--muted'), 0.3);
  }
  const chosen = rowOf(query), keys = lineKeys(query, chosen);
  for (const k of keys) line(query, k, chosen[k], css('--accent'), 0.9);
  g.globalAlpha = 1;
  labelFont(g, d);
  const words = (token, x, marked) => {
    g.fillStyle = marked ? css('--accent') : ink(run, token);
    g.fillText(axisLabel(g, run, token, side * d), x, yOf(token));
  };
  for (let token = from; token < to; token++) {
    g.textAlign = 'right';
    words(token, side * d, token === query);
    g.textAlign = 'left';
    words(token, (width - side) * d, token === key);
  }
  const first = state.ignoreFirst && query > 0 ? 1 : 0, sum = of => of.reduce((total, k) => total + chosen[k], 0);
  const all = sum(Array.from(chosen.keys()).slice(first));
  $('lines-text').textContent = `Left: queries, the tokens that read; right: the keys they read. Width is weight: the ${PER_ROW} largest of a row from ${LEAST}. `
    + `Not drawn: ${brief(all > 0 ? Math.max(0, 1 - sum(keys) / all) : 0)} of what the selected row reads.`;
}
/** The query at the left, or the key of the selected query at the right. */
function lineAt(e) {
  const bounds = $('lines').getBoundingClientRect(), x = e.clientX - bounds.left;
  const token = Math.floor((e.clientY - bounds.top - 1 + $('lines').scrollTop) / ROW);
  if (token < 0 || token >= T) return null;
  if (x < margin()) return { query: token, key: -1 };
  return x > bounds.width - margin() && token <= state.query ? { query: state.query, key: token } : null;
}
function revealLine() {
  const box = $('lines'), y = state.query * ROW;
  if (y < box.scrollTop) box.scrollTop = y;
  if (y + ROW > box.scrollTop + box.clientHeight) box.scrollTop = y + ROW - box.clientHeight;
}

// ---- inspector

function drawInspector(query, key) {
  $('sentence').replaceChildren(...shown(sentence(query, key)));
  const row = rowOf(query);
  $('chip').hidden = !(state.ignoreFirst && query > 0);
  $('chip').textContent = `first token: ${short(row[0])}`;
  $('top-name').replaceChildren('Reads most: ', tokenWords(query));
  $('top').replaceChildren(...most(query, 5).map(k => {
    const line = element('tr');
    const token = element('td');
    token.append(element('bdi', '', label(run.tokens[k])));
    const bar = element('span', 'weight');
    bar.style.width = `${100 * Math.min(1, row[k] || 0)}%`;
    const barCell = element('td');
    barCell.setAttribute('aria-hidden', 'true');
    barCell.append(bar);
    line.append(token, element('td', '', k), element('td', '', short(row[k])), barCell);
    return line;
  }));
  const { id, logprob, rank } = run.tokens[query];
  const facts = [`Token id ${id}`];
  if (logprob !== undefined) facts.push(`the model gave it p ${short(Math.exp(logprob)).replace(/^(?=\d)/, '= ').replace('<', '< ')}, ${rank === 0 ? 'its first choice' : `rank ${rank + 1}`}`);
  $('token-facts').textContent = facts.join(', ') + '.';
  drawChosen(query);
}
/** Row i is what token i read; its output chose token i + 1. */
function drawChosen(query) {
  const step = (to, before, after) => {
    const button = element('button');
    button.type = 'button';
    button.append(before, tokenWords(to), after);
    button.addEventListener('click', () => select({ query: to, key: -1 }));
    return button;
  };
  const parts = [];
  if (query > 0 && query >= run.prompt_length) parts.push(step(query - 1, 'Chosen by row ', ''));
  if (query + 1 < T && query + 1 >= run.prompt_length) parts.push(step(query + 1, 'This row chose ', ''));
  $('chosen').replaceChildren(...parts);
}

function drawReadout(query, key) {
  const w = rowOf(query)[key];
  const parts = [query, ' reads ', key, `: ${exact(w)}`];
  if (run.scores) parts.push(`, score ${exact(rowOf(query, 'scores')[key])}`);
  $('readout').replaceChildren(...shown(parts));
}

// ---- drawing and speaking

let cellsDirty = true, frame = 0;
function draw(cells = true) {
  cellsDirty ||= cells;
  frame ||= requestAnimationFrame(paint);
}
function paint() {
  cancelAnimationFrame(frame);
  frame = 0;
  const { query, key } = hover ?? state;
  const k = key < 0 ? most(query, 1)[0] : key;
  if (state.lines) drawLines(query, k);
  else if (cellsDirty) {
    drawCells();
    drawLegend();
    cellsDirty = false;
  }
  if (!state.lines) drawMarks($('marks'), plot(), run, { query, key: k }, ratio());
  drawRibbon(query, key);
  drawInspector(query, key);
  drawReadout(query, k);
}
/** For a new size: at once, as a resized canvas is blank until it is painted. */
function resized() {
  if (!state.lines) layout();
  cellsDirty = true;
  paint();
}
let speaking = 0;
function speak() {
  clearTimeout(speaking);
  const words = spoken(sentence(state.query, state.key));
  $('map').setAttribute('aria-label', `Attention map of head ${headTitle()}. ${words}`);
  $('lines').setAttribute('aria-label', `Attention lines of head ${headTitle()}. ${words}`);
  speaking = setTimeout(() => { $('live').textContent = words; }, 500);
}
function preview(what) {
  if (what?.query === hover?.query && what?.key === hover?.key) return;
  hover = what;
  draw(false);
}
function select(change) {
  Object.assign(state, change);
  hover = null;
  for (const id of ['lines', 'lines-text']) $(id).hidden = !state.lines;
  for (const id of ['map', 'legend', 'zoom']) $(id).hidden = state.lines;
  $('shape').textContent = state.lines ? 'Map' : 'Lines';
  if (change.lines === false) resized(); // it had no size while it was hidden
  revealCell(state.query, shownKey());
  $('head-name').textContent = `Head ${headWords()}`;
  $('scale').textContent = `Colour: ${state.scale === 'sqrt' ? '√ weight' : 'weight'}`;
  $('scale').setAttribute('aria-label', `Colour shows ${state.scale === 'sqrt' ? 'the square root of the weight' : 'the weight'}: change`);
  $('scale').disabled = state.kind === 'scores';
  $('kind').textContent = state.kind === 'scores' ? 'Shown: scores' : 'Shown: weights';
  $('first').setAttribute('aria-pressed', state.ignoreFirst);
  if ('scale' in change || 'ignoreFirst' in change) drawThumbs();
  markThumbs();
  revealToken();
  draw();
  if (state.lines) {
    paint(); // gives the box its size, which the scroll goes by
    revealLine();
  }
  speak();
  const key = state.key < 0 ? '' : `&key=${state.key}`;
  try {
    history.replaceState(null, '', `#layer=${run.layers[state.layer]}&head=${run.heads[state.head]}&query=${state.query}${key}${state.lines ? '&view=lines' : ''}`);
  } catch { /* some viewers forbid it; the page works without */ }
}

// ---- input

/** The query and key under the pointer: in a pooled cell, those of its largest weight. */
function cellAt(e) {
  const bounds = $('map').getBoundingClientRect(), d = ratio();
  const i = Math.floor(((e.clientY - bounds.top) * d - view.top) / view.size), j = Math.floor(((e.clientX - bounds.left) * d - view.left) / view.size);
  if (i < 0 || j < 0 || i >= view.rows || j >= view.columns) return null;
  const queries = [(view.row + i) * view.pool, Math.min((view.row + i + 1) * view.pool, T)];
  const keys = [(view.column + j) * view.pool, Math.min((view.column + j + 1) * view.pool, T)];
  let best = null;
  for (let q = queries[0]; q < queries[1]; q++) {
    const row = rowOf(q);
    for (let k = keys[0]; k < Math.min(keys[1], q + 1); k++) {
      if (best === null || row[k] > best.weight) best = { query: q, key: k, weight: row[k] };
    }
  }
  return best && { query: best.query, key: best.key };
}
function listen() {
  const map = $('map');
  let drag = null;
  map.addEventListener('pointerdown', e => {
    drag = { x: e.clientX, y: e.clientY, row: view.row, column: view.column, moved: false };
    if (view.zoomed) map.setPointerCapture(e.pointerId);
  });
  map.addEventListener('pointermove', e => {
    if (drag && view.zoomed) {
      const d = ratio() / view.size, dx = (e.clientX - drag.x) * d, dy = (e.clientY - drag.y) * d;
      drag.moved ||= Math.hypot(e.clientX - drag.x, e.clientY - drag.y) > 4;
      if (drag.moved) {
        view.row = Math.round(drag.row - dy);
        view.column = Math.round(drag.column - dx);
        clampView();
        hover = null;
        draw();
        return;
      }
    }
    if (e.pointerType === 'mouse') preview(cellAt(e));
  });
  map.addEventListener('pointerleave', () => { if (!drag) preview(null); });
  map.addEventListener('pointercancel', () => { drag = null; });
  map.addEventListener('pointerup', e => {
    const cell = drag && !drag.moved ? cellAt(e) : null;
    drag = null;
    if (cell) select(cell);
  });
  map.addEventListener('wheel', e => {
    if (!e.ctrlKey && !e.metaKey) return;
    e.preventDefault();
    const at = cellAt(e);
    zoom(e.deltaY < 0, at?.query, at?.key);
  }, { passive: false });
  $('in').addEventListener('click', () => zoom(true));
  $('out').addEventListener('click', () => zoom(false));
  $('fit').addEventListener('click', () => { view.zoomed = false; resized(); });
  const lines = $('lines');
  lines.addEventListener('scroll', () => draw(false), { passive: true });
  lines.addEventListener('pointermove', e => { if (e.pointerType === 'mouse') preview(lineAt(e)); });
  lines.addEventListener('pointerleave', () => preview(null));
  lines.addEventListener('click', e => {
    const at = lineAt(e);
    if (at) select(at);
  });
  $('shape').addEventListener('click', () => select({ lines: !state.lines }));
  $('scale').addEventListener('click', () => select({ scale: state.scale === 'sqrt' ? 'linear' : 'sqrt' }));
  $('first').addEventListener('click', () => select({ ignoreFirst: !state.ignoreFirst }));
  $('kind').addEventListener('click', () => select({ kind: state.kind === 'scores' ? 'weights' : 'scores' }));
  $('kind').hidden = !run.scores;
  new ResizeObserver(() => { if (state.lines) draw(false); }).observe(lines);
  document.addEventListener('keydown', key);
  dark.addEventListener('change', () => { theme(); drawThumbs(); draw(); });
  let width = map.clientWidth;
  new ResizeObserver(() => {
    if (map.clientWidth !== width && map.clientWidth) resized();
    width = map.clientWidth;
  }).observe(map);
  addEventListener('resize', resized);
}
const clamp = (value, most) => Math.max(0, Math.min(value, most));
function key(e) {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const down = { ArrowUp: -1, ArrowDown: 1 }[e.key] ?? 0, right = { ArrowLeft: -1, ArrowRight: 1 }[e.key] ?? 0;
  if (!down && !right) return;
  e.preventDefault();
  const inRibbon = $('tokens').contains(document.activeElement);
  if (e.shiftKey) {
    select({ layer: clamp(state.layer + down, L - 1), head: clamp(state.head + right, H - 1) });
  } else if (down) {
    const query = clamp(state.query + down, T - 1);
    select({ query, key: state.key > query ? query : state.key });
  } else {
    select({ key: clamp(shownKey() + right, state.query) });
  }
  if (inRibbon) buttons[state.query].focus({ preventScroll: true });
}
/** What the address asks for, as far as it is here. */
function asked() {
  const ask = new URLSearchParams(location.hash.slice(1)), change = {};
  const number = (field, valid) => {
    const n = ask.has(field) ? Number(ask.get(field)) : NaN;
    return Number.isInteger(n) && valid(n) ? n : null;
  };
  const layer = number('layer', n => run.layers.includes(n)), head = number('head', n => run.heads.includes(n));
  if (layer !== null) change.layer = run.layers.indexOf(layer);
  if (head !== null) change.head = run.heads.indexOf(head);
  change.query = number('query', n => n >= 0 && n < T) ?? state.query;
  change.lines = ask.get('view') === 'lines';
  change.key = number('key', n => n >= 0 && n <= change.query) ?? -1;
  return change;
}

theme();
dress(run);
document.title = `Attention of ${run.model}`;
$('model').textContent = run.model;
$('about').textContent = `${run.lengths}; ${L} ${L === 1 ? 'layer' : 'layers'} × ${H} ${H === 1 ? 'head' : 'heads'}; ${run.dtype} model`;
buildRibbon();
buildThumbs();
listen();
layout();
select(asked());
drawThumbs();
