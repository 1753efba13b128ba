// What lies over the cells of a map. A view is a plot of device pixels from (left, top), which begins at token
// (row, column) and gives each token `scale` pixels.
import { axes, axisLabel, hatching, labelFont, rising } from './axes.js';
import { css } from './colour.js';

const HATCH_FROM = 6;

/** Lines over what is not there to read: later tokens, and the first where it is left out. */
export function hatch(g, { scale, row, column, width, height }, { run, shift, end }, d) {
  const down = Math.min(height, (end - row) * scale), across = Math.min(width, (end - column) * scale);
  if (run.mask !== 'none' && scale >= HATCH_FROM * d) {
    const steps = [];
    for (let q = Math.floor(row); q < row + down / scale; q++) {
      const x = Math.max(0, (q + 1 - column) * scale), y = Math.max(0, (q - row) * scale);
      steps.push([x, y, across - x, Math.min(down, (q + 1 - row) * scale) - y]);
    }
    hatching(g, d, ...steps);
  }
  if (shift && column < 1) {
    const x = -column * scale, rect = [0, 0, Math.max(x + scale, 1), down];
    g.fillStyle = css('--mask');
    g.fillRect(...rect);
    hatching(g, d, rect);
  }
}

/** Divider between prompt and generated, crosshair, and the labels of what it is at; key -1 is none. */
export function drawMarks(canvas, view, run, { query, key }, d) {
  const g = canvas.getContext('2d'), { scale, row, column, width, height } = view;
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.clearRect(0, 0, canvas.width, canvas.height);
  g.translate(view.left, view.top);
  if (run.prompt_length > 0 && run.prompt_length < run.tokens.length) {
    const x = (run.prompt_length - column) * scale, y = (run.prompt_length - row) * scale;
    g.strokeStyle = css('--written');
    g.lineWidth = Math.max(1, d);
    g.setLineDash([4 * d, 3 * d]);
    g.beginPath();
    if (y > 0 && y < height) { g.moveTo(0, y); g.lineTo(width, y); }
    if (x > 0 && x < width) { g.moveTo(x, 0); g.lineTo(x, height); }
    g.stroke();
    g.setLineDash([]);
  }
  if (query < 0) return;
  const y = (query - row) * scale, x = (key - column) * scale;
  const inRows = y + scale > 0 && y < height, inColumns = key >= 0 && x + scale > 0 && x < width;
  const edge = (px, length) => Math.max(0, Math.min(px, length));
  if (inRows) {
    const end = run.mask === 'none' ? width : edge((query + 1 - column) * scale, width);
    outline(g, 0, edge(y, height), end, edge(y + scale, height) - edge(y, height), d);
  }
  if (inColumns && inRows) outline(g, edge(x, width), edge(y, height), edge(x + scale, width) - edge(x, width), edge(y + scale, height) - edge(y, height), d);
  if (inColumns) {
    const from = inRows ? edge(y + scale, height) + d : 0, middle = edge(x + scale / 2, width);
    g.globalAlpha = 0.6; // down to the label: a cell may be no more than a pixel
    g.fillStyle = css('--accent');
    g.fillRect(Math.round(middle - d / 2), from, d, Math.max(0, height - from));
    g.globalAlpha = 1;
  }
  labelFont(g, d);
  if (inRows) mark(g, view, run, axes(view, run, d).rows, edge(y + scale / 2, height), query, false, d);
  if (inColumns) mark(g, view, run, axes(view, run, d).columns, edge(x + scale / 2, width), key, true, d);
}

function outline(g, x, y, w, h, d) {
  if (w <= 0) return;
  const grow = h < HATCH_FROM * d || w < HATCH_FROM * d ? 2 * d : 0;
  for (const [colour, width] of [[css('--ground'), 4 * d], [css('--accent'), 2 * d]]) { // legible on any cell
    g.strokeStyle = colour;
    g.lineWidth = width;
    g.strokeRect(x - grow / 2, y - grow / 2, w + grow, h + grow);
  }
}

/** Writes a label where the crosshair is, over those that it would touch. */
function mark(g, view, run, labels, at, token, below, d) {
  const reach = 8 * d;
  g.fillStyle = css('--ground');
  const cover = p => below ? g.fillRect(p - reach, view.height + 3 * d, 2 * reach, view.bottom) : g.fillRect(-view.left, p - reach, view.left - 4 * d, 2 * reach);
  cover(at);
  for (const other of labels) if (Math.abs(other.at - at) < 2 * reach) cover(other.at);
  g.fillStyle = css('--text');
  if (below) rising(g, axisLabel(g, run, token, view.bottom - 8 * d), at, view.height + 7 * d);
  else g.fillText(axisLabel(g, run, token, view.left - 10 * d), -7 * d, at);
}
