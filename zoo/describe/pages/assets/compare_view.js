"use strict";

// What is shown of a comparison: what differs from the first model, only structure. A size is a difference of numbers
// alone: 32 heads in one model, 12 in the other. It is marked faintly, and left out where only structure is asked for.
Object.assign(zooCompare, {
  // Numbers that stand alone. Those of names (LLaMA-3) and of formulas (1 + w, 1/theta) are not sizes.
  numbers: /(?<![\p{L}\p{N}.,-])\d[\d,.]*(?<=\d)(?![\p{L}\p{N}]|\/| \+ [a-z])/gu,

  // A text with "n" for each number.
  unnumbered: (text) => text.replace(zooCompare.numbers, "n"),

  // The text of a fact without sizes; "n" for one that is a number.
  form({ text, number }) {
    return number && text !== zooCompare.common.absent ? "n" : zooCompare.unnumbered(text);
  },

  // A copy of a stack, or of an item of it, without its numbers.
  unsized(item) {
    const plain = zooCompare.unnumbered;
    if (item.items) {
      const ends = item.start ? { start: zooCompare.unsized(item.start), end: zooCompare.unsized(item.end) } : {};
      const frame = item.kind === "frame" ? { count: null, label: plain(item.label || "") } : {};
      return { ...item, ...ends, ...frame, items: item.items.map(zooCompare.unsized) };
    }
    // Experts are numbered 1, 2, …: the last of them is a count.
    const cell = (title) => (/^\d+$/.test(title) ? (Number(title) > 2 ? "n" : title) : plain(title));
    return {
      ...item, title: plain(item.title),
      rows: item.rows && item.rows.map((row) => row.map(cell)),
      notes: item.notes && item.notes.map(([key, text]) => [key, plain(text)]),
    };
  },

  // Marked stacks for some settings: with sizes, what differs in them alone has `faint`; without, no number is left that
  // all models have. The notes of a box that is marked as a whole are faint too.
  selected(models, { first, structure }) {
    const strong = zooCompare.marked(models.map((stacks) => stacks.map(zooCompare.unsized)), first);
    const [marks, others, change] = structure
      ? [strong, models, zooCompare.withoutSizes]
      : [zooCompare.marked(models, first), strong, zooCompare.faint];
    return marks.map((stacks, index) => stacks.map((stack, number) => change(stack, others[index][number])));
  },

  // The parts of a stack, of a frame or of a residual, in pairs with those of another form of it.
  paired(item, other, change) {
    const items = item.items.map((one, number) => change(one, other.items[number]));
    const ends = item.start ? { start: change(item.start, other.start), end: change(item.end, other.end) } : {};
    return { ...item, ...ends, items };
  },

  faint(item, form) {
    const found = item.items ? zooCompare.paired(item, form, zooCompare.faint) : { ...item };
    found.faint = Boolean(item.differs && !form.differs);
    for (const name of ["Notes", "Cells"]) {
      const [marks, others] = [item[`differing${name}`] || [], form[`differing${name}`] || []];
      found[`faint${name}`] = marks.map((differs, number) => differs && (form.differs || !others[number]));
    }
    return found;
  },

  withoutSizes(item, whole) {
    if (item.items) return zooCompare.paired(item, whole, zooCompare.withoutSizes);
    if (!item.notes) return item;
    const marks = item.differingNotes || [];
    const kept = item.notes.map((note, number) => marks[number] || note[1] === whole.notes[number][1]);
    const among = (list) => list && list.filter((_, number) => kept[number]);
    const differing = among(marks);
    return { ...item, notes: among(item.notes), differingNotes: differing, faintNotes: differing.map((one) => one && item.differs) };
  },

  // The switches; `changed` is called with the setting that a person made.
  switches(app, changed) {
    const { element } = zooCompare;
    const first = app.chosen[0].name;
    const box = (key, label) =>
      element(
        "label",
        { class: "check" },
        element("input", { type: "checkbox", name: key, checked: app.state[key], onchange: (event) => changed({ [key]: event.target.checked }) }),
        label,
      );
    const several = app.chosen.length > 1;
    return element(
      "div",
      { class: "switches", role: "group", "aria-label": zooCompare.say("view") },
      several ? box("first", zooCompare.say("only_first", { name: first })) : null,
      box("structure", zooCompare.say("only_structure")),
    );
  },

  // Fill a row of the table of facts: its texts, its marks, and whether it is shown.
  paint(line, row, { first, structure }) {
    const unlike = (values) => values.some((value) => value !== values[0]);
    const several = row.texts.length > 1;
    const worded = zooCompare.common.unstructured.includes(row.key); // a text that says nothing of how a model is built
    const strong = unlike(row.forms) && !worded;
    const differs = structure ? strong : unlike(row.values);
    const counted = row.forms.every((form) => form === "n" || form === zooCompare.common.absent);
    line.hidden = (several && first && !differs) || (structure && (worded || (counted && !strong)));
    line.classList.toggle("differs", differs);
    line.classList.toggle("size", differs && !strong);
    line.querySelector(".mark").textContent = differs ? "≠" : "";
    line.querySelector(".label").textContent = row.label;
    line.querySelectorAll("td").forEach((cell, index) => {
      const form = row.forms[index];
      cell.textContent = !structure ? row.texts[index] : form === "n" ? zooCompare.say("has") : form;
      const [own, base] = strong ? [form, row.forms[0]] : [row.values[index], row.values[0]];
      cell.classList.toggle("differs", differs && (!first || own !== base));
    });
  },
});
