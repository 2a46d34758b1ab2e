// The blocks that every kind of model here is made of. Each has the name that a recipe gives it, and is called with the run,
// the path of its parameters, its part of the recipe, and its input; `state` is the tower's (see model.js).
//
// Axes: T tokens, S cached and new, D width, H heads, G key/value heads, K width of a head, F hidden, V vocabulary.
import { add, concatenate, map, multiply, product, swap, tensor } from "./tensor.js";

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
export const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  silu: (x) => x * sigmoid(x), // Elfwing et al., 2017
  gelu_tanh: (x) => x * sigmoid(Math.sqrt(8 / Math.PI) * (x + 0.044715 * x ** 3)), // Hendrycks and Gimpel, 2016, section 2
};

// (x − mean) / √(variance + eps) · weight + bias over the last axis, without `centred` no mean and no bias: (…, D) -> (…, D)
function normalise(x, eps, centred, weight, bias) {
  const width = weight.data.length, y = tensor(x.shape);
  for (let row = 0; row < x.data.length; row += width) {
    let mean = 0, squares = 0;
    if (centred) for (let i = 0; i < width; i++) mean += x.data[row + i] / width;
    for (let i = 0; i < width; i++) squares += (x.data[row + i] - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / width + eps);
    for (let i = 0; i < width; i++) y.data[row + i] = (x.data[row + i] - mean) * scale * weight.data[i] + (bias ? bias.data[i] : 0);
  }
  return y;
}

// One residual sum of a layer: x + f(norm(x)) under Pre-LN, norm(x + f(x)) under Post-LN (Xiong et al., 2020, figure 1).
export function residual(run, path, spec, name, x, state) {
  const part = (y) => run.block(`${path}.${name}`, spec[name], y, state);
  const norm = (y) => (spec[`${name}_norm`] ? run.block(`${path}.${name}_norm`, spec[`${name}_norm`], y) : y);
  return spec.placement === "pre" ? add(x, part(norm(x))) : norm(add(x, part(x)));
}

// The heads of a projection: (T, H·K) -> (H, T, K), and side by side again.
export const split = ({ data, shape: [count, width] }, heads) => swap(tensor([count, heads, width / heads], data));
const merge = (x) => tensor([x.shape[1], x.shape[0] * x.shape[2]], swap(x).data);

// softmax(Q Kᵀ · scale + mask) V for each head (Vaswani et al., 2017, equation 1), heads merged and projected: -> (T, D).
// Query t sees the first `seen(t)` keys. H/G heads share the keys of one (Ainslie et al., 2023).
export function attend(run, path, spec, queries, keys, values, seen) {
  for (const [name, x] of Object.entries({ queries, keys, values })) run.note(`${path}.${name}`, x);
  const [heads, count, width] = queries.shape, length = keys.shape[1], shared = heads / keys.shape[0], scale = spec.scale ?? width ** -0.5;
  const pattern = tensor([heads, count, length]), mixed = tensor(queries.shape), q = queries.data, k = keys.data, p = pattern.data;
  for (let h = 0; h < heads; h++) for (let t = 0; t < count; t++) {
    const to = seen(t), row = (h * count + t) * length, group = Math.floor(h / shared) * length, own = (h * count + t) * width;
    let most = -Infinity, total = 0;
    for (let s = 0; s < to; s++) {
      let score = 0;
      for (let i = 0, at = (group + s) * width; i < width; i++) score += q[own + i] * k[at + i];
      most = Math.max(most, (p[row + s] = score * scale));
    }
    for (let s = 0; s < to; s++) total += p[row + s] = Math.exp(p[row + s] - most);
    for (let s = 0; s < to; s++) {
      const weight = (p[row + s] /= total);
      for (let i = 0, at = (group + s) * width; i < width; i++) mixed.data[own + i] += weight * values.data[at + i];
    }
    run.computed.scores += 2 * to * width;
  }
  run.note(`${path}.pattern`, pattern);
  return run.linear(`${path}.output`, merge(run.note(`${path}.heads`, mixed, "head")));
}

// Pair k of a head, its features k and k + d/2, or 2k and 2k + 1 where `interleaved`, is turned by position · theta^(−2k/d)
// (Su et al., 2021, equation 34): (H, T, K) -> (H, T, K).
function rotate(x, { theta, dims, interleaved }, offset) {
  const [heads, count, width] = x.shape, turned = dims ?? width, y = tensor(x.shape, x.data.slice());
  const first = (k) => (interleaved ? 2 * k : k), second = (k) => (interleaved ? 2 * k + 1 : k + turned / 2);
  for (let t = 0; t < count; t++) for (let k = 0; k < turned / 2; k++) {
    const angle = (offset + t) * theta ** ((-2 * k) / turned), cos = Math.cos(angle), sin = Math.sin(angle);
    for (let h = 0; h < heads; h++) {
      const row = (h * count + t) * width, a = x.data[row + first(k)], b = x.data[row + second(k)];
      y.data[row + first(k)] = a * cos - b * sin;
      y.data[row + second(k)] = a * sin + b * cos;
    }
  }
  return y;
}

export const blocks = {
  "norm/layernorm": (run, path, { eps }, x) => normalise(x, eps, true, run.weight(`${path}.weight`), run.bias(path)),
  "norm/rmsnorm": (run, path, { eps }, x) => normalise(x, eps, false, run.weight(`${path}.weight`)),

  // Rows of the position table, or sines and cosines of position · theta^(−2k/D) side by side (Vaswani et al., 2017, 3.5):
  // -> (T, D), for the positions from state.offset on.
  "position/learned"(run, path, { context, offset }, count, state) {
    if (state.offset + count > context) throw new Error(`${state.offset + count} tokens are more than the ${context} learned positions`);
    const { data, shape } = run.weight(`${path}.weight`), from = offset + state.offset;
    return tensor([count, shape[1]], data.slice(from * shape[1], (from + count) * shape[1]));
  },
  "position/sinusoidal"(run, path, { theta, interleaved, offset }, count, state) {
    const dim = state.table.shape[1], y = tensor([count, dim]), place = (k, odd) => (interleaved ? 2 * k + odd : k + (odd * dim) / 2);
    for (let t = 0; t < count; t++) for (let k = 0; k < dim / 2; k++) {
      const angle = (offset + state.offset + t) * theta ** ((-2 * k) / dim);
      y.data[t * dim + place(k, 0)] = Math.sin(angle);
      y.data[t * dim + place(k, 1)] = Math.cos(angle);
    }
    return y;
  },

  // Rows of a table, scaled, plus positions: (T) -> (T, D)
  "embedding/tokens"(run, path, spec, ids, state) {
    const vectors = run.note(`${path}.vectors`, map(rows(state.table, ids), (x) => x * spec.scale));
    const x = spec.positions ? add(vectors, run.block(`${path}.positions`, spec.positions, ids.length, state)) : vectors;
    return spec.norm ? run.block(`${path}.norm`, spec.norm, x) : x;
  },

  "layer/residual"(run, path, spec, x, state) {
    const middle = run.note(`${path}.resid_mid`, residual(run, path, spec, "mixer", x, state));
    return residual(run, path, spec, "feedforward", middle, state);
  },

  // Attention of each token to those before it and itself, or to all: (T, D) -> (T, D)
  "mixer/attention"(run, path, spec, x, state) {
    const groups = spec.kv_heads ?? spec.heads, projected = ["query", "key", "value"].map((name) => run.project(`${path}.${name}`, x));
    let [queries, keys, values] = projected.map((y, at) => split(y, at ? groups : spec.heads)); // (H, T, K), (G, T, K) twice
    if (spec.query_norm) queries = run.block(`${path}.query_norm`, spec.query_norm, queries);
    if (spec.key_norm) keys = run.block(`${path}.key_norm`, spec.key_norm, keys);
    if (spec.rope) [queries, keys] = [queries, keys].map((y) => rotate(y, spec.rope, state.offset));
    const extended = (kept, fresh) => (kept ? concatenate([kept, fresh], 1) : fresh); // (G, S, K)
    [keys, values] = run.remember(path, (kept) => [extended(kept?.[0], keys), extended(kept?.[1], values)]);
    return attend(run, path, spec, queries, keys, values, (t) => (state.causal ? state.offset + t + 1 : keys.shape[1]));
  },

  // down(f(up(x))) (Vaswani et al., 2017, 3.3), and down(f(gate(x)) · up(x)) (Shazeer, 2020, equation 6): (T, D) -> (T, D)
  "feedforward/mlp"(run, path, spec, x) {
    const hidden = map(run.project(`${path}.up`, x), ACTIVATIONS[spec.activation]);
    return run.linear(`${path}.down`, run.note(`${path}.hidden`, hidden));
  },
  "feedforward/gated-mlp"(run, path, spec, x) {
    const gate = map(run.project(`${path}.gate`, x), ACTIVATIONS[spec.activation]), up = run.project(`${path}.up`, x);
    return run.linear(`${path}.down`, run.note(`${path}.hidden`, multiply(gate, up)));
  },

  // Logits, by the embedding's table where it is tied (Press and Wolf, 2016): (T, D) -> (T, V)
  "head/logits"(run, path, spec, x, state) {
    const scaled = spec.scale === 1 ? x : map(x, (value) => value * spec.scale);
    return spec.tied ? run.count(product(scaled, state.table, run.bias(path)), x) : run.linear(`${path}.output`, scaled);
  },
};

export function rows(table, ids) {
  if (table.rows) return table.rows(ids); // packed
  const { data, shape } = table;
  const y = tensor([ids.length, shape[1]]);
  ids.forEach((id, at) => y.data.set(data.subarray(id * shape[1], (id + 1) * shape[1]), at * shape[1]));
  return y;
}
