// A text that a model reads and writes: its passes, what each computed, and the view of it that a trace draws.

const MASKS = 8; // that masked diffusion begins with
const workOf = (run) => run.computed.multiplications + run.computed.scores;
const largestGap = (a, b) => a.reduce((most, x, at) => Math.max(most, Math.abs(x - b[at])), 0);
const rowOf = (run, position) => run.logits.subarray(position * run.V, (position + 1) * run.V);

// The session of a model. `given`: `ids` of the prompt, the `recipe` that runs, the addresses that are `off`, whether tokens
// come from passes with a KV cache (`cached`), the `settings` of sampling, the ids `written` before, and `steps` to go at once.
export function sessionOf(engine, model, given) {
  const Kind = { encoder: Filler, diffusion: Unmasker }[model.kind] ?? Writer;
  return new Kind(engine, model, given);
}

class Session {
  constructor(engine, model, given) {
    const { recipe, off } = given;
    Object.assign(this, given, { engine, model, changed: { recipe, off }, runs: [], steps: [], choices: [], masks: [], unmasking: [] });
    this.isChanged = off.size > 0 || recipe !== model.recipe;
    this.start(given);
  }
  // What the page's address keeps of it.
  get kept() {
    return {};
  }
  get canStep() {
    return false;
  }
  get canUndo() {
    return false;
  }
  view(language) {
    const { choices, masks, unmasking, settings, engine, model, runs } = this;
    return engine.view(model, runs, { prompt: this.prompt?.length, choices, masks, unmasking, settings, language });
  }
  // The probabilities of the next token, or of the first mask, as the model runs and as it was trained.
  get after() {
    return this.probabilities(this.runs.at(-1));
  }
  get before() {
    return this.probabilities(this.plain());
  }
  probabilities(run) {
    return this.engine.softmax(rowOf(run, this.place(run)));
  }
  plain() {
    return this.model.run(this.text, { keep: false });
  }
}

// Token by token: a decoder, or a decoder that reads a source.
class Writer extends Session {
  start({ ids, written, steps }) {
    const { model } = this, translates = model.kind === "encoder-decoder";
    if (translates) this.source = model.encode(ids, this.changed);
    Object.assign(this, { prompt: translates ? [model.special.start] : ids, text: [], cache: model.makeCache(), snapshots: [] });
    this.read(this.prompt);
    for (const token of written) if (this.text.length < model.context) this.write(token);
    for (let at = 0; at < steps && this.canStep; at++) this.step();
  }
  // One pass with the cache, and one over the whole text without it: both are counted and compared, one is shown. The
  // first pass computes the same in both.
  read(ids) {
    const { model, source, changed, cached, cache } = this, found = this.text.length;
    this.snapshots.push({ length: cache.length, layers: { ...cache.layers } });
    this.text = [...this.text, ...ids];
    const quick = model.run(ids, { ...changed, source, cache, keep: cached });
    const whole = cached && !found ? quick : model.run(this.text, { ...changed, source, keep: !cached });
    const encoded = source && !found ? workOf(source) : 0; // the encoder runs once, either way
    this.steps.push({
      with: { positions: ids.length, cached: found, work: workOf(quick) + encoded },
      without: { positions: this.text.length, cached: 0, work: workOf(whole) + encoded },
      gap: largestGap(rowOf(quick, quick.T - 1), rowOf(whole, whole.T - 1)),
    });
    if (!cached) this.runs.at(-1)?.values.clear(); // a view shows the last pass alone
    this.runs.push(cached ? quick : whole);
    this.choices.push(this.choose(this.settings));
  }
  choose(settings) {
    const run = this.runs.at(-1), { temperature, top_k: topK, top_p: topP, min_p: minP } = settings;
    return this.engine.sample(rowOf(run, run.T - 1), { temperature, topK, topP, minP, step: this.runs.length - 1 });
  }
  write(token) {
    this.choices.at(-1).token = token;
    this.read([token]);
  }
  step() {
    this.write(this.choices.at(-1).token);
  }
  undo() {
    for (const list of [this.runs, this.steps, this.choices]) list.pop();
    this.text = this.text.slice(0, -1);
    Object.assign(this.cache, this.snapshots.pop());
  }
  view(language) {
    const { model, text, changed, source, runs } = this, last = runs.length - 1;
    if (!runs[last].values.size) runs[last] = model.run(text, { ...changed, source }); // after an undo
    return super.view(language);
  }
  get kept() {
    return { written: this.text.slice(this.prompt.length).join(".") };
  }
  get next() {
    return this.choices.at(-1).token;
  }
  get ended() {
    return this.model.special.eos.includes(this.next);
  }
  get canStep() {
    return !this.ended && this.text.length < this.model.context;
  }
  get canUndo() {
    return this.text.length > this.prompt.length;
  }
  place(run) {
    return run.T - 1;
  }
  plain() {
    return this.model.run(this.text, { source: this.source?.ids, keep: false });
  }
}

// The masks of a text that an encoder reads once.
class Filler extends Session {
  start({ ids }) {
    Object.assign(this, { text: ids, prompt: ids, runs: [this.model.run(ids, this.changed)] });
    this.masks = this.engine.fillMasks(this.runs[0]);
  }
  place() {
    return this.masks[0]?.position ?? 0;
  }
}

// Masked diffusion: every pass predicts all masks, and the surest prediction stays.
class Unmasker extends Session {
  start({ ids, steps }) {
    this.prompt = ids;
    this.text = [...ids, ...Array(MASKS).fill(this.model.special.mask)];
    this.read();
    for (let at = 0; at < steps && this.canStep; at++) this.step();
  }
  read() {
    this.runs.push(this.model.run(this.text, this.changed));
    this.unmasking.push(this.engine.unmask(this.runs.at(-1), 1));
  }
  step() {
    this.text = this.unmasking.at(-1).next;
    this.read();
  }
  undo() {
    this.runs.pop();
    this.unmasking.pop();
    this.text = this.unmasking.at(-1).ids;
  }
  get kept() {
    return { steps: this.runs.length - 1 };
  }
  get canStep() {
    return this.unmasking.at(-1).next.includes(this.model.special.mask);
  }
  get canUndo() {
    return this.runs.length > 1;
  }
  place() {
    return this.unmasking.at(-1).predictions[0].position;
  }
}
export const room = (model) => (model.kind === "diffusion" ? MASKS : 0);
