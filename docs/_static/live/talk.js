// A conversation with a model of gguf_model.js: the answer token by token, and what the page shows of its passes.
import { chatText } from "./gguf_model.js";
import { drawToken } from "./sampler.js";
import { view } from "./view.js";

const AT_ONCE = 8; // tokens of a prompt in one pass: between passes a reader can cancel
const MOST = 1024; // tokens of a conversation
const SHOWN = 128; // tokens of a text whose heads and lens are shown
// What is kept of a pass: the residual stream and what is added to it, the attention of each head and what it is computed from.
const KEPT = /^(embedding|layers\.\d+(\.(mixer|feedforward|mixer\.(pattern|queries|keys|values)))?)$/;
const WHOLE = /\.(keys|values)$/; // of all tokens up to the pass
const say = (en, zh) => ({ en, zh });
const STREAM = { axes: "T D", unit: "", noted: false };
// Axes, unit and meaning of the values that are kept, as model.json of a pocket has them.
const VALUES = {
  embedding: { ...STREAM, summary: say("the vectors of the tokens", "词元的向量") },
  "layers.*": { ...STREAM, summary: say("the residual stream after the layer", "这一层之后的残差流") },
  "layers.*.mixer": { ...STREAM, summary: say("what attention adds", "注意力加上的向量") },
  "layers.*.feedforward": { ...STREAM, summary: say("what the feed-forward adds", "前馈网络加上的向量") },
  "layers.*.mixer.pattern": { axes: "H T S", unit: "probability", noted: true, summary: say("the weights of each head", "每个头的注意力权重") },
  "layers.*.mixer.queries": { axes: "H T K", unit: "", noted: true, summary: say("the queries of each head", "每个头的查询") },
  "layers.*.mixer.keys": { axes: "G S K", unit: "", noted: true, summary: say("the keys", "键") },
  "layers.*.mixer.values": { axes: "G S K", unit: "", noted: true, summary: say("the values", "值") },
};

export class Talk {
  constructor(model) {
    Object.assign(this, { model });
    model.values = VALUES;
    this.begin(new Set());
  }
  begin(off) {
    Object.assign(this, { off, ids: [], runs: [], cache: this.model.makeCache() });
  }

  // Answer the last of `messages` with the parts `off`: `tell` gets {read, of} while the prompt is read, {text, tokens} after each token.
  // Ends with {reason, text}: "ended" by the model, "length" after `most` tokens, "full" without room, "cancelled".
  async answer({ messages, settings, off, most }, tell, isCancelled) {
    const { model } = this, { tokenizer } = model, room = Math.min(MOST, model.context), ids = tokenizer.encode(chatText(messages), room - 1);
    if (!ids) return this.end("full", []);
    const same = off.size === this.off.size && [...off].every((address) => this.off.has(address));
    if (!same || this.ids.length >= ids.length || this.ids.some((id, at) => id !== ids[at])) this.begin(off);
    const written = [];
    this.prompt = ids.length;
    for (let next = ids.slice(this.ids.length), logits, done = 0; ; await breathe()) {
      if (isCancelled()) return this.end("cancelled", written);
      if (done < next.length) {
        logits = this.read(next.slice(done, done + AT_ONCE));
        done += AT_ONCE;
        if (!written.length) tell({ read: this.ids.length, of: ids.length });
        if (done < next.length) continue;
      }
      const { token } = drawToken(logits, { ...settings, step: written.length });
      if (model.special.eos.includes(token)) return this.end("ended", written);
      written.push(token);
      tell({ text: this.textOf(written), tokens: written.length });
      if (written.length >= most) return this.end("length", written);
      if (this.ids.length + 1 >= room) return this.end("full", written);
      [next, done] = [[token], 0];
    }
  }
  end(reason, written) {
    return { reason, text: this.textOf(written), tokens: written.length, shown: this.runs.length > 0, limit: reason === "full" ? MOST : SHOWN };
  }
  // The text of tokens, without the bytes of a character that is not whole yet.
  textOf(ids) {
    return this.model.tokenizer.decode(ids).replace(/\ufffd+$/, "");
  }

  // One pass over the next ids: the logits of the last.
  read(ids) {
    const keep = this.ids.length + ids.length <= SHOWN, { cache, off } = this;
    const run = this.model.run(ids, { cache, off, keep, last: true });
    if (!keep) this.runs = [];
    else {
      for (const address of run.values.keys()) if (!KEPT.test(address)) run.values.delete(address);
      const before = this.runs.at(-1)?.values;
      for (const address of before?.keys() ?? []) if (WHOLE.test(address)) before.delete(address);
      this.runs.push(run);
    }
    this.ids.push(...ids);
    return run.logits;
  }

  // What a trace's scripts draw of the text that was read; the lens is told token by token.
  view(language) {
    return view(this.model, this.runs, { prompt: this.prompt, language, lens: 0 });
  }
  // What the head reads at each depth at the token of a position: the likeliest five, their probabilities, the entropy in bits.
  lens(position) {
    const run = this.runs.find((one) => position < one.start + one.T);
    if (!run) return []; // of a conversation before
    return run.lens(5, position - run.start).map(({ address, tokens: [ids], probabilities: [p], entropy_bits: [bits] }) => {
      return { address, tokens: ids.map((id) => this.model.tokenizer.piece(id)), probabilities: p, bits };
    });
  }
}
// Let messages come in.
const breathe = () => new Promise((resolve) => setTimeout(resolve));
