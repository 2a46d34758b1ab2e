// Tokens, heat strips, attention maps, experts.
"use strict";

// The row of tokens at the top, and the pass that is looked at.
function drawBar() {
  const holder = byId("tracks"), several = data.tracks.length > 1;
  for (const track of data.tracks) {
    const chips = track.pieces.map((piece, index) => {
      const kind = `chip ${piece.origin}${piece.special ? " special" : ""}`;
      return el("div", { class: kind, role: "option", "data-item": "", "aria-label": `token ${index}: ${written(piece)}`,
        onclick: () => select(track.name, index), onfocus: () => select(track.name, index),
        onmouseenter: () => select(track.name, index) }, written(piece), el("small", {}, piece.id));
    });
    const row = el("div", { class: "track", role: "listbox", "aria-orientation": "horizontal", "aria-label": `Tokens of the ${track.name}` },
      several ? el("span", {}, track.name) : null, ...chips);
    arrows(row, chips);
    holder.append(row);
    onChange(() => drawChips(track, row, chips));
    redraws.push(() => drawChips(track, row, chips));
  }
  const step = byId("step"), last = data.turns.length - 1;
  step.max = Math.max(last, 0);
  if (last < 1) byId("bar").querySelector(".scrub").hidden = true;
  step.addEventListener("input", () => change({ step: +step.value }));
  byId("back").onclick = () => change({ step: Math.max(state.step - 1, 0) });
  byId("forth").onclick = () => change({ step: Math.min(state.step + 1, last) });
  onChange(() => {
    step.value = state.step;
    byId("back").disabled = state.step <= 0;
    byId("forth").disabled = state.step >= last;
    byId("turn").textContent = turnText(state.step);
    step.setAttribute("aria-valuetext", byId("turn").textContent);
  });
}
function turnText(index) {
  const turn = data.turns[index];
  if (!turn) return "";
  const read = data.uncoverings.length ? "reads the whole text" : turn.tokens === 1
    ? `reads ${pieceName(turn.track, turn.start)} at position ${turn.start}` : `reads ${turn.tokens} tokens${turn.kind === "encode" ? " of the source" : ""}`;
  const cached = turn.cached_numbers ? `; the cache then holds ${turn.cached_numbers.toLocaleString("en")} numbers` : "";
  return `Pass ${index + 1} of ${data.turns.length} ${read}${cached}`;
}
function drawChips(track, row, chips) {
  const read = readTokens(track.name), turn = data.turns[state.step], passIds = data.uncoverings[state.step];
  const looked = lookedAt(track.name);
  chips.forEach((chip, index) => {
    const own = state.track === track.name && state.token === index;
    chip.setAttribute("aria-selected", own);
    chip.tabIndex = own || (state.track !== track.name && index === 0) ? 0 : -1;
    chip.classList.toggle("later", index >= read);
    chip.classList.toggle("reading", !passIds && turn?.track === track.name && index >= turn.start && index < read);
    if (looked && index < looked.length) paint(chip, sequential(looked[index]));
    else chip.style.background = chip.style.color = "";
    if (passIds) chip.firstChild.data = passIds.predictions.some((p) => p.position === index) ? "░" : written(track.pieces[index]);
  });
}
// The weights of the selected token in the head that is looked at, over the tokens of a track.
function lookedAt(track) {
  const { pattern, head } = state.head ?? {};
  if (!pattern || pattern.rows !== state.track || pattern.columns !== track) return null;
  return state.token < readTokens(pattern.rows) ? pattern.heads[head].weights[state.token - pattern.first_row] : null;
}

// A value as rows of bins.
function drawStrip(stage, canvas) {
  const rows = stage.strip.rows, most = Math.max(...rows.flat().map(Math.abs)) || 1;
  const positive = rows.every((row) => row.every((x) => x >= 0)) && stage.unit === "probability";
  redrawn(() => picture(canvas, rows, (x) => (positive ? sequential(x / most) : diverging(x / most))));
}
const described = (stage) => `${stage.address}, ${stage.shape.join(" × ")}, ${stage.dtype}`;
function stripOf(stage) {
  const canvas = el("canvas", { role: "img", "aria-label": `${stage.summary}: ${described(stage)}` });
  const rows = stage.strip.rows;
  const readout = el("div", { class: "readout quiet" }, "Point at the picture for its numbers.");
  const first = stage.strip.first_row, labels = stage.track ? rows.map((_, y) => el("span", {}, pieceName(stage.track, y + first))) : [];
  canvas.style.height = `${rows.length * 16}px`;
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const y = Math.min(rows.length - 1, Math.floor(((event.clientY - box.top) / box.height) * rows.length));
    const x = Math.min(rows[0].length - 1, Math.floor(((event.clientX - box.left) / box.width) * rows[0].length));
    const from = x * stage.strip.per_bin, size = stage.strip.per_bin;
    readout.textContent = `${labels[y]?.textContent ?? `row ${y + first}`}: ${size > 1 ? `mean of numbers ${from}–${from + size - 1}` : `number ${from}`} is ${short(rows[y][x])}${stage.unit ? " " + stage.unit : ""}`;
    if (stage.track) select(stage.track, y + first);
  });
  drawStrip(stage, canvas);
  onChange(() => labels.forEach((label, y) => label.classList.toggle("chosen", state.track === stage.track && state.token === y + first)));
  const box = el("div", { class: "strip" }, el("div", { class: "labels", "aria-hidden": "true" }, ...labels), canvas);
  return [box, readout, lazily("Numbers of the picture", () => stripNumbers(stage))];
}
function stripNumbers(stage) {
  const { rows, per_bin, first_row } = stage.strip, most = Math.max(...rows.flat().map(Math.abs)) || 1;
  const table = cells({ label: described(stage), columns: rows[0].map((_, x) => `${x * per_bin}`),
    rows: rows.map((_, y) => (stage.track ? pieceName(stage.track, y + first_row) : `${y + first_row}`)), cell: (box, y, x) => {
      box.textContent = short(rows[y][x]);
      paint(box, diverging(rows[y][x] / most));
    }, tell: (y) => stage.track && select(stage.track, y + first_row), chosen: (y) => stage.track && state.track === stage.track && state.token === y + first_row, later: () => false });
  onChange(table.mark);
  redraws.push(table.recolour);
  const how = per_bin > 1 ? `Each number is the mean of ${per_bin}, the first of which is named above it. ` : "";
  return [el("p", { class: "quiet" }, `${how}Every number of the value: `, el("code", {}, `zoo trace … --value ${stage.address}`)), scroll(`Numbers of ${stage.address}`, table.table)];
}
function stageDetails(stage) {
  const norm = stage.norm == null ? "" : ` · mean norm ${short(stage.norm)}`;
  const box = lazily("", () => [el("p", {}, `${stage.summary[0].toUpperCase()}${stage.summary.slice(1)}${stage.unit ? `, in ${stage.unit}` : ""}.`), ...stripOf(stage)]);
  box.firstChild.append(el("code", {}, stage.address), ` ${stage.axes ? `(${stage.axes}) ` : ""}${stage.shape.join(" × ")}${norm}`);
  return box;
}

function drawVectors() {
  const names = data.before.filter((stage) => stage.address.endsWith("embedding")), others = data.before.filter((stage) => !names.includes(stage));
  for (const stage of names) {
    byId("vectors").append(el("p", { class: "address" }, `${stage.address} · ${stage.shape.join(" × ")} · ${stage.dtype} · mean norm ${short(stage.norm)}`), ...stripOf(stage));
  }
  byId("vectors").append(...others.map(stageDetails));
}

function drawPieces() {
  for (const track of data.tracks) {
    const row = (piece, index) => el("tr", {}, el("td", { class: "number" }, index), el("td", { class: "piece" }, written(piece)), el("td", { class: "number" }, piece.id),
      el("td", {}, el("code", {}, piece.bytes.replace(/../g, "$& ").trim() || "–")), el("td", {}, [piece.origin, piece.special ? "special" : ""].filter(Boolean).join(", ")));
    byId("pieces").append(lazily(`All ${track.pieces.length} pieces of the ${track.name} with ids and bytes`, () => scroll(`Pieces of the ${track.name}`, el("table", {},
      el("thead", {}, el("tr", {}, ...["position", "piece", "id", "bytes", "from"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...track.pieces.map(row))))));
  }
}

function drawLayers() {
  const most = Math.max(...data.layers.flatMap((layer) => parts(layer).map((stage) => stage.norm)), 1e-9);
  for (const layer of data.layers) {
    const norms = el("div", { class: "norms" }, ...parts(layer).map((stage) => el("span", { title: `${stage.address}: ${stage.summary}` }, stage.name === "output" ? "residual" : stage.name,
      el("i", { style: `width:${Math.max((70 * stage.norm) / most, 1)}px` }), short(stage.norm))));
    const box = el("article", { class: "layer", id: layer.address }, el("div", { class: "top" }, el("h3", {}, layer.address.replace(/layers\./, "layer ").replace(/\./g, " ")), norms));
    for (const pattern of layer.patterns) drawPattern(pattern, box);
    if (!layer.patterns.length) drawStates(layer, box);
    for (const experts of layer.experts) drawExperts(experts, box);
    box.append(lazily(`All ${layer.stages.length + layer.patterns.length} values of this layer, in the order in which they were computed`, () => layer.stages.map(stageDetails)));
    byId("layers").append(box);
  }
}
// What a layer adds and gives: the outputs of its own parts.
const parts = (layer) => layer.stages.filter((stage) => !stage.noted && !stage.name.includes(".") && !stage.name.includes("norm") && stage.norm != null);

function drawPattern(pattern, box) {
  const across = pattern.columns !== pattern.rows, open = el("div", { class: "open", hidden: true });
  box.append(el("p", { class: "address" }, `${pattern.address} · ${pattern.heads.length} heads${across ? " · rows are of the target, columns of the source" : ""}`));
  const maps = pattern.heads.map((head, index) => {
    const canvas = el("canvas", { role: "img", "aria-label": `Attention of head ${index}` }), looks = el("span", { class: "looks" });
    const map = el("button", { type: "button", class: across ? "map across" : "map", "aria-pressed": "false", "data-item": "", "data-head": index,
      onclick: () => { change({ head: { pattern, head: index } }); openHead(pattern, index, open); maps.forEach((other) => other.setAttribute("aria-pressed", other === map)); } },
      canvas, `head ${index}`, looks);
    if (across) canvas.style.height = `${Math.min(Math.max(head.weights.length * 9, 40), 140)}px`;
    canvas.addEventListener("mousemove", (event) => {
      const frame = canvas.getBoundingClientRect();
      select(pattern.rows, pattern.first_row + Math.floor(((event.clientY - frame.top) / frame.height) * canvas.height));
    });
    drawnNear(canvas, () => {
      // The map grows from pass to pass, as the text does.
      const read = Math.max(readTokens(pattern.rows) - pattern.first_row, 1), rows = head.weights.slice(0, read);
      const own = state.track === pattern.rows ? state.token - pattern.first_row : -1, row = rows[own];
      picture(canvas, across ? rows : rows.map((weights) => weights.slice(0, read + pattern.first_row)), (x, y) => (!row || y === own ? sequential(x) : dimmed(sequential(x))));
      looks.textContent = row ? `→ ${pieceName(pattern.columns, head.looks[own])} ${share(row[head.looks[own]])}` : `${short(mean(head.entropy_bits))} bits`;
    });
    return map;
  });
  const group = el("div", { class: "maps", role: "group", "aria-label": `Heads of ${pattern.address}` }, ...maps);
  arrows(group, maps);
  box.append(group, open);
}
const mean = (xs) => xs.reduce((a, b) => a + b, 0) / (xs.length || 1);
const dimmed = (colour) => { const ground = sequential(0); return colour.map((x, i) => Math.round(x * 0.45 + ground[i] * 0.55)); };

const MOST_CELLS = 4000; // of a table; a larger map is told by the row of the selected token
function openHead(pattern, index, open) {
  const head = pattern.heads[index], columns = tracks[pattern.columns].pieces.slice(0, head.weights[0].length).map(written);
  const rows = head.weights.map((_, y) => pieceName(pattern.rows, y + pattern.first_row)), readout = el("p", { class: "readout", role: "status" });
  const own = pattern.columns === pattern.rows ? ` It gives ${share(head.first)} of its weight to the first token, ${share(head.previous)} to the one before, ${share(head.itself)} to the token itself.` : "";
  open.replaceChildren(el("h3", {}, `Head ${index}`), el("p", { class: "address" }, `${pattern.address}.${index}`),
    el("p", { class: "quiet" }, `Its rows have ${short(mean(head.entropy_bits))} bits of entropy on average: 0 is a look at one token alone.${own}`), readout);
  open.hidden = false;
  const tellRow = () => {
    const y = state.track === pattern.rows && state.token < readTokens(pattern.rows) ? state.token - pattern.first_row : -1, row = head.weights[y];
    if (!row) return (readout.textContent = "");
    const best = row.map((x, at) => [x, at]).sort((a, b) => b[0] - a[0]).slice(0, 4).filter(([x]) => x > 0);
    readout.textContent = `${rows[y]} looks at ${best.map(([x, at]) => `${columns[at]} ${x.toFixed(3)}`).join(", ")}`;
  };
  listeners.splice(0, listeners.length, ...listeners.filter((listener) => listener.head !== open));
  tellRow.head = open;
  onChange(tellRow);
  if (rows.length * columns.length > MOST_CELLS) return open.append(el("p", { class: "quiet" }, "The map is too large for a table: choose a token to read its row."));
  const table = cells({ label: `Weights of head ${index}`, columns, rows, tall: columns.length > 8, square: pattern.columns === pattern.rows && !pattern.first_row, cell: (box, y, x) => {
    const weight = head.weights[y][x];
    box.textContent = weight ? weight.toFixed(weight >= 0.9995 ? 2 : 3).replace(/^0/, "") : "0";
    paint(box, sequential(weight));
  }, tell: (y) => select(pattern.rows, y + pattern.first_row), chosen: (y) => state.track === pattern.rows && state.token === y + pattern.first_row,
  later: (y) => y + pattern.first_row >= readTokens(pattern.rows) });
  open.append(scroll(`Weights of head ${index}`, table.table));
  table.mark.head = open;
  onChange(table.mark);
  redraws.push(table.recolour);
}

// A layer without attention: the values that its probe notes, token by token.
function drawStates(layer, box) {
  const noted = layer.stages.filter((stage) => stage.noted && stage.track), shown = noted.length ? noted : layer.stages.filter((stage) => stage.track && !stage.name.includes("."));
  box.append(el("div", { class: "small" }, ...shown.slice(0, 12).map((stage) => {
    const canvas = el("canvas", { role: "img", "aria-label": `${stage.summary}: ${described(stage)}` });
    canvas.style.height = `${Math.max(stage.strip.rows.length * 7, 24)}px`;
    drawStrip(stage, canvas);
    canvas.addEventListener("mousemove", (event) => {
      const frame = canvas.getBoundingClientRect();
      select(stage.track, stage.strip.first_row + Math.floor(((event.clientY - frame.top) / frame.height) * stage.strip.rows.length));
    });
    return el("figure", {}, canvas, el("figcaption", {}, el("b", {}, stage.name), ` ${stage.summary}`));
  })));
}

// Eight colours that are told apart without red and green; the number is always written.
const EXPERT = ["#e69f00", "#56b4e9", "#4fc3a1", "#f0e442", "#7fa9e0", "#e88b52", "#d79ac0", "#b9bcc4"];
function drawExperts(experts, box) {
  const routes = experts.chosen.map((chosen, index) => el("div", { class: "route" }, el("b", {}, pieceName(experts.track, index)), ...chosen.map((expert, at) =>
    el("span", { style: `background:${EXPERT[expert % EXPERT.length]}`, title: `expert ${expert}, weight ${experts.weights[index][at]}` }, `e${expert} ${share(experts.weights[index][at])}`))));
  routes.forEach((route, index) => route.addEventListener("mouseenter", () => select(experts.track, index)));
  box.append(el("p", { class: "address" }, `${experts.address} · ${experts.chosen[0].length} of ${experts.count} experts a token, with their weights`), scroll(`Experts of ${experts.address}`, el("div", { class: "routes" }, ...routes)));
  onChange(() => routes.forEach((route, index) => {
    route.classList.toggle("chosen", state.track === experts.track && state.token === index);
    route.classList.toggle("later", index >= readTokens(experts.track));
  }));
}
