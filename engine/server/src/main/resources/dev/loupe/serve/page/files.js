// Files that the browser saves.
import { getBlob } from './api.js';
import { update } from './state.js';

/** Lets the browser save a file. */
export function save(blob, name) {
  const a = document.createElement('a');
  a.href = URL.createObjectURL(blob);
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10_000);
}

/** Follows a link to a file. It cannot send the server's key: with one, the page fetches the file itself. */
export async function take(e) {
  if (!sessionStorage.getItem('key')) return;
  e.preventDefault();
  const { href, download } = e.currentTarget;
  await report(async () => save(await getBlob(href), download));
}

/** Does a task; what goes wrong becomes the page's one sentence. */
export async function report(task) {
  try {
    await task();
  } catch (error) {
    update({ error: error.message }, { history: 'none' });
  }
}
