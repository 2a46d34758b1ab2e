// The live page: what the reader chose, and the run of the model that follows from it. Nothing is fetched before a run.

import { drawCompared, drawSwitches, softmax } from "./change.js";
import { drawWork } from "./work.js";

const { el, start, stop, visible, words: TRACE } = globalThis.zooTrace;
const root = document.querySelector(".zoo-live"), out = root.querySelector(".live"), form = root.querySelector("form");
const find = (selector, inside = root) => inside.querySelector(selector);
const all = (selector, inside = root) => [...inside.querySelectorAll(selector)];
const words = JSON.parse(find("script.words").textContent);
const say = (name, values = {}) => words[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);

// What the address keeps: the text, what is changed in the model, how tokens are chosen, and what has been written.
const SETTINGS = { temperature: [0, 2], top_k: [0, 4096], top_p: [0.01, 1], min_p: [0, 1] };
const FIRST = { model: "llama", prompt: "", variant: "", cache: "1", temperature: 0, top_k: 0, top_p: 1, min_p: 0, steps: 0 };
const WAIT = 250; // ms after the last key
const MOST = 64; // tokens that an address asks for
let state, off, written, session, trace, ticket = 0, typing, engine, explained;
const models = new Map();

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  state = { ...FIRST };
  for (const name of ["model", "prompt", "variant", "cache"]) state[name] = asked.get(name) ?? FIRST[name];
  for (const [name, [low, high]] of Object.entries({ ...SETTINGS, steps: [0, MOST] })) {
    const value = parseFloat(asked.get(name));
    if (Number.isFinite(value)) state[name] = Math.min(Math.max(value, low), high);
  }
  if (!Object.hasOwn(words.models, state.model)) state.model = FIRST.model;
  if (!asked.has("prompt")) state.prompt = words.prompts[state.model][0];
  off = new Set((asked.get("off") ?? "").split(",").filter(Boolean));
  written = (asked.get("written") ?? "").split(".").filter(Boolean).map(Number).filter(Number.isInteger).slice(0, MOST);
  return asked.has("model");
}
function writeAddress() {
  const kept = new URLSearchParams({ model: state.model, prompt: state.prompt });
  for (const name of ["variant", "cache", ...Object.keys(SETTINGS)]) if (state[name] !== FIRST[name]) kept.set(name, state[name]);
  if (off.size) kept.set("off", [...off].join(","));
  if (written.length) kept.set("written", written.join("."));
  history.replaceState(null, "", `#${kept.toString().replace(/\+/g, "%20")}`);
}

// The form follows the state.
function showForm() {
  for (const input of form.elements.model) input.checked = input.value === state.model;
  if (form.elements.prompt.value !== state.prompt) form.elements.prompt.value = state.prompt;
  find(".prompt .label").textContent = say({ bert: "masked", transformer: "source" }[state.model] ?? "prompt");
  find(".examples").replaceChildren(...words.prompts[state.model].map((text) => el("button", { type: "button", lang: /[一-鿿]/.test(text) ? "zh-CN" : "en",
    onclick: () => { form.elements.prompt.value = text; typed(); } }, text)));
}
const title = () => words.models[state.model][0];
const tell = (text) => (find(".status").textContent = text);
function fail(text) {
  const box = find(".error");
  box.textContent = text;
  box.hidden = !text;
  if (text) tell("");
  out.classList.toggle("stale", Boolean(text));
}

// The model of a name, loaded once; a load that failed is tried again.
async function loaded(name) {
  engine ??= await import("./engine.js");
  explained ??= await (await fetch(root.dataset.explained)).json();
  if (!models.has(name)) {
    const bar = find("progress"), size = (bytes) => (bytes / 1e6).toFixed(1);
    bar.removeAttribute("value");
    bar.hidden = false;
    tell(say("starting", { model: title() }));
    const progress = (done, total) => {
      if (name !== state.model || !total) return;
      bar.value = done / total;
      tell(say("loading", { model: title(), done: size(done), total: size(total) }));
    };
    const making = engine.loadModel(`${root.dataset.models}${name}/`, { progress }).finally(() => (bar.hidden = true));
    models.set(name, making);
    making.catch(() => models.delete(name));
  }
  return models.get(name);
}

// Run the model as the state says; a run that was asked for later goes first.
async function run() {
  const mine = ++ticket;
  clearTimeout(typing);
  fail("");
  if (!state.prompt.trim()) return fail(say("empty"));
  try {
    const model = await loaded(state.model);
    if (mine !== ticket) return;
    tell(say("starting", { model: title() }));
    await new Promise((resolve) => setTimeout(resolve)); // so that the browser paints what was told
    if (mine !== ticket) return;
    const began = performance.now(), before = session?.model;
    session = begin(model);
    if (before !== model) changeFor(model);
    show();
    const tokens = session.ids.length;
    tell(say("ready", { model: title(), tokens: tokens === 1 ? say("tokens_one") : say("tokens_many", { count: tokens }), time: Math.round(performance.now() - began) }));
  } catch (error) {
    if (mine === ticket) fail(error.message);
  }
}
function begin(model) {
  const text = state.prompt.replace(/\s+$/, (end) => (model.kind === "decoder" ? end : "")), limit = limitOf(model);
  const ids = model.tokenizer.encode(text), recipe = model.variants().find((one) => one.id === state.variant)?.recipe ?? model.recipe;
  if (ids.length > limit) throw new Error(say("too_long", { count: ids.length, model: title(), limit }));
  for (const address of off) if (!partsOf(recipe, say).flatMap((row) => [...row.heads, ...row.others]).some(([known]) => known === address)) off.delete(address);
  const made = sessionOf(engine, model, { ids, recipe, off, cache: state.cache === "1", written });
  for (; state.steps > 0 && made.canStep; state.steps--) made.step(settings());
  state.steps = 0;
  return made;
}
