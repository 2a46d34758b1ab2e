"use strict";

// Diagrams as elements of a grid, of which compare_diagram.css is the style: what has one role stands in one row of all
// pictures, and the browser gives each row the height that its boxes need.
Object.assign(zooCompare, {
  // Several models' stacks as pictures: [{picture, stacks, rows}], all with as many rows.
  draw(models, names) {
    const columns = models.map((stacks) => stacks.map(zooCompare.elements));
    const rows = zooCompare.align(columns.flat());
    return models.map((stacks, index) => {
      const pens = stacks.map((stack, number) => new zooCompare.Pen(stack, columns[index][number], rows, 5 * number + 1));
      const tracks = pens.map(() => "var(--lane) minmax(0, 1fr) minmax(0, 1fr) var(--notes)").join(" 34px ");
      const picture = zooCompare.element(
        "div",
        {
          class: "picture", role: "group", style: `grid-template-columns:${tracks}`,
          "aria-label": zooCompare.say("diagram_of", { name: names[index] }),
        },
        pens.flatMap((pen) => pen.lines()),
        pens.flatMap((reader) => pens.flatMap((source) => source.memory(reader))),
        pens.flatMap((pen) => pen.boxes()),
      );
      return { picture, stacks: stacks.length, rows: rows + 2 }; // a row for the caption, and one for the stacks' titles
    });
  },

  // The usual width of a stack in pixels; a compact one has its notes in the boxes.
  stackWidth: (compact) => (compact ? 310 : 520),

  // The classes of an item's state, or of the state of a note or a cell of a box.
  state({ differs, faint }) {
    return `${differs ? " differs" : ""}${faint ? " size" : ""}`;
  },

  stateOf(box, name, index) {
    const [differs, faint] = ["differing", "faint"].map((state) => box[state + name] && box[state + name][index]);
    return zooCompare.state({ differs, faint });
  },

  markedText: (text, differs) => (differs ? "≠ " : "") + text,
});

// Draws one stack in four columns of a grid from `left` on: the lane of residual arrows, the two halves of the boxes, the notes.
zooCompare.Pen = class {
  constructor(stack, elements, rows, left) {
    Object.assign(this, { stack, elements, rows, left });
  }

  // The row of an element; the first has the title.
  row(element) {
    return this.rows - element.y + 1;
  }

  // An HTML element from the row of `top` to that of `bottom`, in `columns` columns after the first `skipped`.
  part([top, bottom], [skipped, columns], attributes, ...children) {
    const area = `${this.row(top)} / ${this.left + skipped} / ${this.row(bottom) + 1} / span ${columns}`;
    return zooCompare.element("div", { ...attributes, style: `grid-area:${area}` }, ...children);
  }

  of(kind) {
    return this.elements.filter((element) => element.kind === kind);
  }

  // The title, frames, the line through the middle and the residual arrows, over which the boxes stand.
  lines() {
    const { stack, elements } = this;
    const [start, end] = [elements[0], elements[elements.length - 1]];
    const title = { class: `stack${zooCompare.state(stack)}`, style: `grid-area:1 / ${this.left} / 2 / span 4` };
    return [
      stack.title ? zooCompare.element("div", title, zooCompare.markedText(stack.title, stack.differs)) : null,
      ...this.of("close").map((element) => this.frame(element)),
      this.part([{ y: end.y - 1 }, { y: start.y + 1 }], [1, 2], { class: "spine" }),
      ...this.of("sum").flatMap((sum) => [
        this.part([sum, sum.partner], [0, 2], { class: `residual${zooCompare.state(sum.item)}`, "data-key": sum.item.key }),
        this.part([sum, sum], [1, 2], { class: `sum${zooCompare.state(sum.item)}` }),
      ]),
      ...["fork", "open"].flatMap((kind) => this.of(kind).map((element) => this.part([element, element], [0, 4], { class: `${kind}-space` }))),
    ];
  }

  frame(close) {
    const { item: frame } = close;
    const count = `${frame.count === null ? "n" : zooCompare.grouped(frame.count)} ×`;
    return this.part(
      [close, close.partner],
      [0, 4],
      { class: `frame${zooCompare.state(frame)}`, "data-key": frame.key, "data-path": frame.path, "data-block": frame.block },
      zooCompare.element("span", { class: "count" }, zooCompare.markedText(count, frame.differs)),
      frame.label ? zooCompare.element("span", { class: "label" }, frame.label) : null,
    );
  }

  // The arrow from what this stack, an encoder, gives to each box of another that reads it.
  memory(reader) {
    if (this === reader || this.stack.end.role !== "memory") return [];
    const end = this.elements[this.elements.length - 1];
    return reader.of("box").filter((box) => box.item.memory).map((box) => {
      const [skipped, columns] = [2, reader.left - this.left - 2];
      const down = box.y < end.y;
      const rows = down ? [{ y: end.y - 1 }, box] : [{ y: box.y - 1 }, end];
      return this.part(rows, [skipped, columns], { class: `memory-arrow${down ? "" : " up"}` });
    });
  }

  boxes() {
    const closing = this.of("close").map((close) => {
      const label = close.item.label ? " labelled" : "";
      return this.part([close, close], [0, 4], { class: `close-space${label}` });
    });
    return [...closing, ...this.of("box").map((element) => this.box(element))];
  }

  box(element) {
    const { item: box } = element;
    const { element: html, stateOf } = zooCompare;
    let index = -1;
    const rows = (box.rows || []).map((row) => {
      const cells = row.map((title) => {
        index += 1;
        const operator = title === "×" || title === "+" ? " operator" : "";
        return html("span", { class: `cell${operator}${title ? "" : " empty"}${stateOf(box, "Cells", index)}` }, title);
      });
      return html("div", { class: "row" }, cells);
    });
    const notes = (box.notes || []).map(([, text], number) => {
      const state = stateOf(box, "Notes", number);
      const differs = Boolean(box.differingNotes && box.differingNotes[number]);
      return html("span", { class: `note${state}` }, zooCompare.markedText(text, differs));
    });
    return this.part(
      [element, element],
      [1, 3],
      {
        class: `block ${box.role}${zooCompare.state(box)}`,
        "data-key": box.key, "data-path": box.path, "data-role": box.role, "data-block": box.block,
      },
      html("div", { class: "box" }, html("span", { class: "title" }, zooCompare.markedText(box.title, box.differs)), rows.reverse()),
      notes.length ? html("div", { class: "notes" }, notes) : null,
    );
  }
};
