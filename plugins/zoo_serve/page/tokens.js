// The tokens of an answer, each with its alternatives: a list that the arrow keys move in, and a panel of bars.

import { make, percent, word } from "./words.js";

// A token where it stands alone: spaces and line breaks can be seen; part of a character is shown as its bytes.
export function visible({ token, bytes }) {
  if (bytes && token.includes("\ufffd")) return bytes.map((byte) => `<${byte.toString(16).padStart(2, "0")}>`).join("");
  return token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}

// Whether two are one token: parts of characters have the same text.
export function isSame(one, other) {
  return one.token === other.token && String(one.bytes) === String(other.bytes);
}

export class TokenList {
  // `selected` is called with the index of a token that was selected.
  constructor(label, selected) {
    Object.assign(this, { selected, tokens: [], indices: new Map(), index: -1, decoder: new TextDecoder() });
    const role = { role: "listbox", "aria-label": label, "aria-orientation": "horizontal" };
    this.element = make("div", { class: "tokens", hidden: true, ...role });
    this.panel = make("section", { class: "alternatives", hidden: true });
    this.element.addEventListener("focusin", ({ target }) => this.choose(target));
    this.element.addEventListener("keydown", (event) => this.move(event));
    this.element.addEventListener("pointermove", ({ target }) => this.show(target));
    this.element.addEventListener("pointerleave", () => this.show());
  }

  // The text of all tokens, and where each begins in it. A character of several tokens belongs to the last of them.
  get text() {
    return this.tokens.map(({ text }) => text).join("");
  }

  get starts() {
    let at = 0;
    return this.tokens.map(({ text }) => (at += text.length) - text.length);
  }

  // Adds the tokens that came since.
  update(tokens) {
    this.element.hidden = !tokens.length;
    for (const token of tokens.slice(this.tokens.length)) {
      const text = token.bytes ? this.decoder.decode(new Uint8Array(token.bytes), { stream: true }) : token.token;
      const share = Math.exp(token.logprob);
      const attributes = { role: "option", "aria-selected": "false", tabindex: this.tokens.length ? -1 : 0 };
      const element = make("span", attributes, text || "·");
      word(element, "label", "token", { token: visible(token), share: percent(share) });
      element.style.setProperty("--unlikely", `${Math.round((1 - share) * 100)}%`);
      element.classList.toggle("thinking", token.thinking);
      this.indices.set(element, this.tokens.length);
      this.tokens.push({ ...token, text, element });
      this.element.append(element);
    }
  }

  choose(target) {
    const index = this.indices.get(target);
    if (index === undefined || index === this.index) return;
    this.select(index);
    this.selected(index);
  }

  // Selects a token and shows its alternatives; the focus stays where it is.
  select(index) {
    this.element.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
    this.element.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
    this.index = index;
    this.tokens[index].element.setAttribute("aria-selected", "true");
    this.tokens[index].element.tabIndex = 0;
    this.show();
  }

  move(event) {
    const at = this.indices.get(event.target);
    const last = this.tokens.length - 1;
    const target = {
      ArrowLeft: () => at - 1,
      ArrowRight: () => at + 1,
      ArrowUp: () => this.inLine(at, -1),
      ArrowDown: () => this.inLine(at, 1),
      Home: () => 0,
      End: () => last,
    }[event.key];
    if (!target || at === undefined) return;
    event.preventDefault();
    this.tokens[Math.min(Math.max(target(), 0), last)].element.focus();
  }

  // The token in the next line, or the one before, that is nearest to one.
  inLine(at, way) {
    const place = (index) => this.tokens[index].element.getBoundingClientRect();
    const { left, top, height } = place(at);
    let best = at;
    for (let index = at + way, line = null; index >= 0 && index < this.tokens.length; index += way) {
      const here = place(index);
      if (Math.abs(here.top - top) < height / 2) continue;
      line ??= here.top;
      if (Math.abs(here.top - line) >= height / 2) break;
      if (best === at || Math.abs(here.left - left) < Math.abs(place(best).left - left)) best = index;
    }
    return best;
  }

  // Shows the alternatives of the token of an element as bars, or else those of the selected token.
  show(element) {
    const index = this.indices.get(element) ?? this.index;
    if (index < 0 || index === this.shown) return;
    this.shown = index;
    this.panel.hidden = false;
    const chosen = this.tokens[index], top = chosen.top_logprobs;
    const all = top.some((one) => isSame(one, chosen)) ? top : [...top, chosen];
    const rows = all.toSorted((one, other) => other.logprob - one.logprob).map((one) => {
      const share = Math.exp(one.logprob);
      const bar = make("span", { class: "bar" });
      bar.style.setProperty("--share", `${share * 100}%`);
      const name = make("code", {}, visible(one));
      const mark = isSame(one, chosen) ? [" ", word(make("span", { class: "mark" }), "text", "chosen")] : [];
      const told = make("span", { class: "share" }, percent(share));
      return make("li", {}, make("span", { class: "name" }, name, ...mark), bar, told);
    });
    const title = word(make("h4"), "text", "alternatives", { token: visible(chosen) });
    this.panel.replaceChildren(title, make("ol", {}, ...rows));
  }
}
