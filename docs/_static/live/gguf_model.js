// A model from a GGUF file: the recipe by its keys, the weights by the zoo's paths, the tokenizer. The numbers of matrices stay
// where they lie in the file. The page runs LLaMA's architecture with the tokenizer and the chat template of SmolLM2.
import { blocks } from "./blocks.js";
import { readGguf, Refusal } from "./gguf.js";
import { Model } from "./model.js";
import { PackedMatrix } from "./packed.js";
import { tensor } from "./tensor.js";
import { Tokenizer } from "./tokenizer.js";

const ARCHITECTURE = "llama", PRE = "smollm";
const DIGIT = "\\p{N}"; // each digit alone, then GPT-2's pattern
const GPT2 = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+";
const CONTROL = 3, USER = 4; // kinds of tokens that are matched whole
const ENDS = ["<|im_end|>", "<|endoftext|>"];
const SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
const TEMPLATE = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
  + `{{ '<|im_start|>system\n${SYSTEM}<|im_end|>\n' }}{% endif %}`
  + "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
  + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
// Keys after "llama." that say nothing of the results.
const SILENT = ["vocab_size"];

// The model of a file, from its bytes; a Refusal names what the page cannot follow. Its matrices are views of `buffer`.
export function modelOf(buffer) {
  const { metadata, tensors } = readGguf(buffer), architecture = metadata["general.architecture"];
  if (architecture !== ARCHITECTURE) throw new Refusal("architecture", { architecture });
  if (metadata["tokenizer.chat_template"]?.replaceAll("\\n", "\n") !== TEMPLATE) throw new Refusal("template");
  const name = metadata["general.name"] ?? architecture, recipe = recipeOf(metadata, tensors), tokenizer = tokenizerOf(metadata);
  const named = ["eos", "eot", "eom"].map((key) => metadata[`tokenizer.ggml.${key}_token_id`]);
  const eos = [...new Set([...named, ...ENDS.map((text) => tokenizer.ids.get(text))])];
  const about = { name, architecture, task: "generate", recipe, special: { eos: eos.filter((id) => id !== undefined) }, values: {}, words: {} };
  return new Model(about, tokenizer, weightsOf(tensors, recipe, metadata), blocks);
}

// The text of a conversation up to the place of the answer: SmolLM2's template for `messages` of {role, content}.
export function chatText(messages) {
  const system = messages[0]?.role === "system" ? [] : [{ role: "system", content: SYSTEM }];
  return [...system, ...messages].map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join("") + "<|im_start|>assistant\n";
}

// The zoo's recipe of LLaMA with the file's numbers. A key of the architecture that is not read here is refused by its name.
function recipeOf(metadata, tensors) {
  const prefix = `${ARCHITECTURE}.`, unread = new Set(Object.keys(metadata).filter((key) => key.startsWith(prefix)));
  const number = (key, usual) => {
    const value = metadata[prefix + key] ?? usual;
    unread.delete(prefix + key);
    if (typeof value !== "number" || !(value > 0)) throw new Refusal("key", { key: prefix + key });
    return value;
  };
  for (const key of SILENT) unread.delete(prefix + key);
  const dim = number("embedding_length"), heads = number("attention.head_count"), count = number("block_count");
  const width = number("attention.key_length", dim / heads), eps = decimal(number("attention.layer_norm_rms_epsilon"));
  if (number("attention.value_length", width) !== width) throw new Refusal("key", { key: `${prefix}attention.value_length` });
  if (number("rope.dimension_count", width) !== width) throw new Refusal("key", { key: `${prefix}rope.dimension_count` });
  const rope = { block: "position/rope", theta: number("rope.freq_base", 10000), dims: null, interleaved: false, scaling: null };
  const mixer = { block: "mixer/attention", heads, kv_heads: number("attention.head_count_kv", heads), head_dim: width, rope, scale: null };
  const norm = { block: "norm/rmsnorm", eps }, feedforward = { block: "feedforward/gated-mlp", hidden: number("feed_forward_length"), activation: "silu" };
  const layer = { block: "layer/residual", mixer, feedforward, mixer_norm: norm, feedforward_norm: norm, placement: "pre", residual_scale: 1 };
  const context = number("context_length"), [key] = unread, vocab = metadata["tokenizer.ggml.tokens"]?.length;
  if (key) throw new Refusal("key", { key });
  return {
    block: "model/decoder", embedding: { block: "embedding/tokens", vocab, dim, positions: null, scale: 1, norm: null, shared: false },
    layers: [{ repeat: count, layer }], norm, head: { block: "head/logits", tied: !tensors["output.weight"], vocab, scale: 1 }, context, causality: "causal",
  };
}
// The shortest decimal number of a float32: 1e-5, not 9.999999747378752e-6.
const decimal = (value) => Number(value.toPrecision(7));

const ENDINGS = {
  attn_norm: "mixer_norm", attn_q: "mixer.query", attn_k: "mixer.key", attn_v: "mixer.value", attn_output: "mixer.output",
  ffn_norm: "feedforward_norm", ffn_gate: "feedforward.gate", ffn_up: "feedforward.up", ffn_down: "feedforward.down",
};
// The parameters by the zoo's paths: vectors as floats, matrices packed.
function weightsOf(tensors, recipe, metadata) {
  const { heads, kv_heads: groups, head_dim: width } = recipe.layers[0].layer.mixer, { dim, vocab } = recipe.embedding;
  const { hidden } = recipe.layers[0].layer.feedforward, left = new Set(Object.keys(tensors)), found = {};
  const take = (name, path, ...shape) => {
    const own = tensors[name];
    if (!own) throw new Refusal("missing", { tensor: name });
    if (own.shape.join() !== shape.join()) throw new Refusal("shape", { tensor: name, shape: own.shape.join(" × ") });
    left.delete(name);
    const matrix = new PackedMatrix(shape.length === 1 ? { ...own, shape: [1, ...shape] } : own);
    found[path] = shape.length === 1 ? tensor(shape, matrix.rows([0]).data) : matrix;
    return matrix;
  };
  const shapes = { attn_norm: [dim], attn_q: [heads * width, dim], attn_k: [groups * width, dim], attn_v: [groups * width, dim],
    attn_output: [dim, heads * width], ffn_norm: [dim], ffn_gate: [hidden, dim], ffn_up: [hidden, dim], ffn_down: [dim, hidden] };
  take("token_embd.weight", "embedding.tokens.weight", vocab, dim);
  take("output_norm.weight", "norm.weight", dim);
  if (!recipe.head.tied) take("output.weight", "head.output.weight", vocab, dim);
  for (let layer = 0; layer < recipe.layers[0].repeat; layer++) for (const [ending, path] of Object.entries(ENDINGS)) {
    const matrix = take(`blk.${layer}.${ending}.weight`, `layers.${layer}.${path}.weight`, ...shapes[ending]);
    if (ending === "attn_q") matrix.pairsToHalves(heads);
    if (ending === "attn_k") matrix.pairsToHalves(groups);
  }
  const [name] = left;
  if (name) throw new Refusal("left", { tensor: name });
  return found;
}

// The tokenizer of the file's arrays: byte-level BPE after the pattern of "smollm".
function tokenizerOf(metadata) {
  const own = (key) => metadata[`tokenizer.ggml.${key}`], vocab = own("tokens"), merges = own("merges");
  if (own("model") !== "gpt2" || own("pre") !== PRE) throw new Refusal("tokenizer", { model: `${own("model")}, ${own("pre")}` });
  if (!vocab || !merges) throw new Refusal("key", { key: `tokenizer.ggml.${vocab ? "merges" : "tokens"}` });
  for (const key of ["add_bos_token", "add_eos_token", "add_space_prefix"]) if (own(key)) throw new Refusal("key", { key: `tokenizer.ggml.${key}` });
  const kinds = own("token_type") ?? [], kindOf = (content, id) => (ENDS.includes(content) ? CONTROL : kinds[id]); // some writers call ends normal
  const added = vocab.flatMap((content, id) => ([CONTROL, USER].includes(kindOf(content, id))
    ? [{ id, content, special: kindOf(content, id) === CONTROL, lstrip: false, rstrip: false }] : []));
  return new Tokenizer({ vocab, merges, patterns: [DIGIT, GPT2], name: "", whole: false, added });
}
