// The chat: a conversation with one model, or texts that a model without a chat template continues.

import { Answer } from "./answer.js";
import { Panel } from "./panel.js";
import { AnswerView } from "./show.js";
import { button, make, word } from "./words.js";

const NEAR = 120; // pixels from the end of the page within which it follows the answer
const SENTENCE = /[^.!?。！？\n]*(?:[.!?](?=\s)|[。！？\n])+\s*/gy;

export class Chat {
  constructor(root, server) {
    const find = (selector) => root.querySelector(selector);
    this.root = root;
    this.server = server;
    this.turns = []; // {message, element}, with the `answer` of one that the model wrote
    this.panel = new Panel(server, () => this.describe());
    this.list = find(".messages");
    this.welcome = find(".welcome");
    this.composer = find(".composer");
    this.input = find("textarea");
    find(".panel").append(this.panel.form);
    find(".panel").open = window.matchMedia("(min-width: 60rem)").matches;
    this.composer.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    sendOnEnter(this.composer);
    find(".stop").addEventListener("click", () => this.stop());
    this.describe();
  }

  get panels() {
    return [this.panel];
  }

  // What the model does with a text, above the conversation and in the field.
  describe() {
    if (!this.input) return; // the panel's first choice
    const { id, zoo } = this.panel.model;
    const kind = zoo.chat !== false ? "chat" : zoo.task === "translate" ? "translation" : "continuation";
    word(this.root.querySelector(".about-kind"), "text", `${kind}_kind`, { model: id });
    this.root.querySelector(".which").textContent = id;
    const call = this.openCall();
    const key = call ? "tool" : { chat: "message", translation: "translate", continuation: "text" }[kind];
    for (const place of ["hint", "label"]) word(this.input, place, key, { name: call?.function.name });
  }

  // The first tool call of the last answer that has no result yet: the next text that is sent is its result.
  openCall() {
    const last = this.turns.findLastIndex(({ answer }) => answer);
    const given = this.turns.slice(last + 1).length;
    return this.turns[last]?.answer.calls[given];
  }

  send() {
    const content = this.input.value.trim();
    if (!content || this.running || !this.panel.valid()) return;
    const call = this.openCall();
    this.add(call ? { role: "tool", tool_call_id: call.id, content } : { role: "user", content }, call);
    this.input.value = "";
    if (this.openCall()) this.describe();
    else this.ask();
  }

  add(message, call) {
    const title = word(make("h3"), "text", call ? "tool" : "you", { name: call?.function.name });
    const element = make("article", { class: "question" }, title, make("p", {}, message.content));
    this.turns.push({ message, element });
    this.list.append(element);
  }

  async ask() {
    const { model } = this.panel;
    const answer = new Answer(model);
    const view = new AnswerView(answer, () => this.regenerate());
    view.element.prepend(make("h3", {}, model.id));
    const messages = this.conversation();
    this.turns.push({ answer, element: view.element, get message() { return answer.message; } });
    this.list.append(view.element);
    const spoken = new Spoken();
    const changed = inFrames(() => {
      const follows = window.innerHeight + window.scrollY > document.documentElement.scrollHeight - NEAR;
      view.update();
      if (follows) window.scrollTo(0, document.documentElement.scrollHeight);
      spoken.say(answer.content, answer.running);
    });
    this.running = new AbortController();
    this.show();
    window.scrollTo(0, document.documentElement.scrollHeight);
    const { signal } = this.running;
    await answer.read({ messages, settings: this.panel.values(), signal, changed });
    this.running = null;
    this.show();
    if (model.zoo.state !== "loaded") await this.server.refresh();
    if (answer.error && this.panel.isAskedWrongly(model)) this.regenerate();
  }

  // The conversation without the questions that got no answer.
  conversation() {
    const messages = [];
    for (const { message, answer } of this.turns) {
      if (!answer?.failed) messages.push(message);
      else while (messages.length && messages.pop().role !== "user"); // with its calls and their results
    }
    return this.panel.messages(messages);
  }

  stop() {
    this.running?.abort();
  }

  // Takes the last answer back, and asks again.
  regenerate() {
    if (this.running || !this.panel.valid()) return;
    this.turns.pop().element.remove();
    this.ask();
  }

  // Takes the last question with its answer back, into the field.
  edit() {
    if (this.running) return;
    const first = this.turns.findLastIndex(({ message }) => message.role === "user");
    const taken = this.turns.splice(first);
    for (const { element } of taken) element.remove();
    this.input.value = taken[0].message.content;
    this.show();
    this.input.focus();
  }

  clear() {
    this.stop();
    for (const { element } of this.turns.splice(0)) element.remove();
    this.show();
    this.input.focus();
  }

  // The buttons that can be used now.
  show() {
    showRunning(this.composer, Boolean(this.running));
    this.welcome.hidden = this.turns.length > 0;
    this.list.querySelector(".actions")?.remove();
    const last = this.turns.at(-1);
    if (last?.answer && !this.running) {
      const actions = [["edit", () => this.edit()], ["new_chat", () => this.clear()]];
      if (!last.answer.error) actions.unshift(["regenerate", () => this.regenerate()]);
      const buttons = actions.map(([key, act]) => button(key, act, { class: key }));
      last.element.append(make("p", { class: "actions" }, ...buttons));
    }
    this.describe();
  }
}

// Enter sends a form, but not while an input method composes a word; Shift+Enter is a new line.
export function sendOnEnter(form) {
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.target.tagName !== "TEXTAREA") return;
    event.preventDefault();
    form.requestSubmit();
  });
}

// Shows the button that stops in place of the one that sends, or the reverse; the focus goes with them.
export function showRunning(form, running) {
  const send = form.querySelector(".send"), stop = form.querySelector(".stop");
  const lost = [running ? send : stop, document.body].includes(document.activeElement);
  send.hidden = running;
  stop.hidden = !running;
  if (lost) (running ? stop : form.querySelector("textarea")).focus();
}

// Calls a function at most once a frame.
export function inFrames(update) {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      update();
    });
  };
}

// Gives an answer to screen readers sentence by sentence.
class Spoken {
  constructor() {
    this.log = document.getElementById("spoken");
    this.log.replaceChildren();
    this.said = 0;
  }

  say(text, running) {
    SENTENCE.lastIndex = this.said;
    while (SENTENCE.exec(text)) this.add(text, SENTENCE.lastIndex);
    if (!running) this.add(text, text.length);
  }

  add(text, end) {
    const sentence = text.slice(this.said, end).trim();
    this.said = end;
    if (sentence) this.log.append(make("p", {}, sentence));
  }
}
