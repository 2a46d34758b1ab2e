// Parts of a model that a reader switches off, and what a change does to the next token.

const { el, share, visible } = globalThis.zooTrace;

// The rows of switches of a model: a layer's heads, its attention, its feed-forward, and the whole of it. A switch is an address
// and a name. A layer that reads a source has a second row, for its cross-attention.
function rowsOf(recipe, say) {
  const stacks = recipe.encoder ? { encoder: recipe.encoder, decoder: recipe.decoder } : { layer: recipe }, rows = [];
  for (const [role, stack] of Object.entries(stacks)) stack.layers.forEach((layer, number) => {
    const address = `${role === "layer" ? "" : `${role}.`}layers.${number}`, title = say(`switch_${role}`, { number });
    const head = (part) => (_, at) => [`${address}.${part}.head.${at}`, say("head", { number: at })];
    const heads = (part) => Array.from({ length: layer[part].heads }, head(part));
    const parts = [[`${address}.mixer`, say("attention")], [`${address}.feedforward`, say("feedforward")], [address, say("whole")]];
    rows.push({ title, about: title, heads: heads("mixer"), parts });
    if (!layer.cross) return;
    const cross = say("cross");
    rows.push({ title: cross, about: `${title}, ${cross}`, inner: true, heads: heads("cross"), parts: [[`${address}.cross`, cross]] });
  });
  return rows;
}
// What each part is called, by its address.
export const namesOf = (recipe, say) => new Map(rowsOf(recipe, say).flatMap(({ about, heads, parts }) =>
  [...heads, ...parts].map(([address, name]) => [address, `${about}, ${name}`])));

// The table of checkboxes. `offNow` gives the set of addresses that are off, `changed` is called after each switch. Returns what
// sets the boxes as that set says.
export function drawSwitches(holder, recipe, offNow, say, changed) {
  const rows = rowsOf(recipe, say), most = Math.max(...rows.map((row) => row.heads.length));
  const grid = rows.map(({ about, heads, parts }) => [...heads, ...parts].map(([address, name]) => {
    const input = el("input", { type: "checkbox", "data-address": address, title: address, "aria-label": `${about}, ${name}`, tabindex: -1 });
    input.addEventListener("change", () => {
      offNow()[input.checked ? "delete" : "add"](address);
      changed();
    });
    return input;
  }));
  grid[0][0].tabIndex = 0;
  const lines = rows.map(({ title, inner, heads }, y) => {
    const cells = grid[y].map((input) => el("td", {}, input)), gap = Array.from({ length: most - heads.length }, () => el("td"));
    return el("tr", { class: inner ? "" : "begins" }, el("th", { scope: "row" }, title), ...cells.toSpliced(heads.length, 0, ...gap));
  });
  const column = (name, label) => el("th", { scope: "col", "aria-label": label }, name);
  const heads = Array.from({ length: most }, (_, number) => column(`H${number}`, say("head", { number })));
  const names = ["attention", "feedforward", "whole"].map((name) => column(say(name)));
  const table = el("table", { "aria-label": say("switches") }, el("thead", {}, el("tr", {}, el("td"), ...heads, ...names)), el("tbody", {}, ...lines));
  table.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const y = grid.findIndex((line) => line.includes(document.activeElement));
    if (!step || y < 0) return;
    event.preventDefault();
    const line = grid[y + step[0]], next = line?.[Math.min(grid[y].indexOf(document.activeElement) + step[1], line.length - 1)];
    if (!next) return;
    for (const one of grid.flat()) one.tabIndex = one === next ? 0 : -1;
    next.focus();
  });
  holder.replaceChildren(table);
  return () => grid.flat().forEach((input) => (input.checked = !offNow().has(input.dataset.address)));
}

// The likeliest tokens of a session with their probabilities before and after its change. Returns what a sentence says of it.
export function drawCompared(holder, { before, after, model }, say) {
  const likeliest = (p) => [...p.keys()].sort((a, b) => p[b] - p[a]).slice(0, 6), name = (id) => visible(model.tokenizer.piece(id));
  const shown = [...new Set([...likeliest(after), ...likeliest(before)])].slice(0, 9), [best] = shown, [old] = likeliest(before);
  const width = (p) => ({ style: `width:${100 * p}%` }), cell = (kind, ...inside) => el("td", { class: kind }, ...inside);
  const row = (id) => el("tr", { class: id === best ? "picked" : "", "data-token": id }, cell("piece", name(id)),
    cell("", el("div", { class: "bar" }, el("i", width(after[id])), el("u", width(before[id])))),
    cell("number", share(before[id])), cell("number", share(after[id])));
  const columns = { token: ["name", ""], bars: ["", ""], before: ["share", "number"], after: ["share", "number"] };
  const heads = Object.entries(columns).map(([key, [, kind]]) => el("th", { scope: "col", class: kind }, say(`column_${key}`)));
  holder.replaceChildren(el("table", { class: "bars", "aria-label": say("compared") },
    el("colgroup", {}, ...Object.values(columns).map(([kind]) => el("col", { class: kind }))),
    el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...shown.map(row))));
  return { same: best === old, token: name(best), old: name(old), before: share(before[old]), after: share(after[best]) };
}
