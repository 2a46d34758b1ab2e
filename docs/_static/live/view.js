// Runs as the JSON that the trace view's scripts draw: the fields of zoo.inspect.trace_view.view.TraceView.
// Axes: T tokens, S attended tokens, M tokens of a source, H heads, k experts of a token.
import { rowsOf, tensor } from "./tensor.js";

const BINS = 64, FEWER = 32, MOST_ROWS = 128; // of the residual stream, of other values; rows of a picture
const STREAM = /^((encoder|decoder)\.)?(embedding|layers\.\d+)$/, LAYER = /^(.*?\blayers\.\d+)(?:\.(.+))?$/;
const rounded = (x, digits = 4) => (Number.isFinite(x) ? Number(x.toPrecision(digits)) : 0);
const places = (x, digits) => Number(x.toFixed(digits));
const mean = (xs) => xs.reduce((a, b) => a + b, 0) / (xs.length || 1);

// The view of the passes `runs`, in order, an encoder's first. `prompt` is the number of tokens that were given, `choices` how
// each token after them was chosen (sampler.js), `masks` and `unmasking` what masks.js gives, `language` that of the summaries.
export function view(model, runs, { prompt, choices = [], masks = [], unmasking = [], settings = {}, language = "en", lens = 5 } = {}) {
  const passes = runs.flatMap((run) => (run.source && !runs.includes(run.source) ? [run.source, run] : [run]));
  const encoded = passes.filter((run) => run.kind === "encode").slice(-1), own = passes.filter((run) => run.kind !== "encode");
  const joined = own.some((run) => run.cache) ? own.filter((run) => run.cache) : own.slice(-1), last = joined.at(-1);
  const read = joined.flatMap((run) => run.ids), name = encoded.length ? "target" : "text";
  const tracks = encoded.map((run) => trackOf(model, "source", run.ids, [], run.T));
  tracks.push(trackOf(model, name, ...written(read, prompt ?? read.length, choices, unmasking), read.length));
  const values = new Map([...encoded.flatMap((run) => [...run.values]), ...joinedValues(model, joined)]);
  const summaries = new Map([...values].map(([address, value]) => [address, summaryOf(model, address, value, tracks, language)]));
  const layers = new Map([...values.keys()].filter((a) => LAYER.test(a)).map((a) => [LAYER.exec(a)[1], []]));
  for (const address of values.keys()) if (LAYER.test(address)) layers.get(LAYER.exec(address)[1]).push(address);
  const outside = [...summaries.values()].filter(({ address }) => !LAYER.test(address)), isBefore = ({ address }) => address.includes("embedding");
  const found = {
    architecture: model.architecture, task: model.task, prompt: model.tokenizer.decode(tracks[0].pieces.filter((p) => p.origin === "prompt").map((p) => p.id)),
    text: model.tokenizer.decode(tracks.at(-1).pieces.filter((p) => p.origin === "generated").map((p) => p.id)), finish_reason: null,
    settings: { temperature: 0, top_k: 0, top_p: 1, min_p: 0, ...settings }, tracks, before: outside.filter(isBefore), after: outside.filter((s) => !isBefore(s)),
    layers: [...layers].map(([address, inner]) => layerOf(address, inner, values, summaries, trackNameOf(tracks, address))),
    lens: lens && last.reader.spec.head ? lensOf(joined, lens) : [], decisions: choices, masks, unmasking, notes: [],
    passes: passes.map((run) => ({ kind: run.kind, track: run.kind === "encode" ? "source" : name, start: run.start, tokens: run.T, cached_numbers: run.computed.cached })),
  };
  return { ...found, vocabulary: Object.fromEntries([...namedIds(found)].sort((a, b) => a - b).map((id) => [id, model.tokenizer.piece(id)])) };
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
const trackOf = ({ tokenizer }, name, prompt, generated, read) => ({ name, read, pieces: [...prompt.map((id) => tokenizer.describe(id)), ...generated.map((id) => tokenizer.describe(id, "generated"))] });
const trackNameOf = (tracks, address) => (tracks.length === 1 ? "text" : address.startsWith("encoder.") ? "source" : "target");

// What model.json says of a value.
function aboutOf(model, address) {
  const unknown = { axes: "", unit: "", noted: false, summary: {} };
  const about = model.values[address.replace(/\blayers\.\d+/, "layers.*")] ?? unknown;
  return { ...about, axes: about.axes ? about.axes.split(" ") : [] };
}

// The values of passes that continue each other: rows one after the other, columns of later tokens zero.
function joinedValues(model, runs) {
  const last = runs.at(-1);
  if (runs.length === 1) return last.values;
  return new Map([...last.values].map(([address, value]) => {
    const { axes } = aboutOf(model, address), along = axes.indexOf("T"), parts = runs.map((run) => run.values.get(address));
    if (along < 0 || parts.some((part) => !part)) return [address, value];
    const shape = value.shape.with(along, parts.reduce((sum, part) => sum + part.shape[along], 0)), whole = tensor(shape, new value.data.constructor(shape.reduce((a, b) => a * b, 1)));
    const outer = shape.slice(0, along).reduce((a, b) => a * b, 1), inner = shape.slice(along + 1).reduce((a, b) => a * b, 1);
    let row = 0;
    for (const part of parts) {
      const own = part.data.length / outer / part.shape[along];
      for (let o = 0; o < outer; o++) for (let t = 0; t < part.shape[along]; t++)
        whole.data.set(part.data.subarray((o * part.shape[along] + t) * own, (o * part.shape[along] + t + 1) * own), (o * shape[along] + row + t) * inner);
      row += part.shape[along];
    }
    return [address, whole];
  }));
}

// A value as rows, one a token: along T, else S or M, else its first axis.
function asRows({ shape, data }, axes) {
  const named = ["T", "S", "M"].map((name) => axes.indexOf(name)).find((at) => at >= 0) ?? 0, count = shape[named];
  const inner = shape.slice(named + 1).reduce((a, b) => a * b, 1), outer = data.length / count / inner;
  return Array.from({ length: count }, (_, row) => Array.from({ length: outer * inner }, (_, at) => data[(Math.floor(at / inner) * count + row) * inner + (at % inner)]));
}
function stripOf(rows, bins) {
  const first_row = Math.max(rows.length - MOST_ROWS, 0), per_bin = Math.max(Math.ceil(rows[0].length / bins), 1);
  const starts = Array.from({ length: Math.ceil(rows[0].length / per_bin) }, (_, at) => at * per_bin);
  return { per_bin, first_row, rows: rows.slice(first_row).map((row) => starts.map((at) => rounded(mean(row.slice(at, at + per_bin)), 3))) };
}
function summaryOf(model, address, value, tracks, language) {
  const { axes, unit, noted, summary } = aboutOf(model, address), rows = asRows(value, axes), whole = value.data instanceof Uint32Array;
  const axis = ["T", "S", "M"].find((name) => axes.includes(name)), name = axis === "M" ? "source" : trackNameOf(tracks, address);
  const track = axis && value.shape[axes.indexOf(axis)] === tracks.find((each) => each.name === name).read ? name : "";
  const norm = whole ? null : rounded(mean(rows.map((row) => Math.hypot(...row))), 6);
  return { address, name: LAYER.exec(address)?.[2] ?? (LAYER.test(address) ? "output" : address), track, shape: value.shape, dtype: whole ? "uint32" : "float32",
    axes: axes.join(" "), unit, summary: summary[language] ?? "", noted, norm, strip: stripOf(rows, STREAM.test(address) ? BINS : FEWER) };
}

function layerOf(address, inner, values, summaries, track) {
  const patterns = inner.filter((each) => each.endsWith(".pattern")), experts = inner.filter((each) => each.endsWith(".indices"));
  const stages = [...inner.filter((each) => !patterns.includes(each) && each !== address), ...inner.filter((each) => each === address)];
  return { address, track, stages: stages.map((each) => summaries.get(each)), patterns: patterns.map((each) => patternOf(each, values.get(each), track)),
    experts: experts.map((each) => expertsOf(each.replace(/\.indices$/, ""), values, track)) };
}
function patternOf(address, { shape: [heads, count, length], data }, track) {
  const across = address.endsWith(".cross.pattern"), head = (_, h) => headOf(rowsOf({ data: data.subarray(h * count * length, (h + 1) * count * length), shape: [count, length] }), across);
  return { address, rows: track, columns: across ? "source" : track, first_row: 0, heads: Array.from({ length: heads }, head) };
}
function headOf(rows, across) {
  const bits = (row) => rounded(Math.abs(row.reduce((sum, x) => sum - (x > 0 ? x * Math.log2(x) : 0), 0)));
  const own = (step) => (across ? 0 : places(mean(rows.slice(step).map((row, t) => row[t])), 4));
  return { weights: rows.map((row) => Array.from(row, (x) => places(x, 3))), attends_to: rows.map((row) => row.indexOf(Math.max(...row))),
    entropy_bits: rows.map(bits), first: places(mean(rows.map((row) => row[0])), 4), previous: own(1), itself: across ? 0 : places(mean(rows.map((row, t) => row[t])), 4) };
}
function expertsOf(address, values, track) {
  const [chosen, weights] = ["indices", "weights"].map((name) => rowsOf(values.get(`${address}.${name}`)).map((row) => [...row]));
  return { address, track, count: values.get(`${address}.gates`).shape[1], chosen, weights: weights.map((row) => row.map((x) => rounded(x))) };
}
function lensOf(runs, count) {
  const each = runs.map((run) => run.lens(count)), rows = (at, name) => each.flatMap((lens) => lens[at][name]);
  return each[0].map(({ address, track }, at) => ({ address, track, tokens: rows(at, "tokens"), entropy_bits: rows(at, "entropy_bits").map((x) => rounded(Math.abs(x))),
    probabilities: rows(at, "probabilities").map((row) => row.map((x) => rounded(x))) }));
}
function namedIds({ lens, decisions, masks, unmasking }) {
  const hidden = [...masks, ...unmasking.flatMap((pass) => pass.predictions)];
  return new Set([...lens.flatMap((depth) => depth.tokens.flat()), ...decisions.flatMap((one) => one.candidates), ...hidden.flatMap((one) => one.tokens), ...unmasking.flatMap((pass) => pass.ids)]);
}
