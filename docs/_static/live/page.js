// The live page: what the reader chose, and the run that follows from it. Engine and weights are fetched for the first run.

import { drawCompared, drawSwitches, namesOf } from "./change.js";
import { room, sessionOf } from "./session.js";
import { drawWork } from "./work.js";

const { el, start, stop, visible, words: TRACE } = globalThis.zooTrace;
const root = document.querySelector(".zoo-live"), out = root.querySelector(".live"), form = root.querySelector("form");
const find = (selector, inside = root) => inside.querySelector(selector);
const all = (selector, inside = root) => [...inside.querySelectorAll(selector)];
const [words, recorded] = ["words", "recorded"].map((name) => JSON.parse(find(`script.${name}`).textContent)), language = root.lang.startsWith("zh") ? "zh" : "en";
const say = (name, values = {}) => words[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);

const SAMPLING = { temperature: [0, 2], top_k: [0, 4096], top_p: [0.01, 1], min_p: [0, 1] };
const FIRST = { model: "llama", prompt: "", task: "", variant: "", cache: "1", temperature: 0, top_k: 0, top_p: 1, min_p: 0, steps: 0 };
const WAIT = 250; // ms after the last key
const MASK = "[MASK]";
const KIND = { bert: "masked", transformer: "source" }; // of the text that a model reads, where it is no prompt
const MOST = 64; // tokens that an address asks for
let state, off, written, session, trace, engine, typing, ticket = 0;
const models = new Map();

// Within another page: `?embed=attention` leaves the prompt and the layers.
const query = new URLSearchParams(location.search);
if (query.get("model")?.endsWith(".gguf")) query.delete("model"); // of talk_page.js
document.documentElement.classList.toggle("zoo-embed", query.get("embed") === "attention");

// The address keeps the text, what is changed in the model, how tokens are chosen, and what was written.
function readAddress() {
  const own = new URLSearchParams(location.hash.slice(1).replace(/\+/g, "%2B")), asked = own.has("model") ? own : query;
  state = { ...FIRST };
  for (const name of ["model", "prompt", "variant", "cache", "task"]) state[name] = asked.get(name) ?? FIRST[name];
  for (const [name, [low, high]] of Object.entries({ ...SAMPLING, steps: [0, MOST] })) {
    const value = parseFloat(asked.get(name));
    if (Number.isFinite(value)) state[name] = Math.min(Math.max(value, low), high);
  }
  if (state.cache !== "0") state.cache = FIRST.cache;
  if (!Object.hasOwn(words.models, state.model)) state.model = FIRST.model;
  if (!asked.has("prompt")) [state.prompt] = promptsOf(state.model);
  off = new Set((asked.get("off") ?? "").split(",").filter(Boolean));
  written = idsOf(asked.get("written"));
  return asked.has("model");
}
const promptsOf = (model) => Object.values(words.prompts[model]).flat(); // of all topics
const idsOf = (text) => (text ?? "").split(".").filter(Boolean).map(Number);
function writeAddress() {
  const kept = { model: state.model, prompt: state.prompt };
  for (const name of ["task", "variant", "cache", ...Object.keys(SAMPLING)]) if (state[name] !== FIRST[name]) kept[name] = state[name];
  if (off.size) kept.off = [...off].join(",");
  for (const [name, value] of Object.entries(session.kept)) if (value) kept[name] = value;
  const pairs = Object.entries(kept).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  history.replaceState(null, "", `#${pairs.join("&")}`);
}

const tokensOf = (count) => say(count === 1 ? "tokens_one" : "tokens_many", { count });
const title = () => words.models[state.model][0];
const settings = () => Object.fromEntries(Object.keys(SAMPLING).map((name) => [name, state[name]]));
const tell = (text) => (find(".status").textContent = text);
function fail(text) {
  const box = find(".error");
  box.textContent = text;
  box.hidden = !text;
  if (text) tell("");
  stale(Boolean(text));
}
// What is shown is of an earlier run: it is dimmed, and cannot be used.
function stale(is) {
  out.classList.toggle("stale", is);
  out.inert = is;
}

// The form follows the state.
function showForm() {
  for (const input of form.elements.model) input.checked = input.value === state.model;
  const box = form.elements.prompt;
  if (box.value !== state.prompt) box.value = state.prompt;
  find(".knows").textContent = say(KIND[state.model] === "source" ? "knows_source" : "knows");
  find(".asked label").textContent = say(KIND[state.model] ?? "prompt");
  const examples = find(".examples"), shown = examples.dataset.model === state.model;
  examples.dataset.model = state.model;
  const example = (text) => el("button", { type: "button", onclick: () => { box.value = text; typed(0); } }, text);
  const topic = ([name, prompts]) => el("div", { role: "group", "aria-label": name }, el("span", { class: "label" }, name), ...prompts.map(example));
  if (!shown) examples.replaceChildren(...Object.entries(words.prompts[state.model]).map(topic));
  showTask(words.task_list.find((one) => one.name === state.task));
}
function showTask(task) {
  const told = find(".task"), link = ([text, set]) => [el("a", { href: `#task=${task.name}&${set}` }, text), " "];
  told.hidden = !task;
  if (task) told.replaceChildren(el("b", {}, `${task.title}: `), `${task.text} `, ...task.links.flatMap(link));
  for (const one of all(".tasks a")) {
    if (one.dataset.task === task?.name) one.setAttribute("aria-current", "true");
    else one.removeAttribute("aria-current");
  }
}

// The model of a name, loaded once; where that failed, it is tried again.
async function loaded(name) {
  if (!models.has(name)) models.set(name, load(name));
  try {
    return await models.get(name);
  } catch (error) {
    models.delete(name);
    throw error;
  }
}
async function load(name) {
  const bar = find("progress"), size = (bytes) => (bytes / 1e6).toFixed(1);
  bar.removeAttribute("value");
  bar.hidden = false;
  stale(true);
  tell(say("starting", { model: title() }));
  const progress = (done, total) => {
    if (name !== state.model) return;
    bar.value = done / total;
    tell(say("loading", { model: title(), done: size(done), total: size(total) }));
  };
  try {
    engine ??= await import("./engine.js");
    return await engine.loadModel(root.dataset.models + name, { progress });
  } finally {
    bar.hidden = true;
  }
}

// Run the model as the state says; of several runs that were asked for, the last is made.
async function run() {
  const mine = ++ticket;
  clearTimeout(typing);
  fail("");
  if (!state.prompt.trim()) return fail(say("empty"));
  try {
    const model = await loaded(state.model);
    if (mine !== ticket) return;
    const began = performance.now(), before = session?.model;
    session = begin(model);
    if (before !== model) showChange(model);
    stale(false);
    show();
    const tokens = tokensOf(session.text.length + (session.source?.T ?? 0));
    if (model.kind === "encoder" && !session.masks.length) return tell(say("no_mask"));
    tell(say("ready", { model: title(), tokens, time: Math.round(performance.now() - began) }));
  } catch (error) {
    if (mine === ticket) fail(error.message);
  }
}
// The session that the state describes, without what the model does not have.
function begin(model) {
  const { tokenizer } = model, limit = model.context - room(model), ids = tokenizer.encode(state.prompt, limit);
  if (!ids) throw new Error(say("too_long", { model: title(), limit }));
  const variant = model.variants().find((one) => one.id === state.variant), known = namesOf(model.recipe, say);
  state.variant = variant?.id ?? "";
  for (const address of [...off]) if (!known.has(address)) off.delete(address);
  written = written.filter((id) => tokenizer.vocab[id] !== undefined);
  const { steps, cache } = state, given = { ids, off, written, steps, cached: cache === "1", settings: settings() };
  state.steps = 0;
  return sessionOf(engine, model, { ...given, recipe: variant?.recipe ?? model.recipe });
}

// What can be changed in a model: its variants and its switches.
function showChange(model) {
  const variants = model.variants(), option = ({ id }) => el("option", { value: id }, words[id] ?? id);
  find("[name=variant]").replaceChildren(el("option", { value: "" }, say("variant_none")), ...variants.map(option));
  find(".variants").hidden = !variants.length;
  showSwitches = drawSwitches(find(".switches"), model.recipe, () => off, say, changed);
}
let showSwitches;

// A change of the model: the text that was written stays.
function changed() {
  const kept = session.kept;
  state.steps = kept.steps ?? 0;
  written = idsOf(kept.written);
  run();
}
// A text that was typed: it is read from its beginning.
function typed(wait = WAIT) {
  Object.assign(state, { prompt: form.elements.prompt.value, steps: 0, task: "" });
  written = [];
  showForm();
  clearTimeout(typing);
  typing = setTimeout(run, wait);
}

// The text for another model: masks for BERT alone, an example where the last one was an example of another task.
function promptFor(model) {
  const { prompt } = state, from = KIND[state.model], to = KIND[model];
  if (from === to) return prompt;
  const isExample = promptsOf(state.model).includes(prompt), [start] = prompt.split(MASK), chinese = /[一-鿿]\s*$/.test(start);
  if (to === "source" || (from === "source" && isExample)) return isExample ? promptsOf(model)[0] : prompt;
  if (to === "masked") return prompt.includes(MASK) ? prompt : `${start}${chinese ? "" : " "}${MASK}${chinese ? "。" : "."}`;
  return start.trimEnd() || promptsOf(model)[0];
}

// The parts of a trace, and the field of the view that each draws.
const ENDS = { choice: "decisions", masks: "masks", uncovering: "unmasking" };
const FIELDS = { ...ENDS, layers: "layers", lens: "lens", pieces: "tracks", vectors: "before", output: "after" };
// Everything that a run shows.
function show() {
  const data = session.view(language), { model } = session, last = model.recipe.decoder ?? model.recipe;
  const shapes = { width: last.embedding.dim, heads: last.layers[0].mixer.heads, vocabulary: last.embedding.vocab };
  showView({ data, why: model.words[language], shapes });
  showSwitches();
  showVariant();
  showCompared();
  showSteps();
  if (session.steps.length) drawWork(find(".strips"), find(".totals"), session.steps, state.cache === "1", say);
  for (const input of all("[name=cache]")) input.checked = input.value === state.cache;
  writeAddress();
}
// The parts of a view, and the sentences that explain them: of a run of the reader's, or of the one that the page holds.
function showView({ data, why, shapes }) {
  root.classList.toggle("recorded", !session);
  out.hidden = false;
  out.style.minHeight = `${out.offsetHeight}px`; // so that the page does not jump while its parts are drawn anew
  for (const [name, field] of Object.entries({ ...FIELDS, work: "" })) {
    const { length } = data[field] ?? session?.steps ?? [];
    const section = find(`[data-show=${name}]`), holder = find(".holder", section);
    section.hidden = !length;
    holder?.replaceChildren();
    if (length) holder?.setAttribute("data-part", name);
    else holder?.removeAttribute("data-part");
  }
  const routed = data.layers.some((layer) => layer.experts.length);
  for (const text of all("[data-why]")) text.textContent = text.dataset.why === "experts" && !routed ? "" : why[text.dataset.why] ?? "";
  drawTrace(data, shapes);
  showFlow(data, shapes);
  out.style.minHeight = "";
}
// The way of a text through the model, with shapes; each step leads to its part of the page.
function showFlow(data, { width, heads, vocabulary }) {
  const next = data.decisions.at(-1)?.token, piece = data.vocabulary[next] ?? session?.model.tokenizer.piece(next);
  const count = data.tracks.reduce((sum, track) => sum + track.read, 0), end = Object.keys(ENDS).find((name) => data[ENDS[name]].length);
  const steps = {
    pieces: tokensOf(count),
    vectors: say("flow_vectors", { rows: count, width }),
    layers: say("flow_layers", { layers: data.layers.length, heads }),
    output: say("flow_logits", { rows: data.tracks.at(-1).read, vocabulary }),
    ...(end && { [end]: say(`flow_${end}`, { token: next === undefined ? "" : visible(piece) }) }),
  };
  const button = ([part, text]) => el("button", { type: "button", onclick: () => find(`[data-show=${part}]`).scrollIntoView() }, text);
  find(".flow").replaceChildren(...Object.entries(steps).map(button));
}
function drawTrace(data, shapes) {
  const pressed = all(".map").findIndex((map) => map.getAttribute("aria-pressed") === "true");
  const opened = all("details").filter((box) => box.open).map((box) => box.firstChild.textContent);
  if (trace) stop(trace);
  find(".tracks").replaceChildren();
  find(".scrub").replaceWith(find(".scrub").cloneNode(true)); // without the listeners of the last trace
  trace = start(out, data, { ...TRACE, was_chosen: words.was_chosen, as_in_run: words.as_in_run });
  trace.onSettings = (chosen) => {
    for (const name of Object.keys(SAMPLING)) state[name] = chosen[name];
    if (!session) return;
    session.settings = settings();
    session.choices[session.choices.length - 1] = data.decisions[data.decisions.length - 1] = session.choose(session.settings);
    showSteps();
    showFlow(data, shapes);
    writeAddress();
  };
  const token = data.unmasking.at(-1)?.kept[0] ?? data.masks[0]?.position ?? data.tracks.at(-1).read - 1;
  trace.change({ step: data.passes.length - 1, token });
  all(".map")[pressed]?.click();
  for (const box of all("details")) if (opened.includes(box.firstChild.textContent)) box.open = true;
  for (const canvas of all("canvas")) {
    const { top, bottom } = canvas.getBoundingClientRect();
    if (top < innerHeight && bottom > 0) canvas.draw?.(); // at once, so that it does not blink
  }
}
function showSteps() {
  const { canStep, canUndo, ended, model } = session, can = { step: canStep, run: canStep, undo: canUndo, restart: canUndo };
  for (const [name, is] of Object.entries(can)) find(`[data-do=${name}]`).disabled = !is;
  find(".steps").hidden = model.kind === "encoder";
  const reason = model.kind === "diffusion" ? "unmasked" : ended ? "ended" : "full";
  find(".next").textContent = canStep ? "" : say(reason, { limit: model.context });
}
function showVariant() {
  find("[name=variant]").value = state.variant;
  find(".expect").textContent = state.variant ? words[`expect_${state.variant}`] ?? "" : "";
}
function showCompared() {
  const told = find(".told"), place = find(".compared");
  place.replaceChildren();
  if (!session.isChanged) return (told.textContent = say("all_are_on"));
  const parts = namesOf(session.model.recipe, say), variant = state.variant ? [words[state.variant] ?? state.variant] : [];
  const names = [...variant, ...[...off].map((address) => parts.get(address))], more = names.length - SOME;
  const list = names.slice(0, SOME).join(TRACE.comma) + (more > 0 ? ` ${say("and_more", { count: more })}` : "");
  const { same, ...values } = drawCompared(place, session, say);
  told.textContent = say(same ? "changed_same" : "changed_other", { list, ...values });
}

const SOME = 3; // changes that are named
const STEPS = { step: 1, run: 8 };
function act(name) {
  if (name === "all") return off.clear(), changed();
  if (name === "undo") session.undo();
  else if (name === "restart") while (session.canUndo) session.undo();
  else for (let at = 0; at < STEPS[name] && session.canStep; at++) session.step();
  show();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
form.elements.prompt.addEventListener("input", (event) => event.isComposing || typed());
form.elements.prompt.addEventListener("compositionend", () => typed());
form.elements.prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  run();
});
for (const input of form.elements.model) input.addEventListener("change", () => {
  off = new Set();
  written = [];
  Object.assign(state, { prompt: promptFor(input.value), model: input.value, variant: "", steps: 0, task: "" });
  showForm();
  run();
});
for (const button of all("[data-do]")) button.addEventListener("click", () => act(button.dataset.do));
find("[name=variant]").addEventListener("change", (event) => {
  state.variant = event.target.value;
  changed();
});
for (const input of all("[name=cache]")) input.addEventListener("change", () => {
  state.cache = input.value;
  changed();
});
function begun() {
  const asked = readAddress();
  showForm();
  if (asked) run();
  else {
    showView(recorded);
    tell(say("idle", { size: words.sizes[state.model] }));
  }
}
addEventListener("hashchange", () => /\bmodel=/.test(location.hash) && begun()); // other addresses are headings
form.hidden = false;
begun();
