// A mixture of experts: many feed-forwards, of which a router picks a few for each token (Shazeer et al., 2017).
// Axes: T tokens, D width, F hidden, E experts, k experts of a token.
import { ACTIVATIONS, rows } from "./blocks.js";
import { likeliest, map, multiply, product, rowsOf, softmax, tensor } from "./tensor.js";

export const blocks = {
  // Σ_k weights_k · experts(x)_k: (T, D) -> (T, D)
  "feedforward/moe"(run, path, spec, x) {
    const { indices, weights } = run.block(`${path}.router`, spec.router, x);
    const given = run.block(`${path}.experts`, spec.experts, x, indices); // (T, k, D)
    const [count, each, dim] = given.shape, y = tensor([count, dim]);
    for (let t = 0; t < count; t++) for (let k = 0; k < each; k++) {
      const weight = weights.data[t * each + k];
      for (let i = 0; i < dim; i++) y.data[t * dim + i] += weight * given.data[(t * each + k) * dim + i];
    }
    return y;
  },

  // The k likeliest of E experts and what their outputs are multiplied by, two of (T, k): the probabilities, which sum to 1
  // over the chosen ones where `normalised`. An expert that is switched off keeps its place and gets the weight 0.
  "router/softmax"(run, path, spec, x) {
    const scores = run.project(`${path}.scores`, x), shape = [x.shape[0], spec.top_k]; // (T, E)
    const probabilities = rowsOf(scores).map(softmax);
    run.note(`${path}.probabilities`, tensor(scores.shape, Float32Array.from(probabilities.flatMap((row) => [...row]))));
    const chosen = probabilities.map((row) => likeliest(row, spec.top_k)), gates = tensor(scores.shape);
    chosen.forEach((experts, t) => {
      const total = spec.normalised ? experts.reduce((sum, e) => sum + probabilities[t][e], 0) : 1;
      for (const e of experts) gates.data[t * spec.experts + e] = (probabilities[t][e] / total) * spec.scale;
    });
    const indices = run.note(`${path}.indices`, tensor(shape, Uint32Array.from(chosen.flat())));
    const own = ({ data }) => (expert, at) => data[Math.floor(at / spec.top_k) * spec.experts + expert];
    const weigh = (all) => tensor(shape, Float32Array.from(indices.data, own(all)));
    run.note(`${path}.weights`, weigh(gates));
    return { indices, weights: weigh(run.note(`${path}.gates`, gates, "expert", 1)) };
  },

  // down(f(gate(x)) · up(x)) by the matrices of each expert that a token has chosen: (T, D), (T, k) -> (T, k, D)
  "experts/gated-mlp"(run, path, spec, x, indices) {
    const [, each] = indices.shape, dim = x.shape[1], y = tensor([...indices.shape, dim]);
    for (let expert = 0; expert < spec.count; expert++) {
      const places = [...indices.data.keys()].filter((at) => indices.data[at] === expert); // where it was chosen, N of T·k
      const through = (name, given) => {
        const { data, shape: [, outputs, inputs] } = run.weight(`${path}.${name}.weight`), size = outputs * inputs;
        return run.count(product(given, tensor([outputs, inputs], data.subarray(expert * size, (expert + 1) * size))), given);
      };
      const given = rows(x, places.map((at) => Math.floor(at / each))); // (N, D)
      const hidden = multiply(map(through("gate", given), ACTIVATIONS[spec.activation]), through("up", given)); // (N, F)
      const made = rowsOf(through("down", hidden));
      places.forEach((at, row) => y.data.set(made[row], at * dim));
    }
    return y;
  },
};
