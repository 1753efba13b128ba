// The heads of a report: a grid, a table and one head.
import { fill, inkOn, mix } from './colour.js';

const $ = id => document.getElementById(id);
const data = JSON.parse($('data').textContent);
const keys = Object.keys(data.scores);
// Of a head: layer, head, count, then these, then its windows.
const MEAN = 3, SD = 4, P5 = 6, P25 = 7, P50 = 8, P75 = 9, P95 = 10, LOWEST = 12, HIGHEST = 13;
const state = { score: keys[0], layer: 0, head: 0, by: MEAN, down: true };

const name = row => `${row[0]}.${row[1]}`;
const rows = key => data.scores[key].heads;
const id = row => `${row[0]},${row[1]}`;
const found = Object.fromEntries(keys.map(k => [k, new Map(rows(k).map(row => [id(row), row]))]));
const chosen = (key = state.score) => found[key].get(`${state.layer},${state.head}`);
const numbers = at => [...new Set(keys.flatMap(k => rows(k).map(row => row[at])))].sort((a, b) => a - b);
const layers = numbers(0), heads = numbers(1);
const largest = (key, at) => rows(key).reduce((most, row) => Math.max(most, row[at]), 0);
const tops = Object.fromEntries(keys.map(k => [k, { mean: largest(k, MEAN), spread: largest(k, P95) }]));

/** Three digits, never a false zero. */
function short(v) {
  const size = Math.abs(v);
  if (size > 0 && size < 0.0005) return v < 0 ? '>−0.001' : '<0.001';
  return size >= 1000 ? Math.round(v).toLocaleString('en') : v.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}
function element(tag, properties = {}, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key === 'class') e.className = value;
    else e.setAttribute(key, value);
  }
  e.append(...children);
  return e;
}
const button = (words, act, properties = {}) => {
  const e = element('button', { type: 'button', ...properties }, words);
  if (act) e.addEventListener('click', act);
  return e;
};

// ---- pictures

function paint(cell, position) {
  ['day', 'night'].forEach((name, i) => {
    const colour = mix(data.palettes[i], position);
    cell.style.setProperty(`--${name}`, fill(colour));
    cell.style.setProperty(`--${name}-ink`, inkOn(colour));
  });
}
const SVG = 'http://www.w3.org/2000/svg';
/** Where the values of a head lie, of 0 to top. */
function spread(row, top) {
  const svg = document.createElementNS(SVG, 'svg'), at = v => 100 * Math.max(0, Math.min(1, top > 0 ? v / top : 0));
  svg.setAttribute('class', 'spread');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `5 % ${short(row[P5])}, 25 % ${short(row[P25])}, median ${short(row[P50])}, 75 % ${short(row[P75])}, 95 % ${short(row[P95])}`);
  const bar = (kind, from, to, y, height) => {
    const rect = document.createElementNS(SVG, 'rect');
    rect.setAttribute('class', kind);
    rect.setAttribute('x', `${from.toFixed(2)}%`);
    rect.setAttribute('width', to === null ? 2 : `${Math.max(0.2, to - from).toFixed(2)}%`);
    rect.setAttribute('y', y);
    rect.setAttribute('height', height);
    if (to === null) rect.setAttribute('transform', 'translate(-1 0)');
    svg.append(rect);
  };
  bar('whole', at(row[P5]), at(row[P95]), 5, 4);
  bar('half', at(row[P25]), at(row[P75]), 2, 10);
  bar('median', at(row[P50]), null, 0, 14);
  return svg;
}

// ---- the grid

const cells = new Map();
function buildGrid() {
  const top = element('tr', {}, element('th', { scope: 'col' }, element('span', { class: 'hidden' }, 'layer')), ...heads.map(h => element('th', { scope: 'col' }, String(h))));
  const body = element('tbody');
  for (const layer of layers) {
    const line = element('tr', {}, element('th', { scope: 'row' }, String(layer)));
    for (const head of heads) {
      const cell = element('td', { role: 'gridcell', tabindex: -1 }, element('span'));
      cell.dataset.layer = layer;
      cell.dataset.head = head;
      cells.set(`${layer},${head}`, cell);
      line.append(cell);
    }
    body.append(line);
  }
  $('grid').append(element('thead', {}, top), body);
  $('grid').style.setProperty('--height', `${Math.max(18, Math.min(34, Math.floor(720 / layers.length)))}px`);
  body.addEventListener('click', e => {
    const cell = e.target.closest('td');
    if (cell && !cell.classList.contains('none')) choose(Number(cell.dataset.layer), Number(cell.dataset.head), true);
  });
  body.addEventListener('keydown', e => {
    const down = { ArrowUp: -1, ArrowDown: 1 }[e.key] ?? 0, right = { ArrowLeft: -1, ArrowRight: 1 }[e.key] ?? 0;
    if (!down && !right || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    const to = (list, from, by) => list[Math.max(0, Math.min(list.length - 1, list.indexOf(from) + by))];
    const layer = to(layers, state.layer, down), head = to(heads, state.head, right);
    if (cells.get(`${layer},${head}`).classList.contains('none')) return;
    choose(layer, head, true);
    cells.get(`${layer},${head}`).focus();
  });
  new ResizeObserver(() => {
    const width = $('grid').clientWidth / heads.length;
    $('grid').classList.toggle('numbers', width >= 36);
    $('grid').classList.toggle('tight', width < 18);
  }).observe($('grid'));
}
function drawGrid() {
  const { mean: top } = tops[state.score];
  for (const [key, cell] of cells) {
    const row = found[state.score].get(key);
    cell.classList.toggle('none', !row);
    cell.firstChild.textContent = row ? short(row[MEAN]) : '';
    if (row) {
      paint(cell, top > 0 ? row[MEAN] / top : 0);
      cell.title = `${name(row)}: mean ${short(row[MEAN])}`;
      cell.setAttribute('aria-label', `head ${name(row)}, ${short(row[MEAN])}`);
    } else {
      cell.removeAttribute('title');
      cell.setAttribute('aria-label', `head ${key.replace(',', '.')}, none`);
    }
  }
  data.palettes.forEach((stops, i) => $('colours').style.setProperty(['--day', '--night'][i], `linear-gradient(to right, ${stops.join(', ')})`));
  $('from').textContent = 'mean 0';
  $('to').textContent = short(top);
}

// ---- the table

const COLUMNS = [['head', -1], ['mean', MEAN], ['sd', SD, 'wide-only'], ['5 %', P5, 'wide-only'], ['median', P50], ['95 %', P95, 'wide-only']];
let lines = new Map();
function drawTable() {
  const { spread: top } = tops[state.score], sign = state.down ? -1 : 1;
  const inOrder = (a, b) => a[0] - b[0] || a[1] - b[1];
  const sorted = [...rows(state.score)].sort((a, b) => state.by < 0 ? -sign * inOrder(b, a) : sign * (a[state.by] - b[state.by]) || inOrder(a, b));
  const titles = element('tr', {}, ...COLUMNS.map(([words, by, css]) => {
    const sort = state.by !== by ? 'none' : state.down ? 'descending' : 'ascending';
    return element('th', { scope: 'col', 'aria-sort': sort, class: css ?? '' }, button(words, () => {
      state.down = state.by === by ? !state.down : by >= 0;
      state.by = by;
      drawTable();
      $('table').querySelectorAll('th button')[COLUMNS.findIndex(c => c[1] === by)].focus();
    }));
  }), element('th', { scope: 'col' }, `0 to ${short(top)}`));
  lines = new Map();
  const body = element('tbody');
  for (const row of sorted) {
    const line = element('tr', {}, element('th', { scope: 'row' }, button(name(row), null, { tabindex: -1 })),
      ...COLUMNS.slice(1).map(([, at, css]) => element('td', { class: css ?? '' }, short(row[at]))),
      element('td', {}, spread(row, top)));
    line.dataset.layer = row[0];
    line.dataset.head = row[1];
    lines.set(id(row), line);
    body.append(line);
  }
  $('table').replaceChildren(element('thead', {}, titles), body);
  $('table-name').textContent = `${data.scores[state.score].title}: ${sorted.length.toLocaleString('en')} ${sorted.length === 1 ? 'head' : 'heads'}`;
  $('cut').textContent = sorted.length > 60 ? `The first 60 of ${sorted.length.toLocaleString('en')} heads.` : '';
  mark();
}
function listenToTable() {
  $('table').addEventListener('click', e => {
    const line = e.target.closest('tbody tr');
    if (line) choose(Number(line.dataset.layer), Number(line.dataset.head));
  });
  $('table').addEventListener('keydown', e => {
    const line = e.target.closest('tbody tr');
    const next = line && (e.key === 'ArrowDown' ? line.nextElementSibling : e.key === 'ArrowUp' ? line.previousElementSibling : null);
    if (!next) return;
    e.preventDefault();
    choose(Number(next.dataset.layer), Number(next.dataset.head));
    next.querySelector('button').focus({ preventScroll: true });
  });
}

// ---- the chosen head

function drawHead() {
  const line = key => {
    const row = chosen(key);
    const open = button(data.scores[key].title, () => {
      select(key);
      $('scores').querySelector('tr.chosen button').focus();
    }, { 'aria-pressed': key === state.score });
    return element('tr', { class: key === state.score ? 'chosen' : '' }, element('th', { scope: 'row' }, open),
      ...(row ? [element('td', {}, short(row[MEAN])), element('td', { class: 'wide-only' }, short(row[SD])), element('td', {}, spread(row, tops[key].spread))]
        : [element('td', {}, '-'), element('td', { class: 'wide-only' }, '-'), element('td')]));
  };
  $('head-name').textContent = `Head ${state.layer}.${state.head}`;
  $('scores').replaceChildren(
    element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'score'), element('th', { scope: 'col' }, 'mean'),
      element('th', { scope: 'col', class: 'wide-only' }, 'sd'), element('th', { scope: 'col' }, 'spread'))),
    element('tbody', {}, ...keys.map(line)));
  const row = chosen();
  $('outliers').replaceChildren(...(row ? [outliers('Highest', row[HIGHEST]), outliers('Lowest', row[LOWEST])] : []));
}
function outliers(words, list) {
  const body = element('tbody');
  for (let i = 0; i < list.length; i += 4) {
    const [document, window, tokens, value] = list.slice(i, i + 4);
    body.append(element('tr', {}, element('td', {}, element('bdi', {}, data.documents[document]), ` window ${window}`),
      element('td', {}, tokens.toLocaleString('en')), element('td', {}, short(value))));
  }
  const head = element('tr', {}, ...['window', 'tokens', 'value'].map(each => element('th', { scope: 'col' }, each)));
  return element('div', {}, element('h4', {}, `${words}: ${data.scores[state.score].title}`), element('table', { class: 'list' }, element('thead', {}, head), body));
}

// ---- selection

let marked = [];
function mark(reveal) {
  for (const e of marked) {
    if (e.matches('tr')) {
      e.classList.remove('chosen');
      e.querySelector('button').tabIndex = -1;
    } else {
      e.removeAttribute('aria-selected');
      e.tabIndex = -1;
    }
  }
  const key = `${state.layer},${state.head}`, cell = cells.get(key), line = lines.get(key);
  cell.setAttribute('aria-selected', 'true');
  cell.tabIndex = 0;
  marked = [cell];
  if (line) {
    line.classList.add('chosen');
    line.querySelector('button').tabIndex = 0;
    marked.push(line);
    const box = $('table').parentElement, above = $('table').tHead.offsetHeight;
    if (line.offsetTop - above < box.scrollTop || line.offsetTop + line.offsetHeight > box.scrollTop + box.clientHeight) {
      box.scrollTop = line.offsetTop - above - (reveal ? (box.clientHeight - above) / 2 : 0);
    }
  }
}
function remember() {
  try {
    history.replaceState(null, '', `#score=${state.score}&layer=${state.layer}&head=${state.head}`);
  } catch { /* some viewers forbid it; the page works without */ }
}
function choose(layer, head, reveal) {
  Object.assign(state, { layer, head });
  drawHead();
  mark(reveal);
  remember();
}
function select(key) {
  state.score = key;
  draw();
  remember();
}
function draw() {
  $('score').value = state.score;
  $('about').textContent = data.scores[state.score].about;
  drawGrid();
  drawTable();
  drawHead();
}

const asked = new URLSearchParams(location.hash.slice(1));
if (keys.includes(asked.get('score'))) state.score = asked.get('score');
const first = found[state.score].get(`${asked.get('layer')},${asked.get('head')}`)
  ?? rows(state.score).reduce((most, row) => row[MEAN] > most[MEAN] ? row : most);
[state.layer, state.head] = first;
$('drawn').hidden = false;
buildGrid();
listenToTable();
$('score').addEventListener('change', () => select($('score').value));
draw();
