// What the server answered to a look at a run, kept by its path.
import { getJson } from './api.js';
import { state, update } from './state.js';

const MOST = 64;
const answers = new Map(); // path -> the answer, {error}, or null while it is on its way

/** The answer; null until it came, and then state.rows is raised. */
export function answerTo(path) {
  if (!answers.has(path)) {
    if (answers.size > MOST) answers.delete(answers.keys().next().value);
    answers.set(path, null);
    const put = answer => {
      answers.set(path, answer);
      update({ rows: state.rows + 1 }, { history: 'none' });
    };
    getJson(path).then(put, error => put({ error: error.message }));
  }
  return answers.get(path);
}

/** Forgets errors, so that the next look asks again. */
export function retryAnswers() {
  for (const [path, answer] of answers) if (answer?.error) answers.delete(path);
  update({ rows: state.rows + 1 }, { history: 'none' });
}

/** The run that the server can look into: of the model as it is. */
export const plainRun = () => {
  const run = state.base ?? state.run;
  return run && !run.changes.length && run.mask === 'causal' && run.n_head === state.info.n_head ? run : null;
};
