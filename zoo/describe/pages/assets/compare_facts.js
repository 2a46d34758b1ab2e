"use strict";

// Facts side by side: which stand in one row, and those that follow a context, a format and a cache.
Object.assign(zooCompare, {
  // Rows of several cards' facts, as zoo/describe/facts/fact.py aligns them: {name, label, texts, differs, detail}, with
  // the values that are compared, and the texts without sizes (compare_view.js).
  rows(columns) {
    const absent = zooCompare.common.absent;
    const lists = columns.map((column) =>
      column.map(([name, role, label, text, value, detail]) => ({
        name, role, label, text, detail, number: typeof value === "number",
        value: JSON.stringify(value === null ? (text === absent ? null : text) : value),
        key: role && name.startsWith(`${role}.`) ? name.slice(role.length + 1) : name,
      })),
    );
    const roles = lists.map((list) => new Set(list.map((fact) => fact.role).filter(Boolean)));
    const strict = roles.some((own) => own.size > 1);
    const apart = strict ? zooCompare.apart(lists, roles) : new Set();
    const keyed = lists.map((list) => {
      const found = new Map();
      for (const fact of list) {
        const key = apart.has(fact.key) ? fact.name : fact.key;
        if (!found.has(key)) found.set(key, fact);
      }
      return found;
    });
    return zooCompare.order(keyed).map((name) => {
      const facts = keyed.map((found) => found.get(name));
      const known = facts.filter(Boolean);
      const first = known[0];
      const stack = first.role && name === first.name && strict ? first.role : "";
      const values = facts.map((fact) => (fact ? fact.value : "null"));
      return {
        name, stack, key: first.key,
        label: stack ? `${zooCompare.say(stack)} ${first.label}` : first.label,
        texts: facts.map((fact) => (fact ? fact.text : absent)),
        forms: facts.map((fact) => (fact ? zooCompare.form(fact) : absent)),
        values,
        differs: values.some((value) => value !== values[0]),
        detail: known.every((fact) => fact.detail),
      };
    });
  },

  // The keys in which some column's encoder and decoder do not agree, which stand in rows of their own.
  apart(lists, roles) {
    const found = new Set(["layers"]);
    lists.forEach((list, index) => {
      if (roles[index].size < 2) return;
      const values = new Map();
      for (const fact of list) if (fact.role) values.set(fact.key, [...(values.get(fact.key) || []), fact.value]);
      for (const [key, both] of values) if (both.length < 2 || both[0] !== both[1]) found.add(key);
    });
    return found;
  },

  // All names: one that only a later column has goes where it stands among its neighbours.
  order(columns) {
    const names = [];
    for (const column of columns) {
      let index = 0;
      for (const name of column.keys()) {
        const at = names.indexOf(name);
        if (at >= 0) index = at + 1;
        else names.splice(index++, 0, name);
      }
    }
    return names;
  },

  // What the settings change: a card's number, how it is written, and the row's label.
  computed: {
    "cache.context": {
      number({ numbers }, { context, cache }) {
        const grows = numbers.cache.some((kept) => kept.numbers_per_token || kept.state_numbers);
        return grows ? zooCompare.cacheBytes(numbers, context, cache) : null;
      },
      text: (number) => `${zooCompare.amount(number)}B`,
      label: ({ context }) => zooCompare.say("cache_at", { tokens: zooCompare.grouped(context) }),
    },
    "weights.chosen": {
      number: ({ numbers }, { weights }) => zooCompare.weightBytes(numbers, weights),
      text: (number) => `${zooCompare.amount(number)}B`,
      label: ({ weights }) =>
        zooCompare.say("weights_in", { format: zooCompare.common.formats[weights].label }),
    },
    "flops.decode": {
      number: ({ flops }, { context }) => flops.decode && Math.round(zooCompare.between(flops.decode, context)),
      text: (number) => zooCompare.amount(number).trimEnd(),
      label: ({ context }) => zooCompare.say("flops_after", { tokens: zooCompare.grouped(context) }),
    },
    "flops.prefill": {
      number: ({ flops }, { context }) => flops.prefill && Math.round(zooCompare.prefillFlops(flops, context)),
      text: (number) => zooCompare.amount(number).trimEnd(),
      label: ({ context }) => zooCompare.say("flops_reading", { tokens: zooCompare.grouped(context) }),
    },
  },

  cacheBytes(numbers, tokens, policy) {
    const { policies, state_bytes: state } = zooCompare.common;
    return numbers.cache.reduce((sum, kept) => {
      const held = kept.window === null ? tokens : Math.min(tokens, kept.window);
      return sum + Math.round(kept.numbers_per_token * held * policies[policy]) + kept.state_numbers * state;
    }, 0);
  },

  weightBytes({ parameters, weights }, name) {
    const format = zooCompare.common.formats[name];
    if (!format.group) return Math.floor((parameters * format.bits) / 8);
    if (weights === null) return null;
    const { rows, router_rows: routers, whole, bytes } = weights;
    if (bytes) return bytes[name]; // by a rule of the architecture's own
    return zooCompare.packed(rows, format) + zooCompare.packed(routers, zooCompare.common.router) + 2 * whole;
  },

  packed(rows, format) {
    return rows.reduce((sum, [inputs, numbers]) => {
      if (inputs % format.group) return sum + 2 * numbers;
      const scales = Math.floor(numbers / format.group) * format.scale_bytes;
      return sum + Math.floor((numbers * format.bits) / 8) + scales;
    }, 0);
  },

  // A count that is linear between the points [tokens, FLOPs].
  between(points, tokens) {
    let index = 1;
    while (index < points.length - 1 && tokens > points[index][0]) index += 1;
    const [[x0, y0], [x1, y1]] = [points[index - 1], points[index]];
    return y0 + ((y1 - y0) * (tokens - x0)) / (x1 - x0);
  },

  prefillFlops({ prefill, head, sums }, tokens) {
    if (!sums) return zooCompare.between(prefill, tokens) - (head * (tokens - 1)) / tokens;
    let total = 0;
    let first = 1;
    for (const last of [...prefill.map(([at]) => at).filter((at) => at < tokens), tokens]) {
      if (last < first) continue;
      const ends = zooCompare.between(prefill, first) + zooCompare.between(prefill, last);
      total += ((last - first + 1) * ends) / 2;
      first = last + 1;
    }
    return (total - (tokens - 1) * head) / tokens;
  },
});
