// The keys, and whether the page listens to them.
import { html, render } from './lit-html.js';

const KEYS = [
  ['↑ ↓', 'the query: the token that reads'],
  ['← →', 'the key: the token that is read; in the ribbon, the query'],
  ['Shift + arrows', 'layer and head'],
  ['1 to 5', 'Map, Lines, Lens, Numbers, Trace'],
  ['Space', 'replay the writing'],
  [', .', 'one step back, one step on'],
  ['m', 'the grid, large or small'],
  ['i', 'ignore the first token'],
  ['s', 'colour scale'],
  ['a', 'ablate the open head'],
  ['c', 'compare, or leave the comparison'],
  ['e', 'export'],
  ['/', 'the prompt; Ctrl or Cmd + Enter generates'],
  ['n b', 'next and previous step of a lesson'],
  ['?', 'this help'],
  ['Esc', 'close, stop'],
];

export const keysOn = () => localStorage.getItem('keys') !== 'off';

export function openHelp(dialog) {
  draw(dialog);
  dialog.showModal();
}

function draw(dialog) {
  render(html`<form method="dialog">
    <h2 id="help-name">How to read this page</h2>
    <p>Row i is what token i reads; from it the model predicts token i + 1. Weights say what a head looked at; only replacing its output says what it changes. Log-probabilities and surprise are in nats (natural logarithm).</p>
    <dl>${KEYS.map(([keys, what]) => html`<dt><kbd>${keys}</kbd></dt><dd>${what}</dd>`)}</dl>
    <p class="buttons"><button type="button" aria-pressed=${keysOn()} @click=${() => {
      localStorage.setItem('keys', keysOn() ? 'off' : 'on');
      draw(dialog);
    }}>Keys ${keysOn() ? 'on' : 'off'}</button> <span class="muted">Off: only Tab, Enter and what has the focus.</span></p>
    <p class="buttons"><button class="main" value="close">Close</button></p>
  </form>`, dialog);
}
