// What a decoder has more when it reads a source: cross-attention (Vaswani et al., 2017, section 3.2.3).
// Axes: T tokens of the target, M of the source, D width, H heads, G key/value heads, K width of a head.
import { attend, residual, split } from "./blocks.js";

export const blocks = {
  "layer/cross"(run, path, spec, x, state) {
    const middle = run.note(`${path}.resid_mid`, residual(run, path, spec, "mixer", x, state));
    const crossed = run.note(`${path}.resid_cross`, residual(run, path, spec, "cross", middle, state));
    return residual(run, path, spec, "feedforward", crossed, state);
  },

  // Queries of the target, keys and values of the encoder's output, which a cache has from the first pass on: -> (T, D)
  "cross/attention"(run, path, spec, x, { memory }) {
    const groups = spec.kv_heads ?? spec.heads, queries = split(run.project(`${path}.query`, x), spec.heads); // (H, T, K)
    const project = (name) => split(run.project(`${path}.${name}`, memory), groups); // (G, M, K)
    const [keys, values] = run.remember(path, (kept) => kept ?? [project("key"), project("value")]);
    return attend(run, path, spec, queries, keys, values, () => keys.shape[1]);
  },
};
