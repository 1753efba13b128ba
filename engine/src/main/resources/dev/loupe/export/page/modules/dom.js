// Making parts of a page.

/** A new element, with its text. */
export function element(tag, className = '', text = undefined) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}
