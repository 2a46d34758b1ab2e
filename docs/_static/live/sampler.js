// From logits to a token: temperature, top-k, top-p, min-p, the draw, in the order of zoo.generation.sampling.
// A removed token has the logit −∞, so that what follows sees the renormalised rest. Axis: V vocabulary.
import { likeliest, logsumexp, softmax } from "./tensor.js";

const SHOWN = 50, SHOWN_LAST = 12; // tokens whose probabilities a choice has, of the model's and of the last stage's likeliest
const descending = (row) => Array.from(row.keys()).sort((a, b) => row[b] - row[a] || a - b);
const keep = (row, kept) => row.map((x, id) => (kept(id, x) ? x : -Infinity));

function topK(row, k) {
  const kept = new Set(likeliest(row, k));
  return keep(row, (id) => kept.has(id));
}
// The smallest set of tokens whose probabilities sum to at least p (Holtzman et al., 2019).
function topP(row, p) {
  const probabilities = softmax(row), kept = new Set();
  let before = 0; // the mass of all likelier tokens
  for (const id of descending(row)) {
    if (before >= p) break;
    kept.add(id);
    before += probabilities[id];
  }
  return keep(row, (id) => kept.has(id));
}
// Tokens at least p times as likely as the likeliest (Nguyen et al., 2024).
function minP(row, p) {
  const least = row[likeliest(row, 1)[0]] + Math.log(p);
  return keep(row, (_, x) => x >= least);
}

// The token after logits (V), and how it was chosen: the fields of zoo.inspect.tracing.choices.Choice. Temperature 0 takes the
// likeliest. `step` counts the tokens drawn before with the same seed: each draw has its own random numbers, MLX's.
export function sample(logits, settings) {
  const { token, steps } = drawToken(logits, settings);
  return { token, ...chosen(logits, token, steps) };
}
// The token alone, and the logits after each stage.
export function drawToken(logits, { temperature = 0, topK: k = 0, topP: p = 1, minP: least = 0, seed = 0, step = 0 } = {}) {
  const asked = !temperature ? [] : [
    ["temperature", temperature, (row) => row.map((x) => x / temperature)],
    k > 0 && ["top_k", k, (row) => topK(row, k)],
    p < 1 && ["top_p", p, (row) => topP(row, p)],
    least > 0 && ["min_p", least, (row) => minP(row, least)],
  ].filter(Boolean);
  const steps = [{ name: "model", setting: null, row: logits }];
  for (const [name, setting, narrow] of asked) steps.push({ name, setting, row: narrow(steps.at(-1).row) });
  const last = steps.at(-1).row, token = temperature ? draw(softmax(last), uniform(drawKey(seed, step))) : likeliest(last, 1)[0];
  return { token, steps };
}

function chosen(logits, token, steps) {
  const candidates = descending(logits), total = logsumexp(logits), last = steps.at(-1).row;
  const left = likeliest(last, SHOWN_LAST).filter((id) => last[id] > -Infinity);
  const shown = [...new Set([...candidates.slice(0, SHOWN), ...left, token])];
  const stages = steps.map(({ name, setting, row }) => {
    const probabilities = softmax(row), kept = row.reduce((count, x) => count + (x > -Infinity), 0);
    return { name, setting, kept, probabilities: shown.map((id) => probabilities[id]) };
  });
  const bits = logits.reduce((sum, x) => sum - (Math.exp(x - total) * (x - total)) / Math.LN2, 0), rest = { rest_logits: [], rest_counts: [] };
  // Every token is a candidate here: no others are left to stand in groups.
  const own = { rank: candidates.indexOf(token), logsumexp: total, entropy_bits: bits, candidates, logits: candidates.map((id) => logits[id]) };
  return { ...own, ...rest, shown, stages };
}

// Threefry with 20 rounds on pairs of 32 bits (Salmon et al., 2011): the random bits of a key and a counter.
function threefry([a, b], first, second) {
  const keys = [a, b, a ^ b ^ 0x1bd11bda], turns = [[13, 15, 26, 6], [17, 29, 16, 24]];
  let x = (first + a) | 0, y = (second + b) | 0;
  for (let round = 0; round < 5; round++) {
    for (const turn of turns[round % 2]) {
      x = (x + y) | 0;
      y = ((y << turn) | (y >>> (32 - turn))) ^ x;
    }
    x = (x + keys[(round + 1) % 3]) | 0;
    y = (y + keys[(round + 2) % 3] + round + 1) | 0;
  }
  return [x >>> 0, y >>> 0];
}
// `count` numbers of 32 bits, in MLX's order: the counters are the places in the two halves.
function randomBits(key, count) {
  const bits = new Uint32Array(count), low = count >> 1, high = count - low;
  for (let at = 0; at < low; at++) [bits[at], bits[high + at]] = threefry(key, at, high + at);
  if (high > low) bits[low] = threefry(key, low, 0)[0];
  return bits;
}
// Keys split in three for each token: for the next tokens, for this one's draw, for another sampler's.
function drawKey(seed, step) {
  let key = [Math.floor(seed / 2 ** 32), seed | 0], use;
  for (let at = 0; at <= step; at++) {
    const bits = randomBits(key, 6);
    [key, use] = [[bits[0], bits[1]], [bits[2], bits[3]]];
  }
  return use;
}
const uniform = (key) => Math.min(Math.fround(randomBits(key, 1)[0] / 4294967295), 1 - 2 ** -24);

// The first token up to which the probabilities sum to more than u, a number of [0, 1) in which all are equally likely.
function draw(probabilities, u) {
  let sum = 0, found = 0;
  for (let id = 0; id < probabilities.length && sum <= u; id++) if (probabilities[id]) sum += probabilities[(found = id)];
  return found;
}
