// A model of the zoo in a page: its recipe, its tokenizer and its weights, fetched from a folder and run by plain JavaScript.
//
//   const model = await loadModel("models/llama"), ids = model.tokenizer.encode("The capital city of China is");
//   const run = model.run(ids), { token } = sample(run.logits.subarray((run.T - 1) * run.V)); // of the last position
//   model.tokenizer.piece(token); // " Bei"
//   run.values.get("layers.0.mixer.pattern").shape; // [4, 6, 6]: heads, tokens, tokens
import { Model } from "./model.js";
import { blocks } from "./blocks.js";
import { readSafetensors } from "./tensor.js";
import { Tokenizer } from "./tokenizer.js";
export { sample } from "./sampler.js";
export { softmax } from "./tensor.js";
export { view } from "./view.js";

// The modules of blocks that not every model has; a model loads those that its recipe names.
const MORE = { "feedforward/moe": "./experts.js", "layer/cross": "./cross.js", "embedding/typed-tokens": "./masks.js" };

// Load the model of a folder: model.json, tokenizer.json, weights.safetensors. `progress` is told the bytes of the weights.
export async function loadModel(folder, { progress = () => {} } = {}) {
  const base = String(folder).replace(/\/$/, ""), json = async (name) => (await fetched(`${base}/${name}`)).json();
  const [about, words] = await Promise.all([json("model.json"), json("tokenizer.json")]);
  const names = new Set(JSON.stringify(about.recipe).match(/"\w[\w-]*\/[\w-]+"/g).map((name) => name.slice(1, -1)));
  const modules = new Set([...names].flatMap((name) => MORE[name] ?? []));
  if (about.special.mask !== undefined) modules.add("./masks.js");
  const loaded = await Promise.all([...modules].map((path) => import(path)));
  const weights = readSafetensors(await whole(await fetched(`${base}/weights.safetensors`), about.bytes, progress));
  const model = new Model(about, new Tokenizer(words), weights, Object.assign({}, blocks, ...loaded.map((each) => each.blocks)));
  for (const { fillMasks, unmask } of loaded) if (unmask) Object.assign(model, { fillMasks, unmask });
  return model;
}

// One pass of masked diffusion, and the candidates for masks: see masks.js.
export const unmask = (run, ...settings) => run.model.unmask(run, ...settings);
export const fillMasks = (run, ...settings) => run.model.fillMasks(run, ...settings);

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status} ${answer.statusText}`);
  return answer;
}
async function whole(answer, total, progress) {
  const found = new Uint8Array(total);
  let done = 0;
  for (const reader = answer.body.getReader(); ; progress(done, total)) {
    const { value, done: last } = await reader.read();
    if (last) break;
    if (done + value.length > total) throw new Error(`${answer.url}: is longer than ${total} bytes`);
    found.set(value, done);
    done += value.length;
  }
  if (done < total) throw new Error(`${answer.url}: ended after ${done} of ${total} bytes`);
  return found.buffer;
}
