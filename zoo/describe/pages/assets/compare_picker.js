"use strict";

// The choice of two to four models: a box for each in which a person types to search, and the choice in the address.
Object.assign(zooCompare, {
  // "#llama:8b,mixtral:8x7b&context=8192&weights=4&cache=8-bit&first&structure" as {names, context, weights, cache, first,
  // structure}.
  fromAddress(hash, names) {
    const [models, ...settings] = decodeURIComponent(hash.replace(/^#/, "")).split("&");
    // An architecture stands for its full-size preset, which is the first of its names.
    const meant = (name) => names.find((one) => one === name || one.split(":")[0] === name);
    const known = models.split(",").map(meant).filter(Boolean);
    const switched = (name) => settings.includes(name);
    const found = { names: [...new Set(known)].slice(0, 4), first: switched("first"), structure: switched("structure") };
    for (const setting of settings) {
      const [key, value] = setting.split("=");
      if (key === "context" && /^[1-9]\d{0,9}$/.test(value)) found.context = Number(value);
      if (key === "weights" && zooCompare.common.formats[value]) found.weights = value;
      if (key === "cache" && zooCompare.common.policies[value]) found.cache = value;
    }
    return found;
  },

  toAddress({ names, context, weights, cache, first, structure }) {
    const switches = `${first ? "&first" : ""}${structure ? "&structure" : ""}`;
    return `#${names.join(",")}&context=${context}&weights=${weights}&cache=${cache}${switches}`;
  },

  // The boxes for some names; `choose` is called with the new names.
  picker(app, models, names, choose) {
    const { element } = zooCompare;
    const say = zooCompare.say.bind(zooCompare);
    const slots = names.map((name, index) => {
      const changed = (other) => choose(names.map((one, at) => (at === index ? other : one)), index);
      const box = zooCompare.combobox(app, models, name, say("model", { number: index + 1 }), changed);
      const remove = element(
        "button",
        {
          type: "button", class: "remove", "aria-label": say("remove", { name }), title: say("remove", { name }),
          onclick: () => choose(names.filter((_, at) => at !== index), Math.max(index - 1, 0)),
        },
        "×",
      );
      return element("div", { class: "slot" }, box, names.length > 1 ? remove : null);
    });
    const free = models.find((model) => !names.includes(model.name));
    const add = element(
      "button",
      { type: "button", class: "add", onclick: () => choose([...names, free.name], names.length) },
      say("add"),
    );
    return element("div", { class: "picker", role: "group", "aria-label": say("models") }, slots, names.length < 4 ? add : null);
  },

  // A text field with a list of models below it, which the arrows, Enter and Escape work.
  combobox(app, models, name, label, choose) {
    const { element } = zooCompare;
    const ident = app.ident();
    let [shown, active] = [[], -1];
    const list = element("ul", { id: `${ident}-list`, role: "listbox", "aria-label": label, hidden: true });
    const input = element("input", {
      type: "text", id: ident, role: "combobox", autocomplete: "off", spellcheck: "false", "aria-expanded": "false",
      "aria-autocomplete": "list", "aria-controls": `${ident}-list`,
    });
    input.value = name;
    const close = () => {
      list.hidden = true;
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
      active = -1;
    };
    const take = (model) => {
      close();
      input.value = model.name;
      if (model.name !== name) choose(model.name);
    };
    const move = (to) => {
      active = to;
      [...list.children].forEach((item, index) => item.setAttribute("aria-selected", String(index === active)));
      const item = list.children[active];
      if (!item) return;
      input.setAttribute("aria-activedescendant", item.id);
      item.scrollIntoView({ block: "nearest" });
    };
    const open = (text) => {
      const words = text.toLowerCase().split(/\s+/).filter(Boolean);
      shown = models.filter((model) => words.every((word) => model.search.includes(word)));
      list.replaceChildren(
        ...shown.map((model, index) =>
          element(
            "li",
            {
              id: `${ident}-${index}`, role: "option", "aria-selected": "false",
              onmousedown: (event) => event.preventDefault(),
              onclick: () => take(model),
            },
            element("b", {}, model.name),
            ` ${model.about}`,
          ),
        ),
      );
      list.hidden = !shown.length;
      input.setAttribute("aria-expanded", String(!list.hidden));
      active = -1;
    };
    const keys = {
      ArrowDown: () => (list.hidden ? open("") : move((active + 1) % shown.length)),
      ArrowUp: () => (list.hidden ? open("") : move((active - 1 + shown.length) % shown.length)),
      Enter: () => !list.hidden && take(shown[Math.max(active, 0)]),
      Escape: () => {
        input.value = name;
        close();
      },
    };
    input.addEventListener("keydown", (event) => {
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    input.addEventListener("input", () => open(input.value));
    input.addEventListener("click", () => {
      input.select();
      open("");
    });
    input.addEventListener("blur", keys.Escape);
    return element("div", { class: "combobox" }, element("label", { for: ident }, label), input, list);
  },
});
