// One weight of a head, step by step: query, key, product, scale, softmax, weighted value.
// Axes: T tokens that look, S tokens that are looked at, K width of queries and keys, V width of values.

const dot = (a, b) => a.reduce((sum, x, at) => sum + x * b[at], 0);
const scaled = (row, by) => Array.from(row, (x) => x * by);

// What row y of a head is computed from: the scores of the columns that it sees, their exponentials, the head's output.
function rowOf({ queries, keys, values, scale, seen }, head, y) {
  const group = Math.floor((head * keys.length) / queries.length), [from, to] = seen[y], query = queries[head][y];
  const columns = Array.from({ length: to - from }, (_, at) => from + at);
  const sums = columns.map((x) => dot(query, keys[group][x])), scores = scaled(sums, scale), most = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - most)), total = powers.reduce((a, b) => a + b, 0), weights = scaled(powers, 1 / total);
  const handed = columns.map((x, at) => scaled(values[group][x], weights[at])); // (S, V)
  const output = handed.reduce((sum, row) => sum.map((x, at) => x + row[at]));
  return { columns, query, keys: keys[group], values: values[group], sums, scores, most, powers, total, weights, handed, output };
}

// The steps to the weight of column x in row y; `rows` and `columns` are the tokens' names.
function cellSteps(t, pattern, head, [y, x], rows, columns) {
  const { scale } = pattern.operands, row = rowOf(pattern.operands, head, y), at = row.columns.indexOf(x), token = { row: rows[y], column: columns[x] };
  const title = (weight) => el("h4", { role: "status" }, t.say("cell_title", { ...token, weight }));
  if (at < 0) return [title("0"), el("p", {}, t.say("cell_masked", token))];
  const { query } = row, key = row.keys[x], value = row.values[x], product = query.map((q, k) => q * key[k]), weight = row.weights[at].toFixed(3);
  const plain = Math.abs(scale * Math.sqrt(query.length) - 1) < 1e-6;
  const numbers = { sum: short(row.sums[at]), scale: short(scale), width: query.length, score: short(row.scores[at]), most: short(row.most),
    power: short(row.powers[at]), total: short(row.total), weight };
  return [
    title(weight),
    strips(t, [[t.say("cell_query", { token: rows[y] }), query], [t.say("cell_key", { token: columns[x] }), key], [t.say("cell_product"), product]]),
    el("p", {}, t.say(plain ? "cell_score" : "cell_score_scaled", numbers)),
    el("p", {}, t.say("cell_softmax", numbers)),
    rowTable(t, row, x, rows[y], columns),
    strips(t, [[t.say("cell_value", { token: columns[x] }), value], [t.say("cell_weighted"), row.handed[at]], [t.say("cell_output", { token: rows[y] }), row.output]]),
    lazily(t.say("numbers"), () => [numbersOf(t, { query, key, product }), numbersOf(t, { value, weighted: row.handed[at] })]),
  ];
}
// The row of the cell: score, exponential and weight of each token that it sees.
function rowTable(t, row, chosen, name, columns) {
  const lines = row.columns.map((x, at) => el("tr", { class: x === chosen ? "lit" : null }, el("td", { class: "piece" }, columns[x]),
    ...[short(row.scores[at]), short(row.powers[at])].map((text) => el("td", { class: "number" }, text)), weightCell(t, row.weights[at])));
  const label = t.say("cell_row", { token: name });
  return scroll(label, headed([t.say("column_key"), t.say("column_score"), t.say("cell_exponential"), t.say("column_weight")], lines, { class: "row-of", "aria-label": label }));
}
function weightCell(t, weight) {
  const box = el("td", { class: "number" }, weight.toFixed(3));
  paint(box, t.sequential(weight));
  return box;
}
// Vectors of one width below each other, in the colours of one scale.
function strips(t, named) {
  const most = Math.max(...named.flatMap(([, row]) => row.map(Math.abs))) || 1;
  return el("div", { class: "vectors" }, ...named.flatMap(([name, row]) => {
    const range = t.say("cell_range", { low: short(Math.min(...row)), high: short(Math.max(...row)) });
    const canvas = el("canvas", { role: "img", "aria-label": `${name}: ${range}`, title: range });
    picture(canvas, [row], (number) => t.diverging(number / most));
    return [el("span", {}, name), canvas];
  }));
}
// The numbers of vectors, one dimension a row.
function numbersOf(t, vectors) {
  const names = ["dimension", ...Object.keys(vectors)].map((name) => t.say(`column_${name}`)), rows = Object.values(vectors);
  const line = (_, k) => el("tr", {}, ...[k, ...rows.map((row) => short(row[k]))].map((text) => el("td", { class: "number" }, text)));
  return scroll(names.join(t.say("comma")), headed(names, rows[0].map(line)));
}
