"use strict";

// One comparison in an element of a page: its state, and the sections that are drawn from it.
zooCompare.App = class {
  constructor(root) {
    const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
    Object.assign(this, { root, data, number: 0 });
    this.state = { cache: Object.keys(zooCompare.common.policies)[0], weights: data.weights, names: data.names, first: false, structure: false };
    if (data.context) this.state.context = data.context;
    if (data.models) this.models = data.models.map((one) => ({ ...one, search: `${one.name} ${one.about}`.toLowerCase() }));
    this.asked = data.context || null; // the number of tokens that a person chose
    this.start();
  }

  async start() {
    if (this.models) {
      window.addEventListener("hashchange", () => this.follow());
      this.read();
    }
    await this.show();
    new ResizeObserver(() => this.drawn && this.fit()).observe(this.root);
  }

  // A name for an element, of which there is one in the page.
  ident() {
    this.number += 1;
    return `zoo-compare-${[...document.querySelectorAll(".zoo-compare")].indexOf(this.root)}-${this.number}`;
  }

  heading(below, ...children) {
    return zooCompare.element(`h${this.data.level + below}`, {}, ...children);
  }

  say(key, values) {
    return zooCompare.say(key, values);
  }

  // The choice that the address holds, else that of the page.
  read() {
    const found = zooCompare.fromAddress(location.hash, this.models.map((model) => model.name));
    this.asked = found.context || null;
    const names = found.names.length ? found.names : this.data.names;
    this.state = { ...this.state, ...found, names };
  }

  follow() {
    if (location.hash === this.written) return;
    this.read();
    this.show();
  }

  // Write the choice into the address: as a step that the back button undoes, or in the place of the last one.
  write(step) {
    if (!this.models) return;
    const before = location.hash;
    this.written = zooCompare.toAddress(this.state);
    if (step && before !== this.written) history.pushState(null, "", this.written);
    else history.replaceState(null, "", this.written);
  }

  async code() {
    if (!zooCompare.code) await zooCompare.load(this.data.code);
    return zooCompare.code;
  }

  // The page of a file of the project, where this site has one.
  codeAddress({ file, line, page }) {
    return this.data.files && page ? `${this.data.files}${file.replace(/\.py$/, ".html")}#line-${line}` : null;
  }

  async cards(names) {
    const missing = names.filter((name) => !zooCompare.cards[name]);
    await Promise.all(missing.map((name) => zooCompare.load(`${this.data.folder}${name.replaceAll(":", ".")}.js`)));
    return names.map((name) => zooCompare.cards[name]);
  }

  async choose(names, focus) {
    this.state.names = [...new Set(names)];
    const shown = this.show();
    const boxes = this.root.querySelectorAll("[role=combobox]");
    if (boxes.length) boxes[Math.min(focus, boxes.length - 1)].focus();
    await shown;
    this.write(true);
  }

  async show() {
    const wanted = this.state.names;
    this.drawChoice();
    this.chosen = await this.cards(wanted);
    if (wanted !== this.state.names) return; // another choice came meanwhile
    const bounds = this.chosen.map((card) => card.context).filter(Boolean);
    this.state.context = this.asked || Math.min(zooCompare.common.context, ...bounds);
    this.longest = Math.max(...this.chosen.map((card) => card.context || zooCompare.common.longest), this.state.context);
    this.render();
  }

  render() {
    const { chosen } = this;
    const several = chosen.length > 1;
    const sections = [
      zooCompare.switches(this, (settings) => this.view(settings)),
      several ? null : zooCompare.about(this, chosen[0]),
      this.section("diagrams", this.diagrams()),
      this.section("facts", this.facts()),
      several ? this.section("words", this.words()) : null,
      several ? this.section("recipes", this.recipes()) : null,
      this.section("code", zooCompare.codeDifferences(this, chosen)),
      this.section("measured", zooCompare.measured(this, chosen)),
      this.section("weights", chosen.map((card) => zooCompare.weightMap(this, card))),
      this.section("run", chosen.flatMap((card) => zooCompare.run(this, card))),
    ];
    this.dialog = zooCompare.element("dialog", {});
    this.peek = zooCompare.element("div", { class: "peek", hidden: true });
    [...this.root.children].forEach((child) => child !== this.picker?.element && child.remove());
    this.root.append(...sections.filter(Boolean), this.peek, this.dialog);
    this.pictures();
    this.update();
  }

  // Take a switch, and show what follows from it.
  view(settings) {
    Object.assign(this.state, settings);
    this.pictures();
    this.update();
    for (const [key, children] of [["words", () => this.words()], ["recipes", () => this.recipes()]]) {
      const section = this.root.querySelector(`:scope > section.${key}`);
      if (section) section.replaceChildren(section.firstElementChild, ...children());
    }
    this.write(false);
  }

  section(key, children) {
    const ident = this.ident();
    const { element } = zooCompare;
    const heading = this.heading(0, this.say(key));
    heading.id = ident;
    return element("section", { class: key, "aria-labelledby": ident }, heading, children);
  }

  // The boxes are drawn when the choice changes, before the cards of new models are loaded, and are not drawn again
  // with the cards: a person may be typing in the next box by then.
  drawChoice() {
    if (!this.models || this.picker?.names === this.state.names) return;
    const before = this.picker;
    this.picker = { names: this.state.names, element: this.choice() };
    if (before) before.element.replaceWith(this.picker.element);
    else this.root.replaceChildren(this.picker.element);
  }

  choice() {
    const { element } = zooCompare;
    const picker = zooCompare.picker(this, this.models, this.state.names, (names, focus) => this.choose(names, focus));
    const copy = element("button", { type: "button", class: "copy", onclick: () => this.copy(copy) }, this.say("copy"));
    return element("div", { class: "choice" }, picker, copy);
  }

  async copy(button) {
    this.write(false);
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = this.say("copied");
    } catch {
      button.textContent = this.say("copy_from_bar");
    }
    setTimeout(() => (button.textContent = this.say("copy")), 2500);
  }

  diagrams() {
    const help = this.chosen.length > 1 ? `${this.say("diagrams_differ")} ${this.say("diagrams_help")}` : this.say("diagrams_help");
    this.frame = zooCompare.element("div", { class: "pictures" });
    this.swipe = new zooCompare.Swipe(this, this.frame);
    return [zooCompare.element("p", { class: "quiet" }, help), this.swipe.element, this.frame];
  }

  // How much room there is: whether notes stand in the boxes, whether the pictures stand side by side, and whether one of
  // them fills the window.
  room() {
    const stacks = this.chosen.reduce((sum, card) => sum + card.stacks.length, 0);
    const [wide, small] = [false, true].map((compact) => stacks * zooCompare.stackWidth(compact) + this.chosen.length * 40);
    const width = this.root.clientWidth;
    if (width >= 0.85 * wide) return { compact: false, beside: true, narrow: false };
    // Those that find no room side by side scroll.
    const tight = width < Math.min(700, 0.8 * small);
    const narrow = tight && this.chosen.length > 1;
    const beside = narrow || !tight;
    return { compact: beside || width < 470, beside, narrow };
  }

  // Draw again where the room became another.
  fit() {
    const { compact, narrow } = this.room();
    if (compact !== this.drawn.compact || narrow !== this.drawn.narrow) this.pictures();
    else this.swipe.set(narrow);
  }

  pictures() {
    const { element } = zooCompare;
    const { chosen } = this;
    this.drawn = this.room();
    const { compact, beside, narrow } = this.drawn;
    const marked = zooCompare.selected(chosen.map((card) => card.stacks), this.state);
    const names = chosen.map((card) => card.name);
    const pictures = beside
      ? zooCompare.draw(marked, names)
      : marked.flatMap((stacks, index) => zooCompare.draw([stacks], [names[index]]));
    this.frame.classList.toggle("beside", beside);
    this.frame.classList.toggle("compact", compact);
    this.frame.style.setProperty("--rows", pictures[0].rows);
    const widths = pictures.map(({ stacks }) => stacks * zooCompare.stackWidth(compact));
    this.frame.style.gridTemplateColumns = narrow ? "" : widths.map((width) => `minmax(${0.8 * width}px, ${width}fr)`).join(" ");
    this.frame.style.maxWidth = `${1.15 * widths.reduce((sum, width) => sum + width)}px`;
    this.frame.replaceChildren(
      ...pictures.map(({ picture, rows }, index) => {
        const card = chosen[index];
        const caption = element("figcaption", {}, element("b", {}, card.name), element("span", {}, card.about));
        const figure = element("figure", { style: `--rows:${rows};--width:${widths[index]}` }, caption, picture);
        for (const block of picture.querySelectorAll(".block, .frame")) this.live(block, card);
        return figure;
      }),
    );
    this.swipe.set(narrow);
  }

  // A box marks its facts, and opens its code.
  live(block, card) {
    const known = card.code.blocks[block.dataset.block];
    const role = block.dataset.role || "frame";
    const title = (block.querySelector(".title, .count") || block).textContent;
    if (known) {
      block.setAttribute("role", "button");
      block.setAttribute("aria-label", this.say("code_of", { name: title }));
      block.classList.add("opens");
      const open = () => this.open(card, block.dataset.block, title);
      block.addEventListener("click", open);
      block.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        open();
      });
    }
    const about = zooCompare.common.about[role] || [];
    if (!known && !about.length) return;
    block.setAttribute("tabindex", "0");
    for (const [event, on] of [["mouseenter", true], ["focus", true], ["mouseleave", false], ["blur", false]]) {
      block.addEventListener(event, () => this.mark(on ? about : [], block.dataset.path));
    }
  }

  mark(keys, path) {
    const stack = ["encoder", "decoder"].find((role) => path.startsWith(`${role}.`)) || "";
    const rows = [...this.table.querySelectorAll("tbody tr")];
    for (const row of rows) {
      const own = !stack || !row.dataset.stack || row.dataset.stack === stack;
      row.classList.toggle("is-about", own && keys.includes(row.dataset.key));
    }
    const copies = rows.filter((row) => row.classList.contains("is-about") && !row.hidden).map((row) => row.cloneNode(true));
    const table = zooCompare.element("table", {}, copies);
    this.peek.replaceChildren(table);
    this.peek.hidden = !copies.length;
  }

  async open(card, block, title) {
    const { element } = zooCompare;
    const { code: name, parts } = card.code.blocks[block];
    const table = await this.code();
    const close = element("button", { type: "button", class: "close", onclick: () => this.dialog.close() }, this.say("close"));
    const inherited = (table[name] ? table[name].bases : []).filter((base) => table[base]);
    const known = parts.filter((part) => card.code.blocks[part]);
    const heading = this.heading(0, title.replace("≠ ", ""));
    heading.id = this.ident();
    this.dialog.setAttribute("aria-labelledby", heading.id);
    this.peek.hidden = true;
    this.dialog.replaceChildren(
      ...[
        element("div", { class: "top" }, heading, close),
        element("p", { class: "quiet" }, `${card.name} · ${name.split(":")[1]}`),
        ...zooCompare.source(this, table, name),
        inherited.length ? this.heading(1, this.say("inherits")) : null,
        ...inherited.map((base) => zooCompare.piece(this, base)),
        known.length ? this.heading(1, this.say("made_of")) : null,
        ...known.map((part) => zooCompare.piece(this, card.code.blocks[part].code)),
      ].filter(Boolean),
    );
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
  }

  facts() {
    const { element } = zooCompare;
    const { common } = zooCompare;
    const { context, weights, cache } = this.state;
    const ident = this.ident();
    const steps = Math.ceil(Math.log2(this.longest));
    const number = element("input", {
      type: "number", min: 1, step: 1, value: context, inputmode: "numeric", class: "context", id: ident,
      oninput: () => this.set({ context: Math.floor(Number(number.value)) }, slider),
    });
    const slider = element("input", {
      type: "range", min: 0, max: steps, step: 1, class: "slider", "aria-label": this.say("context_slider"),
      oninput: () => {
        number.value = String(Math.min(2 ** Number(slider.value), this.longest));
        this.set({ context: Number(number.value) });
      },
    });
    slider.value = String(Math.round(Math.log2(context)));
    const option = (value, label, now) => element("option", { value, selected: value === now }, label);
    const select = (key, options) =>
      element("select", { class: key, onchange: (event) => this.set({ [key]: event.target.value }) }, options);
    const formats = Object.entries(common.formats).map(([name, { label }]) => option(name, label, weights));
    const policies = Object.keys(common.policies).map((name) => option(name, this.say(`cache_${name}`), cache));
    this.status = element("p", { class: "quiet", role: "status" });
    const details = element("input", { type: "checkbox", onchange: () => this.table.classList.toggle("whole", details.checked) });
    const form = element(
      "form",
      { onsubmit: (event) => event.preventDefault() },
      element(
        "div",
        { class: "grow" },
        element("label", { for: ident }, this.say("context")),
        element("span", { class: "pair" }, slider, number, this.say("tokens")),
      ),
      element("label", {}, this.say("weights_setting"), select("weights", formats)),
      element("label", {}, this.say("cache_setting"), select("cache", policies)),
      element("label", { class: "check" }, details, this.say("all_facts")),
    );
    this.rows = zooCompare.rows(this.chosen.map((card) => card.facts));
    this.shown = this.rows.filter((row) => row.texts.some((text) => text !== common.absent));
    this.nothing = element("p", { class: "quiet", hidden: true }, this.say("nothing_differs"));
    const names = this.chosen.map((card) => card.name).join(", ");
    this.table = zooCompare.table(this, this.chosen, this.shown, `${this.say("facts")}: ${names}`);
    return [form, this.table, this.nothing, this.status];
  }

  // Take settings, and show what follows from them.
  set(settings, slider = null) {
    const context = settings.context;
    if (context !== undefined && !(context >= 1 && context <= 2 ** 31)) {
      this.status.textContent = this.say("bad_context");
      return;
    }
    this.status.textContent = "";
    Object.assign(this.state, settings);
    if (context !== undefined) this.asked = context;
    if (slider) slider.value = String(Math.round(Math.log2(context)));
    this.update();
    this.write(false);
  }

  // The rows: first those that follow the settings are computed.
  update() {
    const { absent } = zooCompare.common;
    for (const [name, { number, text, label }] of Object.entries(zooCompare.computed)) {
      const row = this.rows.find((one) => one.name === name);
      if (!row) continue;
      row.values = this.chosen.map((card) => number(card, this.state));
      row.texts = row.values.map((one) => (one === null ? absent : text(one)));
      row.forms = row.values.map((one) => (one === null ? absent : "n"));
      row.label = label(this.state);
    }
    const lines = [...this.table.querySelectorAll("tbody tr")];
    this.shown.forEach((row, index) => zooCompare.paint(lines[index], row, this.state));
    this.nothing.hidden = lines.some((line) => !line.hidden && !line.dataset.detail);
  }

  recipes() {
    const [first, ...others] = this.chosen;
    return others.map((card) => zooCompare.recipeChanges(first, card, this.state.structure));
  }

  words() {
    const { element } = zooCompare;
    const [first, ...others] = this.chosen;
    return others.flatMap((card) => {
      const sentences = zooCompare.words(first, card, this.state.structure) || [];
      return [
        this.heading(1, this.say("compared", { name: card.name, first: first.name })),
        sentences.length
          ? element("ul", {}, sentences.map((text) => element("li", {}, text)))
          : element("p", {}, this.say("nothing_differs")),
      ];
    });
  }
};

for (const root of document.querySelectorAll(".zoo-compare[data-app]")) new zooCompare.App(root);
