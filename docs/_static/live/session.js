// A text that a model reads and writes: its passes, what they computed, and the view of it that a trace draws.

import { softmax } from "./change.js";

// `given`: ids of the prompt, the recipe that runs, the addresses that are off, whether tokens come from the pass with a
// cache, the ids that were written before.
export function sessionOf(engine, model, given) {
  const kind = { encoder: Filler, diffusion: Unmasker }[model.kind] ?? Writer;
  return new kind(engine, model, given);
}
const lastRow = (run) => run.logits.subarray(run.logits.length - run.V);

class Session {
  constructor(engine, model, given) {
    Object.assign(this, given, { engine, model, steps: [], changed: { recipe: given.recipe, off: given.off } });
    this.isChanged = given.off.size > 0 || given.recipe !== model.recipe;
  }
  // Ids that were read and written, for the page's address.
  get written() {
    return [];
  }
}

// Token by token: a decoder, or a decoder that reads a source.
class Writer extends Session {
  constructor(engine, model, given) {
    super(engine, model, given);
    if (model.kind === "encoder-decoder") {
      this.source = model.encode(this.ids, this.changed);
      this.prompt = [model.special.start];
    } else this.prompt = this.ids;
    this.start(given.written);
  }
  start(written) {
    Object.assign(this, { text: [], steps: [], cache: this.model.makeCache() });
    this.read(this.prompt);
    for (const id of written) if (this.canStep) this.read([id]);
  }
  // One pass with the cache, and one over the whole text without: what they compute is counted, and compared.
  read(ids) {
    const { model, source, changed } = this, first = !this.text.length, found = this.text.length;
    this.text = [...this.text, ...ids];
    const quick = model.run(ids, { ...changed, source, cache: this.cache, keep: false }), whole = model.run(this.text, { ...changed, source });
    const extra = first && source ? workOf(source) : 0; // the encoder runs once, either way
    const gap = lastRow(quick).reduce((most, z, id) => Math.max(most, Math.abs(z - lastRow(whole)[id])), 0);
    this.steps.push({ gap, with: { positions: ids.length, cached: found, multiplications: workOf(quick) + extra }, without: { positions: this.text.length, cached: 0, multiplications: workOf(whole) + extra } });
    Object.assign(this, { whole, logits: lastRow(this.cache_on ? quick : whole), cached: [...(this.cached ?? []), quick.computed.cached] });
  }
}
const workOf = (run) => run.computed.multiplications + run.computed.scores;
