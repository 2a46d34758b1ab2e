// The logit lens, sampling, masks, the cache.

function drawLens(t, holder) {
  const guesses = t.data.lens, track = guesses[0].track, readout = el("p", { class: "readout", role: "status" });
  const names = guesses.map((guess) => layerName(t, guess.address));
  const last = Math.min(guesses[0].tokens.length, t.tracks[track].pieces.length), label = t.say("lens_table");
  const table = cells({ label, columns: names, rows: t.tracks[track].pieces.slice(0, last).map(written), cell: (box, y, x) => {
    box.textContent = t.nameOf(guesses[x].tokens[y][0]);
    paint(box, t.sequential(guesses[x].probabilities[y][0]));
  }, tell: (y, x) => {
    if (!t.isChosen(track, y)) t.select(track, y);
    const list = guesses[x].tokens[y].map((id, at) => `${t.nameOf(id)} ${share(guesses[x].probabilities[y][at])}`).join(t.say("comma"));
    readout.textContent = t.say("lens_tells", { piece: t.pieceName(track, y), place: names[x], list, bits: guesses[x].entropy_bits[y].toFixed(2) });
  }, chosen: (y) => t.isChosen(track, y), later: (y) => y >= t.readTokens(track) });
  t.onChange(table.mark);
  t.redraws.push(table.recolour);
  holder.append(legend(t, t.say("legend_from"), "1"), scroll(label, table.table), readout);
}
function legend(t, from, to) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  t.redrawn(() => picture(canvas, [Array.from({ length: 60 }, (_, i) => i / 59)], (x) => t.sequential(x)));
  return el("div", { class: "key" }, from, canvas, to);
}

// What the sliders alone make of the model's logits: temperature, top-k, top-p, min-p, in the order of
// zoo.generation.sampling, then the rest renormalised. With the run's own settings the run's last stage is shown instead.
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
function decisionAt(t, step) {
  const track = t.data.passes.at(-1)?.track, prompt = t.tracks[track].pieces.filter((piece) => piece.origin !== "generated").length;
  const first = t.data.passes.findIndex((turn) => turn.track === track && turn.start + turn.tokens >= prompt);
  return Math.min(Math.max(step - first, 0), t.data.decisions.length - 1);
}
// The distribution that the token was drawn from, by id.
function lastStage(decision) {
  return new Map(decision.stages.at(-1).probabilities.map((p, at) => [decision.shown[at], p]));
}
const named = (stage) => (stage.setting === null ? stage.name : `${stage.name} ${stage.setting}`);
// How many tokens are left after each step: those of the run, or those of the sliders.
function keptBy(t, decision, kept, inRun) {
  if (inRun) return t.say("kept_in_run", { list: decision.stages.slice(1).map((stage) => `${named(stage)}: ${count(stage.kept)}`).join(t.say("comma")) });
  const [all, by_k, by_p, left] = kept.map(count);
  return t.say("kept", { all, by_k, by_p, left });
}
// The run's settings that no slider has.
function leftOut(t, decision, inRun) {
  const others = decision.stages.slice(1).filter((stage) => !SLIDERS.some(([name]) => name === stage.name));
  const setting = t.data.settings.min_tokens_to_keep;
  if (setting) others.push({ name: "min_tokens_to_keep", setting });
  return inRun || !others.length ? [] : [t.say("sliders_alone", { list: others.map(named).join(t.say("comma")) })];
}
const SLIDERS = [["temperature", 0, 2, 0.05], ["top_k", 0, 50, 1], ["top_p", 0.01, 1, 0.01], ["min_p", 0, 1, 0.01]];
function drawChoice(t, holder) {
  const { data } = t, settings = { ...data.settings }, body = el("tbody"), told = el("p", { class: "readout", role: "status" }), title = el("h3");
  const inputs = SLIDERS.map(([name, min, max, step]) => {
    const label = t.say(name), output = el("output"), input = el("input", { type: "range", name, min, max: Math.max(max, data.settings[name]), step, "aria-label": label });
    input.addEventListener("input", () => { settings[name] = +input.value; changed(); });
    return { name, input, output, box: el("label", {}, label, output, input) };
  });
  const reset = el("button", { type: "button", class: "reset", onclick: () => { Object.assign(settings, data.settings); changed(); } }, t.say("as_in_run"));
  const cols = [["name"], [""], ["share"], ["share"]].map(([name]) => el("col", { class: name }));
  const heads = ["token", "bar", "model", "after"].map((name, at) => el("th", { scope: "col", class: at > 1 ? "number" : "" }, t.say(`column_${name}`)));
  holder.append(title, el("div", { class: "controls" }, ...inputs.map((one) => one.box)), reset, told,
    el("table", { class: "bars" }, el("colgroup", {}, ...cols), el("thead", {}, el("tr", {}, ...heads)), body));
  // A page that runs the model itself draws the last token again.
  function changed() {
    t.onSettings?.(settings);
    update();
  }
  function update() {
    for (const { name, input, output } of inputs) {
      input.value = settings[name];
      output.textContent = settings[name];
    }
    const number = decisionAt(t, t.state.step), decision = data.decisions[number], inRun = SLIDERS.every(([name]) => settings[name] === data.settings[name]);
    const last = lastStage(decision), { groups, kept } = distribution(decision, settings);
    const tried = new Map(groups.filter((group) => group.id !== null && group.count).map((group) => [group.id, group.p]));
    const after = !inRun ? tried : settings.temperature ? last : new Map([[decision.token, 1]]);
    const model = (at) => Math.exp(decision.logits[at] - decision.logsumexp);
    const likeliest = [...last.keys()].sort((a, b) => last.get(b) - last.get(a)).slice(0, 12).filter((id) => last.get(id));
    const shown = [...new Set([...decision.candidates.slice(0, 12), ...likeliest, decision.token])];
    title.textContent = t.say("was_chosen", { index: number + 1, count: data.decisions.length, token: t.nameOf(decision.token) });
    told.textContent = [settings.temperature ? keptBy(t, decision, kept, inRun) : t.say("zero"), ...leftOut(t, decision, inRun), t.say("own_bits", { bits: decision.entropy_bits.toFixed(2) })].join(t.say("sentence"));
    body.replaceChildren(...shown.map((id) => {
      const p = model(decision.candidates.indexOf(id)), q = after.get(id) ?? 0;
      return el("tr", { class: `${id === decision.token ? "picked" : ""}${q ? "" : " out"}`, "data-token": id, "data-model": p, "data-after": q },
        el("td", { class: "piece" }, `${id === decision.token ? "● " : ""}${t.nameOf(id)}`),
        el("td", {}, el("div", { class: "bar" }, el("i", { style: `width:${100 * q}%` }), el("u", { style: `width:${100 * p}%` }))),
        el("td", { class: "number" }, share(p)), el("td", { class: "number" }, share(q)));
    }));
  }
  t.onChange(update);
}

// Candidates for masks: bars of one list.
function bars(t, pairs, marked) {
  const row = ([id, p], at) => el("tr", { class: at === marked ? "picked" : "" }, el("td", { class: "piece" }, t.nameOf(id)),
    el("td", {}, el("div", { class: "bar" }, el("i", { style: `width:${100 * p}%` }))), el("td", { class: "number" }, share(p)));
  return el("table", { class: "bars" }, el("colgroup", {}, el("col", { class: "name" }), el("col"), el("col", { class: "share" })), el("tbody", {}, ...pairs.map(row)));
}
const drawn = (hidden) => [hidden.chosen, hidden.probabilities[hidden.tokens.indexOf(hidden.chosen)]];
const paired = (hidden) => hidden.tokens.map((id, at) => [id, hidden.probabilities[at]]);
function drawMasks(t, holder) {
  t.data.masks.forEach((hidden, number) => holder.append(el("h3", {}, t.say("mask", { index: number + 1, position: hidden.position })), bars(t, paired(hidden), 0)));
}
function drawUncovering(t, holder) {
  const passes = t.data.unmasking, columns = ["position", "", "drawn", "likeliest", "second", "third"].map((name) => (name ? t.say(`column_${name}`) : ""));
  const guess = ([id, p], at) => {
    const box = el("td", { class: "piece" }, `${t.nameOf(id)} ${share(p)}`);
    if (!at) paint(box, t.sequential(p)), (box.style.padding = ".15rem .5rem");
    return box;
  };
  t.onChange(() => {
    const pass = passes[Math.min(t.state.step, passes.length - 1)];
    const row = (hidden) => el("tr", {}, el("td", { class: "number" }, hidden.position), el("td", { class: "verdict" }, t.say(pass.kept.includes(hidden.position) ? "stays" : "masked_again")),
      guess(drawn(hidden), 1), ...paired(hidden).slice(0, 3).map(guess));
    const title = t.say("uncovers", { index: t.state.step + 1, count: passes.length, masks: pass.predictions.length, kept: pass.kept.length });
    holder.replaceChildren(el("h3", {}, title), scroll(t.say("predictions"), headed(columns, pass.predictions.map(row))));
  });
}

function drawCache(t, holder) {
  const { passes, unmasking } = t.data, most = Math.max(...passes.map((pass) => pass.cached_numbers), 1), cached = passes.some((pass) => pass.cached_numbers);
  const reads = (pass) => (pass.kind === "encode" ? t.say("by_encoder", { count: pass.tokens }) : unmasking.length ? t.say("whole_text") : pass.tokens === 1 ? t.pieceName(pass.track, pass.start) : t.say("so_many", { count: pass.tokens }));
  const rows = passes.map((pass, index) => el("tr", {}, el("td", {}, el("button", { type: "button", onclick: () => t.change({ step: index }) }, t.say("pass", { index: index + 1 }))), el("td", { class: "piece" }, reads(pass)),
    ...(cached ? [el("td", { class: "number" }, count(pass.cached_numbers)), el("td", { class: "wide" }, el("span", { class: "bar", style: `width:${(100 * pass.cached_numbers) / most}%` }))] : [])));
  const names = ["", t.say("column_reads"), ...(cached ? [t.say("column_cached"), ""] : [])];
  holder.append(scroll(t.say("passes"), headed(names, rows, { class: cached ? "turns cached" : "turns" })));
  t.onChange(() => rows.forEach((row, index) => row.classList.toggle("now", index === t.state.step)));
}
