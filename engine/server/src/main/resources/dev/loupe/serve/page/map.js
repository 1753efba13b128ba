// The map of one head: rows are queries, columns the keys that they read. Cells lie on one canvas, the
// crosshair on another, so that a moving pointer repaints no cell.
import { html, render, nothing } from './lit-html.js';
import { drawLabels, hatching, widestLabel } from './axes.js';
import { byteColours, valueOf, RANKS } from './bytes.js';
import { paintCells, thumbnail, tokensAt } from './cells.js';
import { element } from './dom.js';
import { KINDS, legendWords, ticks } from './legend.js';
import { drawMarks, hatch } from './marks.js';
import { drawRamp } from './ramp.js';
import { shown } from './selection.js';
import { exact, headName, signed } from './spelling.js';
import { state, update, subscribe } from './state.js';
import { beside, cached, kindsOf, mapKind, ofKind, onArrival, retry, want, rowOf } from './tiles.js';
import { sentence, tokenWords } from './words.js';

const MOST = 64; // CSS pixels of a cell, at most

let box, cells, marks, ramp, foot, failures;
let image = null, drawn = '', arrived = false, frame = 0, pointer = null;

/** Device pixels: the plot from (left, top), and where it begins in tokens. */
export const view = { scale: 1, wish: 1, fit: 1, row: 0, column: 0, left: 0, top: 0, bottom: 0, width: 0, height: 0, side: 0, across: 0, zoomed: false };
const ratio = () => window.devicePixelRatio || 1;

/** What is drawn: the head that is selected or previewed, of a run or of the difference of two. */
export function source() {
  const { layer, head } = { ...state, ...state.hover };
  return { run: state.run, base: beside(), layer, head, shift: state.ignoreFirst ? 1 : 0, end: state.step, kind: mapKind() };
}

export function mount(where) {
  box = element('div', 'map-box');
  box.tabIndex = 0;
  box.setAttribute('role', 'application');
  box.setAttribute('aria-roledescription', 'attention map');
  cells = element('canvas');
  marks = element('canvas', 'marks');
  failures = element('div', 'failures');
  box.append(cells, marks, failures);
  foot = element('div', 'map-foot');
  ramp = element('canvas', 'ramp');
  ramp.setAttribute('aria-hidden', 'true');
  where.append(box, foot);
  listen();
  new ResizeObserver(() => { if (state.run && box.clientWidth) resized(); }).observe(box);
  addEventListener('resize', () => { if (state.run && box.clientWidth) resized(); });
  onArrival(path => {
    if (path.includes('/rows?')) return;
    arrived = true;
    schedule();
  });
  subscribe((_, names) => {
    if (!state.run || state.view !== 'map') {
      want('map', []);
      return;
    }
    if (names.has('run')) { // two frames on: the ribbon and the grid have enough to do for one each
      requestAnimationFrame(() => requestAnimationFrame(() => { if (box.clientWidth) resized(); }));
      return;
    }
    if (names.has('view') || names.has('gridOpen')) layout();
    if (names.has('rows') && pointer) preview(pointer);
    if ((names.has('query') || names.has('key')) && !state.hover) reveal();
    paint();
  });
}

// ---- what is in view

/** Whole pixels, so that cells are all alike, but where that would cost much of the size. */
const whole = scale => Math.floor(scale) > 0.88 * scale ? Math.floor(scale) : scale;

let widest = { run: null, width: 0 };
function layout() {
  const d = ratio(), T = state.run.tokens.length, width = box.clientWidth;
  if (!width) return;
  if (widest.run !== state.run) {
    widest = { run: state.run, width: widestLabel(state.run) };
    view.zoomed = false;
  }
  view.left = Math.round(Math.min(widest.width + 10, width * 0.25, 120) * d);
  view.bottom = Math.round(Math.min(widest.width + 10, 100) * d);
  view.top = Math.round(8 * d); // half a line, for the first label
  view.across = Math.round(width * d) - view.left - view.top;
  view.side = Math.max(32, Math.min(view.across, Math.round(Math.max(340, innerHeight - 440) * d)));
  view.fit = whole(Math.min(view.side / T, MOST * d));
  const w = Math.round(width * d), h = view.top + Math.min(view.side, Math.ceil(view.fit * T)) + view.bottom;
  box.style.height = `${h / d}px`;
  for (const canvas of [cells, marks]) {
    canvas.width = w;
    canvas.height = h;
  }
  setScale(view.zoomed ? view.wish : 0);
}

/** Sets the scale, at the whole map at least, and keeps the view inside. */
function setScale(wish) {
  const T = state.run.tokens.length;
  view.zoomed = wish > view.fit;
  view.wish = Math.max(view.fit, Math.min(wish, MOST * ratio()));
  view.scale = view.zoomed ? Math.max(view.fit, whole(view.wish)) : view.fit;
  view.width = Math.max(1, Math.min(view.zoomed ? view.across : view.side, Math.floor(view.scale * T + 1e-6)));
  view.height = Math.max(1, Math.min(view.side, Math.floor(view.scale * T + 1e-6)));
  box.classList.toggle('zoomed', view.zoomed);
  moveTo(view.row, view.column);
}

/** Puts the corner at a token, by whole pixels, so that cells keep their shape while they move. */
function moveTo(row, column) {
  const T = state.run.tokens.length;
  const inside = (from, length) => Math.round(Math.max(0, Math.min(from, T - length / view.scale)) * view.scale) / view.scale;
  view.row = inside(row, view.height);
  view.column = inside(column, view.width);
}

/** Zooms by a factor and keeps what lies under a point of the plot where it is. */
function zoom(factor, x = view.width / 2, y = view.height / 2) {
  const row = view.row + y / view.scale, column = view.column + x / view.scale;
  setScale(view.wish * factor);
  moveTo(row - y / view.scale, column - x / view.scale);
  schedule();
}
const zoomToSelection = factor => {
  const { query, key } = shown();
  zoom(factor, Math.max(0, Math.min(view.width, (key + 0.5 - view.column) * view.scale)), Math.max(0, Math.min(view.height, (query + 0.5 - view.row) * view.scale)));
};
function fit() {
  setScale(0);
  schedule();
}

/** Moves the view so that the selection is in it. */
function reveal() {
  if (!view.zoomed) return;
  const { query, key } = shown(), rows = view.height / view.scale, columns = view.width / view.scale;
  const near = (from, length, at) => at < from ? at : at + 1 > from + length ? at + 1 - length : from;
  moveTo(near(view.row, rows, query), key < 0 ? view.column : near(view.column, columns, key));
}

// ---- drawing

function schedule() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    if (state.run && state.view === 'map') paint();
  });
}

function resized() {
  layout();
  drawn = '';
  paint(); // at once: a resized canvas is blank until then
}

/** The largest value of a head but for its first row, which reads itself alone; from a small tile. */
function largestOf({ run, base, layer, head, shift, kind }) {
  const T = run.tokens.length, from = T > 1 && run.mask !== 'none' ? 1 : 0;
  const path = `/api/runs/${run.id}/tile?l=${layer}&h=${head}&r=${from}-${T}&c=${Math.min(shift, T - 1)}-${T}&by=${Math.ceil(T / 256)}${ofKind(kind)}`
    + (base ? `&minus=${base.id}` : '');
  const data = cached(path), ranks = RANKS[Boolean(base)];
  let best = 0;
  for (const byte of data ?? []) if (ranks[byte] > ranks[best]) best = byte;
  return { path, largest: data ? Math.max(1e-4, Math.abs(valueOf(best, Boolean(base)))) : 1 };
}

/** From a byte to its colour now, and the end of the scale. */
export function mapColours(of = source()) {
  const end = state.scale === 'head' ? largestOf(of) : { path: null, largest: 1 };
  return { ...end, colours: byteColours(Boolean(of.base), state.scale, end.largest) };
}

function paint() {
  if (!view.width) layout();
  if (!view.width) return;
  const of = source(), scale = mapColours(of);
  const now = [of.run.id, of.base?.id, of.layer, of.head, of.shift, of.end, of.kind, state.scale, scale.largest, state.palette,
    view.scale, view.row, view.column, view.width, view.height, view.left].join(' ');
  if (now !== drawn || arrived) {
    drawCells(of, scale);
    ramps(of, scale.largest);
    drawn = now;
    arrived = false;
  }
  drawMarks(marks, view, state.run, marked(), ratio());
  drawFoot();
}

/** What the crosshair is at; nothing where the query is not shown yet. */
function marked() {
  const { query, key } = shown();
  return query < state.step ? { query, key } : { query: -1, key: -1 };
}

function drawCells(of, { path, colours }) {
  const g = cells.getContext('2d');
  if (image?.width !== view.width || image.height !== view.height) image = new ImageData(view.width, view.height);
  const { run, layer, head } = of;
  const result = paintCells(image, view, of, colours, of.base || of.shift || of.kind !== 'weights' ? null : thumbnail(state.info, run, layer, head));
  want('map', path ? [path, ...result.wanted] : result.wanted);
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.clearRect(0, 0, cells.width, cells.height);
  g.putImageData(image, view.left, view.top);
  g.translate(view.left, view.top);
  hatch(g, view, of, ratio());
  for (const tile of result.failed) hatching(g, ratio(), rectOf(tile));
  drawLabels(g, view, run, ratio());
  drawFailures(result.failed);
}

function rectOf({ i, j, by, shift, rows, columns }) {
  const x = Math.max(0, (shift + j * 256 * by - view.column) * view.scale), y = Math.max(0, (i * 256 * by - view.row) * view.scale);
  return [x, y, Math.min(view.width, (shift + (j * 256 + columns) * by - view.column) * view.scale) - x,
    Math.min(view.height, (i * 256 + rows) * by * view.scale - view.row * view.scale) - y];
}

function drawFailures(tiles) {
  render(tiles.length === 0 ? nothing : html`<button type="button" @click=${retry}>
    ${tiles.length === 1 ? 'A part' : `${tiles.length} parts`} of this map did not come. Retry</button>`, failures);
}

// ---- around the canvas

let ramped = '';
function ramps({ base }, largest) {
  const now = [Boolean(base), largest, state.scale, state.palette, view.across].join(' ');
  if (now === ramped) return;
  ramped = now;
  drawRamp(ramp, box.clientWidth, Boolean(base), ticks(Boolean(base), largest), ratio());
}

function drawFoot() {
  const selection = shown();
  box.setAttribute('aria-label', `Head ${headName(selection.layer, selection.head)}. ${sentence(selection)}`);
  render(html`
    <div class=${`map-line${beside() ? ' two' : ''}`}><p class="readout">${readout(selection)}</p>
      <span class="together" role="group" aria-label="Zoom">
        <button type="button" aria-label="Zoom out" ?disabled=${!view.zoomed} @click=${() => zoomToSelection(1 / 1.6)}>−</button>
        <button type="button" aria-label="Zoom in" ?disabled=${view.wish >= MOST * ratio()} @click=${() => zoomToSelection(1.6)}>+</button>
        <button type="button" ?disabled=${!view.zoomed} @click=${fit}>Fit</button></span></div>
    <div class="buttons" role="group" aria-label="What the map shows">${kindsOf(state.run).map(kind => html`<button type="button" class="map-kind"
      aria-pressed=${kind === mapKind()} @click=${() => update({ of: kind })}>${KINDS[kind][0]}</button>`)}</div>
    ${ramp}
    <p class="muted">${legendWords(Boolean(beside()), view.scale)}</p>`, foot);
}

function readout({ layer, head, query, key }) {
  const kind = mapKind(), row = rowOf(layer, head, query, state.run, kind);
  if (!row || key < 0) return html`${tokenWords(query)} reads …`;
  const before = beside() && rowOf(layer, head, query, state.base, kind);
  return html`${tokenWords(query)} ${KINDS[kind][2]} ${tokenWords(key)}: <b>${exact(row[key])}</b>${before
    ? html`, before the changes ${exact(before[key])} (${signed(row[key] - before[key], 3)})` : nothing}`;
}

// ---- input

/** Where in the plot a pointer is, in device pixels. */
function placeOf(e) {
  const bounds = box.getBoundingClientRect();
  return [Math.floor((e.clientX - bounds.left) * ratio()) - view.left, Math.floor((e.clientY - bounds.top) * ratio()) - view.top];
}

/** The query and key at a place; where a pixel is more than one, those of the largest weight. */
function cellAt([x, y]) {
  const { run } = state;
  if (x < 0 || y < 0 || x >= view.width || y >= view.height) return null;
  const queries = tokensAt(y, view.row, view.scale, 0), keys = tokensAt(x, view.column, view.scale, state.ignoreFirst ? 1 : 0);
  const { layer, head } = shown();
  let best = null;
  for (let query = queries[0]; query < Math.min(queries[1], state.step); query++) {
    const row = rowOf(layer, head, query, run, mapKind());
    for (let key = keys[0]; key < Math.min(keys[1], state.step, run.mask === 'none' ? run.tokens.length : query + 1); key++) {
      const weight = row ? row[key] : -1;
      if (!best || weight > best.weight) best = { query, key, weight };
    }
  }
  return best && { query: best.query, key: best.key };
}

function preview(place) {
  const cell = place && cellAt(place);
  if (cell?.query === state.hover?.query && cell?.key === state.hover?.key) return;
  update({ hover: cell }, { history: 'none' });
}

function listen() {
  const fingers = new Map();
  let drag = null;
  const spreadOf = () => {
    const [a, b] = [...fingers.values()];
    return { far: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY), middle: { clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 } };
  };
  box.addEventListener('pointerdown', e => {
    if (!state.run || e.button !== 0 || e.target.closest('button')) return;
    fingers.set(e.pointerId, e);
    drag = { x: e.clientX, y: e.clientY, row: view.row, column: view.column, moved: fingers.size > 1 };
  });
  box.addEventListener('pointermove', e => {
    if (!state.run) return;
    if (fingers.size === 2 && fingers.has(e.pointerId)) {
      const before = spreadOf();
      fingers.set(e.pointerId, e);
      const after = spreadOf();
      zoom(after.far / Math.max(1, before.far), ...placeOf(after.middle));
      return;
    }
    if (drag && fingers.has(e.pointerId)) {
      if (!drag.moved && Math.hypot(e.clientX - drag.x, e.clientY - drag.y) > 4) {
        drag.moved = true;
        box.setPointerCapture(e.pointerId);
        pointer = null;
        preview(null);
      }
      if (drag.moved) {
        if (!view.zoomed) return;
        const d = ratio() / view.scale;
        moveTo(drag.row - (e.clientY - drag.y) * d, drag.column - (e.clientX - drag.x) * d);
        schedule();
        return;
      }
    }
    if (e.pointerType !== 'mouse') return;
    pointer = placeOf(e);
    preview(pointer);
  });
  const up = e => {
    const cell = drag && !drag.moved && e.type === 'pointerup' && fingers.has(e.pointerId) ? cellAt(placeOf(e)) : null;
    fingers.delete(e.pointerId);
    drag = null;
    if (cell) update({ ...cell, hover: null }, { history: 'push' });
  };
  box.addEventListener('pointerup', up);
  box.addEventListener('pointercancel', up);
  box.addEventListener('pointerleave', () => {
    pointer = null;
    if (state.hover?.query !== undefined) update({ hover: null }, { history: 'none' });
  });
  box.addEventListener('wheel', e => {
    if (!state.run || (e.deltaY > 0 && !view.zoomed)) return; // the whole map is shown: the page scrolls
    e.preventDefault();
    const lines = e.deltaMode === 1 ? 24 : 1;
    zoom(Math.exp(-Math.max(-80, Math.min(e.deltaY * lines, 80)) * (e.ctrlKey ? 0.01 : 0.004)), ...placeOf(e));
  }, { passive: false });
  box.addEventListener('dblclick', fit);
  box.addEventListener('keydown', e => {
    if (e.ctrlKey || e.metaKey || e.altKey || !['+', '=', '-', '0'].includes(e.key)) return;
    e.preventDefault();
    if (e.key === '0') fit();
    else zoomToSelection(e.key === '-' ? 1 / 1.6 : 1.6);
  });
}
