// Activation patching: what each activation at each position changes, where it is that of a second text.
import { html } from './lit-html.js';
import { colourAt, css, fill, position } from './colour.js';
import { count, headName, label, minus, signed } from './spelling.js';
import { FONT } from './axes.js';

const ROW = 16, NAME = 116, LABELS = 96, LEAST = 5, MOST = 26; // CSS pixels

const SITES = { residual: 'residual', attention: 'attention', mlp: 'MLP', head: 'output', q: 'queries', k: 'keys', v: 'values' };
const nameOf = row => `${SITES[row.site] ?? row.site} ${row.head === null ? row.layer : headName(row.layer, row.head)}`;

let cell = { row: 0, at: 0 }, of = null;

/** The grid's frame; paint() fills it. */
export function view(grid, redraw) {
  if (of !== grid) {
    of = grid;
    cell = strongest(grid);
  }
  const { quantity, rows, tokens } = grid, row = rows[cell.row];
  const move = (down, right) => {
    cell = { row: Math.max(0, Math.min(rows.length - 1, cell.row + down)), at: Math.max(0, Math.min(row.effects.length - 1, cell.at + right)) };
    redraw();
  };
  const point = e => {
    const box = e.currentTarget.getBoundingClientRect(), scale = width(grid);
    const at = Math.floor((e.clientX - box.left - NAME) / scale), line = Math.floor((e.clientY - box.top) / ROW);
    if (at < 0 || at >= row.effects.length || line < 0 || line >= rows.length || (line === cell.row && at === cell.at)) return;
    cell = { row: line, at };
    redraw();
  };
  const words = `${nameOf(row)} at ${label(tokens[cell.at])} ${cell.at}: ${signed(row.effects[cell.at], 3)}`;
  return html`
    <p>The quantity is ${minus(quantity.value.toFixed(2))} in this text and ${minus(quantity.value_of_second_text.toFixed(2))} in the second. A cell says by how much it changes where that one activation is the second text’s.</p>
    <div class="patches" tabindex="0" role="application" aria-roledescription="grid of effects" aria-label=${words}
      @keydown=${e => {
        const to = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
        if (!to || e.shiftKey) return;
        e.preventDefault();
        e.stopPropagation();
        move(...to);
      }}><canvas @pointermove=${point} @pointerdown=${point}></canvas></div>
    <p class="readout"><b>${words}</b></p>
    <p class="muted">Colour: blue lowers the quantity, orange raises it, up to ${Math.abs(largest(grid)).toFixed(2)}. ${count(rows.length * row.effects.length)} readings.</p>`;
}

const largest = grid => Math.max(1e-9, ...grid.rows.map(row => Math.max(...row.effects.map(Math.abs))));

function strongest(grid) {
  let best = { row: 0, at: 0 };
  grid.rows.forEach((row, i) => row.effects.forEach((v, at) => {
    if (Math.abs(v) > Math.abs(grid.rows[best.row].effects[best.at])) best = { row: i, at };
  }));
  return best;
}

function width(grid) {
  const room = document.querySelector('.patches')?.clientWidth ?? 600;
  return Math.max(LEAST, Math.min(MOST, Math.floor((room - NAME) / grid.rows[0].effects.length)));
}

/** Paints the cells, with names of rows and tokens. */
export function paint(grid) {
  const canvas = document.querySelector('.patches canvas'), g = canvas.getContext('2d'), d = window.devicePixelRatio || 1;
  const { rows, tokens } = grid, scale = width(grid), columns = rows[0].effects.length, most = largest(grid);
  const w = NAME + columns * scale + 4, h = rows.length * ROW + (scale >= 12 ? LABELS : 4);
  Object.assign(canvas, { width: Math.round(w * d), height: Math.round(h * d) });
  canvas.style.width = `${w}px`;
  canvas.style.height = `${h}px`;
  g.setTransform(d, 0, 0, d, 0, 0);
  g.font = FONT;
  g.textBaseline = 'middle';
  rows.forEach((row, i) => {
    g.textAlign = 'right';
    g.fillStyle = css(i === cell.row ? '--text' : '--muted');
    g.fillText(nameOf(row), NAME - 8, (i + 0.5) * ROW, NAME - 8);
    row.effects.forEach((v, at) => {
      g.fillStyle = fill(colourAt(position(v, true, 'head', most), true));
      g.fillRect(NAME + at * scale, i * ROW, scale, ROW - 1);
    });
  });
  g.strokeStyle = css('--accent');
  g.lineWidth = 2;
  g.strokeRect(NAME + cell.at * scale, cell.row * ROW, scale, ROW - 1);
  if (scale < 12) return;
  for (let at = 0; at < columns; at++) {
    g.save();
    g.translate(NAME + (at + 0.5) * scale, rows.length * ROW + 4);
    g.rotate(-Math.PI / 2);
    g.textAlign = 'right';
    g.fillStyle = css(at === cell.at ? '--text' : '--muted');
    g.fillText(label(tokens[at]), 0, 0, LABELS - 8);
    g.restore();
  }
}
