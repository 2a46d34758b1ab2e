"use strict";

// Diagrams drawn as zoo/describe/diagram/svg.py draws them. Where there is little room, notes stand in the boxes.
Object.assign(zooCompare, {
  // Several models' stacks as pictures of one scale, what has one role in one line: [{svg, width}].
  draw(models, names, compact) {
    const sizes = zooCompare.sizes(compact);
    const groups = models.map((stacks) =>
      stacks.map((stack, number) => ({
        stack,
        elements: zooCompare.elements(stack, sizes),
        x: sizes.margin + number * (sizes.column + sizes.between),
      })),
    );
    const height = zooCompare.align(groups.flat().map((column) => column.elements), sizes.gap);
    const head = models.flat().some((stack) => stack.title) ? 26 : 0;
    return groups.map((columns, index) => {
      const width = 2 * sizes.margin + columns.length * (sizes.column + sizes.between) - sizes.between;
      const total = 2 * sizes.margin + head + height;
      const pen = new zooCompare.Pen(sizes, total - sizes.margin, compact);
      const shape = zooCompare.shape;
      const svg = shape(
        "svg",
        {
          class: "zoo-diagram", width, height: total, viewBox: `0 0 ${width} ${total}`,
          role: "group", "aria-label": zooCompare.say("diagram_of", { name: names[index] }),
        },
        shape("desc", {}, zooCompare.described(models[index])),
        shape("rect", { class: "ground", width, height: total }),
        ...columns.flatMap((column) => pen.under(column, sizes.margin + 16)),
        ...pen.memory(columns),
        ...columns.flatMap((column) => pen.boxes(column)),
      );
      return { svg, width };
    });
  },

  // The lengths of a drawing in pixels.
  sizes(compact) {
    const all = zooCompare.common.geometry;
    const lines = (box) => (box.notes || []).reduce((sum, note) => sum + note[2].length, 0);
    const [lane, edge] = [all.lane, compact ? 10 : all.edge];
    return {
      ...all, edge,
      margin: compact ? 8 : all.margin,
      column: compact ? edge + lane + all.box + edge : all.column,
      between: compact ? 26 : all.between,
      width: all.box,
      lines,
      box: (box) => {
        if (!compact) return box.height;
        return box.inner + (lines(box) ? lines(box) * all.note_line + (zooCompare.plain(box) ? 2 : 4) : 0);
      },
      close: (frame) => all.close + (compact && frame.label ? all.note_line : 0),
    };
  },

  // The classes of a note or a cell of a box.
  kindOf(box, name, index) {
    const [differs, faint] = ["differing", "faint"].map((state) => box[state + name] && box[state + name][index]);
    return `${differs ? " differs" : ""}${faint ? " size" : ""}`;
  },

  plain: (box) => ["input", "output", "memory"].includes(box.role),

  // What is to be seen, from bottom to top, for those who cannot see it.
  described(stacks) {
    const say = zooCompare.say.bind(zooCompare);
    const told = (item) => {
      const mark = item.differs ? say("differs") : "";
      if (item.kind === "box") {
        const notes = (item.notes || []).map((note) => note[1]).join(", ");
        return `${item.title}${notes ? ` (${notes})` : ""}${mark}`;
      }
      const inner = item.items.map(told).join("; ");
      if (item.kind === "residual") return say("around", { inner });
      return say("repeated", { count: item.count === null ? "n" : item.count, label: item.label ? ` (${item.label})` : "", inner });
    };
    return stacks
      .map((stack) => {
        const parts = [stack.start, ...stack.items, stack.end].map(told).join("; ");
        return stack.title ? `${stack.title}: ${parts}` : parts;
      })
      .join(". ");
  },
});

zooCompare.Pen = class {
  constructor(sizes, bottom, compact) {
    Object.assign(this, { sizes, bottom, compact });
  }

  y(height) {
    return this.bottom - height;
  }

  left(column) {
    return column.x + this.sizes.edge + this.sizes.lane;
  }

  middle(column) {
    return this.left(column) + this.sizes.width / 2;
  }

  text(x, y, text, kind, size, anchor = null) {
    const made = zooCompare.shape("text", { class: kind, x, y, "font-size": size, "text-anchor": anchor });
    made.textContent = text;
    return made;
  }

  state(item) {
    return `${item.differs ? " differs" : ""}${item.faint ? " size" : ""}`;
  }

  mark(item) {
    return item.differs ? this.sizes.mark : "";
  }

  // A column's title, frames, the line through its middle and the residual arrows, which stand under its boxes.
  under(column, top) {
    const { stack, elements } = column;
    const of = (kind) => elements.filter((element) => element.kind === kind);
    const title = stack.title
      ? [this.text(column.x, top, this.mark(stack) + stack.title, `stack${this.state(stack)}`, this.sizes.sizes.title)]
      : [];
    return [
      ...title,
      ...of("close").map((element) => this.frame(column, element)),
      ...this.spine(column),
      ...of("sum").map((element) => this.residual(column, element)),
    ];
  }

  frame(column, element) {
    const frame = element.item;
    const top = this.y(element.y + element.height);
    const height = this.y(element.partner.y) - top;
    const note = this.sizes.sizes.note;
    const right = column.x + this.sizes.column;
    const label = this.compact
      ? this.text(column.x + 12, top + 38, frame.label, "label", note)
      : this.text(this.left(column) + this.sizes.width + this.sizes.space, top + 21, frame.label, "label", note);
    const count = `${this.mark(frame)}${frame.count === null ? "n" : zooCompare.grouped(frame.count)} ×`;
    return zooCompare.shape(
      "g",
      { class: `frame${this.state(frame)}`, "data-key": frame.key, "data-path": frame.path, "data-block": frame.block },
      zooCompare.shape("rect", { x: column.x, y: top, width: right - column.x, height, rx: 12 }),
      this.text(column.x + 12, top + 21, count, "count", 16),
      frame.label ? label : null,
    );
  }

  spine(column) {
    const x = this.middle(column);
    let [path, heads, from] = ["", "", column.elements[0].y + column.elements[0].height];
    for (const element of column.elements.slice(1)) {
      if (element.kind !== "box" && element.kind !== "sum") continue;
      const end = this.y(element.y);
      const arrow = element.kind === "box";
      path += `M${x} ${this.y(from)}V${arrow ? end + 5 : end}`;
      if (arrow) heads += `M${x} ${end}l-4 7h8z`;
      from = element.y + element.height;
    }
    return [zooCompare.shape("path", { class: "flow", d: path }), zooCompare.shape("path", { class: "tip", d: heads })];
  }

  residual(column, { item, y, height, partner }) {
    const low = this.y(partner.y + partner.height / 2);
    const high = this.y(y + height / 2);
    const x = this.middle(column);
    const lane = column.x + this.sizes.edge + this.sizes.lane / 2 - 1;
    const radius = 9;
    const shape = zooCompare.shape;
    const way =
      `M${x} ${low}H${lane + 8}Q${lane} ${low} ${lane} ${low - 8}` +
      `V${high + 8}Q${lane} ${high} ${lane + 8} ${high}H${x - radius - 5}`;
    return shape(
      "g",
      { class: `residual${this.state(item)}`, "data-key": item.key },
      shape("path", { class: "flow", d: way }),
      shape("path", { class: "tip", d: `M${x - radius} ${high}l-7 -4v8z` }),
      shape("circle", { class: "sum", cx: x, cy: high, r: radius }),
      shape("path", { class: "plus", d: `M${x - 4.5} ${high}h9M${x} ${high - 4.5}v9` }),
    );
  }

  // The arrow from what an encoder gives to each box of another stack that reads it.
  memory(columns) {
    const middle = (element) => this.y(element.y + element.height / 2);
    return columns
      .filter((column) => column.stack.end.role === "memory")
      .flatMap((source) => {
        const y = middle(source.elements[source.elements.length - 1]);
        const readers = columns.filter((column) => column !== source);
        return readers.flatMap((column) =>
          column.elements
            .filter((element) => element.kind === "box" && element.item.memory)
            .map((element) => {
              const [x, end, left] = [column.x - (this.compact ? 12 : 15), middle(element), this.left(column)];
              const turn = end > y ? 8 : -8;
              const way =
                `M${this.middle(source) + 42} ${y}H${x - 8}Q${x} ${y} ${x} ${y + turn}V${end - turn}` +
                `Q${x} ${end} ${x + 8} ${end}H${left - 5}`;
              return zooCompare.shape(
                "g",
                { class: "memory" },
                zooCompare.shape("path", { class: "flow", d: way }),
                zooCompare.shape("path", { class: "tip", d: `M${left} ${end}l-7 -4v8z` }),
              );
            }),
        );
      });
  }

  boxes(column) {
    return column.elements.filter((element) => element.kind === "box").map((element) => this.box(column, element));
  }

  box(column, element) {
    const { item: box, height } = element;
    const top = this.y(element.y + height);
    const about = { "data-key": box.key, "data-path": box.path, "data-role": box.role, "data-block": box.block };
    const made = zooCompare.shape("g", { class: `block ${box.role}${this.state(box)}`, ...about });
    const below = this.compact ? this.sizes.lines(box) * this.sizes.note_line : 0;
    made.append(...(zooCompare.plain(box) ? this.end(column, box, top) : this.inside(column, box, top, height, below)));
    made.append(...this.notes(column, box, top, height, below));
    return made;
  }

  end(column, box, top) {
    return [this.text(this.middle(column), top + 16, this.mark(box) + box.title, "title", this.sizes.sizes.title, "middle")];
  }

  inside(column, box, top, height, below) {
    const { width, title_line: line, pad, cell_line: cell } = this.sizes;
    const left = this.left(column);
    const base = top + (height - (below ? below + 4 : 0) - box.inner) / 2;
    const first = base + (box.role === "norm" && !box.cells ? pad - 4 : pad) + 14;
    const titles = box.lines.map((text, number) =>
      this.text(
        left + width / 2, first + number * line, (number ? "" : this.mark(box)) + text,
        "title", this.sizes.sizes.title, "middle",
      ),
    );
    const cells = (box.cells || []).map(([title, x, y, wide], index) => {
      if (!title) return null;
      const differs = zooCompare.kindOf(box, "Cells", index);
      const operator = title === "×" || title === "+";
      const middle = left + x + wide / 2;
      const outline = operator
        ? zooCompare.shape("circle", { cx: middle, cy: base + y + cell / 2, r: 8 })
        : zooCompare.shape("rect", { x: left + x, y: base + y, width: wide, height: cell, rx: 4 });
      const text = this.text(middle, base + y + 14.5, title, "part", this.sizes.sizes.cell, "middle");
      return zooCompare.shape("g", { class: `cell${differs}` }, outline, text);
    });
    const outline = zooCompare.shape("rect", { class: "box", x: left, y: top, width, height, rx: 7 });
    return [outline, ...titles, ...cells].filter(Boolean);
  }

  notes(column, box, top, height, below) {
    const { note_line: line, space, width } = this.sizes;
    const left = this.left(column);
    const lines = this.sizes.lines(box);
    let y = this.compact ? top + height - below + 8 : top + (height - lines * line) / 2 + 12.5;
    return (box.notes || []).flatMap(([key, , texts], index) => {
      const differs = Boolean(box.differingNotes && box.differingNotes[index]);
      return texts.map((text, number) => {
        const marked = (differs && !number ? this.sizes.mark : "") + text;
        const x = this.compact ? left + width / 2 : left + width + space + (number ? 12 : 0);
        const kind = `note${zooCompare.kindOf(box, "Notes", index)}`;
        const made = this.text(x, y, marked, kind, this.sizes.sizes.note, this.compact ? "middle" : null);
        made.dataset.note = key;
        y += line;
        return made;
      });
    });
  }
};
