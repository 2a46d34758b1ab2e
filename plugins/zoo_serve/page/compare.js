// A comparison: one prompt, two models or settings, and the first token at which the answers differ.

import { Answer } from "./answer.js";
import { inFrames, sendOnEnter, showRunning } from "./chat.js";
import { Panel } from "./panel.js";
import { facts, failure } from "./show.js";
import { TokenList, isSame, visible } from "./tokens.js";
import { make, say, word } from "./words.js";

const ALTERNATIVES = 5;

export class Compare {
  constructor(root, server) {
    this.server = server;
    this.form = root.querySelector(".composer");
    this.verdict = root.querySelector(".verdict");
    this.columns = [0, 1].map((number) => new Column(number, server, (index) => this.selected(number, index)));
    this.columns[1].panel.fill(server.models[1]?.id);
    root.querySelector(".columns").append(...this.columns.map(({ element }) => element));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    sendOnEnter(this.form);
    this.form.querySelector(".stop").addEventListener("click", () => this.stop());
  }

  get panels() {
    return this.columns.map(({ panel }) => panel);
  }

  async send() {
    const content = this.form.querySelector("textarea").value.trim();
    if (!content || this.running || !this.columns.every(({ panel }) => panel.valid())) return;
    this.running = new AbortController();
    showRunning(this.form, true);
    this.parted = null;
    this.verdict.replaceChildren();
    const { signal } = this.running;
    const changed = inFrames(() => this.update());
    await Promise.all(this.columns.map((column) => column.ask(content, signal, changed)));
    this.running = null;
    showRunning(this.form, false);
    changed();
    if (this.columns.some(({ answer }) => answer.model.zoo.state !== "loaded")) await this.server.refresh();
    if (this.columns.some(({ answer, panel }) => answer.error && panel.isAskedWrongly(answer.model))) this.send();
  }

  stop() {
    this.running?.abort();
  }

  update() {
    for (const column of this.columns) column.update(() => this.send());
    if (this.parted) return;
    this.parted = parting(...this.columns);
    const [left, right] = this.columns.map(({ list }, side) => list.tokens[this.parted?.[side]]);
    for (const token of [left, right]) token?.element.classList.add("differs");
    const name = (token) => (token ? `“${visible(token)}”` : say("end"));
    if (this.parted) {
      word(this.verdict, "text", "differs", { left: name(left), right: name(right) });
      for (const [side, { list }] of this.columns.entries())
        if (list.index < 0 && list.tokens[this.parted[side]]) list.select(this.parted[side]);
    } else if (this.columns.every(({ answer, list }) => answer.finish && list.tokens.length)) {
      word(this.verdict, "text", "same");
    }
  }

  // Up to the token where the answers part, the same place of the other answer is shown, too.
  selected(number, index) {
    const own = this.columns[number].list, other = this.columns[1 - number].list;
    const limit = this.parted?.[number] ?? own.tokens.length;
    const start = own.starts[index];
    const there = other.starts.indexOf(start) + index - own.starts.indexOf(start);
    if (index <= limit && other.starts[there] === start) other.select(there);
  }
}

class Column {
  constructor(number, server, selected) {
    this.panel = new Panel(server);
    this.selected = selected;
    this.number = number;
    this.title = word(make("h3"), "text", "column", { number: number + 1 });
    this.title.id = `column-${number}`;
    this.settings = make("details", { class: "panel" }, word(make("summary"), "text", "settings"));
    this.place = make("div", { class: "place" });
    this.facts = make("p", { class: "facts quiet" });
    const { select, form } = this.panel;
    const top = make("div", { class: "column-top" }, this.title, word(select, "label", "model"));
    form.firstChild.remove(); // the label of the choice, which is above
    this.settings.append(form);
    const attributes = { class: "column", "aria-labelledby": this.title.id };
    this.element = make("section", attributes, top, this.settings, this.place);
  }

  async ask(content, signal, changed) {
    this.answer = new Answer(this.panel.model);
    this.list = new TokenList(this.panel.model.id, this.selected);
    this.place.replaceChildren(this.list.element, this.facts, this.list.panel);
    changed();
    const messages = this.panel.messages([{ role: "user", content }]);
    const settings = this.panel.values();
    await this.answer.read({ messages, settings, signal, changed, alternatives: ALTERNATIVES });
  }

  update(again) {
    this.list.update(this.answer.tokens);
    this.element.setAttribute("aria-busy", String(this.answer.running));
    this.facts.replaceChildren(...facts(this.answer));
    const { error } = this.answer;
    if (error && !this.place.querySelector(".notice")) this.place.append(failure(error, again));
  }
}

// The index in each answer of the first token that differs, or of its end; null while the texts are the same. Tokenizers
// may differ: the search begins at the last place before the difference where a token begins in both answers.
function parting(one, other) {
  const read = ({ answer, list: { text, starts, tokens } }) => {
    return { text, tokens, starts: [...starts, text.length], ended: answer.finish };
  };
  const left = read(one), right = read(other);
  const shorter = left.text.length < right.text.length ? left : right;
  let at = 0;
  while (at < shorter.text.length && left.text[at] === right.text[at]) at += 1;
  const same = at === left.text.length && at === right.text.length;
  if (same || (at === shorter.text.length && !shorter.ended)) return null;
  const common = left.starts.findLast((start) => start <= at && right.starts.includes(start));
  const [first, second] = [left, right].map(({ starts }) => starts.indexOf(common));
  const pairs = left.tokens.slice(first).map((token, after) => [token, right.tokens[second + after]]);
  const after = pairs.findIndex(([token, there]) => !there || !isSame(token, there)); // parts of a character
  return [first, second].map((index) => index + (after < 0 ? pairs.length : after));
}
