// The blocks that every kind of model here is made of. Each has the name that a recipe gives it, and is called with the run,
// the path of its parameters, its part of the recipe, and its input; `state` is the tower's (see model.js).
//
// Axes: T tokens, S cached and new, D width, H heads, G key/value heads, K width of a head, F hidden, V vocabulary.
import { add, map, multiply, product, tensor } from "./tensor.js";

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

// The heads of a projection: (T, H·K) -> (H, T, K), and back.
export function split({ data, shape: [count] }, heads) {
  const width = data.length / count / heads, y = tensor([heads, count, width]);
  for (let t = 0; t < count; t++) for (let h = 0; h < heads; h++) y.data.set(data.subarray((t * heads + h) * width, (t * heads + h + 1) * width), (h * count + t) * width);
  return y;
}
function merge({ data, shape: [heads, count, width] }) {
  const y = tensor([count, heads * width]);
  for (let h = 0; h < heads; h++) for (let t = 0; t < count; t++) y.data.set(data.subarray((h * count + t) * width, (h * count + t + 1) * width), (t * heads + h) * width);
  return y;
}
// Cached keys or values (G, S, K) and new ones (G, T, K) side by side.
function joined(kept, fresh) {
  if (!kept) return fresh;
  const [groups, count, width] = kept.shape, y = tensor([groups, count + fresh.shape[1], width]);
  for (let g = 0; g < groups; g++) {
    y.data.set(kept.data.subarray(g * count * width, (g + 1) * count * width), g * y.shape[1] * width);
    y.data.set(fresh.data.subarray(g * fresh.shape[1] * width, (g + 1) * fresh.shape[1] * width), (g * y.shape[1] + count) * width);
  }
  return y;
}

// softmax(Q Kᵀ · scale + mask) V for each head (Vaswani et al., 2017, equation 1), heads merged and projected: -> (T, D).
// `seen(t)` is the range of keys that query t may see. H/G heads share the keys of one (Ainslie et al., 2023).
export function attend(run, path, spec, queries, keys, values, seen) {
  for (const [name, x] of Object.entries({ queries, keys, values })) run.note(`${path}.${name}`, x);
  const [heads, count, width] = queries.shape, length = keys.shape[1], shared = heads / keys.shape[0], scale = spec.scale ?? width ** -0.5;
  const pattern = tensor([heads, count, length]), mixed = tensor(queries.shape), q = queries.data, k = keys.data, p = pattern.data;
  for (let h = 0; h < heads; h++) for (let t = 0; t < count; t++) {
    const [from, to] = seen(t), row = (h * count + t) * length, group = Math.floor(h / shared) * length, own = (h * count + t) * width;
    let most = -Infinity, total = 0;
    for (let s = from; s < to; s++) {
      let score = 0;
      for (let i = 0, at = (group + s) * width; i < width; i++) score += q[own + i] * k[at + i];
      most = Math.max(most, (p[row + s] = score * scale));
    }
    for (let s = from; s < to; s++) total += p[row + s] = Math.exp(p[row + s] - most);
    for (let s = from; s < to; s++) {
      const weight = (p[row + s] /= total);
      for (let i = 0, at = (group + s) * width; i < width; i++) mixed.data[own + i] += weight * values.data[at + i];
    }
    run.computed.scores += 2 * (to - from) * width;
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
    const heads = [spec.heads, spec.kv_heads ?? spec.heads, spec.kv_heads ?? spec.heads];
    let [queries, keys, values] = ["query", "key", "value"].map((name) => run.project(`${path}.${name}`, x)).map((y, at) => split(y, heads[at]));
    if (spec.query_norm) queries = run.block(`${path}.query_norm`, spec.query_norm, queries);
    if (spec.key_norm) keys = run.block(`${path}.key_norm`, spec.key_norm, keys);
    if (spec.rope) [queries, keys] = [queries, keys].map((y) => rotate(y, spec.rope, state.offset));
    [keys, values] = run.remember(path, (kept) => [joined(kept?.[0], keys), joined(kept?.[1], values)]);
    const length = keys.shape[1], first = (t) => (spec.window ? Math.max(t + 1 - spec.window, 0) : 0);
    return attend(run, path, spec, queries, keys, values, (t) => (state.causal ? [first(state.offset + t), state.offset + t + 1] : [0, length]));
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

export function rows({ data, shape }, ids) {
  const y = tensor([ids.length, shape[1]]);
  ids.forEach((id, at) => y.data.set(data.subarray(id * shape[1], (id + 1) * shape[1]), at * shape[1]));
  return y;
}
