// An answer on the page: thinking, text, tool calls, and a line of what it cost.

import { codeBlock, render } from "./markdown.js";
import { button, make, number, word } from "./words.js";

const THOUSAND = 1000;

// What is known of an answer when it has ended: its tokens, its speed, how it ended.
export function facts(answer) {
  const { usage, rate, firstAfter, finish, stopped, running } = answer;
  const fact = (key, values) => word(make("span"), "text", key, values);
  if (running) return answer.begun ? [] : [fact("waiting")];
  const seconds = firstAfter === undefined ? undefined : number(firstAfter / THOUSAND);
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  const known = [
    usage && fact("tokens", { tokens: usage.completion_tokens }),
    rate && fact("rate", { rate: number(rate, rate < 10 ? 1 : 0) }),
    seconds && fact("first", { seconds }),
    usage && fact("prompt_tokens", { tokens: usage.prompt_tokens, cached }),
    finish === "length" && fact("length"),
    stopped && fact("stopped"),
  ].filter(Boolean);
  return known.flatMap((one, index) => (index ? [" · ", one] : [one]));
}

// The error of an answer as an alert, with a button that asks again.
export function failure({ message, retryAfter }, again) {
  const text = make("span");
  if (retryAfter === null) text.textContent = message;
  else word(text, "text", "busy", { message, seconds: retryAfter });
  return make("p", { class: "notice", role: "alert" }, text, button("retry", again, { class: "retry" }));
}

// The place of an answer: `update` shows what it has now.
export class AnswerView {
  constructor(answer, again) {
    Object.assign(this, { answer, again });
    this.thought = make("div", { class: "thought" });
    this.thinking = make("details", { class: "thinking" }, word(make("summary"), "text", "thinking"), this.thought);
    this.text = make("div", { class: "text" });
    this.calls = make("div", { class: "calls" });
    this.facts = make("p", { class: "facts quiet" });
    this.element = make("article", { class: "answer" }, this.thinking, this.text, this.calls, this.facts);
    this.update();
  }

  update() {
    const { answer } = this;
    this.element.setAttribute("aria-busy", String(answer.running));
    this.thinking.hidden = !answer.thinking;
    this.thought.textContent = answer.thinking;
    render(this.text, answer.content);
    this.calls.replaceChildren(...answer.calls.filter(Boolean).map(callBlock));
    this.facts.replaceChildren(...facts(answer));
    if (answer.error) this.facts.replaceWith(failure(answer.error, this.again));
  }
}

function callBlock({ function: { name, arguments: text } }) {
  const title = make("p", { class: "quiet" }, word(make("span"), "text", "calls"), " ", make("code", {}, name));
  return make("div", { class: "call" }, title, codeBlock(text));
}
