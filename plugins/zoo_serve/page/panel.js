// The choice of a model with its settings: one for the chat, one for each column of a comparison.

import { endpointOf } from "./answer.js";
import { field, isCommon, propertiesOf } from "./schema.js";
import { make, number, say, word } from "./words.js";

const GENERATES = ["generate", "translate", "denoise"]; // tasks of architectures whose answer is a text

export function generates({ zoo }) {
  return !zoo.task || GENERATES.includes(zoo.task);
}

export class Panel {
  // `server` has `models` and `openapi`; `changed` is called with each choice of a model.
  constructor(server, changed = () => {}) {
    Object.assign(this, { server, changed, fields: [] });
    this.select = make("select", { class: "model", onchange: () => this.choose() });
    this.about = make("p", { class: "quiet about" });
    this.system = make("textarea", { rows: 1, class: "system" });
    this.systemLabel = make("label", {}, word(make("span"), "text", "system"), this.system);
    this.common = make("div", { class: "common" });
    this.others = make("div", { class: "others" });
    this.summary = make("summary");
    this.more = make("details", {}, this.summary, this.others);
    const model = make("label", {}, word(make("span"), "text", "model"), this.select);
    this.form = make("form", { class: "settings" }, model, this.about, this.systemLabel, this.common, this.more);
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.fill();
  }

  // Shows the models anew, and keeps the choice where it is still there.
  fill(wanted = this.select.value) {
    this.select.replaceChildren(...this.server.models.map(({ id }) => make("option", { value: id }, id)));
    if (this.server.models.some(({ id }) => id === wanted)) this.select.value = wanted;
    this.choose();
  }

  get model() {
    return this.server.models.find(({ id }) => id === this.select.value);
  }

  choose() {
    const { model } = this;
    const { architecture, parameters, context, chat, state } = model.zoo;
    const about = [];
    if (architecture) about.push(["about", { architecture, parameters: short(parameters), context }]);
    if (state === "available") about.push(["loads"]);
    this.about.replaceChildren(...about.map(([key, values]) => word(make("span"), "text", key, values)));
    this.systemLabel.hidden = chat === false;
    const { path } = endpointOf(model);
    if (path !== this.path) this.makeFields(path);
    this.changed();
  }

  // Whether a model that was asked as if it chatted turned out, once it was loaded, not to.
  isAskedWrongly({ id, zoo }) {
    return zoo.chat === undefined && this.model.id === id && this.model.zoo.chat === false;
  }

  // The fields of an endpoint; those of the one before keep what was typed.
  makeFields(path) {
    this.path = path;
    const before = new Map(this.fields.map(({ name, control }) => [name, control.value]));
    this.fields = propertiesOf(this.server.openapi, path).map((property) =>
      field(property, this.server.openapi, before.get(property[0])),
    );
    this.common.replaceChildren();
    const groups = new Map();
    for (const { name, group, element } of this.fields) {
      const id = JSON.stringify(group);
      if (isCommon(name)) this.common.append(element);
      else groups.set(id, [...(groups.get(id) ?? [word(make("summary"), "text", ...group)]), element]);
    }
    this.others.replaceChildren(...[...groups.values()].map((all) => make("details", { class: "group" }, ...all)));
    this.more.hidden = !groups.size;
    word(this.summary, "text", "more", { count: this.others.querySelectorAll(".field").length });
  }

  // Whether all fields hold what they may; the first that does not is shown.
  valid() {
    const wrong = this.fields.find(({ control }) => !control.checkValidity());
    if (!wrong) return true;
    for (let one = wrong.control; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    return wrong.control.reportValidity();
  }

  // The settings that are set, by name.
  values() {
    const given = this.fields.map(({ name, value }) => [name, value()]);
    return Object.fromEntries(given.filter(([, value]) => value !== undefined));
  }

  // A conversation, with the system message before it.
  messages(conversation) {
    const content = this.system.value.trim();
    return content && !this.systemLabel.hidden ? [{ role: "system", content }, ...conversation] : conversation;
  }
}

// 134,515,008 is "135 M", 8,030,261,248 "8.03 B".
function short(count) {
  const [unit, size] = [["B", 1e9], ["M", 1e6], ["K", 1e3]].find(([, size]) => count >= size) ?? ["", 1];
  return `${Number((count / size).toPrecision(3))} ${unit}`.trim();
}
