// Models that fill masks: BERT's embedding and head, the likeliest tokens of each mask, and text by unmasking.
// Axes: T tokens, D width, V vocabulary.
import { ACTIVATIONS, rows } from "./blocks.js";
import { add, likeliest, map, rowsOf, softmax, tensor } from "./tensor.js";

export const blocks = {
  // norm(token + type + position), every token being of the first sentence, type 0 (Devlin et al., 2018, figure 2): (T) -> (T, D)
  "embedding/typed-tokens"(run, path, spec, ids, state) {
    const type = run.note(`${path}.types`, rows(run.weight(`${path}.types.weight`), [0])); // (1, D)
    const vectors = run.note(`${path}.vectors`, rows(state.table, ids)), dim = type.data.length;
    const typed = tensor(vectors.shape, vectors.data.map((value, at) => value + type.data[at % dim]));
    const x = spec.positions ? add(typed, run.block(`${path}.positions`, spec.positions, ids.length, state)) : typed;
    return run.block(`${path}.norm`, spec.norm, x);
  },

  // norm(f(dense(x))), then logits (Devlin et al., 2018, "masked LM"): (T, D) -> (T, V)
  "head/masked-lm"(run, path, spec, x, state) {
    const hidden = map(run.project(`${path}.dense`, x), ACTIVATIONS[spec.activation]);
    return run.apply(path, { ...spec, block: "head/logits" }, run.block(`${path}.norm`, spec.norm, hidden), state);
  },
};

// The `count` likeliest tokens in the place of each mask, each predicted with the others still masked.
export function fillMasks(run, count = 5) {
  return predictions(run, count, false);
}

// One pass of masked diffusion: of the tokens predicted for all masks, the `count` with the highest probability stay, the
// others are masked again (Nie et al., 2025, algorithm 5). `ids` are those that were read, `next` those after the pass.
export function unmask(run, count = 1, shown = 5) {
  const found = predictions(run, shown, true), sure = (hidden) => hidden.probabilities[0], next = [...run.ids];
  const kept = [...found].sort((a, b) => sure(b) - sure(a) || a.position - b.position).slice(0, count);
  for (const hidden of kept) next[hidden.position] = hidden.chosen;
  return { ids: run.ids, predictions: found, kept: kept.map((hidden) => hidden.position).sort((a, b) => a - b), next };
}

// `apart`: the mask itself is no prediction, or it would stay for ever.
function predictions(run, count, apart) {
  const { mask } = run.model.special, logits = rowsOf({ data: run.logits, shape: [run.T, run.V] });
  const places = run.ids.flatMap((id, position) => (id === mask ? [position] : []));
  return places.map((position) => {
    const probabilities = softmax(logits[position].map((x, id) => (apart && id === mask ? -Infinity : x)));
    const tokens = likeliest(probabilities, count);
    return { position, chosen: tokens[0], tokens, probabilities: tokens.map((id) => probabilities[id]) };
  });
}
