// Parts of a model that a reader switches off, and what that does to the next token.

const { el, share, visible } = globalThis.zooTrace;

// The rows of switches of a model: a layer's heads, its attention, its feed-forward, and the whole of it.
// Each part is its address and its name; a decoder that reads a source has a second row for its cross-attention.
export function partsOf(recipe, say) {
  const stacks = recipe.encoder ? [["encoder.", recipe.encoder, "switch_encoder"], ["decoder.", recipe.decoder, "switch_decoder"]] : [["", recipe, "switch_layer"]];
  const rows = [];
  for (const [prefix, stack, name] of stacks) stack.layers.forEach((layer, number) => {
    const address = `${prefix}layers.${number}`, title = say(name, { number });
    const attention = (part) => [...Array(layer[part].heads).keys()].map((head) => [`${address}.${part}.head.${head}`, say("head", { number: head })]);
    rows.push({ title, begins: true, heads: attention("mixer"), others: [[`${address}.mixer`, say("attention")], [`${address}.feedforward`, say("feedforward")], [address, say("whole")]] });
    if (layer.cross) rows.push({ title: `${title}, ${say("cross")}`, short: say("cross"), heads: attention("cross"), others: [[`${address}.cross`, say("cross")]] });
  });
  return rows;
}
export const addressesOf = (recipe, say) => partsOf(recipe, say).flatMap((row) => [...row.heads, ...row.others].map(([address]) => address));

// The table of checkboxes; `offNow` gives the set of addresses that are off, `changed` is called after each switch.
export function drawSwitches(holder, recipe, offNow, say, changed) {
  const rows = partsOf(recipe, say), most = Math.max(...rows.map((row) => row.heads.length)), grid = [];
  const names = [...Array(most).keys(), say("attention"), say("feedforward"), say("whole")];
  const box = ([address, name], row) => {
    const input = el("input", { type: "checkbox", "data-address": address, "aria-label": `${row.title}, ${name}`, tabindex: -1, title: address });
    input.addEventListener("change", () => {
      offNow()[input.checked ? "delete" : "add"](address);
      changed();
    });
    return input;
  };
  const body = rows.map((row) => {
    const inputs = [...row.heads, ...row.others].map((part) => box(part, row));
    grid.push(inputs);
    const cells = inputs.map((input) => el("td", {}, input)), gap = most - row.heads.length;
    if (gap) cells.splice(row.heads.length, 0, ...Array.from({ length: gap }, () => el("td")));
    return el("tr", { class: row.begins ? "begins" : "" }, el("th", { scope: "row" }, row.short ?? row.title), ...cells);
  });
  grid[0][0].tabIndex = 0;
  const table = el("table", { "aria-label": say("switches") }, el("thead", {},
    el("tr", {}, el("td"), ...names.map((name, at) => el("th", { scope: "col", "aria-label": at < most ? say("head", { number: name }) : null }, at < most ? `H${name}` : name)))), el("tbody", {}, ...body));
  table.addEventListener("keydown", (event) => {
    const [down, right] = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key] ?? [0, 0];
    const y = grid.findIndex((line) => line.includes(document.activeElement));
    if ((!down && !right) || y < 0) return;
    event.preventDefault();
    const line = grid[y + down], x = grid[y].indexOf(document.activeElement);
    focus(line?.[Math.min(x + right, line.length - 1)]);
  });
  const focus = (input) => {
    if (!input) return;
    for (const one of grid.flat()) one.tabIndex = one === input ? 0 : -1;
    input.focus();
  };
  holder.replaceChildren(table);
  const show = () => grid.flat().forEach((input) => (input.checked = !offNow().has(input.dataset.address)));
  return show;
}

// The likeliest tokens with their probabilities before and after a change.
export function drawCompared(holder, before, after, piece, say) {
  const order = (p) => [...p.keys()].sort((a, b) => p[b] - p[a]).slice(0, 6);
  const shown = [...new Set([...order(after), ...order(before)])].slice(0, 9);
  const row = (id) => el("tr", { class: id === shown[0] ? "picked" : "", "data-token": id }, el("td", { class: "piece" }, visible(piece(id))),
    el("td", {}, el("div", { class: "bar" }, el("i", { style: `width:${100 * after[id]}%` }), el("u", { style: `width:${100 * before[id]}%` }))),
    el("td", { class: "number" }, share(before[id])), el("td", { class: "number" }, share(after[id])));
  const heads = [["column_token"], ["column_bars"], ["column_before", "number"], ["column_after", "number"]];
  holder.replaceChildren(el("table", { class: "bars", "aria-label": say("compared") },
    el("colgroup", {}, ...["name", "", "share", "share"].map((name) => el("col", { class: name }))),
    el("thead", {}, el("tr", {}, ...heads.map(([name, kind]) => el("th", { scope: "col", class: kind }, say(name))))), el("tbody", {}, ...shown.map(row))));
  const best = shown[0], old = order(before)[0];
  return { token: visible(piece(best)), old: visible(piece(old)), same: best === old, before: share(before[best === old ? best : old]), after: share(after[best]) };
}

// Probabilities of a row of logits.
export function softmax(logits) {
  let most = -Infinity, total = 0;
  for (const z of logits) if (z > most) most = z;
  const p = Float64Array.from(logits, (z) => Math.exp(z - most));
  for (const x of p) total += x;
  return p.map((x) => x / total);
}
