// A model by its recipe: the embedding, the layers, the norm and the head of a tower, one after the other; a run keeps what
// they compute by address. Axes: T tokens, D width, V vocabulary.
import { concatenate, likeliest, product, rowsOf, softmax, tensor } from "./tensor.js";

// A recipe's layers: equal ones in a row are written once.
const layersOf = (tower) => tower.layers.flatMap((each) => (each.repeat ? Array(each.repeat).fill(each.layer) : [each]));

// Parts of recipes that these scripts do not run.
const REFUSED = ["parallel", "scaling", "relative", "window", "inclusive", "shared_gate"];
function refuse(name, recipe) {
  JSON.stringify(recipe, (field, value) => {
    if (field === "residual_scale" ? value !== 1 : REFUSED.includes(field) && value)
      throw new Error(`${name}: the page runs no model with ${field} ${JSON.stringify(value)}`);
    return value;
  });
}

export class Model {
  // `about` is model.json: name, task, recipe, special ids and texts; `blocks` maps the names of blocks to functions.
  constructor(about, tokenizer, weights, blocks) {
    Object.assign(this, about, { tokenizer, weights, blocks });
    refuse(about.name, about.recipe);
    for (const [, tower] of towersOf(this.recipe)) tower.layers = layersOf(tower).map((layer) => structuredClone(layer));
  }

  get kind() {
    const kind = this.recipe.block.split("/")[1];
    return kind === "decoder" && this.recipe.causality === "full" ? "diffusion" : kind;
  }
  // The most tokens that it takes.
  get context() {
    return (this.recipe.decoder ?? this.recipe).context;
  }

  // Keys and values of earlier tokens, which `run` reads and extends.
  makeCache() {
    return { length: 0, layers: {} };
  }

  // The encoder's run over a source, which `run` takes as `source`.
  encode(ids, options = {}) {
    const run = this.begin(ids, { ...options, cache: undefined });
    run.memory = run.tower("encoder", run.recipe.encoder, ids);
    return run.end("encode");
  }

  begin(ids, options) {
    const run = new Run(this, ids, options), length = run.start + run.T;
    if (!run.T) throw new Error("there is no token to read");
    if (length > this.context) throw new Error(`${length} tokens are more than the context of ${this.context}`);
    return run;
  }

  // The logits (T, V) of a text, or of a target with its `source`: ids, or the run of `encode`. `recipe` may be another one
  // for the same weights; `off` are addresses whose values are zero; with a `cache` the ids continue those before; with `last`
  // there are logits of the last token alone, (1, V).
  run(ids, options = {}) {
    const run = this.begin(ids, options), source = options.source;
    if (this.kind === "encoder-decoder") {
      if (!source) throw new Error("there is no source to read");
      run.source = source.memory ? source : this.encode(source, options);
      run.logits = run.tower("decoder", run.recipe.decoder, ids, run.source.memory).data;
    } else run.logits = run.tower("", run.recipe, ids).data;
    return run.end({ encoder: "__call__", "encoder-decoder": "decode" }[this.kind] ?? "backbone");
  }

  // Recipes that the weights allow: norms on the other side of the sums, positions without parameters of their own.
  variants() {
    const found = [], change = (id, edit) => {
      const recipe = structuredClone(this.recipe);
      for (const [, tower] of towersOf(recipe)) edit(tower);
      found.push({ id, label: id, recipe });
    };
    const tower = this.recipe.decoder ?? this.recipe, placement = tower.layers[0].placement === "pre" ? "post" : "pre";
    // A Post-LN layer gives normal vectors: there is no final norm after the last (zoo_gpt2).
    change(`placement:${placement}`, (each) => {
      each.norm = null;
      for (const layer of each.layers) layer.placement = placement;
    });
    const added = { none: null, sinusoidal: { block: "position/sinusoidal", theta: 10000, interleaved: true, offset: 0 }, rotary: null };
    const rope = { block: "position/rope", theta: 10000, dims: null, interleaved: false, scaling: null };
    const present = tower.layers[0].mixer.rope ? "rotary" : (tower.embedding.positions?.block.split("/")[1] ?? "none");
    for (const kind of Object.keys(added).filter((each) => each !== present)) change(`positions:${kind}`, (each) => {
      each.embedding.positions = added[kind];
      for (const layer of each.layers) layer.mixer.rope = kind === "rotary" ? rope : null;
    });
    return found;
  }
}
const towersOf = (recipe) => (recipe.encoder ? [["encoder", recipe.encoder], ["decoder", recipe.decoder]] : [["", recipe]]);

// One pass of a model over `ids`. `values` has what was computed by the addresses of zoo.trace; `computed` counts positions,
// multiplications by matrices and of attention, and the numbers that the cache then holds.
export class Run {
  constructor(model, ids, { recipe = model.recipe, off = new Set(), cache, keep = true, last = false }) {
    Object.assign(this, { model, ids: [...ids], recipe, off, cache, keep, last, start: cache?.length ?? 0, T: ids.length, values: new Map() });
    this.computed = { positions: ids.length, multiplications: 0, scores: 0, cached: 0 };
  }

  end(kind) {
    this.kind = kind;
    if (this.cache) {
      this.cache.length += this.T;
      const own = Object.keys(this.cache.layers).filter((path) => !path.endsWith(".cross")); // those of a source do not grow
      this.computed.cached = own.flatMap((path) => this.cache.layers[path]).reduce((sum, { data }) => sum + data.length, 0);
    }
    if (this.logits) this.V = this.logits.length / (this.last ? 1 : this.T);
    return this;
  }

  tower(prefix, spec, ids, memory) {
    const at = (name) => (prefix ? `${prefix}.${name}` : name), table = spec.embedding.shared ? "encoder.embedding" : at("embedding");
    const state = { offset: this.start, causal: spec.causality === "causal", memory, table: this.weight(`${table}.tokens.weight`) };
    let x = this.block(at("embedding"), spec.embedding, ids, state);
    layersOf(spec).forEach((layer, index) => {
      const path = at(`layers.${index}`);
      x = this.off.has(path) ? this.keepValue(path, x) : this.block(path, layer, x, state); // a layer that is off passes its input on
    });
    this.reader = { at, spec, state };
    return this.read(this.last ? tensor([1, x.shape[1]], x.data.slice(-x.shape[1])) : x);
  }
  // The final norm and the head, where there are any: (T, D) -> (T, V)
  read(x) {
    const { at, spec, state } = this.reader, normed = spec.norm ? this.block(at("norm"), spec.norm, x) : x;
    return spec.head ? this.block(at("head"), spec.head, normed, state) : normed;
  }

  // What the head makes of the residual stream at each depth, at every position or at one: the `count` likeliest tokens, their
  // probabilities, and the entropy of all in bits (nostalgebraist, 2020, "the logit lens").
  lens(count = 5, position) {
    const silent = Object.assign(Object.create(this), { keep: false, off: new Set(), computed: {} });
    const { at, spec } = this.reader, depths = [at("embedding"), ...layersOf(spec).map((_, index) => at(`layers.${index}`))];
    const one = (x) => (position === undefined ? x : tensor([1, x.shape[1]], rowsOf(x)[position]));
    const stream = concatenate(depths.map((address) => one(this.values.get(address))), 0);
    const all = rowsOf(silent.read(stream)).map(softmax), length = all.length / depths.length;
    const bits = (row) => Math.abs(row.reduce((sum, p) => sum - (p ? p * Math.log2(p) : 0), 0));
    const track = this.model.kind === "encoder-decoder" ? "target" : "text";
    return depths.map((address, depth) => {
      const each = all.slice(depth * length, (depth + 1) * length), tokens = each.map((row) => likeliest(row, count));
      return { address, track, tokens, probabilities: tokens.map((ids, t) => ids.map((id) => each[t][id])), entropy_bits: each.map(bits) };
    });
  }

  // What blocks use: the block of a part of the recipe, the values that they note, parameters, and products with them.
  apply(path, spec, ...inputs) {
    const block = this.model.blocks[spec.block];
    if (!block) throw new Error(`${path}: the page has no block ${spec.block}`);
    return block(this, path, spec, ...inputs);
  }
  block(path, spec, ...inputs) {
    const given = this.apply(path, spec, ...inputs);
    return given.data ? this.note(path, given) : given;
  }
  // Keep a value, with zeros in place of what is off: all of it, or the parts along `axis` that are called `item`.
  note(address, value, item, axis = 0) {
    if (this.off.has(address)) return this.keepValue(address, tensor(value.shape));
    const owner = address.slice(0, address.lastIndexOf(".")), size = value.shape.slice(axis + 1).reduce((a, b) => a * b, 1);
    const off = item ? Array.from({ length: value.shape[axis] }, (_, index) => this.off.has(`${owner}.${item}.${index}`)) : [];
    const changed = off.some(Boolean) ? value.data.map((x, at) => (off[Math.floor(at / size) % off.length] ? 0 : x)) : value.data;
    return this.keepValue(address, tensor(value.shape, changed));
  }
  keepValue(address, value) {
    if (this.keep) this.values.set(address, value);
    return value;
  }
  remember(path, update) {
    const pair = update(this.cache?.layers[path]);
    if (this.cache) this.cache.layers[path] = pair;
    return pair;
  }
  weight(path) {
    const found = this.model.weights[path];
    if (!found) throw new Error(`${this.model.name}: the weights have no ${path}`);
    return found;
  }
  bias(path) {
    return this.model.weights[`${path}.bias`];
  }
  linear(path, x) {
    return this.count(product(x, this.weight(`${path}.weight`), this.bias(path)), x);
  }
  project(path, x) {
    return this.note(path, this.linear(path, x));
  }
  count(y, x) {
    this.computed.multiplications += y.data.length * x.shape.at(-1);
    return y;
  }
}
