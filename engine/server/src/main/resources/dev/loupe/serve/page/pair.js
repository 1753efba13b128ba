// Two small maps of a head: of the model as it is, and of the changed one.
import { html } from './lit-html.js';
import { byteColours } from './bytes.js';
import { thumbnail, thumbsPath } from './cells.js';
import { css, pixel } from './colour.js';
import { headName } from './spelling.js';
import { state } from './state.js';
import { onArrival, want } from './tiles.js';

/** The head of the model as it is that a head was cut from, or that it is. */
const sourceOf = head => Math.floor(head * state.base.n_head / state.run.n_head);

/** Calls fn when a picture that is missing has come. */
export const onPictures = fn => onArrival(path => {
  if (state.base && path.includes('/thumbs?')) fn();
});

export const pair = (layer, head) => html`<div class="pair-of-maps">
  <figure><canvas id="map-before" role="img" aria-label="Its map as it is"></canvas><figcaption>${headName(layer, sourceOf(head))}, as it is</figcaption></figure>
  <figure><canvas id="map-after" role="img" aria-label="Its map with the change"></canvas><figcaption>${headName(layer, head)}, changed</figcaption></figure></div>`;

/** Paints what pair() has put on the page. */
export function paintPair({ layer, head }) {
  const { info, base, run } = state;
  want('pair', base ? [thumbsPath(info, base, layer), thumbsPath(info, run, layer)] : []);
  if (!base) return;
  paint('map-before', base, layer, sourceOf(head));
  paint('map-after', run, layer, head);
}

function paint(id, run, layer, head) {
  const canvas = document.getElementById(id), picture = thumbnail(state.info, run, layer, head);
  if (!canvas || !picture) return;
  const side = picture.rows, mask = pixel(css('--mask')), colours = byteColours(false, 'sqrt', 1);
  if (canvas.width !== side) canvas.width = canvas.height = side;
  const image = new ImageData(side, side), out = new Uint32Array(image.data.buffer);
  for (let i = 0; i < side * side; i++) {
    out[i] = run.mask !== 'none' && i % side > Math.floor(i / side) ? mask : colours[picture.data[i]];
  }
  canvas.getContext('2d').putImageData(image, 0, 0);
}
