// Runs as the JSON that the trace view's scripts draw: the fields of zoo.inspect.trace_view.view.TraceView.
// Axes: T tokens, S attended tokens, M tokens of a source, H heads, k experts of a token.
import { concatenate, rowsOf, tensor } from "./tensor.js";

const BINS = 64, FEWER = 32, MOST_ROWS = 128; // of the residual stream, of other values; rows of a picture
const LAYER = /^(.*?\blayers\.\d+)(?:\.(.+))?$/, STREAM = /^(.*\.)?(embedding|layers\.\d+)$/;
const mean = (xs) => xs.reduce((a, b) => a + b, 0) / (xs.length || 1);

// The view of the passes `runs`, in order, an encoder's first. `prompt` is the number of tokens that were given, `choices` how
// each token after them was chosen (sampler.js), `masks` and `unmasking` what masks.js gives, `language` that of the summaries,
// `lens` the number of tokens at each depth. Passes without a cache read the whole text each: values are those of the last.
export function view(model, runs, options = {}) {
  const { prompt, choices = [], masks = [], unmasking = [], settings = {}, language = "en", lens = 5 } = options;
  const passes = [...new Set(runs.flatMap((run) => (run.source ? [run.source, run] : [run])))];
  const encoded = passes.filter((run) => run.kind === "encode").slice(-1), own = passes.filter((run) => run.kind !== "encode");
  const joined = own.some((run) => run.cache) ? own.filter((run) => run.cache) : own.slice(-1);
  const read = joined.flatMap((run) => run.ids), name = encoded.length ? "target" : "text";
  const tracks = encoded.map((run) => trackOf(model, "source", run.ids, [], run.T));
  tracks.push(trackOf(model, name, ...written(read, prompt ?? read.length, choices, unmasking), read.length));
  const values = new Map([...encoded.flatMap((run) => [...run.values]), ...joinedValues(model, joined)]);
  const summaries = new Map([...values].map(([address, value]) => [address, summaryOf(model, address, value, tracks, language)]));
  const outside = [...summaries.values()].filter(({ address }) => !LAYER.test(address));
  const textOf = (track, origin) => model.tokenizer.decode(track.pieces.filter((piece) => piece.origin === origin).map(({ id }) => id));
  const found = {
    architecture: model.architecture, task: model.task, prompt: textOf(tracks[0], "prompt"), text: textOf(tracks.at(-1), "generated"),
    finish_reason: null, settings: { temperature: 0, top_k: 0, top_p: 1, min_p: 0, ...settings }, tracks,
    before: outside.filter(({ address }) => address.includes("embedding")), layers: layersOf(model, values, summaries, tracks),
    after: outside.filter(({ address }) => !address.includes("embedding")),
    lens: lens && joined[0].reader.spec.head ? lensOf(joined, lens) : [], decisions: choices, masks, unmasking, notes: [],
    passes: passes.map((run) => ({ kind: run.kind, track: run.kind === "encode" ? "source" : name, start: run.start, tokens: run.T,
      cached_numbers: run.computed.cached })),
  };
  return { ...found, vocabulary: Object.fromEntries(namedIds(found).map((id) => [id, model.tokenizer.piece(id)])) };
}

// The ids of a prompt and those after it; masks that are left hold what the last pass predicts.
function written(read, prompt, choices, unmasking) {
  if (unmasking.length) {
    const first = Math.min(...unmasking[0].predictions.map((hidden) => hidden.position));
    const filled = new Map(unmasking.at(-1).predictions.map((hidden) => [hidden.position, hidden.chosen]));
    return [read.slice(0, first), read.map((id, position) => filled.get(position) ?? id).slice(first)];
  }
  const drawn = choices.map((choice) => choice.token); // the last ones may not have been read
  return [read.slice(0, prompt), [...read.slice(prompt), ...drawn.slice(read.length - prompt)]];
}
function trackOf({ tokenizer }, name, prompt, generated, read) {
  const pieces = (ids, origin) => ids.map((id) => tokenizer.describe(id, origin));
  return { name, read, pieces: [...pieces(prompt, "prompt"), ...pieces(generated, "generated")] };
}
const trackNameOf = (tracks, address) => (tracks.length === 1 ? "text" : address.startsWith("encoder.") ? "source" : "target");

// What model.json says of a value.
function aboutOf(model, address) {
  const about = model.values[address.replace(/\blayers\.\d+/, "layers.*")] ?? { axes: "", unit: "", noted: false, summary: {} };
  return { ...about, axes: about.axes.split(" ").filter(Boolean) };
}

// The values of passes that continue each other: rows one after the other, columns of later tokens zero.
function joinedValues(model, runs) {
  if (runs.length === 1) return runs[0].values;
  const addresses = new Set(runs.flatMap((run) => [...run.values.keys()]));
  return new Map([...addresses].map((address) => {
    const parts = runs.map((run) => run.values.get(address)).filter(Boolean), along = aboutOf(model, address).axes.indexOf("T");
    return [address, along < 0 ? parts.at(-1) : concatenate(parts, along)];
  }));
}

// A value as rows, one a token: along T, else S or M, else its first axis.
function asRows({ shape, data }, axes) {
  const along = Math.max(axes.findIndex((axis) => "TSM".includes(axis)), 0), count = shape[along];
  const inner = shape.slice(along + 1).reduce((a, b) => a * b, 1), width = data.length / count;
  return Array.from({ length: count }, (_, row) => {
    const found = new Float64Array(width);
    for (let at = 0, from = row * inner; at < width; at += inner, from += count * inner) found.set(data.subarray(from, from + inner), at);
    return found;
  });
}
// At most `bins` means a row, of the last rows.
function stripOf(rows, bins) {
  const first_row = Math.max(rows.length - MOST_ROWS, 0), per_bin = Math.max(Math.ceil(rows[0].length / bins), 1);
  const starts = Array.from({ length: Math.ceil(rows[0].length / per_bin) }, (_, bin) => bin * per_bin);
  const means = (row) => starts.map((start) => mean(row.subarray(start, start + per_bin)));
  return { per_bin, first_row, rows: rows.slice(first_row).map(means) };
}
function summaryOf(model, address, value, tracks, language) {
  const { axes, unit, noted, summary } = aboutOf(model, address), rows = asRows(value, axes), whole = value.data instanceof Uint32Array;
  const along = axes.findIndex((axis) => "TSM".includes(axis)), of = axes[along] === "M" ? "source" : trackNameOf(tracks, address);
  const norm = (row) => Math.sqrt(row.reduce((sum, x) => sum + x * x, 0));
  return {
    address, name: LAYER.exec(address)?.[2] ?? (LAYER.test(address) ? "output" : address),
    track: value.shape[along] === tracks.find(({ name }) => name === of).read ? of : "", shape: value.shape, axes: axes.join(" "),
    dtype: whole ? "uint32" : "float32", unit, summary: summary[language] ?? "", noted, norm: whole ? null : mean(rows.map(norm)),
    strip: stripOf(rows, STREAM.test(address) ? BINS : FEWER),
  };
}

function layersOf(model, values, summaries, tracks) {
  const layers = new Map();
  for (const address of values.keys()) {
    const [, layer] = LAYER.exec(address) ?? [];
    if (layer) layers.set(layer, [...(layers.get(layer) ?? []), address]);
  }
  return [...layers].map(([address, inner]) => {
    const track = trackNameOf(tracks, address), ending = (end) => inner.filter((each) => each.endsWith(end));
    const stages = [...inner.filter((each) => !each.endsWith(".pattern") && each !== address), ...inner.filter((each) => each === address)];
    return {
      address, track, stages: stages.map((each) => summaries.get(each)),
      patterns: ending(".pattern").map((each) => patternOf(model, each, values, track)),
      experts: ending(".indices").map((each) => expertsOf(each.replace(/\.indices$/, ""), values, track)),
    };
  });
}
function patternOf(model, address, values, track) {
  const across = address.endsWith(".cross.pattern"), heads = matricesOf(values.get(address));
  return { address, rows: track, columns: across ? "source" : track, first_row: 0, heads: heads.map((rows) => headOf(rows, across)),
    operands: operandsOf(model, address.replace(/\.pattern$/, ""), values, heads) };
}
// What a pattern is computed from. A row sees the columns up to the last whose weight is not 0 in some head.
function operandsOf(model, owner, values, heads) {
  const spec = owner.split(".").reduce((part, name) => part[name], model.recipe), seen = heads[0].map((_, row) =>
    [0, 1 + Math.max(...heads.map((rows) => rows[row].findLastIndex((weight) => weight > 0)))]);
  const [queries, keys, kept] = ["queries", "keys", "values"].map((name) => matricesOf(values.get(`${owner}.${name}`)).map((rows) => rows.map((row) => [...row])));
  return { queries, keys, values: kept, scale: spec.scale ?? queries[0][0].length ** -0.5, seen };
}
const matricesOf = ({ shape: [count, rows, columns], data }) => Array.from({ length: count }, (_, at) =>
  rowsOf(tensor([rows, columns], data.subarray(at * rows * columns, (at + 1) * rows * columns))));
// One head's weights, and its mean weights of the first token, the one before and the token itself.
function headOf(rows, across) {
  const entropy = (row) => Math.abs(row.reduce((sum, x) => sum - (x > 0 ? x * Math.log2(x) : 0), 0));
  const diagonal = (step) => (across ? 0 : mean(rows.slice(step).map((row, t) => row[t])));
  return {
    weights: rows.map((row) => Array.from(row, (x) => Math.round(x * 1000) / 1000)), attends_to: rows.map((row) => row.indexOf(Math.max(...row))),
    entropy_bits: rows.map(entropy), first: mean(rows.map((row) => row[0])), previous: diagonal(1), itself: diagonal(0),
  };
}
function expertsOf(address, values, track) {
  const [chosen, weights] = ["indices", "weights"].map((name) => rowsOf(values.get(`${address}.${name}`)).map((row) => [...row]));
  return { address, track, count: values.get(`${address}.gates`).shape[1], chosen, weights };
}

function lensOf(runs, count) {
  const each = runs.map((run) => run.lens(count));
  return each[0].map(({ address, track }, depth) => {
    const rows = (name) => each.flatMap((lens) => lens[depth][name]);
    return { address, track, tokens: rows("tokens"), probabilities: rows("probabilities"), entropy_bits: rows("entropy_bits") };
  });
}
function namedIds({ lens, decisions, masks, unmasking }) {
  const hidden = [...masks, ...unmasking.flatMap((pass) => pass.predictions)], read = unmasking.flatMap((pass) => pass.ids);
  const predicted = [...lens.flatMap((depth) => depth.tokens.flat()), ...hidden.flatMap((one) => one.tokens)];
  return [...new Set([...predicted, ...decisions.flatMap((one) => one.candidates), ...read])].sort((a, b) => a - b);
}
