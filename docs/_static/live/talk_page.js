// The part of the live page in which a model speaks: the file, the conversation, its settings and switches, what an answer was made of.
// The model runs in a thread of its own (talk_worker.js).
import { drawSwitches, namesOf } from "./change.js";

const { el, share, start, stop, visible, words: TRACE } = globalThis.zooTrace;
const PARTS = 3; // switched-off parts that are named
const here = (name) => new URL(name, import.meta.url);
let root, language, words, model, worker, trace, told, showSwitches, messages = [], replaced, turn, began;
const off = new Set();
const find = (selector) => root.querySelector(selector);
const say = (name, values = {}) => words[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
const tell = (text) => (find(".said").textContent = text);
function fail(text) {
  const box = find(".fault");
  box.textContent = text;
  box.hidden = !text;
  if (text) tell("");
}

// Make the part work: `place` is its element, `file` the address of a GGUF file beside the site, or something else.
export async function begin(place, file) {
  [root, language] = [place, place.lang.startsWith("zh") ? "zh" : "en"];
  const { body, words: own } = await (await fetch(root.dataset.body)).json();
  root.insertAdjacentHTML("beforeend", body);
  words = { ...JSON.parse(document.querySelector("script.words").textContent), ...own };
  document.head.append(el("link", { rel: "stylesheet", href: here("talk.css") }));
  const form = find("form"), acts = { cancel: () => worker.postMessage({ act: "cancel" }), again, new: startAnew, on: allOn, look };
  find("#talk-file").addEventListener("change", ({ target }) => target.files[0] && open(target.files[0].name, () => target.files[0].arrayBuffer()));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  form.elements.message.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  for (const [name, act] of Object.entries(acts)) find(`[data-act=${name}]`).addEventListener("click", act);
  if (file?.endsWith(".gguf")) openAddress(file);
}

// A file of the site's own.
function openAddress(file) {
  const address = new URL(file, location.href);
  if (address.origin !== location.origin) return fail(say("elsewhere", { address: address.href }));
  open(address.pathname.split("/").at(-1), async () => {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    return answer.arrayBuffer();
  });
}
// Read a file once, and hand its bytes to a new thread.
async function open(name, read) {
  worker?.terminate();
  worker = model = null;
  find(".conversation").hidden = true;
  working(false);
  startAnew();
  fail("");
  tell(say("opening", { name }));
  let buffer;
  try {
    buffer = await read();
  } catch ({ message }) {
    return fail(say("unread", { name, message }));
  }
  worker = new Worker(here("talk_worker.js"), { type: "module" });
  worker.addEventListener("message", ({ data }) => DID[data.did](data));
  worker.addEventListener("error", ({ message }) => DID.error({ message }));
  worker.postMessage({ act: "load", buffer }, [buffer]);
}

// What the thread tells.
const DID = {
  load(about) {
    model = about;
    tell(say("loaded", { ...about, size: Math.round(about.bytes / 1e6) }));
    find(".conversation").hidden = false;
    off.clear();
    showSwitches = drawSwitches(find(".switches"), model.recipe, () => off, say, () => {});
    showSwitches();
    find("textarea").focus();
  },
  part({ read, of, text, tokens }) {
    if (text === undefined) return tell(say("reading", { read, of }));
    began ??= performance.now();
    if (tokens > 1) tell(say("writing", { tokens, time: Math.round((performance.now() - began) / (tokens - 1)) }));
    showAnswer(text);
  },
  answer({ reason, text, tokens = 0, shown, limit }) {
    tell(say(`end_${reason}`, { tokens, limit }));
    if (text) messages.push({ role: "assistant", content: text });
    else takeBack();
    working(false);
    showAnswer(text);
    find(".inside").hidden = !tokens;
    find("[data-act=look]").hidden = !shown;
    find(".long").hidden = Boolean(shown);
    if (!shown) find(".long").textContent = say("inside_long", { limit });
  },
  view: ({ data }) => drawInside(data),
  lens: drawLens,
  error({ refusal, values, message }) {
    if (working.is) takeBack();
    working(false);
    fail(refusal ? say(refusal, values) : say("failed", { message }));
  },
};

function working(is) {
  working.is = is;
  find("[data-act=cancel]").disabled = !is;
  for (const button of [find("form .run"), find("[data-act=new]"), find("[data-act=look]")]) button.disabled = is;
  find("[data-act=again]").disabled = is || !messages.length;
}
const settingsOf = ({ elements }) => Object.fromEntries(["temperature", "top_k", "top_p", "seed", "most"].map((name) => [name, Number(elements[name].value)]));
function send() {
  const box = find("textarea"), content = box.value.trim();
  if (!content || working.is) return;
  box.value = "";
  replaced = null;
  messages.push({ role: "user", content });
  addTurn("user", say("you"), content);
  answer();
}
// Answer the last message once more, with the settings and parts as they are now; the answer before stays on the page.
function again() {
  replaced = messages.pop();
  answer();
}
function answer() {
  const { temperature, top_k: topK, top_p: topP, seed, most } = settingsOf(find("form"));
  turn = addTurn("assistant", say("model") + changes(), "");
  [began, told] = [null, null];
  fail("");
  hideInside();
  working(true);
  worker.postMessage({ act: "answer", messages, settings: { temperature, topK, topP, seed }, off: [...off], most });
}
// The parts that are off, named.
function changes() {
  if (!off.size) return "";
  const names = namesOf(model.recipe, say), some = [...off].slice(0, PARTS).map((address) => names.get(address)), more = off.size - some.length;
  return ` (${say("off", { list: some.join(TRACE.comma) + (more > 0 ? ` ${say("and_more", { count: more })}` : "") })})`;
}
function addTurn(role, name, text) {
  const place = el("div", { class: `turn-of ${role}` }, el("b", {}, name), el("span", {}, text));
  find(".turns").append(place);
  place.scrollIntoView({ block: "nearest" });
  return place;
}
function showAnswer(text) {
  const turns = find(".turns"), atEnd = turns.scrollHeight - turns.scrollTop - turns.clientHeight < 40;
  if (turn.isConnected) turn.lastChild.textContent = text;
  if (atEnd) turns.scrollTop = turns.scrollHeight;
}
// A message that got no answer goes back to where it was typed; an answer that was to be replaced stays.
function takeBack() {
  if (replaced) messages.push(replaced);
  else {
    find("textarea").value ||= messages.pop().content;
    turn.previousSibling.remove();
  }
  turn.remove();
}
function startAnew() {
  messages = [];
  find(".turns").replaceChildren();
  hideInside();
  find(".inside").hidden = find("[data-act=again]").disabled = true;
  tell("");
}
function allOn() {
  off.clear();
  showSwitches();
}

function look() {
  worker.postMessage({ act: "view", language });
}
function hideInside() {
  clearTimeout(askLens.timer);
  if (trace) stop(trace);
  trace = null;
  find(".zoo-trace").hidden = true;
}
// The heads of each layer, and the lens of the token that is looked at.
function drawInside(data) {
  const out = find(".zoo-trace");
  hideInside();
  for (const place of [".tracks", ".holder", ".lens"]) find(place).replaceChildren();
  find(".scrub").replaceWith(find(".scrub").cloneNode(true)); // without the listeners of the last trace
  out.hidden = false;
  trace = start(out, data, TRACE);
  trace.onChange(() => askLens(trace.state.token));
  trace.change({ step: data.passes.length - 1, token: data.tracks[0].read - 1 });
}
// A lens takes as long as a token or two: only the last that was asked for is waited for.
function askLens(position) {
  if (told === position) return;
  clearTimeout(askLens.timer);
  askLens.timer = setTimeout(() => worker.postMessage({ act: "lens", position: (told = position) }), 200);
}
function drawLens({ position, depths }) {
  if (position !== told || !trace) return;
  const number = (address) => address.match(/\d+$/)?.[0], piece = trace.pieceName(trace.state.track, position);
  const guess = (token, p) => el("span", { class: "piece" }, `${visible(token)} `, el("small", {}, share(p)));
  const row = ({ address, tokens, probabilities, bits }) => el("tr", {}, el("th", { scope: "row" }, number(address) ? say("layer", { number: number(address) }) : say("embedding")),
    el("td", {}, ...tokens.map((token, at) => guess(token, probabilities[at]))), el("td", { class: "number" }, bits.toFixed(2)));
  const heads = ["depth", "likeliest", "bits"].map((name) => el("th", { scope: "col" }, say(`column_${name}`)));
  find(".lens").replaceChildren(el("table", {}, el("caption", {}, say("lens_of", { token: piece })), el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...depths.map(row))));
}
