"use strict";

// What stands beside the diagrams and the facts: what a model is, differences in words, of recipes and of code, what was
// measured, names of tensors, commands.
Object.assign(zooCompare, {
  // The sentences that tell one card from another, those of sizes left out for `structure`; null where the cards do not
  // know of each other.
  words(base, card, structure = false) {
    const { names, sentences, sizes } = zooCompare.shared;
    const found = card.words && card.words[names.indexOf(base.name)];
    const ofSizes = (index) => sizes.includes(index) || card.sizes.includes(index);
    const text = (index) => sentences[index] ?? card.sentences[index - sentences.length];
    return found ? found.filter((index) => !structure || !ofSizes(index)).map(text) : null;
  },

  // What one model is, and how it differs from its base.
  about(app, card) {
    const { element } = zooCompare;
    const say = zooCompare.say.bind(zooCompare);
    const lines = [
      card.about, card.hub, say("plugin", { plugin: card.plugin }),
      card.types.length ? `model_type ${card.types.join(", ")}` : "",
    ];
    const base = card.base && [
      app.heading(1, say("base", { name: card.base.name })),
      card.base.sentences.length
        ? element("ul", {}, card.base.sentences.map((text) => element("li", {}, text)))
        : element("p", {}, say("same_as_base")),
    ];
    return element(
      "section",
      { class: "about" },
      element("p", {}, card.summary),
      element("p", { class: "quiet" }, lines.filter(Boolean).join(" · ")),
      base,
      card.references.length ? element("p", { class: "quiet" }, `${say("references")} ${card.references.join("; ")}`) : null,
    );
  },

  // The lines of two texts that differ, with `near` lines around them: pairs of "+", "-", "@" or " " and a line.
  changes(before, after, near = 2) {
    const common = before.map(() => new Array(after.length + 1).fill(0));
    common.push(new Array(after.length + 1).fill(0));
    for (let i = before.length - 1; i >= 0; i -= 1) {
      for (let j = after.length - 1; j >= 0; j -= 1) {
        common[i][j] =
          before[i] === after[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
      }
    }
    const all = [];
    let [i, j] = [0, 0];
    while (i < before.length || j < after.length) {
      if (i < before.length && j < after.length && before[i] === after[j]) {
        all.push([" ", before[i]]);
        i += 1;
        j += 1;
      } else if (i < before.length && (j === after.length || common[i + 1][j] >= common[i][j + 1])) {
        all.push(["-", before[i++]]);
      } else {
        all.push(["+", after[j++]]);
      }
    }
    const close = (at) => all.slice(Math.max(0, at - near), at + near + 1).some(([kind]) => kind !== " ");
    return all.flatMap((line, at) => {
      if (close(at)) return [line];
      return at && close(at - 1) && all.slice(at).some(([kind]) => kind !== " ") ? [["@", "…"]] : [];
    });
  },

  // Lines of code or of a recipe that a browser may scroll.
  listing(label, ...children) {
    const attributes = { tabindex: 0, role: "region", "aria-label": label };
    return zooCompare.element("pre", attributes, ...children);
  },

  recipeChanges(first, card, structure) {
    const { element } = zooCompare;
    const recipes = [first, card].map(({ recipe }) => (structure ? recipe.map(zooCompare.unnumbered) : recipe));
    const lines = zooCompare.changes(...recipes);
    const kinds = { "+": "added", "-": "removed", "@": "place" };
    const title = `${first.name} → ${card.name}`;
    const told = lines.map(([kind, line]) =>
      element("span", { class: kinds[kind] }, `${kind === "@" ? " " : kind} ${line}\n`),
    );
    const body = lines.length
      ? zooCompare.listing(title, told)
      : element("p", { class: "quiet" }, zooCompare.say("recipes_equal"));
    return element("details", {}, element("summary", {}, title), body);
  },

  // A piece of code that opens: where it stands, and its text, fetched when it is wanted.
  piece(app, name, open = false) {
    const { element } = zooCompare;
    const body = element("div");
    const [module, heading] = name.split(":");
    const fill = async () => {
      if (details.open && !body.childNodes.length) body.replaceChildren(...zooCompare.source(app, await app.code(), name));
    };
    const where = element("span", { class: "quiet" }, ` ${module}`);
    const title = element("summary", {}, element("code", {}, heading), where);
    const details = element("details", { class: "piece", open, ontoggle: fill }, title, body);
    return details;
  },

  source(app, table, name) {
    const { element } = zooCompare;
    const found = table[name];
    if (!found) return [element("p", { class: "quiet" }, zooCompare.say("no_code"))];
    const place = `${found.file}:${found.line}`;
    const address = app.codeAddress(found);
    const where = address ? element("a", { href: address }, place) : place;
    const listing = zooCompare.listing(place);
    listing.innerHTML = found.html; // made by zoo/describe/source_code.py, which escapes it
    return [element("p", { class: "place" }, where), listing];
  },

  // Which code some of the cards have and others not: that of the recipes, and the classes that run their blocks.
  codeDifferences(app, cards) {
    const { element, say } = zooCompare;
    const owners = new Map();
    const recipes = new Set(cards.flatMap((card) => card.code.recipe));
    for (const card of cards) {
      const blocks = Object.values(card.code.blocks).map((block) => block.code);
      for (const name of new Set([...card.code.recipe, ...blocks])) {
        owners.set(name, [...(owners.get(name) || []), card.name]);
      }
    }
    const groups = new Map();
    for (const [name, having] of owners) {
      const key = having.join(", ");
      groups.set(key, { having, names: [...((groups.get(key) || {}).names || []), name] });
    }
    const all = [...groups.values()].sort((a, b) => a.having.length - b.having.length);
    return all.map(({ having, names }) => {
      const whole = having.length === cards.length;
      const title =
        cards.length === 1
          ? say.call(zooCompare, "code_of", { name: having[0] })
          : say.call(zooCompare, whole ? "code_all" : "code_only", { names: having.join(", ") });
      // A few lines that make a recipe are the answer: they are open.
      const making = names.filter((name) => /:[a-z_]\w*$/.test(name) && recipes.has(name));
      const few = making.length <= 2 && !(whole && cards.length > 1);
      const opens = (name) => making.includes(name) && (few || (cards.length === 1 && name === making[0]));
      const pieces = names.map((name) => zooCompare.piece(app, name, opens(name)));
      if (whole && cards.length > 1) return element("details", { class: "shared" }, element("summary", {}, title), pieces);
      return element("div", { class: "own" }, app.heading(1, title), pieces);
    });
  },

  // A table of rows of facts beside each other.
  table(app, cards, rows, label) {
    const { element } = zooCompare;
    const head = element("tr", {}, element("td"), cards.map((card) => element("th", { scope: "col" }, card.name)));
    const body = rows.map((row) => zooCompare.row(row));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, body));
    return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table);
  },

  row({ name, key, stack, label, texts, differs, detail }) {
    const { element } = zooCompare;
    const attributes = { "data-fact": name, "data-key": key, "data-stack": stack, "data-detail": Boolean(detail) };
    return element(
      "tr",
      { ...attributes, class: differs ? "differs" : null },
      element(
        "th",
        { scope: "row" },
        element("span", { class: "mark" }, differs ? "≠" : ""),
        element("span", { class: "label" }, label),
      ),
      texts.map((text) => element("td", {}, text)),
    );
  },

  measured(app, cards) {
    const { element } = zooCompare;
    const say = zooCompare.say.bind(zooCompare);
    const found = [];
    for (const [kind, title] of [["measured", "measured_here"], ["pocket", "measured_pockets"]]) {
      if (!cards.some((card) => card[kind].length)) continue;
      const rows = zooCompare.rows(cards.map((card) => card[kind]));
      const told = rows.map((row) => ({
        ...row,
        texts: row.texts.map((text, index) => (cards[index][kind].length ? text : say("not_measured"))),
        differs: false,
      }));
      found.push(element("p", {}, say(title)), zooCompare.table(app, cards, told, say(title)));
    }
    if (!found.length) found.push(element("p", { class: "quiet" }, say("nothing_measured")));
    const about = zooCompare.common.record;
    if (about) found.push(element("p", { class: "quiet" }, about));
    return found;
  },

  weightMap(app, card) {
    const { element } = zooCompare;
    const say = zooCompare.say.bind(zooCompare);
    const layouts = Object.entries(card.weights);
    const tables = layouts.map(([layout, pairs]) => {
      const title = layouts.length > 1 ? say("tensor_layout", { layout }) : say("tensor");
      const head = element("tr", {}, [title, say("parameter")].map((text) => element("th", { scope: "col" }, text)));
      const rows = pairs.map((pair) => element("tr", {}, pair.map((text) => element("td", {}, element("code", {}, text)))));
      const table = element("table", {}, element("thead", {}, head), element("tbody", {}, rows));
      return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${card.name}: ${title}` }, table);
    });
    const body = tables.length ? tables : [element("p", { class: "quiet" }, say("no_weights"))];
    return element("details", {}, element("summary", {}, card.name), body);
  },

  run(app, card) {
    const { element } = zooCompare;
    const lines = card.run.map(([command, remark]) => (remark ? `${command}  # ${remark}` : command));
    const body = lines.length
      ? zooCompare.listing(card.name, lines.join("\n"))
      : element("p", { class: "quiet" }, zooCompare.say("no_command"));
    return [app.heading(1, card.name), body];
  },
});
