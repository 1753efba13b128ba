// All heads at once: layers down, heads across, each a thumbnail with its role and, where one is chosen,
// a statistic. The only place where a head is selected.
import { html, render, nothing } from './lit-html.js';
import { RANKS, byteColours } from './bytes.js';
import { LAYERS_AT_ONCE, thumbSide, thumbStart, thumbsPath } from './cells.js';
import { colourAt, css, fill, inkOn, pixel } from './colour.js';
import { headName, short } from './spelling.js';
import { state, update, subscribe } from './state.js';
import { beside, cached, failed, here, onArrival, retry, want } from './tiles.js';
import { ROLES, SCORES, scoreText } from './words.js';

/** Roles where there is no room for more; the key under the grid has the words. */
const BADGES = { previous_token: 'prev', duplicate_token: 'dup', induction: 'ind', first_token: '1st', self: 'self' };

const SLICE = 6; // milliseconds of drawing in a frame
const LISTED = 48; // heads of a ranked list, until all are asked for

let root, ranked = false, listAll = false, drawing = false;
const sheets = new Map(); // first layer -> a picture of its thumbnails and those of the layers that come with it

export function mount(element) {
  root = element;
  root.addEventListener('keydown', key);
  new ResizeObserver(drawThumbs).observe(root);
  root.addEventListener('pointerleave', () => { if (state.hover && state.hover.query === undefined) update({ hover: null }, { history: 'none' }); });
  onArrival(path => {
    if (!path.includes('/thumbs?')) return;
    drawThumbs();
    if (failed(path)) draw();
  });
  const names = ['info', 'heads', 'run', 'stats', 'base', 'compare', 'layer', 'head', 'sort', 'onRepeated', 'gridOpen', 'scale', 'palette', 'view'];
  subscribe((_, changed) => {
    if (changed.has('sort')) {
      ranked = state.sort !== 'place';
      listAll = false;
    }
    if (changed.has('run')) requestAnimationFrame(draw); // the frame of a new run has enough to do
    else if (names.some(name => changed.has(name))) draw();
    if (['run', 'base', 'scale', 'palette', 'info', 'gridOpen'].some(name => changed.has(name))) drawThumbs();
  });
}

// ---- numbers

/** What may be shown of heads: while comparing, how much each changed as well. */
const WITH_CHANGED = { changed: 'Change, total variation', ...SCORES };
const scores = () => state.compare?.variation ? WITH_CHANGED : SCORES;

/** A score of a head, or null where there is none. */
function score(layer, head, of = state.sort) {
  if (of === 'changed') return state.compare?.variation?.[layer]?.[head] ?? null;
  if (state.onRepeated) return find(layer, head)?.scores?.[of] ?? null;
  return state.stats?.scores?.[of]?.[layer]?.[head] ?? null;
}

let table = { of: null, heads: new Map() };
/** What was measured of a head on repeated random tokens: of the model's own heads, not of another number of them. */
function find(layer, head) {
  if (state.run.n_head !== state.info.n_head) return undefined;
  if (table.of !== state.heads) {
    table = { of: state.heads, heads: new Map((state.heads?.heads ?? []).map(h => [headName(h.layer, h.head), h])) };
  }
  return table.heads.get(headName(layer, head));
}

function allHeads() {
  const heads = [];
  for (let layer = 0; layer < state.info.n_layer; layer++) {
    for (let head = 0; head < (state.run?.n_head ?? state.info.n_head); head++) heads.push({ layer, head });
  }
  return heads;
}

/** What a cell says. */
const seenOf = v => state.sort === 'normalised_entropy' ? scoreText(state.sort, v) : tight(v);

/** Four places at most, for a cell: .83, 12.4, <.01. */
function tight(v) {
  if (v === null) return '–';
  if (v > 0 && v < 0.005) return '<.01';
  return v < 9.995 ? v.toFixed(2).replace(/^0(?=\.)/, '') : v.toFixed(v < 99.95 ? 1 : 0);
}

// ---- thumbnails

/** Draws the sheets that lack or are out of date, one a frame, so that the page answers meanwhile. */
function drawThumbs() {
  if (!state.run || !state.info) return;
  const layers = Array.from({ length: state.info.n_layer }, (_, layer) => layer);
  const paths = run => [...new Set(layers.map(layer => thumbsPath(state.info, run, layer)))];
  want('grid', [...paths(state.run), ...(beside() ? paths(beside()) : [])]);
  if (drawing) return;
  const side = Math.max(1, Math.min(thumbSide(state.info, state.run), Math.round(thumbWidth() * (window.devicePixelRatio || 1))));
  const key = [state.run.id, beside()?.id, scale(), state.palette, side].join(' ');
  const first = layers.find(layer => layer % LAYERS_AT_ONCE === 0 && sheets.get(layer)?.key !== key && hasCome(layer));
  if (first === undefined) return;
  drawing = true;
  requestAnimationFrame(async () => {
    await drawSheet(first, key, side);
    drawing = false;
    draw();
    drawThumbs();
  });
}
const scale = () => state.scale === 'linear' ? 'linear' : 'sqrt'; // one range for all heads
const thumbWidth = () => root.querySelector('.thumb')?.clientWidth || 24;
const hasCome = layer => here(thumbsPath(state.info, state.run, layer)) && (!beside() || here(thumbsPath(state.info, beside(), layer)));

/**
 * One picture of some layers' thumbnails, at the size at which they are shown: a canvas each would be a
 * layer each for the browser to put together in every frame.
 */
async function drawSheet(first, key, side) {
  const { run } = state, base = beside(), layers = Math.min(LAYERS_AT_ONCE, state.info.n_layer - first);
  const canvas = document.createElement('canvas');
  canvas.width = run.n_head * side;
  canvas.height = layers * side;
  const image = new ImageData(canvas.width, canvas.height), out = new Uint32Array(image.data.buffer);
  const colours = byteColours(Boolean(base), scale(), 1);
  const now = cached(thumbsPath(state.info, run, first)), before = base && cached(thumbsPath(state.info, base, first));
  const cells = thumbSide(state.info, run);
  let since = performance.now();
  for (let layer = first; layer < first + layers; layer++) {
    for (let head = 0; head < run.n_head; head++) {
      drawThumb(out, (layer - first) * side * canvas.width + head * side, canvas.width, side, now, before,
        thumbStart(run, layer, head, cells), cells, run.mask !== 'none', colours);
      if (performance.now() - since < SLICE) continue;
      await new Promise(requestAnimationFrame);
      since = performance.now();
    }
  }
  canvas.getContext('2d').putImageData(image, 0, 0);
  const url = URL.createObjectURL(await new Promise(resolve => canvas.toBlob(resolve))), picture = new Image();
  picture.src = url;
  await picture.decode(); // so that nothing flashes when it is shown
  if (sheets.has(first)) URL.revokeObjectURL(sheets.get(first).url);
  sheets.set(first, { key, url, layers, picture });
}

/** A pixel is the largest of the cells under it. A difference is that of the largest: quick, and it shows where to look. */
function drawThumb(out, start, width, side, now, before, from, cells, causal, colours) {
  const mask = pixel(css('--mask')), ranks = RANKS[Boolean(before)];
  for (let y = 0; y < side; y++) {
    const top = Math.floor(y * cells / side), bottom = Math.max(top + 1, Math.floor((y + 1) * cells / side));
    for (let x = 0; x < side; x++) {
      const left = Math.floor(x * cells / side), right = Math.max(left + 1, Math.floor((x + 1) * cells / side));
      if (left >= bottom && causal) {
        out[start + y * width + x] = mask;
        continue;
      }
      let best = 0;
      for (let row = top; row < bottom; row++) {
        for (let i = from + row * cells + left; i < from + row * cells + right; i++) {
          const byte = before ? difference(now[i], before[i]) : now[i];
          if (ranks[byte] > ranks[best]) best = byte;
        }
      }
      out[start + y * width + x] = colours[best];
    }
  }
}
/** The byte of a tile of differences, from two of weights. */
function difference(a, b) {
  const d = (a / 255) ** 2 - (b / 255) ** 2;
  return Math.sign(d) * Math.round(127 * Math.sqrt(Math.abs(d))) & 255;
}

// ---- the grid

function draw() {
  if (!state.info || !state.run) {
    render(html`<div class="skeleton grid-skeleton"></div>`, root);
    return;
  }
  const heads = allHeads(), named = scores()[state.sort], largest = named ? Math.max(1e-9, ...heads.map(h => score(h.layer, h.head) ?? 0)) : 1;
  const paths = heads.map(({ layer }) => thumbsPath(state.info, state.run, layer));
  root.classList.toggle('open', state.gridOpen);
  render(html`
    <div class="grid-tools">
      <label>Sort by <select @change=${e => update({ sort: e.target.value })}>
        <option value="place" ?selected=${!named}>Layer order</option>
        ${Object.entries(scores()).map(([value, words]) => html`<option value=${value} ?selected=${state.sort === value}>${words}</option>`)}
      </select></label>
      ${named ? html`<button type="button" aria-pressed=${!ranked} @click=${() => { ranked = !ranked; draw(); }}>Grid</button>` : nothing}
      <button type="button" aria-pressed=${state.gridOpen} title="m" @click=${() => update({ gridOpen: !state.gridOpen })}>${state.gridOpen ? 'Fewer' : 'All heads'}</button>
    </div>
    ${named ? heading(named, heads) : nothing}
    ${paths.some(failed) ? html`<p class="muted">Some thumbnails did not come. <button type="button" class="link" @click=${retry}>Retry</button></p>` : nothing}
    ${named && ranked ? list(heads, largest) : places(largest, named)}
    ${footer()}`, root);
  if (root.contains(document.activeElement) && document.activeElement.matches('.head')) {
    root.querySelector('.head[tabindex="0"]')?.focus({ preventScroll: true });
  }
}

function heading(named, heads) {
  const measured = state.sort !== 'changed';
  const best = heads.reduce((a, b) => (score(b.layer, b.head) ?? -1) > (score(a.layer, a.head) ?? -1) ? b : a);
  const value = score(best.layer, best.head), threshold = state.info.threshold ?? 0.4;
  return html`<p class="grid-heading"><b>${named}</b>
    ${measured ? html`<button type="button" class="link" aria-pressed=${state.onRepeated} title="Show the other"
      @click=${() => update({ onRepeated: !state.onRepeated })}>${state.onRepeated ? 'on repeated random tokens' : 'on this text'}</button>` : 'by the ablation, on this text'}
    ${ROLES[state.sort] && value !== null && value < threshold
      ? html`<span class="muted">No head above ${threshold}; strongest ${headName(best.layer, best.head)}: ${short(value)}.</span>` : nothing}
    ${value === null ? html`<span class="muted">${state.onRepeated || state.stats || state.run.mask === 'none' ? 'There is none here.' : 'Counting…'}</span>` : nothing}</p>`;
}

const words = (layer, head) => {
  const role = find(layer, head)?.role, named = scores()[state.sort], value = named ? score(layer, head) : null;
  return `Head ${headName(layer, head)}${role ? `, ${ROLES[role][0]}` : ''}${value === null ? '' : `, ${named} ${scoreText(state.sort, value)}`}`;
};

const isSelected = ({ layer, head }) => layer === state.layer && head === state.head;

/** One head as a button, the tab stop of all or not; `body` is what is in it. */
function button(layer, head, stop, body) {
  const selected = isSelected({ layer, head }), title = words(layer, head);
  return html`<button type="button" class="head" role="gridcell" data-layer=${layer} data-head=${head} aria-selected=${selected}
    tabindex=${stop ? 0 : -1} title=${title}
    @click=${() => update({ layer, head, hover: null }, { history: 'push' })}
    @pointerenter=${e => { if (e.pointerType === 'mouse') update({ hover: selected ? null : { layer, head } }, { history: 'none' }); }}>${body}<span class="hidden">${title}</span></button>`;
}

/** A head's part of its sheet. */
function thumb(layer, head) {
  const first = layer - layer % LAYERS_AT_ONCE, sheet = sheets.get(first), heads = state.run.n_head;
  const part = (at, of) => of > 1 ? 100 * at / (of - 1) : 0;
  return html`<span class="thumb" .style=${sheet ? `background-image:url(${sheet.url});background-size:${100 * heads}% ${100 * sheet.layers}%;`
    + `background-position:${part(head, heads)}% ${part(layer - first, sheet.layers)}%` : ''}></span>`;
}

/** A number on its colour. */
function tinted(value, largest) {
  const colour = value === null ? null : colourAt(Math.max(0, value) / largest);
  return html`<span class="value" .style=${colour === null ? '' : `background:${fill(colour)};color:${inkOn(colour)}`}>${seenOf(value)}</span>`;
}

function places(largest, named) {
  const heads = state.run.n_head, badges = state.heads?.heads.some(h => h.role);
  return html`<div class=${`places${heads <= 6 ? ' few' : ''}`} role="grid" aria-label="Heads" .style=${`--heads:${heads}`}>
    <div role="row"><span role="columnheader" class="name"><span class="hidden">Layer</span></span>
      ${Array.from({ length: heads }, (_, head) => html`<span role="columnheader" class="name">${head}</span>`)}</div>
    ${Array.from({ length: state.info.n_layer }, (_, layer) => html`<div role="row">
      <span role="rowheader" class="name">${layer}</span>
      ${Array.from({ length: heads }, (_, head) => button(layer, head, isSelected({ layer, head }), html`${thumb(layer, head)}
        ${badges ? html`<span class="badge">${BADGES[find(layer, head)?.role] ?? ''}</span>` : nothing}
        ${named ? tinted(score(layer, head), largest) : nothing}`))}</div>`)}
  </div>`;
}

function list(heads, largest) {
  const by = h => score(h.layer, h.head) ?? -Infinity;
  const listed = heads.toSorted((a, b) => by(b) - by(a)).slice(0, listAll ? heads.length : LISTED);
  const stop = listed.find(isSelected) ?? listed[0];
  return html`<div class="ranks" role="grid" aria-label="Heads by ${scores()[state.sort]}">
    ${listed.map(({ layer, head }) => {
      const value = score(layer, head), role = find(layer, head)?.role;
      return html`<div role="row">${button(layer, head, layer === stop.layer && head === stop.head, html`${thumb(layer, head)}
        <b>${headName(layer, head)}</b><span class="role">${role ? ROLES[role][0] : ''}</span>
        <span class="track"><span class="bar" .style=${`width:${100 * Math.max(0, value ?? 0) / largest}%`}></span></span>
        <span class="number">${scoreText(state.sort, value)}</span>`)}</div>`;
    })}
  </div>
  ${listed.length < heads.length ? html`<button type="button" class="link" @click=${() => { listAll = true; draw(); }}>All ${heads.length} heads</button>` : nothing}`;
}

/** What the badges and colours say. */
function footer() {
  const roles = Object.keys(BADGES).filter(role => state.heads?.heads.some(h => h.role === role));
  return html`<div class="grid-foot muted">
    ${beside() ? html`<p>Difference from the run before the changes: blue less, orange more.</p>` : nothing}
    ${!(state.sort !== 'place' && ranked) && roles.length > 0
      ? html`<p>${roles.map((role, i) => html`${i ? ', ' : ''}<b>${BADGES[role]}</b> ${ROLES[role][0]}`)}: on repeated random tokens.</p>` : nothing}
  </div>`;
}

/** Arrows move among heads, and select; the list goes up and down only. */
function key(e) {
  const from = e.target.closest('.head');
  if (!from || e.shiftKey || e.ctrlKey || e.metaKey || e.altKey) return;
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
  const all = [...root.querySelectorAll('.head')], place = all.indexOf(from);
  const across = root.querySelector('.ranks') ? 1 : state.run.n_head, end = { Home: 0, End: all.length - 1 }[e.key];
  if (!steps && end === undefined) return;
  e.preventDefault();
  e.stopPropagation();
  const sideways = steps?.[1] ?? 0;
  if (sideways && across > 1 && Math.floor((place + sideways) / across) !== Math.floor(place / across)) return;
  const to = all[end ?? place + steps[0] * across + (across > 1 ? sideways : 0)];
  if (to) update({ layer: Number(to.dataset.layer), head: Number(to.dataset.head), hover: null });
}
