// From tiles to the pixels of a map. A pixel shows the largest of the cells that lie in it, never
// their mean and never one of them by chance, so that no peak is lost at any zoom.
import { RANKS } from './bytes.js';
import { css, pixel as pixelOf } from './colour.js';
import { SIDE, cached, failed, ofKind } from './tiles.js';

/** Tokens along a side of a tile's cell where a token takes `scale` pixels: cells of a pixel at most. */
export const level = scale => scale >= 1 ? 1 : 2 ** Math.floor(Math.log2(1 / scale));

/** The path of a tile; `shift` keys are left out at the left. Ends are clipped, so that a tile has one path. */
function tilePath({ run, base, layer, head, shift, kind }, by, i, j) {
  const T = run.tokens.length, r = i * SIDE * by, c = shift + j * SIDE * by;
  return `/api/runs/${run.id}/tile?l=${layer}&h=${head}&r=${r}-${Math.min(T, r + SIDE * by)}&c=${c}-${Math.min(T, c + SIDE * by)}&by=${by}${ofKind(kind)}`
    + (base ? `&minus=${base.id}` : '');
}

/** The tiles of a level that are in view, those at the middle first. */
export function tilesIn(view, source, by) {
  const { run, shift } = source, T = run.tokens.length, reach = SIDE * by, tiles = [];
  const lastRow = Math.min(T, view.row + view.height / view.scale), lastColumn = Math.min(T, view.column + view.width / view.scale);
  for (let i = Math.floor(view.row / reach); i * reach < lastRow; i++) {
    for (let j = Math.max(0, Math.floor((view.column - shift) / reach)); shift + j * reach < lastColumn; j++) {
      const r = Math.min(T, (i + 1) * reach), c = shift + j * reach;
      if (run.mask !== 'none' && c >= r) break; // nothing there may be read
      tiles.push({ path: tilePath(source, by, i, j), i, j, by, shift,
        rows: Math.ceil((r - i * reach) / by), columns: Math.ceil((Math.min(T, c + reach) - c) / by) });
    }
  }
  const far = t => Math.hypot((t.i + 0.5) * reach - (view.row + lastRow) / 2, (t.j + 0.5) * reach - (view.column + lastColumn) / 2);
  return tiles.sort((a, b) => far(a) - far(b));
}

/** Bytes of the pixels in view, and NONE where nothing is known; reused while the size stays. */
const NONE = 256;
let bytes = new Int16Array(0);

/**
 * Fills an image with the cells in view. Where a tile has not come, what there is of other levels stands
 * in, and the thumbnail before anything; of the same head always. Answers the tiles that are wanted.
 */
export function paintCells(image, view, source, colours, thumbnail) {
  const tiles = tilesIn(view, source, level(view.scale));
  const ranks = RANKS[Boolean(source.base)], reach = readable(view, source);
  if (bytes.length !== image.width * image.height) bytes = new Int16Array(image.width * image.height);
  bytes.fill(NONE);
  const ready = tiles.map(tile => ({ ...tile, data: cached(tile.path) }));
  if (ready.some(tile => !tile.data)) {
    if (thumbnail) spread(view, reach, ranks, thumbnail);
    const by = level(view.scale);
    for (const other of [by * 8, by * 4, by * 2, by / 2, by / 4]) {
      if (other < 1) continue;
      for (const tile of tilesIn(view, source, other).sort(inOrder)) {
        const data = cached(tile.path);
        if (data) spread(view, reach, ranks, { ...tile, data });
      }
    }
  }
  for (const tile of ready.sort(inOrder)) {
    if (tile.data) spread(view, reach, ranks, tile);
  }
  colour(image, view, source, reach, colours);
  return { wanted: tiles.map(tile => tile.path), failed: tiles.filter(tile => failed(tile.path)) };
}

/** Tiles go on from left to right and down, so that pixels across an edge are merged: see spread. */
const inOrder = (a, b) => a.i - b.i || a.j - b.j;

/** The first cell in each pixel, and the end of each pixel's cells. */
function cellsOf(length, from, scale, by, shift) {
  const first = new Int32Array(length), end = new Int32Array(length);
  const at = x => Math.floor((from + x / scale - shift) / by + 1e-6);
  for (let x = 0; x < length; x++) {
    first[x] = at(x);
    end[x] = Math.max(first[x] + 1, at(x + 1));
  }
  return { first, end };
}

/** The tokens that a pixel stands for, [first, end): those of its cells, and so what is read out is what is seen. */
export function tokensAt(pixel, from, scale, shift) {
  const by = level(scale), { first, end } = cellsOf(1, from + pixel / scale, scale, by, shift);
  return [Math.max(0, first[0] * by + shift), end[0] * by + shift];
}

/** How many pixels of each row hold a key that one of its queries may read. */
function readable(view, { run, shift }) {
  const by = level(view.scale), x = cellsOf(view.width, view.column, view.scale, by, shift), y = cellsOf(view.height, view.row, view.scale, by, 0);
  const pixels = new Int32Array(view.height);
  for (let v = 0, last = 0; v < view.height; v++) {
    while (last < view.width && (run.mask === 'none' || x.first[last] * by + shift < y.end[v] * by)) last++;
    pixels[v] = last;
  }
  return pixels;
}

/**
 * Lays a tile's cells on the pixels. A pixel that begins in an earlier tile keeps the larger of both.
 */
function spread(view, readable, ranks, { i = 0, j = 0, by, shift = 0, rows, columns, data }) {
  const top = i * SIDE, left = j * SIDE;
  const x = cellsOf(view.width, view.column, view.scale, by, shift), y = cellsOf(view.height, view.row, view.scale, by, 0);
  let from = 0, to = view.width;
  while (from < to && x.end[from] <= left) from++;
  while (to > from && x.first[to - 1] >= left + columns) to--;
  for (let v = 0; v < view.height; v++) {
    if (y.end[v] <= top || y.first[v] >= top + rows) continue;
    const a = Math.max(y.first[v], top) - top, b = Math.min(y.end[v], top + rows) - top, joined = y.first[v] < top;
    const last = Math.min(to, readable[v]);
    for (let u = from; u < last; u++) {
      const c = Math.max(x.first[u], left) - left, d = Math.min(x.end[u], left + columns) - left;
      let best = data[a * columns + c];
      if (b - a > 1 || d - c > 1) {
        for (let r = a; r < b; r++) {
          for (let k = c; k < d; k++) {
            const one = data[r * columns + k];
            if (ranks[one] > ranks[best]) best = one;
          }
        }
      }
      const at = v * view.width + u;
      const before = bytes[at];
      if (before !== NONE && (joined || x.first[u] < left) && ranks[before] > ranks[best]) best = before;
      bytes[at] = best;
    }
  }
}

function colour(image, view, source, readable, colours) {
  const out = new Uint32Array(image.data.buffer), all = new Uint32Array(NONE + 1);
  all.set(colours);
  all[NONE] = pixelOf(css('--raised'));
  const mask = pixelOf(css('--mask'));
  const across = Math.max(0, Math.min(view.width, Math.round((source.end - view.column) * view.scale)));
  const down = Math.max(0, Math.min(view.height, Math.round((source.end - view.row) * view.scale)));
  out.fill(0);
  for (let v = 0; v < down; v++) {
    const start = v * view.width, read = Math.min(across, readable[v]);
    for (let u = 0; u < read; u++) out[start + u] = all[bytes[start + u]];
    out.fill(mask, start + read, start + across);
  }
}

// ---- thumbnails

export const LAYERS_AT_ONCE = 4;
/** Cells along a side of a thumbnail; fewer where there are many heads. */
export const thumbSide = (info, run) => Math.min(info.n_layer * run.n_head > 256 ? 32 : 64, run.tokens.length);

/** The path of the thumbnails of a layer and its neighbours. */
export function thumbsPath(info, run, layer) {
  const first = layer - layer % LAYERS_AT_ONCE, last = Math.min(info.n_layer, first + LAYERS_AT_ONCE) - 1;
  return `/api/runs/${run.id}/thumbs?layers=${first}-${last}&side=${info.n_layer * run.n_head > 256 ? 32 : 64}`;
}

export const thumbStart = (run, layer, head, side) => (layer % LAYERS_AT_ONCE * run.n_head + head) * side * side;

/** A head's thumbnail as a tile of the whole map, or null. */
export function thumbnail(info, run, layer, head) {
  const data = cached(thumbsPath(info, run, layer));
  if (!data) return null;
  const side = thumbSide(info, run), start = thumbStart(run, layer, head, side);
  return { by: run.tokens.length / side, rows: side, columns: side, data: data.subarray(start, start + side * side) };
}
