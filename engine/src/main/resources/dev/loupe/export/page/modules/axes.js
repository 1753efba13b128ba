// The tokens along the axes of a map, on a canvas or in an SVG: they thin out and never touch.
import { css } from './colour.js';
import { label } from './spelling.js';

const MONO = 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace';
export const FONT = `12px ${MONO}`;
const LINE = 15;

/** CSS pixels of the longest label of a run: of those with most letters, as measuring all takes its time. */
export function widestLabel(run) {
  const g = document.createElement('canvas').getContext('2d');
  g.font = FONT;
  const longest = run.tokens.map((token, i) => `${label(token)} ${i}`).sort((a, b) => b.length - a.length).slice(0, 40);
  return Math.max(20, ...longest.map(words => g.measureText(words).width));
}

/** Every how many tokens a label has room: 1, 2, 5, 10, 20 ... */
function stepOf(scale, d) {
  for (let ten = 1; ; ten *= 10) {
    for (const step of [ten, 2 * ten, 5 * ten]) if (step * scale >= LINE * d) return step;
  }
}

/** The labels of both axes, each at its place along the plot. */
export function axes({ scale, row, column, width, height }, run, d) {
  const step = stepOf(scale, d);
  const along = (from, length) => {
    const labels = [];
    for (let token = Math.ceil(from / step) * step; token < run.tokens.length; token += step) {
      const at = (token + 0.5 - from) * scale;
      if (at > length) break;
      labels.push({ token, at });
    }
    return labels;
  };
  return { rows: along(row, height), columns: along(column, width) };
}

export const ink = (run, token) => css(token < run.prompt_length ? '--muted' : '--written');

export function labelFont(g, d) {
  g.font = `${12 * d}px ${MONO}`;
  g.textBaseline = 'middle';
  g.textAlign = 'right';
}

const cuts = new Map();
/** Cuts text to a width, in the pixels of the context. */
function cut(g, text, width) {
  const key = `${g.font} ${width} ${text}`;
  if (!cuts.has(key)) {
    if (cuts.size > 5000) cuts.clear();
    let shortened = text;
    if (g.measureText(text).width > width) {
      const points = [...text];
      while (points.length && g.measureText(`${points.join('')}…`).width > width) points.pop();
      shortened = `${points.join('')}…`;
    }
    cuts.set(key, shortened);
  }
  return cuts.get(key);
}

/** The label, and its position even where the label must be cut. */
export function axisLabel(g, run, token, width) {
  const number = ` ${token}`;
  return cut(g, label(run.tokens[token]), width - g.measureText(number).width) + number;
}

/** Both axes, round a plot whose corner is the origin. */
export function drawLabels(g, view, run, d) {
  const { rows, columns } = axes(view, run, d);
  labelFont(g, d);
  for (const { token, at } of rows) {
    g.fillStyle = ink(run, token);
    g.fillText(axisLabel(g, run, token, view.left - 10 * d), -7 * d, at);
  }
  for (const { token, at } of columns) {
    g.fillStyle = ink(run, token);
    rising(g, axisLabel(g, run, token, view.bottom - 8 * d), at, view.height + 7 * d);
  }
}

export function rising(g, text, x, y) {
  g.save();
  g.translate(x, y);
  g.rotate(-Math.PI / 2);
  g.fillText(text, 0, 0);
  g.restore();
}

/** Slanted lines over rectangles. */
export function hatching(g, d, ...rects) {
  if (rects.length === 0) return;
  const x0 = Math.min(...rects.map(r => r[0])), y0 = Math.min(...rects.map(r => r[1]));
  const x1 = Math.max(...rects.map(r => r[0] + r[2])), y1 = Math.max(...rects.map(r => r[1] + r[3])), tall = y1 - y0;
  g.save();
  g.beginPath();
  for (const [x, y, w, h] of rects) if (w > 0 && h > 0) g.rect(x, y, w, h);
  g.clip();
  g.strokeStyle = css('--mask-line');
  g.lineWidth = d;
  g.beginPath();
  for (let x = x0 - tall; x < x1; x += 7 * d) {
    g.moveTo(x, y1);
    g.lineTo(x + tall, y0);
  }
  g.stroke();
  g.restore();
}
