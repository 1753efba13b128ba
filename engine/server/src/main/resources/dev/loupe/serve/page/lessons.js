// Five short lessons. A step is a state of the page and a few sentences; every number in them is the model's own,
// read from what the page shows at that moment.
import { html, nothing, render } from './lit-html.js';
import { headsByPush, lensAt } from './lens.js';
import { numbersAt } from './numbers.js';
import { deltaOf } from './ribbon.js';
import { compareWith, readText } from './runs.js';
import { shown } from './selection.js';
import { brief, headName, plural, short, signed } from './spelling.js';
import { state, subscribe, update } from './state.js';
import { rowOf } from './tiles.js';
import { sentencesOfTrace } from './trace.js';
import { sentenceWords, tokenWords } from './words.js';

const TWICE = 'The priest is ready, sir.\nThe priest is ready, sir.';
const WAIT = '…'; // until a number has come

let panel, links, large = false;

/** The head that does most of something on repeated random tokens. */
function head(role) {
  const best = (state.heads?.heads ?? []).reduce((a, b) => (b.scores[role] ?? -1) > (a?.scores[role] ?? -1) ? b : a, null);
  return best ? { layer: best.layer, head: best.head } : { layer: 0, head: 0 };
}
const nameOf = ({ layer, head: h }) => headName(layer, h);
const half = () => Math.floor(state.run.tokens.length / 2);
const nats = i => { const { logprob } = state.run.tokens[i]; return logprob == null ? WAIT : `${(-logprob).toFixed(1)} nats`; };
const probability = i => { const { logprob } = state.run.tokens[i]; return logprob == null ? WAIT : short(Math.exp(logprob)); };
const mean = (from, to) => {
  const list = state.run.tokens.slice(from, to).filter(t => t.logprob != null).map(t => -t.logprob);
  return list.length ? (list.reduce((a, b) => a + b, 0) / list.length).toFixed(2) : WAIT;
};
const here = () => sentenceWords(shown());
/** The token of the second line that repeats the third of the first, and what it is to be followed by. */
const again = () => half() + 2;
const lens = () => lensAt(state.base ?? state.run, state.query);

export const LESSONS = [
  { title: 'Tokens and surprise', link: 'Tokens', steps: [
    { set: () => ({ view: 'map', query: 2 }), words: () => html`A model reads tokens: words, or pieces of words. This text has ${state.run.tokens.length}. A dot stands for a space: ${tokenWords(1)} begins with one.` },
    { set: () => ({ view: 'map', query: 4 }), words: () => html`Before it reads a token, the model has predicted it. The bar under ${tokenWords(4)} is the probability that it had: ${probability(4)}. Its surprise is minus the natural logarithm of that: ${nats(4)}. Darker tokens were more of a surprise.` },
    { set: () => ({ view: 'map', query: again() }), words: () => html`The second line repeats the first. The mean surprise of a token was ${mean(1, half())} nats in the first half and is ${mean(half(), state.run.tokens.length)} in the second. Something in the model looks back.` },
  ] },
  { title: 'One row of attention', link: 'One row', steps: [
    { set: () => ({ ...head('previous_token'), view: 'map', query: 4 }), words: () => html`A row of the map is one token that reads; its cells are the tokens that it reads. ${here()} The weights of a row add up to 1.` },
    { set: () => ({ ...head('previous_token'), view: 'numbers', query: 4 }), words: () => withNumbers(({ at, row }) => html`The token’s query and the other’s key are lists of ${row.q.length} numbers. Multiplied place by place and added up they give ${at.products.reduce((a, b) => a + b, 0).toFixed(2)}; times ${short(row.scale)} that is the score ${at.score.toFixed(2)}. Press another token in the table to see its score.`) },
    { set: () => ({ ...head('previous_token'), view: 'numbers', query: 4 }), words: () => withNumbers(({ at, row }) => html`Later tokens are masked: ${plural(row.masked.length, 'token')} cannot be read. The softmax turns the scores of the others into weights: e to the power of ${at.score.toFixed(2)}, divided by the sum over all keys, is ${short(at.weight)}.`) },
    { set: () => ({ ...head('previous_token'), view: 'numbers', query: 4 }), words: () => withNumbers(({ at, row }) => html`Each token also has a value. The head adds up the values by these weights and writes the sum to the residual stream, the vector that later layers read. This token’s part of it has length ${at.added_norm.toFixed(2)}; all of it changes the logit of the next token by ${signed(row.target.direct, 3)} directly.`) },
  ] },
  { title: 'Previous-token and induction heads', link: 'Induction', steps: [
    { set: () => ({ ...head('previous_token'), view: 'map', query: 4 }), words: () => html`Head ${nameOf(head('previous_token'))} reads the token just before: the line below the diagonal. On this text ${scoreOf('previous_token', head('previous_token'))} of its attention goes there.` },
    { set: () => ({ ...head('induction'), view: 'map', query: again() }), words: () => html`Head ${nameOf(head('induction'))} reads what came after an earlier copy of the same token. ${here()} The token before that one is ${before()}.` },
    { set: () => ({ ...head('induction'), view: 'trace', query: again(), asked: { what: 'circuit', against: '', ablation: '', mlps: false, second: null } }), words: () => html`How does the second head know what came before a token? Press Start trace: each head is replaced in turn, and the text is read again. ${traced()}` },
  ] },
  { title: 'Why this token', link: 'Why this token', steps: [
    { set: () => ({ view: 'lens', query: again() }), words: () => withLens(l => html`After each layer the lens asks what the model would say if it stopped there. The token that follows is ${tokenWords(state.query + 1)}: its probability goes from ${short(Math.exp(l.layers[0].logprob))} before the first layer to ${short(Math.exp(l.layers.at(-1).logprob))} after the last.`) },
    { set: () => ({ view: 'lens', query: again() }), words: () => withLens(l => html`Every head writes to the residual stream, and from there to the logits. The largest direct effect on this token’s logit is that of head ${nameOf(headsByPush(l)[0])}: ${signed(headsByPush(l)[0].adds)}. A direct effect leaves out what later layers make of it.`) },
    { set: () => ({ ...strongest(), view: 'map', query: again() }), changes: () => [{ ...strongest(), factor: 0 }], words: () => html`To know what a head changes, take it away. With the output of head ${state.run.changes.map(nameOf).join(', ') || WAIT} set to zero, the log-probability of ${tokenWords(state.query + 1)} changes by ${state.base ? signed(deltaOf(state.query + 1)) : WAIT} nats.` },
  ] },
  { title: 'What breaks without the mask', link: 'The mask', steps: [
    { set: () => ({ layer: 0, head: 0, view: 'map', query: 0 }), words: () => html`A GPT-2 writes from left to right. So a token may read itself and what came before, and nothing later: grey in the map. The first token has itself alone to read: ${weightOf(0, 0)}.` },
    { set: () => ({ layer: 0, head: 0, view: 'map', query: 0 }), mask: 'none', words: () => html`Here the mask is taken away: every token reads all of them. The first now gives itself ${weightOf(0, 0)} of its attention, and the rest to tokens that come later.` },
    { set: () => ({ layer: 0, head: 0, view: 'map', query: again() }), mask: 'none', words: () => html`The model was never trained like this, and each token now sees the one that it has to predict. Its predictions after ${tokenWords(state.query)} are ${state.compare ? short(state.compare.divergences[state.query]) : WAIT} nats (KL) away from those with the mask.` },
  ] },
];

function withNumbers(words) {
  const row = numbersAt();
  if (!row || row.error) return WAIT;
  return words({ row, at: row.keys[Math.max(0, Math.min(shown().key, row.query))] });
}
const withLens = words => { const answer = lens(); return answer && !answer.error ? words(answer) : WAIT; };
const scoreOf = (role, { layer, head: h }) => { const score = state.stats?.scores?.[role]?.[layer]?.[h]; return score == null ? WAIT : brief(score); };
const weightOf = (query, key) => { const row = rowOf(state.layer, state.head, query); return row ? brief(row[key]) : WAIT; };
const before = () => { const { key } = shown(); return key > 0 ? tokenWords(key - 1) : WAIT; };
const strongest = () => { const answer = lens(); return answer && !answer.error ? { layer: headsByPush(answer)[0].layer, head: headsByPush(answer)[0].head } : head('induction'); };
const traced = () => sentencesOfTrace().filter(s => s.basis === 'intervention' && / in the keys of /.test(s.text)).slice(0, 1).map(s => html`<b>${s.text}</b>`);

// ---- going

export function mount(where, list) {
  [panel, links] = [where, list];
  subscribe((_state, names) => {
    if (names.has('info')) drawLinks();
    draw();
  });
}

/** Goes to a step, from wherever the page is. */
export async function go(id, step) {
  const { set, changes, mask } = LESSONS[id].steps[step];
  update({ lesson: { id, step } }, { history: 'none' });
  await readText(TWICE, set);
  if (changes) await compareWith({ changes: changes() }, set());
  if (mask) await compareWith({ changes: [], mask }, set());
}

/** The next step, or the one before; nothing at the ends and outside of lessons. */
export function move(by) {
  const { lesson } = state;
  if (lesson && LESSONS[lesson.id].steps[lesson.step + by]) go(lesson.id, lesson.step + by);
}

function drawLinks() {
  render(!state.info?.text ? nothing : html`Lessons: ${LESSONS.map(({ link, title }, id) => html`<button class="link" type="button" title=${title} @click=${() => go(id, 0)}>${link}</button> `)}`, links);
}

function draw() {
  const { lesson, run } = state;
  panel.hidden = !lesson || !run;
  if (panel.hidden) return render(nothing, panel);
  const { title, steps } = LESSONS[lesson.id];
  panel.classList.toggle('large', large);
  render(html`<h2>${title} <span class="muted">${lesson.step + 1} of ${steps.length}</span></h2>
    <p aria-live="polite">${state.busy ? WAIT : steps[lesson.step].words()}</p>
    <div class="buttons">
      <button type="button" ?disabled=${lesson.step === 0} @click=${() => move(-1)}>Back</button>
      <button type="button" class="main" ?disabled=${lesson.step === steps.length - 1} @click=${() => move(1)}>Next</button>
      <button type="button" aria-pressed=${large} @click=${() => { large = !large; draw(); }}>Large text</button>
      <button type="button" @click=${() => update({ lesson: null })}>Leave the lesson</button></div>`, panel);
}
