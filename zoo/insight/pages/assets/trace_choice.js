// The logit lens, sampling, masks, the cache, and the start of the page.
"use strict";

function drawLens() {
  if (!byId("lens")) return;
  const guesses = data.lens, track = guesses[0].track, readout = el("p", { class: "readout", role: "status" });
  const names = guesses.map((guess) => guess.address.replace(/^decoder\./, "").replace("layers.", "layer "));
  const last = Math.min(guesses[0].tokens.length, tracks[track].pieces.length);
  const table = cells({ label: "The likeliest token at each depth", columns: names, rows: tracks[track].pieces.slice(0, last).map(written), cell: (box, y, x) => {
    box.textContent = nameOf(guesses[x].tokens[y][0]);
    paint(box, sequential(guesses[x].probabilities[y][0]));
  }, tell: (y, x) => {
    if (state.track !== track || state.token !== y) select(track, y);
    const best = guesses[x].tokens[y].map((id, at) => `${nameOf(id)} ${share(guesses[x].probabilities[y][at])}`).join(", ");
    readout.textContent = `${pieceName(track, y)} after ${names[x]}: ${best}; entropy ${guesses[x].entropy_bits[y].toFixed(2)} bits`;
  }, chosen: (y) => state.track === track && state.token === y, later: (y) => y >= readTokens(track) });
  onChange(table.mark);
  redraws.push(table.recolour);
  byId("lens").append(el("p", { class: "quiet" }, "Rows are tokens, columns depths; the colour is the probability of the likeliest next token. Move through the cells for the five likeliest."),
    legend("probability 0", "1"), scroll("Logit lens", table.table), readout);
}
function legend(from, to) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  redrawn(() => picture(canvas, [Array.from({ length: 60 }, (_, i) => i / 59)], (x) => sequential(x)));
  return el("div", { class: "key" }, from, canvas, to);
}

// Sampling as zoo.generation.sampling has it: temperature, top-k, top-p, min-p, in this order, then the rest renormalised.
// The likeliest tokens stand one by one, the others in groups of like logits.
function distribution(decision, settings) {
  const groups = decision.candidates.map((id, at) => ({ id, logit: decision.logits[at], count: 1 }));
  decision.rest_logits.forEach((logit, at) => groups.push({ id: null, logit, count: decision.rest_counts[at] }));
  groups.sort((a, b) => b.logit - a.logit);
  const kept = [], counts = () => kept.push(Math.round(groups.reduce((sum, group) => sum + group.count, 0)));
  const renormalise = () => {
    const total = groups.reduce((sum, group) => sum + group.count * Math.exp(group.logit - groups[0].logit), 0);
    for (const group of groups) group.p = group.count ? Math.exp(group.logit - groups[0].logit) / total : 0;
  };
  if (!settings.temperature) {
    groups.forEach((group, at) => { group.count = at ? 0 : 1; group.p = at ? 0 : 1; });
    return { groups, kept: [1] };
  }
  for (const group of groups) group.logit /= settings.temperature;
  counts();
  if (settings.top_k) {
    let left = settings.top_k;
    for (const group of groups) left -= group.count = Math.min(group.count, left);
  }
  counts();
  if (settings.top_p < 1) {
    renormalise();
    let before = 0;
    for (const group of groups) {
      const whole = group.count * group.p, room = Math.max(settings.top_p - before, 0);
      if (group.p) group.count = Math.min(group.count, Math.ceil(room / group.p));
      before += whole;
    }
  }
  counts();
  if (settings.min_p) for (const group of groups) if (group.logit < groups[0].logit + Math.log(settings.min_p)) group.count = 0;
  counts();
  renormalise();
  return { groups, kept };
}

// Which decision the pass that is looked at leads to: the first is made when the whole prompt has been read.
function decisionAt(step) {
  const track = data.turns.at(-1)?.track, prompt = tracks[track].pieces.filter((piece) => piece.origin !== "generated").length;
  const first = data.turns.findIndex((turn) => turn.track === track && turn.start + turn.tokens >= prompt);
  return Math.min(Math.max(step - first, 0), data.decisions.length - 1);
}
const SLIDERS = [["temperature", "Temperature", 0, 2, 0.05], ["top_k", "Top-k (0: all)", 0, 50, 1], ["top_p", "Top-p", 0.01, 1, 0.01], ["min_p", "Min-p", 0, 1, 0.01]];
function drawChoice() {
  if (!byId("choice")) return;
  const settings = { ...data.sampling }, body = el("tbody"), told = el("p", { class: "readout", role: "status" }), title = el("h3");
  const inputs = SLIDERS.map(([name, label, min, max, step]) => {
    const output = el("output"), input = el("input", { type: "range", id: name, min, max: Math.max(max, data.sampling[name]), step, "aria-label": label });
    input.addEventListener("input", () => { settings[name] = +input.value; update(); });
    return { name, input, output, box: el("label", {}, label, output, input) };
  });
  const reset = el("button", { type: "button", onclick: () => { Object.assign(settings, data.sampling); update(); } }, "As in the run");
  const cols = [["name"], [""], ["share"], ["share"]].map(([name]) => el("col", { class: name }));
  const heads = ["token", "bar: after the settings, line: the model's", "model", "after"].map((name, at) => el("th", { scope: "col", class: at > 1 ? "number" : "" }, name));
  byId("choice").append(title, el("div", { class: "controls" }, ...inputs.map((one) => one.box)), reset, told,
    el("table", { class: "bars" }, el("colgroup", {}, ...cols), el("thead", {}, el("tr", {}, ...heads)), body));
  function update() {
    for (const { name, input, output } of inputs) {
      input.value = settings[name];
      output.textContent = settings[name];
    }
    const number = decisionAt(state.step), decision = data.decisions[number];
    const { groups, kept } = distribution(decision, settings);
    const after = new Map(groups.filter((group) => group.id !== null && group.count).map((group) => [group.id, group.p]));
    const model = (at) => Math.exp(decision.logits[at] - decision.logsumexp);
    const shown = decision.candidates.slice(0, 12);
    if (!shown.includes(decision.token)) shown.push(decision.token);
    title.textContent = `Token ${number + 1} of ${data.decisions.length}: ${nameOf(decision.token)} was chosen`;
    told.textContent = settings.temperature
      ? `Tokens kept: ${kept[0].toLocaleString("en")} after temperature, ${kept[1].toLocaleString("en")} after top-k, ${kept[2].toLocaleString("en")} after top-p, ${kept[3].toLocaleString("en")} after min-p. The model's own distribution has ${decision.entropy_bits.toFixed(2)} bits.`
      : `Temperature 0: the likeliest token is taken. The model's own distribution has ${decision.entropy_bits.toFixed(2)} bits.`;
    body.replaceChildren(...shown.map((id) => {
      const p = model(decision.candidates.indexOf(id)), q = after.get(id) ?? 0;
      return el("tr", { class: `${id === decision.token ? "picked" : ""}${q ? "" : " out"}`, "data-token": id, "data-model": p, "data-after": q },
        el("td", { class: "piece" }, `${id === decision.token ? "● " : ""}${nameOf(id)}`),
        el("td", {}, el("div", { class: "bar" }, el("i", { style: `width:${100 * q}%` }), el("u", { style: `width:${100 * p}%` }))),
        el("td", { class: "number" }, share(p)), el("td", { class: "number" }, share(q)));
    }));
  }
  onChange(update);
}

// Candidates for masks: bars of one list.
function bars(pairs, marked = -1) {
  return el("table", { class: "bars" }, el("colgroup", {}, el("col", { class: "name" }), el("col"), el("col", { class: "share" })), el("tbody", {}, ...pairs.map(([id, p], at) =>
    el("tr", { class: at === marked ? "picked" : "" }, el("td", { class: "piece" }, nameOf(id)), el("td", {}, el("div", { class: "bar" }, el("i", { style: `width:${100 * p}%` }))), el("td", { class: "number" }, share(p))))));
}
const paired = (hidden) => hidden.tokens.map((id, at) => [id, hidden.probabilities[at]]);
function drawMasks() {
  data.masks.forEach((hidden, number) => byId("masks").append(el("h3", {}, `Mask ${number + 1}, at position ${hidden.position}`), bars(paired(hidden), 0)));
  if (!byId("uncovering")) return;
  onChange(() => {
    const pass = data.uncoverings[Math.min(state.step, data.uncoverings.length - 1)];
    const row = (hidden) => el("tr", {}, el("td", { class: "number" }, hidden.position), el("td", {}, pass.kept.includes(hidden.position) ? "● stays" : "masked again"),
      ...paired(hidden).slice(0, 3).map(([id, p], at) => { const box = el("td", { class: "piece" }, `${nameOf(id)} ${share(p)}`); if (!at) paint(box, sequential(p)), (box.style.padding = ".15rem .5rem"); return box; }));
    byId("uncovering").replaceChildren(el("h3", {}, `Pass ${state.step + 1} of ${data.uncoverings.length}: ${pass.predictions.length} masks, ${pass.kept.length} uncovered`),
      scroll("Predictions of this pass", el("table", {}, el("thead", {}, el("tr", {}, ...["position", "", "likeliest", "second", "third"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...pass.predictions.map(row)))));
  });
}

function drawCache() {
  const most = Math.max(...data.turns.map((turn) => turn.cached_numbers), 1), cached = data.turns.some((turn) => turn.cached_numbers);
  const rows = data.turns.map((turn, index) => el("tr", {}, el("td", {}, el("button", { type: "button", onclick: () => change({ step: index }) }, `pass ${index + 1}`)),
    el("td", {}, turn.kind === "encode" ? "encoder" : data.uncoverings.length ? "whole text" : turn.tokens === 1 ? pieceName(turn.track, turn.start) : `${turn.tokens} tokens`),
    ...(cached ? [el("td", { class: "number" }, turn.cached_numbers.toLocaleString("en")), el("td", { style: "width:45%" }, el("span", { class: "bar", style: `width:${(100 * turn.cached_numbers) / most}%` }))] : [])));
  const names = cached ? ["", "reads", "numbers in the cache", ""] : ["", "reads"];
  byId("cache").append(scroll("Passes", el("table", { class: "turns", style: cached ? "width:100%;max-width:760px" : "" }, el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...rows))));
  onChange(() => rows.forEach((row, index) => row.classList.toggle("now", index === state.step)));
}

function themed() {
  const button = byId("theme");
  const show = () => { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-pressed", isDark()); for (const draw of redraws) draw(); for (const listener of listeners) listener(); };
  button.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; show(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}

// At first: the pass that has read the whole prompt, its last token, the first head.
const written0 = data.tracks.at(-1), promptTokens = written0.pieces.filter((piece) => piece.origin !== "generated").length;
state.track = written0.name;
state.token = Math.max(Math.min(promptTokens, written0.read) - 1, 0);
state.step = Math.max(data.uncoverings.length ? 0 : data.turns.findIndex((turn) => turn.track === written0.name && turn.start + turn.tokens >= promptTokens), 0);
drawBar();
drawPieces();
drawVectors();
drawLayers();
drawLens();
byId("output").append(...data.after.map(stageDetails));
drawChoice();
drawMasks();
drawCache();
themed();
