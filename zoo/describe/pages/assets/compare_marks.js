"use strict";

// What differs among diagrams, and in which rows their parts stand, as zoo/describe/diagram/arrange.py marks and aligns them.
Object.assign(zooCompare, {
  // Copies of several models' stacks in which all that is not in every one, or not the same, has `differs`. With `first`
  // each is compared with the first model alone; in that one, only what another model lacks is marked.
  marked(models, first = false) {
    if (models.length < 2) return models;
    const byRole = models.some((stacks) => stacks.length > 1);
    const known = models.map((stacks) => new Map(stacks.map((stack) => [byRole ? stack.role : "", zooCompare.all(stack)])));
    return models.map((stacks, index) =>
      stacks.map((stack) => {
        const role = byRole ? stack.role : "";
        const against = known.filter((own, number) => number !== index && (!first || !index || !number));
        const others = against.filter((own) => own.has(role)).map((own) => own.get(role));
        if (!others.length || (first && !index && others.length < against.length)) return { ...stack, differs: true };
        const lacks = first && !index;
        const [start, end] = [stack.start, stack.end].map((box) => zooCompare.markedBox(box, others, lacks));
        return { ...stack, start, items: zooCompare.markedItems(stack.items, others, lacks), end };
      }),
    );
  },

  // Every item of a stack, by key.
  all(stack) {
    const found = new Map([["start", stack.start], ["end", stack.end]]);
    const visit = (items) => {
      for (const item of items) {
        found.set(item.key, item);
        if (item.items) visit(item.items);
      }
    };
    visit(stack.items);
    return found;
  },

  // `lacks`: only what another does not have is marked, not what it has in another form.
  markedItems(items, others, lacks = false) {
    return items.map((item) => {
      if (item.kind === "box") return zooCompare.markedBox(item, others, lacks);
      const theirs = others.map((other) => other.get(item.key));
      if (item.kind === "residual") {
        const differs = theirs.some((other) => !other || other.kind !== "residual");
        return { ...item, items: zooCompare.markedItems(item.items, others, lacks), differs };
      }
      const frames = theirs.map((other) => (other && other.kind === "frame" ? other : null));
      const unlike = (other) => !lacks && (other.count !== item.count || other.label !== item.label);
      const differs = frames.some((other) => !other || unlike(other));
      const within = frames.some(Boolean) ? others : zooCompare.asMain(others, item.key);
      return { ...item, items: zooCompare.markedItems(item.items, within, lacks), differs };
    });
  },

  // The same with the layers of each main frame also at `key`, a frame that nobody else has.
  asMain(others, key) {
    const main = `${key.slice(0, key.lastIndexOf("frame"))}frame+0/`;
    return others.map((other) => {
      const more = [...other].filter(([name]) => name.startsWith(main));
      return new Map([...other, ...more.map(([name, item]) => [`${key}/${name.slice(main.length)}`, item])]);
    });
  },

  markedBox(box, others, lacks = false) {
    const theirs = others.map((other) => other.get(box.key));
    if (!theirs.every((other) => other && other.kind === "box")) return { ...box, differs: true };
    if (lacks) {
      const named = (other, name) => (other.notes || []).some((note) => note[0] === name);
      const notes = (box.notes || []).map(([name]) => !theirs.every((other) => named(other, name)));
      return { ...box, differs: false, differingNotes: notes };
    }
    const differs = theirs.some((other) => other.title !== box.title);
    const told = (other, [name, text]) => (other.notes || []).some((note) => note[0] === name && note[1] === text);
    const notes = (box.notes || []).map((note) => theirs.every((other) => told(other, note)));
    const cells = (one) => (one.rows || []).flat();
    const sameCells = cells(box).map(
      (title) => differs || !/[\p{L}\p{N}]/u.test(title) || theirs.every((other) => cells(other).includes(title)),
    );
    return {
      ...box,
      differs,
      differingNotes: notes.map((same) => !same),
      differingCells: sameCells.map((same) => !same),
    };
  },

  // A stack from bottom to top as what stands in a column: boxes, forks and sums of residuals, ends of frames.
  elements(stack) {
    const visit = (items) =>
      items.flatMap((item) => {
        if (item.kind === "box") return [{ kind: "box", item, key: item.key }];
        const [low, high] = item.kind === "frame" ? ["open", "close"] : ["fork", "sum"];
        const first = { kind: low, item, key: `${item.key} ${low}` };
        return [first, ...visit(item.items), { kind: high, item, key: `${item.key} ${high}`, partner: first }];
      });
    const end = (item) => ({ kind: "box", item, key: item.role });
    return [end(stack.start), ...visit(stack.items), end(stack.end)];
  },

  // Give the elements of all columns a row each, `y`, from 0 at the bottom, those of one key the same; returns how many rows there are.
  align(columns) {
    const order = [];
    const own = columns.map((column) => {
      let at = -1;
      const keys = new Set();
      for (const { key } of column) {
        const index = order.indexOf(key);
        if (index >= 0 && index <= at) continue;
        if (index >= 0) at = index;
        else order.splice(++at, 0, key);
        keys.add(key);
      }
      return keys;
    });
    const places = columns.map(() => 0);
    const place = (number, until) => {
      const column = columns[number];
      for (; places[number] < column.length; places[number] += 1) {
        const element = column[places[number]];
        element.y = places[number] ? column[places[number] - 1].y + 1 : 0;
        if (element.key === until) return element;
      }
      return null;
    };
    for (const key of order) {
      const numbers = columns.map((_, number) => number).filter((number) => own[number].has(key));
      const found = numbers.map((number) => place(number, key)).filter(Boolean);
      const highest = Math.max(...found.map((element) => element.y));
      for (const element of found) element.y = highest;
      for (const number of numbers) places[number] += 1;
    }
    columns.forEach((_, number) => place(number, null));
    return 1 + Math.max(...columns.map((column) => column[column.length - 1].y));
  },
});
