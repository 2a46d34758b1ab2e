// Tokens, heat strips, attention maps, experts.

// The row of tokens at the top, and the pass that is looked at.
function drawBar(t) {
  const { data, state } = t, holder = t.find(".tracks"), several = data.tracks.length > 1;
  for (const track of data.tracks) {
    const chips = track.pieces.map((piece, index) => {
      const kind = `chip ${piece.origin}${piece.special ? " special" : ""}`, select = () => t.select(track.name, index);
      return el("div", { class: kind, role: "option", "data-item": "", "aria-label": t.say("token", { index, piece: written(piece) }),
        onclick: select, onfocus: select, onmouseenter: select }, written(piece), el("small", {}, piece.id));
    });
    const label = t.say("tokens_of", { track: t.trackName(track.name) });
    const row = el("div", { class: "row", role: "listbox", "aria-orientation": "horizontal", "aria-label": label }, ...chips);
    arrows(row, chips);
    holder.append(el("div", { class: "track" }, several ? el("span", {}, t.trackName(track.name)) : null, row));
    t.onChange(() => drawChips(t, track, chips));
    t.redraws.push(() => drawChips(t, track, chips));
    let seen = -1; // the pass whose last token has been brought into view
    t.onChange(() => {
      const last = chips[t.readTokens(track.name) - 1];
      if (seen !== state.step && last) row.scrollLeft = Math.max(last.offsetLeft + last.offsetWidth - row.offsetLeft - row.clientWidth + 8, 0);
      seen = state.step;
    });
  }
  const step = t.find(".step"), back = t.find(".back"), forth = t.find(".forth"), told = t.find(".turn"), last = data.passes.length - 1;
  step.max = Math.max(last, 0);
  t.find(".scrub").hidden = last < 1;
  step.addEventListener("input", () => t.change({ step: +step.value }));
  back.onclick = () => t.change({ step: Math.max(state.step - 1, 0) });
  forth.onclick = () => t.change({ step: Math.min(state.step + 1, last) });
  t.onChange(() => {
    step.value = state.step;
    back.disabled = state.step <= 0;
    forth.disabled = state.step >= last;
    told.textContent = turnText(t, state.step);
    step.setAttribute("aria-valuetext", told.textContent);
  });
}
function turnText(t, index) {
  const turn = t.data.passes[index];
  if (!turn) return "";
  const read = t.data.unmasking.length ? t.say("reads_all") : turn.tokens === 1
    ? t.say("reads_one", { piece: t.pieceName(turn.track, turn.start), position: turn.start })
    : t.say(turn.kind === "encode" ? "reads_source" : "reads_tokens", { count: turn.tokens });
  const cached = turn.cached_numbers ? t.say("cache_holds", { count: count(turn.cached_numbers) }) : "";
  return t.say("pass_of", { index: index + 1, count: t.data.passes.length, read, cached });
}
function drawChips(t, track, chips) {
  const { data, state } = t, read = t.readTokens(track.name), turn = data.passes[state.step], passIds = data.unmasking[state.step];
  const looked = lookedAt(t, track.name);
  chips.forEach((chip, index) => {
    const own = t.isChosen(track.name, index);
    chip.setAttribute("aria-selected", own);
    chip.tabIndex = own || (state.track !== track.name && index === 0) ? 0 : -1;
    chip.classList.toggle("later", index >= read);
    chip.classList.toggle("reading", !passIds && turn?.track === track.name && index >= turn.start && index < read);
    if (looked && index < looked.length) paint(chip, t.sequential(looked[index]));
    else chip.style.background = chip.style.color = "";
    if (passIds) chip.firstChild.data = passIds.predictions.some((p) => p.position === index) ? "░" : written(track.pieces[index]);
  });
}
// The weights of the selected token in the head that is looked at, over the tokens of a track.
function lookedAt(t, track) {
  const { pattern, head } = t.state.head ?? {};
  if (!pattern || pattern.rows !== t.state.track || pattern.columns !== track) return null;
  return t.state.token < t.readTokens(pattern.rows) ? pattern.heads[head].weights[t.state.token - pattern.first_row] : null;
}

// A value as rows of bins.
function drawStrip(t, stage, canvas) {
  const rows = stage.strip.rows, most = Math.max(...rows.flat().map(Math.abs)) || 1;
  const positive = rows.every((row) => row.every((x) => x >= 0)) && stage.unit === "probability";
  t.redrawn(() => picture(canvas, rows, (x) => (positive ? t.sequential(x / most) : t.diverging(x / most))));
}
const described = (stage) => `${stage.address}, ${stage.shape.join(" × ")}, ${stage.dtype}`;
const unitOf = (t, stage) => (stage.unit ? t.words[`unit_${stage.unit}`] ?? stage.unit : "");
function stripOf(t, stage) {
  const canvas = el("canvas", { role: "img", "aria-label": `${stage.summary}: ${described(stage)}` });
  const rows = stage.strip.rows, readout = el("div", { class: "readout quiet" }, t.say("point_at"));
  const first = stage.strip.first_row, labels = stage.track ? rows.map((_, y) => el("span", {}, t.pieceName(stage.track, y + first))) : [];
  canvas.style.height = `${rows.length * 16}px`;
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const y = Math.min(rows.length - 1, Math.floor(((event.clientY - box.top) / box.height) * rows.length));
    const x = Math.min(rows[0].length - 1, Math.floor(((event.clientX - box.left) / box.width) * rows[0].length));
    const from = x * stage.strip.per_bin, to = from + stage.strip.per_bin - 1, row = labels[y]?.textContent ?? t.say("row", { index: y + first });
    readout.textContent = t.say(to > from ? "mean_of" : "number_of", { row, from, to, value: short(rows[y][x]), unit: unitOf(t, stage) }).trim();
    if (stage.track) t.select(stage.track, y + first);
  });
  drawStrip(t, stage, canvas);
  t.onChange(() => labels.forEach((label, y) => label.classList.toggle("chosen", t.isChosen(stage.track, y + first))));
  const box = el("div", { class: "strip" }, el("div", { class: "labels", "aria-hidden": "true" }, ...labels), canvas);
  return [box, readout, lazily(t.say("numbers"), () => stripNumbers(t, stage))];
}
function stripNumbers(t, stage) {
  const { rows, per_bin, first_row } = stage.strip, most = Math.max(...rows.flat().map(Math.abs)) || 1;
  const table = cells({ label: described(stage), columns: rows[0].map((_, x) => `${x * per_bin}`),
    rows: rows.map((_, y) => (stage.track ? t.pieceName(stage.track, y + first_row) : `${y + first_row}`)), cell: (box, y, x) => {
      box.textContent = short(rows[y][x]);
      paint(box, t.diverging(rows[y][x] / most));
    }, tell: (y) => stage.track && t.select(stage.track, y + first_row), chosen: (y) => stage.track && t.isChosen(stage.track, y + first_row), later: () => false });
  t.onChange(table.mark);
  t.redraws.push(table.recolour);
  const how = per_bin > 1 ? t.say("each_mean", { count: per_bin }) : "";
  return [el("p", { class: "quiet" }, `${how}${t.say("every_number")}`, el("code", {}, `zoo trace … --value ${stage.address}`)), scroll(t.say("numbers_of", { address: stage.address }), table.table)];
}
function stageDetails(t, stage) {
  const norm = stage.norm == null ? "" : t.say("mean_norm", { norm: short(stage.norm) }), unit = unitOf(t, stage);
  const told = t.say(unit ? "summary_in" : "summary", { summary: stage.summary.replace(/^./, (first) => first.toUpperCase()), unit });
  const box = lazily("", () => [el("p", {}, told), ...stripOf(t, stage)]);
  box.firstChild.append(el("code", {}, stage.address), ` ${stage.axes ? `(${stage.axes}) ` : ""}${stage.shape.join(" × ")}${norm}`);
  return box;
}

function drawVectors(t, holder) {
  const names = t.data.before.filter((stage) => stage.address.endsWith("embedding")), others = t.data.before.filter((stage) => !names.includes(stage));
  for (const stage of names) {
    const norm = t.say("mean_norm", { norm: short(stage.norm) });
    holder.append(el("p", { class: "address" }, el("code", {}, stage.address), ` · ${stage.shape.join(" × ")} · ${stage.dtype}${norm}`), ...stripOf(t, stage));
  }
  holder.append(...others.map((stage) => stageDetails(t, stage)));
}
function drawOutput(t, holder) {
  holder.append(...t.data.after.map((stage) => stageDetails(t, stage)));
}

function drawPieces(t, holder) {
  for (const track of t.data.tracks) {
    const row = (piece, index) => el("tr", {}, el("td", { class: "number" }, index), el("td", { class: "piece" }, written(piece)), el("td", { class: "number" }, piece.id),
      el("td", {}, el("code", {}, piece.bytes.replace(/../g, "$& ").trim() || "–")), el("td", { class: "from" }, [t.say(`origin_${piece.origin}`), piece.special ? t.say("special") : ""].filter(Boolean).join(t.say("comma"))));
    const name = t.trackName(track.name);
    holder.append(lazily(t.say("all_pieces", { count: track.pieces.length, track: name }), () => scroll(t.say("pieces_of", { track: name }),
      headed(["position", "piece", "id", "bytes", "from"].map((key) => t.say(`column_${key}`)), track.pieces.map(row)))));
  }
}

function layerName(t, address) {
  const [, side, number] = address.match(/^(?:(encoder|decoder)\.)?layers\.(\d+)$/) ?? [];
  return number === undefined ? t.words[`place_${address.split(".").at(-1)}`] ?? address : t.say(side ? `layer_${side}` : "layer", { number });
}
function drawLayers(t, holder) {
  const most = Math.max(...t.data.layers.flatMap((layer) => parts(layer).map((stage) => stage.norm)), 1e-9);
  for (const layer of t.data.layers) {
    const norms = el("div", { class: "norms" }, ...parts(layer).map((stage) => el("span", { title: `${stage.address}: ${stage.summary}` }, t.words[`name_${stage.name}`] ?? stage.name,
      el("i", { style: `width:${Math.max((70 * stage.norm) / most, 1)}px` }), short(stage.norm))));
    const box = el("article", { class: "layer", "data-address": layer.address }, el("div", { class: "top" }, el("h3", {}, layerName(t, layer.address)), norms));
    for (const pattern of layer.patterns) drawPattern(t, pattern, box);
    if (!layer.patterns.length) drawStates(t, layer, box);
    for (const experts of layer.experts) drawExperts(t, experts, box);
    const whole = layer.stages.filter((stage) => stage.strip);
    if (whole.length === layer.stages.length) box.append(lazily(t.say("all_values", { count: whole.length + layer.patterns.length }), () => whole.map((stage) => stageDetails(t, stage))));
    holder.append(box);
  }
}
// What a layer adds and gives: the outputs of its own parts.
const parts = (layer) => layer.stages.filter((stage) => !stage.noted && !stage.name.includes(".") && !stage.name.includes("norm") && stage.norm != null);

function drawPattern(t, pattern, box) {
  const across = pattern.columns !== pattern.rows, open = el("div", { class: "open", hidden: true });
  box.append(el("p", { class: "address" }, el("code", {}, pattern.address), `${t.say("heads", { count: pattern.heads.length })}${across ? t.say("across") : ""}`));
  const maps = pattern.heads.map((head, index) => {
    const canvas = el("canvas", { role: "img", "aria-label": t.say("attention_of", { index }) }), looks = el("span", { class: "looks" });
    const map = el("button", { type: "button", class: across ? "map across" : "map", "aria-pressed": "false", "data-item": "", "data-head": index,
      onclick: () => { t.change({ head: { pattern, head: index } }); openHead(t, pattern, index, open); maps.forEach((other) => other.setAttribute("aria-pressed", other === map)); } },
      canvas, t.say("head", { index }), looks);
    if (across) canvas.style.height = `${Math.min(Math.max(head.weights.length * 9, 40), 140)}px`;
    canvas.addEventListener("mousemove", (event) => {
      const frame = canvas.getBoundingClientRect();
      t.select(pattern.rows, pattern.first_row + Math.floor(((event.clientY - frame.top) / frame.height) * canvas.height));
    });
    t.drawnNear(canvas, () => {
      // The map grows from pass to pass, as the text does.
      const read = Math.max(t.readTokens(pattern.rows) - pattern.first_row, 1), rows = head.weights.slice(0, read);
      const own = t.state.track === pattern.rows ? t.state.token - pattern.first_row : -1, row = rows[own];
      picture(canvas, across ? rows : rows.map((weights) => weights.slice(0, read + pattern.first_row)), (x, y) => (!row || y === own ? t.sequential(x) : dimmed(t, t.sequential(x))));
      looks.textContent = row ? `→ ${t.pieceName(pattern.columns, head.attends_to[own])} ${share(row[head.attends_to[own]])}` : t.say("bits", { bits: short(mean(head.entropy_bits)) });
    });
    return map;
  });
  const group = el("div", { class: "maps", role: "group", "aria-label": t.say("heads_of", { address: pattern.address }) }, ...maps);
  arrows(group, maps);
  box.append(group, open);
}
const dimmed = (t, colour) => { const ground = t.sequential(0); return colour.map((x, i) => Math.round(x * 0.45 + ground[i] * 0.55)); };

const MOST_CELLS = 4000; // of a table; a larger map is told by the row of the selected token
function openHead(t, pattern, index, open) {
  const head = pattern.heads[index], columns = t.tracks[pattern.columns].pieces.slice(0, head.weights[0].length).map(written);
  const rows = head.weights.map((_, y) => t.pieceName(pattern.rows, y + pattern.first_row)), readout = el("p", { class: "readout", role: "status" });
  const own = pattern.columns === pattern.rows ? t.say("head_shares", { first: share(head.first), previous: share(head.previous), itself: share(head.itself) }) : "";
  open.replaceChildren(el("h3", {}, t.say("head_title", { index })), el("p", { class: "address" }, el("code", {}, `${pattern.address}.${index}`)),
    el("p", { class: "quiet" }, `${t.say("head_entropy", { bits: short(mean(head.entropy_bits)) })}${own}`), readout);
  open.hidden = false;
  const tellRow = () => {
    const y = t.state.track === pattern.rows && t.state.token < t.readTokens(pattern.rows) ? t.state.token - pattern.first_row : -1, row = head.weights[y];
    if (!row) return (readout.textContent = "");
    const best = row.map((x, at) => [x, at]).sort((a, b) => b[0] - a[0]).slice(0, 4).filter(([x]) => x > 0);
    readout.textContent = t.say("looks_at", { token: rows[y], list: best.map(([x, at]) => `${columns[at]} ${x.toFixed(3)}`).join(t.say("comma")) });
  };
  t.release(open);
  t.onChange(tellRow, open);
  if (rows.length * columns.length > MOST_CELLS) return open.append(el("p", { class: "quiet" }, t.say("too_large")));
  const label = t.say("weights_of", { index }), steps = el("div", { class: "cell" });
  let cell;
  const showCell = (y, x) => {
    cell = [y, x];
    steps.replaceChildren(...cellSteps(t, pattern, index, cell, rows, columns));
    [...table.table.tBodies[0].rows].forEach((line, row) => [...line.cells].slice(1).forEach((box, column) => {
      box.classList.toggle("lit", row === y || column === x);
      box.setAttribute("aria-selected", row === y && column === x);
    }));
  };
  const table = cells({ label, columns, rows, tall: columns.length > 8, square: pattern.columns === pattern.rows && !pattern.first_row, cell: (box, y, x) => {
    const weight = head.weights[y][x];
    box.textContent = weight >= 0.0005 ? weight.toFixed(weight >= 0.9995 ? 2 : 3).replace(/^0/, "") : "0";
    paint(box, t.sequential(weight));
  }, tell: (y) => t.select(pattern.rows, y + pattern.first_row), chosen: (y) => t.isChosen(pattern.rows, y + pattern.first_row),
  later: (y) => y + pattern.first_row >= t.readTokens(pattern.rows), choose: pattern.operands && showCell });
  open.append(scroll(label, table.table));
  t.onChange(table.mark, open);
  t.redrawn(table.recolour, open);
  if (!pattern.operands) return;
  open.append(el("p", { class: "quiet" }, t.say("cell_hint")), steps);
  const chosen = t.state.track === pattern.rows ? Math.min(t.state.token, t.readTokens(pattern.rows) - 1) : 0;
  t.redrawn(() => showCell(...(cell ?? [chosen, head.attends_to[chosen]])), open);
}

// A layer without attention: the values that its probe notes, token by token.
function drawStates(t, layer, box) {
  const noted = layer.stages.filter((stage) => stage.noted && stage.track), shown = noted.length ? noted : layer.stages.filter((stage) => stage.track && !stage.name.includes("."));
  box.append(el("div", { class: "small" }, ...shown.slice(0, 12).map((stage) => {
    const canvas = el("canvas", { role: "img", "aria-label": `${stage.summary}: ${described(stage)}` });
    canvas.style.height = `${Math.max(stage.strip.rows.length * 7, 24)}px`;
    drawStrip(t, stage, canvas);
    canvas.addEventListener("mousemove", (event) => {
      const frame = canvas.getBoundingClientRect();
      t.select(stage.track, stage.strip.first_row + Math.floor(((event.clientY - frame.top) / frame.height) * stage.strip.rows.length));
    });
    return el("figure", {}, canvas, el("figcaption", {}, el("b", {}, stage.name), ` ${stage.summary}`));
  })));
}

// The experts of each layer without the rest of it.
function drawRoutes(t, holder) {
  for (const layer of t.data.layers.filter((one) => one.experts.length)) {
    const box = el("div", { class: "routed", "data-address": layer.address }, el("h3", {}, layerName(t, layer.address)));
    for (const experts of layer.experts) drawExperts(t, experts, box);
    holder.append(box);
  }
}

// Eight colours that are told apart without red and green; the number is always written.
const EXPERT = ["#e69f00", "#56b4e9", "#4fc3a1", "#f0e442", "#7fa9e0", "#e88b52", "#d79ac0", "#b9bcc4"];
function drawExperts(t, experts, box) {
  const routes = experts.chosen.map((chosen, index) => el("div", { class: "route" }, el("b", {}, t.pieceName(experts.track, index)), ...chosen.map((expert, at) =>
    el("span", { style: `background:${EXPERT[expert % EXPERT.length]}`, title: t.say("expert", { expert, weight: experts.weights[index][at] }) }, `e${expert} ${share(experts.weights[index][at])}`))));
  routes.forEach((route, index) => route.addEventListener("mouseenter", () => t.select(experts.track, index)));
  box.append(el("p", { class: "address" }, el("code", {}, experts.address), `${t.say("experts", { used: experts.chosen[0].length, count: experts.count })}`),
    scroll(t.say("experts_of", { address: experts.address }), el("div", { class: "routes" }, ...routes)));
  t.onChange(() => routes.forEach((route, index) => {
    route.classList.toggle("chosen", t.isChosen(experts.track, index));
    route.classList.toggle("later", index >= t.readTokens(experts.track));
  }));
}
