// What every part of a trace uses: one trace on a page with its data and words, elements, colours, pictures, keys.

// `root` is the element that holds it. Its state is the token, the pass and the head that are looked at; listeners are told
// when that changes, and redraws are pictures whose colours depend on the theme.
class Trace {
  constructor(root, data, words) {
    Object.assign(this, { root, data, words, listeners: [], redraws: [], dark: isDark(root) });
    this.tracks = Object.fromEntries(data.tracks.map((track) => [track.name, track]));
    this.state = { track: "", token: 0, step: 0, head: null };
  }
  find(selector) {
    return this.root.querySelector(selector);
  }
  part(name) {
    return this.find(`[data-part="${name}"]`);
  }
  // A text of the language's table, with values in its places.
  say(name, values = {}) {
    return this.words[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
  }
  // A listener of an `owner` is dropped when that is released, and so are its pictures.
  onChange(listener, owner) {
    listener.owner = owner;
    this.listeners.push(listener);
    listener();
  }
  release(owner) {
    for (const name of ["listeners", "redraws"]) this[name] = this[name].filter((one) => one.owner !== owner);
  }
  change(values) {
    if (Object.entries(values).every(([name, value]) => this.state[name] === value)) return;
    Object.assign(this.state, values);
    for (const listener of this.listeners) listener();
  }
  redrawn(draw, owner) {
    draw.owner = owner;
    this.redraws.push(draw);
    draw();
  }
  themed() {
    const dark = isDark(this.root);
    if (dark === this.dark) return;
    this.dark = dark;
    for (const draw of this.redraws) draw();
    for (const listener of this.listeners) listener();
  }
  select(track, token) {
    this.change({ track, token: Math.min(Math.max(token, 0), this.tracks[track].pieces.length - 1) });
  }
  isChosen(track, token) {
    return this.state.track === track && this.state.token === token;
  }
  // How many tokens of a track had been read after the pass that is looked at.
  readTokens(track) {
    let read = 0;
    this.data.passes.slice(0, this.state.step + 1).forEach((turn) => {
      if (turn.track === track) read = Math.max(read, turn.start + turn.tokens);
    });
    return read;
  }
  nameOf(id) {
    return visible(this.data.vocabulary[id] ?? `[${id}]`);
  }
  pieceName(track, index) {
    return written(this.tracks[track].pieces[index]);
  }
  trackName(track) {
    return this.say(`track_${track}`);
  }

  // Sequential: from the page's ground through green to deep violet, or up to pale yellow when it is dark. Lightness grows
  // evenly, so that it is read without hue. Diverging: orange below zero, blue above.
  sequential(share) {
    const { up } = RAMPS[this.dark ? "dark" : "light"];
    const at = Math.min(Math.max(share, 0), 1) * (up.length - 1), low = Math.min(Math.floor(at), up.length - 2);
    return mixed(up[low], up[low + 1], at - low);
  }
  diverging(share) {
    const { plus, minus, zero } = RAMPS[this.dark ? "dark" : "light"];
    return mixed(zero, share < 0 ? minus : plus, Math.min(Math.abs(share), 1) ** 0.7);
  }
  // Large models have a thousand maps: those far from the window are not drawn until they come near.
  drawnNear(canvas, draw) {
    canvas.draw = draw;
    const drawIfNear = () => canvas.near && draw();
    this.listeners.push(drawIfNear);
    this.redraws.push(drawIfNear);
    near.observe(canvas);
  }
}
const near = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
  target.near = isIntersecting;
  if (isIntersecting) target.draw();
}), { rootMargin: "1200px" });

// What is printed has not come near the window.
addEventListener("beforeprint", () => document.querySelectorAll("canvas").forEach((canvas) => canvas.draw && canvas.draw()));

// Whether the ground is dark, whoever chose that: the browser, the page's switch, the theme of the docs.
function isDark(root) {
  const [r, g, b] = getComputedStyle(root).getPropertyValue("--ground").trim().match(/[\da-f]{2}/gi).map((x) => parseInt(x, 16));
  return 0.299 * r + 0.587 * g + 0.114 * b < 128;
}

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

// A piece as it is written on the page: spaces and line ends visible, parts of characters as bytes.
function written(piece) {
  if (piece.text.includes("\ufffd") && piece.bytes) return piece.bytes.match(/../g).map((b) => "\\x" + b).join("");
  return visible(piece.text);
}
const visible = (text) => text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/ /g, "␣") || "∅";
const count = (x) => x.toLocaleString("en");
const short = (x) => (x === 0 ? "0" : Math.abs(x) >= 1000 ? count(Math.round(x)) : x.toPrecision(3));
const share = (p) => (p >= 0.9995 ? "1.00" : p >= 0.0995 ? p.toFixed(2) : p >= 0.0005 ? p.toFixed(3) : p > 0 ? "<.001" : "0");
const mean = (xs) => xs.reduce((a, b) => a + b, 0) / (xs.length || 1);

const RAMPS = {
  light: { up: ["#f8f8f4", "#dcebc4", "#9fd0a0", "#52aa93", "#2f7f8e", "#30568a", "#37286e"], plus: "#1f5fae", minus: "#b5560b", zero: "#f8f8f4" },
  dark: { up: ["#1a1e26", "#302f6a", "#33598f", "#2f8591", "#4eb083", "#a3d65f", "#fbf0a4"], plus: "#63a8ff", minus: "#ff9d4a", zero: "#1a1e26" },
};
const RGB = Object.fromEntries(Object.values(RAMPS).flatMap(({ up, ...ends }) => [...up, ...Object.values(ends)]).map((hex) => [hex, [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16))]));
const mixed = (a, b, t) => RGB[a].map((x, i) => Math.round(x + (RGB[b][i] - x) * t));
// Black or white, whichever has the greater contrast (WCAG's relative luminance).
function inkOn(colour) {
  const [r, g, b] = colour.map((x) => (x / 255 <= 0.04045 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
function paint(cell, colour) {
  cell.style.background = `rgb(${colour.join(",")})`;
  cell.style.color = inkOn(colour);
}

// A matrix as a picture of one pixel a number, which CSS makes large.
function picture(canvas, rows, colour) {
  canvas.width = rows[0]?.length || 1;
  canvas.height = rows.length || 1;
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  rows.forEach((row, y) => row.forEach((x, at) => {
    const [r, g, b] = colour(x, y);
    image.data.set([r, g, b, 255], 4 * (y * canvas.width + at));
  }));
  context.putImageData(image, 0, 0);
}

// Arrow keys among the elements of a row, of which one at a time is in the tab order.
function arrows(container, items) {
  container.addEventListener("keydown", (event) => {
    const at = items.indexOf(document.activeElement.closest("[data-item]"));
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: items.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    items[Math.min(Math.max(to, 0), items.length - 1)].focus();
  });
}

// A table of coloured cells with arrow keys in both directions; `tell` is called with the row and column of the focus or of
// the pointer, `choose` with those of the focus alone.
// Rows that are `later` than the pass that is looked at are hidden, and so are the columns of a `square`.
function cells({ label, columns, rows, tall, square, cell, tell, chosen, later, choose }) {
  const head = el("tr", {}, el("td"), ...columns.map((name) => el("th", { scope: "col" }, el("span", {}, name))));
  const table = el("table", { class: tall ? "cells tall" : "cells", "aria-label": label, role: "grid" }, el("thead", {}, head));
  const body = el("tbody"), grid = [];
  rows.forEach((name, y) => {
    const line = el("tr", {}, el("th", { scope: "row" }, name));
    grid.push(columns.map((_, x) => {
      const box = el("td", { role: "gridcell", tabindex: x || y ? -1 : 0 });
      cell(box, y, x);
      for (const event of ["focus", "mouseenter"]) box.addEventListener(event, () => tell(y, x));
      if (choose) box.addEventListener("focus", () => choose(y, x));
      line.append(box);
      return box;
    }));
    body.append(line);
  });
  table.append(body);
  table.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const y = grid.findIndex((line) => line.includes(document.activeElement));
    if (!step || y < 0) return;
    event.preventDefault();
    const x = grid[y].indexOf(document.activeElement), next = grid[y + step[0]]?.[x + step[1]];
    if (!next || next.hidden || next.parentElement.hidden) return;
    grid[y][x].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  const mark = () => [...body.children].forEach((line, y) => {
    line.classList.toggle("chosen", Boolean(chosen(y)));
    line.hidden = later(y);
    if (square) [...head.children].slice(1).forEach((name, x) => (name.hidden = grid[y][x].hidden = later(x)));
  });
  const recolour = () => grid.forEach((line, y) => line.forEach((box, x) => cell(box, y, x)));
  return { table, mark, recolour };
}

// Numbers in a `details` are made when it is opened: most never are.
function lazily(title, make) {
  const inside = el("div"), box = el("details", {}, el("summary", {}, title), inside);
  box.addEventListener("toggle", () => {
    if (box.open && !inside.hasChildNodes()) inside.append(...[make()].flat());
  });
  return box;
}
const scroll = (label, ...inside) => el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, ...inside);
const headed = (names, rows, attributes = {}) => el("table", attributes,
  el("thead", {}, el("tr", {}, ...names.map((name) => el(name ? "th" : "td", name ? { scope: "col" } : {}, name)))), el("tbody", {}, ...rows));
