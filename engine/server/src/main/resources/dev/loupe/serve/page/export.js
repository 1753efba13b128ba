// What can be taken away: a picture of the map as it is zoomed, its numbers, its sentence.
import { html, render, nothing } from './lit-html.js';
import { axes, axisLabel, ink, labelFont, widestLabel } from './axes.js';
import { level, paintCells, tilesIn } from './cells.js';
import { css, stopsOf } from './colour.js';
import { report, save, take } from './files.js';
import { KINDS, scaleWords, ticks } from './legend.js';
import { mapColours, source, view } from './map.js';
import { shown } from './selection.js';
import { snapshot } from './snapshot.js';
import { headName } from './spelling.js';
import { state, subscribe } from './state.js';
import { fetchAll, mapKind } from './tiles.js';
import { tracePage } from './trace.js';
import { sentence, textOf } from './words.js';

const SVG = 'http://www.w3.org/2000/svg', PLOT = 960, GAP = 16;

let root;

export function mount(element) {
  root = element;
  document.addEventListener('pointerdown', e => { if (!root.contains(e.target)) close(); });
  root.addEventListener('keydown', e => {
    if (e.key !== 'Escape' || !menu()?.open) return;
    e.stopPropagation();
    close();
    root.querySelector('summary').focus();
  });
  subscribe((_, names) => { if (['run', 'info', 'layer', 'head', 'base', 'of'].some(name => names.has(name)) || menu()?.open) draw(); });
}

const menu = () => root.querySelector('details');
function close() {
  if (menu()) menu().open = false;
}
/** Opened by whatever: the keyboard goes on inside. */
function toggled() {
  draw();
  if (menu().open) root.querySelector('.menu button').focus();
}

function draw() {
  if (!state.run) return render(nothing, root);
  const head = headName(state.layer, state.head), of = `/api/runs/${state.run.id}/export`;
  const link = (format, all) => html`<a class="button" href=${`${of}?as=${format}${all ? '' : `&l=${state.layer}&h=${state.head}`}`}
    download=${`${fileName(all)}.${format}`} @click=${e => { close(); take(e); }}>${format}</a>`;
  render(html`<details class="menu-box" @toggle=${toggled}><summary class="button">Export</summary><div class="menu">
    <p>${state.of === 'weights' ? '' : `${KINDS[mapKind()][0]}: `}Map of head ${head}${state.base ? ', difference' : ''}, as zoomed</p>
    <div class="buttons"><button type="button" @click=${() => figure('svg')}>SVG</button><button type="button" @click=${() => figure('png')}>PNG</button></div>
    <p>Numbers of head ${head}${state.of === 'weights' ? '' : ': attention weights'}</p><div class="buttons">${['npz', 'json', 'csv'].map(format => link(format, false))}</div>
    <p>Numbers of all heads; html: a page of all maps</p><div class="buttons">${['npz', 'json', 'csv', 'html'].map(format => link(format, true))}</div>
    <p>This view, as one file without a server</p><div class="buttons"><button type="button" @click=${wholeView}>HTML</button></div>
    <p class="wide">${sentence(shown(), '`')}</p><div class="buttons"><button type="button" @click=${copy}>Copy sentence</button></div>
  </div></details>`, root);
}

/** loupe-shakespeare-5.1, by model and head. */
function fileName(all = false) {
  const model = state.info.model.replace(/^.*[/\\]/, '').replace(/[^A-Za-z0-9._-]+/g, '-');
  return `loupe-${model}${all ? '' : `-${headName(state.layer, state.head)}`}`;
}

/** What is shown now; a trace has a page of its own. */
async function wholeView() {
  close();
  await report(async () => {
    const page = (state.view === 'trace' && tracePage()) || await snapshot();
    save(new Blob([page], { type: 'text/html' }), `${fileName(true)}-${state.view}.html`);
  });
}

async function copy() {
  await report(() => navigator.clipboard.writeText(sentence(shown(), '`')));
  close();
}

async function figure(format) {
  close();
  await report(async () => {
    const svg = await draft(), name = `${fileName()}${state.base ? '-difference' : ''}.${format}`;
    const blob = new Blob([new XMLSerializer().serializeToString(svg)], { type: 'image/svg+xml' });
    save(format === 'svg' ? blob : await rasterised(blob, svg), name);
  });
}

/** Twice the figure's size, whatever the screen's pixels are. */
async function rasterised(blob, svg) {
  const image = new Image(), url = URL.createObjectURL(blob);
  image.src = url;
  await image.decode();
  const canvas = document.createElement('canvas');
  canvas.width = 2 * svg.getAttribute('width');
  canvas.height = 2 * svg.getAttribute('height');
  canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  return new Promise(resolve => canvas.toBlob(resolve, 'image/png'));
}

// ---- the figure: cells as a picture, all else as lines and letters

function element(parent, name, attributes, text) {
  const e = parent.ownerDocument.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = clean(text);
  parent.append(e);
  return e;
}
/** What XML cannot hold, shown as its sign. */
const clean = text => text.replace(/[\u0000-\u001f]/g, c => String.fromCharCode(0x2400 + c.charCodeAt(0)))
  .replace(/[\ufffe\uffff\ud800-\udfff]/gu, '\ufffd');

/** The part that is in view, at a scale of its own. */
function plotOf(run) {
  const T = run.tokens.length, columns = Math.min(T, Math.ceil(view.width / view.scale)), rows = Math.min(T, Math.ceil(view.height / view.scale));
  const most = PLOT / Math.max(columns, rows), scale = most >= 1 ? Math.min(48, Math.floor(most)) : most;
  const room = Math.min(180, widestLabel(run) * 1.1 + 12);
  return { scale, row: Math.min(Math.floor(view.row), T - rows), column: Math.min(Math.floor(view.column), T - columns),
    width: Math.floor(columns * scale), height: Math.floor(rows * scale), left: room, bottom: room };
}

async function draft() {
  const of = source(), { run } = of, plot = plotOf(run), scale = mapColours(of);
  const paths = tilesIn(plot, of, level(plot.scale)).map(tile => tile.path);
  await fetchAll('export', scale.path ? [scale.path, ...paths] : paths);
  const { colours, largest } = mapColours(of);
  const image = new ImageData(plot.width, plot.height), canvas = document.createElement('canvas');
  paintCells(image, plot, of, colours, null);
  canvas.width = plot.width;
  canvas.height = plot.height;
  canvas.getContext('2d').putImageData(image, 0, 0);

  const width = Math.ceil(GAP + plot.left + Math.max(plot.width, 420) + GAP);
  const lines = wrapped(caption(of), width - 2 * GAP);
  const under = GAP + plot.height + plot.bottom + GAP;
  const height = Math.ceil(under + 36 + lines.length * 18 + GAP);
  // A document of its own: in the page's, the picture would be loaded, and its policy forbids that.
  const svg = document.implementation.createDocument(SVG, 'svg').documentElement;
  for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(key, value);
  element(svg, 'title', {}, lines.join(''));
  element(svg, 'rect', { width, height, fill: css('--ground') });
  const cells = element(svg, 'g', { transform: `translate(${GAP + plot.left} ${GAP})` });
  element(cells, 'image', { width: plot.width, height: plot.height, href: canvas.toDataURL('image/png'), preserveAspectRatio: 'none', 'image-rendering': 'pixelated' });
  labels(cells, plot, run);
  ramp(element(svg, 'g', { transform: `translate(${GAP + plot.left} ${under})` }), largest, Boolean(of.base));
  lines.forEach((line, i) => element(svg, 'text', { x: GAP, y: under + 52 + 18 * i, fill: css('--text'),
    'font-family': 'system-ui, sans-serif', 'font-size': 13 }, line));
  return svg;
}

function labels(parent, plot, run) {
  const { rows, columns } = axes(plot, run, 1), g = document.createElement('canvas').getContext('2d');
  labelFont(g, 1);
  const font = { 'font-family': 'ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace', 'font-size': 12, 'text-anchor': 'end', 'dominant-baseline': 'central', 'xml:space': 'preserve' };
  for (const { token, at } of rows) {
    element(parent, 'text', { ...font, x: -6, y: at, fill: ink(run, token) }, axisLabel(g, run, token, plot.left - 10));
  }
  for (const { token, at } of columns) {
    element(parent, 'text', { ...font, transform: `translate(${at} ${plot.height + 6}) rotate(-90)`, fill: ink(run, token) },
      axisLabel(g, run, token, plot.bottom - 10));
  }
}

function ramp(parent, largest, diverging) {
  const gradient = element(element(parent, 'defs', {}), 'linearGradient', { id: 'ramp' });
  const stops = stopsOf(diverging);
  stops.forEach((stop, i) => element(gradient, 'stop', { offset: i / (stops.length - 1), 'stop-color': stop }));
  element(parent, 'rect', { width: 400, height: 12, fill: 'url(#ramp)' });
  let end = -Infinity;
  for (const { at, text } of ticks(diverging, largest)) {
    if (at * 400 < end) continue;
    end = at * 400 + 36;
    element(parent, 'text', { x: at * 400, y: 26, fill: css('--muted'), 'text-anchor': 'middle', 'font-family': 'system-ui, sans-serif', 'font-size': 12 }, text);
  }
}

function caption({ run, base, layer, head, shift, kind }) {
  const all = textOf(run.tokens).replace(/\n+/g, ' ↵ '), text = all.length > 160 ? `${all.slice(0, 160).toWellFormed()}…` : all;
  const off = run.changes.map(c => `${headName(c.layer, c.head)} ${c.mean ? 'at its mean' : c.factor ? `times ${c.factor}` : 'off'}`).join(', ');
  return [`${kind === 'rollout' ? `Rollout up to layer ${layer}` : `Attention of head ${headName(layer, head)}`} of ${state.info.model}, layers and heads from 0.`,
    off && (base ? `With ${off}, less without.` : `With ${off}.`), shift ? 'The first token is left out.' : '',
    `Colour: ${scaleWords(Boolean(base))}.`, 'Rows read columns.', `Text: “${text}”`].filter(Boolean).join(' ');
}

function wrapped(text, width) {
  const g = document.createElement('canvas').getContext('2d'), lines = [''];
  g.font = '13px system-ui, sans-serif';
  for (const word of clean(text).split(/(?<= )/)) {
    if (g.measureText(lines.at(-1) + word).width > width * 0.95 && lines.at(-1)) lines.push('');
    lines[lines.length - 1] += word;
  }
  return lines;
}
