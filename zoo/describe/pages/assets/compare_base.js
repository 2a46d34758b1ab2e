"use strict";

// What the parts of a comparison share: the cards that are here, the words of the page, elements, numbers.
var zooCompare = {
  cards: {}, // by name, as zoo/describe/pages/model_card.py makes them
  code: null, // by "module:name"
  common: null, // words, formats, sizes: the same for every model
  shared: null, // names, and sentences that many cards have

  card(card) {
    this.cards[card.name] = card;
  },

  // The words for a key, with {names} filled in.
  say(key, values = {}) {
    return this.common.words[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
  },

  // A script that was loaded is not loaded again.
  load(address) {
    this.loading = this.loading || {};
    this.loading[address] =
      this.loading[address] ||
      new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = address;
        script.onload = resolve;
        script.onerror = () => reject(new Error(address));
        document.head.append(script);
      });
    return this.loading[address];
  },

  // An HTML element: attributes, functions that listen ("onclick"), and children, texts or elements.
  element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return made;
  },

  // Numbers as zoo/describe/facts/fact.py writes them: three digits and a unit.
  amount(number) {
    const three = (value) => (value >= 999.5 ? value.toFixed(0) : String(Number(value.toPrecision(3))));
    for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
      if (number >= size * 0.9995) return `${three(number / size)} ${unit}`;
    }
    return `${Math.round(number)} `;
  },

  grouped(number) {
    return number.toLocaleString("en-US");
  },
};
