// The thread in which the model of a conversation runs; talk_page.js sends what to `do`, and gets what it `did`.
import { Refusal } from "./gguf.js";
import { modelOf } from "./gguf_model.js";
import { Talk } from "./talk.js";

let talk, cancelled = false;
const tell = (did, values = {}) => postMessage({ did, ...values });
const ACTS = {
  load({ buffer }) {
    const model = modelOf(buffer), { heads, head_dim } = model.recipe.layers[0].mixer;
    talk = new Talk(model);
    tell("load", { name: model.name, layers: model.recipe.layers.length, heads, head_dim, recipe: model.recipe, bytes: buffer.byteLength });
  },
  async answer(asked) {
    cancelled = false;
    tell("answer", await talk.answer({ ...asked, off: new Set(asked.off) }, (part) => tell("part", part), () => cancelled));
  },
  cancel() {
    cancelled = true;
  },
  view: ({ language }) => tell("view", { data: talk.view(language) }),
  lens: ({ position }) => tell("lens", { position, depths: talk.lens(position) }),
};

addEventListener("message", async ({ data: { act, ...given } }) => {
  try {
    await ACTS[act](given);
  } catch (error) {
    tell("error", error instanceof Refusal ? { refusal: error.refusal, values: error.values } : { message: error.message });
  }
});
