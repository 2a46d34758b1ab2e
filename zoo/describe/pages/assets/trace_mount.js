// The start of each trace on a page.

const DRAW = { pieces: drawPieces, vectors: drawVectors, layers: drawLayers, experts: drawRoutes, lens: drawLens, output: drawOutput, choice: drawChoice, masks: drawMasks, uncovering: drawUncovering, cache: drawCache };

// Fill the places of an element, one a part, with what a trace has for them; `words` is the table of the language.
function mount(root, data, words) {
  const t = new Trace(root, data, words), { state } = t;
  // At first: the pass that has read the whole prompt, its last token. A translation's prompt is one token: then all of it.
  const last = data.tracks.at(-1), prompt = last.pieces.filter((piece) => piece.origin !== "generated").length;
  const whole = data.passes.findIndex((turn) => turn.track === last.name && turn.start + turn.tokens >= prompt);
  state.track = last.name;
  state.step = data.unmasking.length ? 0 : prompt > 1 ? Math.max(whole, 0) : Math.max(data.passes.length - 1, 0);
  state.token = Math.max(Math.min(prompt > 1 ? prompt : last.read, last.read) - 1, 0);
  drawBar(t);
  for (const [name, draw] of Object.entries(DRAW)) if (t.part(name)) draw(t, t.part(name));
  return t;
}

const mounted = new Set();
// A trace whose colours follow the page's theme for as long as it is on the page.
function start(root, data, words = WORDS) {
  const trace = mount(root, data, words);
  mounted.add(trace);
  return trace;
}
function themed() {
  for (const trace of mounted) trace.root.isConnected ? trace.themed() : mounted.delete(trace);
}
function mountAll() {
  for (const data of document.querySelectorAll(".zoo-trace > script.data")) start(data.parentElement, JSON.parse(data.textContent));
  const switched = new MutationObserver(themed);
  for (const element of [document.documentElement, document.body]) switched.observe(element, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);
}
document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", mountAll) : mountAll();
// For a page that computes its traces itself. `stop` ends one, so that another can be drawn in its place.
globalThis.zooTrace = { start, stop: (trace) => mounted.delete(trace), words: WORDS, el, bars, share, visible, count };
