// This view as one file: what is shown now, without a script and without a server.
import { state } from './state.js';
import { shown } from './selection.js';
import { sentence } from './words.js';

const LEFT_OUT = 'button:not(.token, .link, .head), input, select, label, summary, progress, .buttons, .together, .second, .failures, [hidden], .hidden';

const STYLE = '#work { display: block; } .snapshot img { max-width: 100%; height: auto; } .snapshot { padding-bottom: 24px !important; }\n';

/** The page, as text of HTML. */
export async function snapshot() {
  const sheets = await Promise.all(['figure', 'workbench'].map(async name => (await fetch(`/page/${name}.css`)).text()));
  const page = document.implementation.createHTMLDocument(''), { body } = page;
  body.className = 'snapshot';
  const title = page.createElement('h1'), said = page.createElement('p'), name = page.createElement('title');
  title.textContent = `Attention in ${state.info.model}`;
  said.id = 'sentence';
  said.textContent = sentence(shown());
  name.textContent = `${state.info.model}: ${said.textContent}`;
  body.append(title, said, copyOf(document.getElementById('tokens'), page), copyOf(document.getElementById('stage'), page));
  return `<!doctype html>
<html lang="en" data-theme="${state.palette}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
${name.outerHTML}
<style>
${sheets.join('')}${STYLE}</style>
</head>
${body.outerHTML}
</html>
`;
}

/** A copy that needs no script: pictures of canvases, and nothing that can be pressed. */
function copyOf(part, page) {
  const copy = page.importNode(part, true);
  const canvases = [...part.querySelectorAll('canvas')];
  [...copy.querySelectorAll('canvas')].forEach((canvas, i) => {
    const picture = page.createElement('img'), from = canvases[i];
    picture.alt = '';
    picture.className = from.className;
    picture.setAttribute('width', from.clientWidth);
    if (from.width && from.height && from.clientWidth) picture.src = from.toDataURL('image/png');
    canvas.replaceWith(picture);
  });
  for (const details of copy.querySelectorAll('details')) details.replaceWith(...details.children);
  for (const left of copy.querySelectorAll(LEFT_OUT)) left.remove();
  for (const button of copy.querySelectorAll('button, a')) {
    const span = page.createElement('span');
    span.className = button.className.replace('link', '');
    span.style.cssText = button.style.cssText;
    if (button.getAttribute('aria-label')) span.title = button.getAttribute('aria-label');
    span.append(...button.childNodes);
    button.replaceWith(span);
  }
  for (const e of [copy, ...copy.querySelectorAll('*')]) {
    for (const name of ['tabindex', 'aria-controls', 'aria-labelledby', 'aria-describedby', 'data-i', 'aria-description']) e.removeAttribute(name);
  }
  return copy;
}
