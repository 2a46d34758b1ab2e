"use strict";

// Diagrams side by side in a narrow window: one model fills it, a swipe leads to the next. All have one scale, so that the
// same block stands at the same height, and the table of facts follows.
zooCompare.Swipe = class {
  constructor(app, frame) {
    const { element } = zooCompare;
    Object.assign(this, { app, frame, at: 0 });
    const names = app.chosen.map((card) => card.name);
    this.buttons = names.map((name, index) => element("button", { type: "button", onclick: () => this.show(index) }, name));
    this.element = element("div", { class: "steps", role: "group", "aria-label": zooCompare.say("swipe") }, this.buttons);
    frame.addEventListener("scroll", () => this.follow(), { passive: true });
    this.press();
  }

  figures() {
    return [...this.frame.children];
  }

  // Whether the window is narrow: the width of one diagram for each model.
  set(narrow) {
    const { frame } = this;
    this.element.hidden = !narrow;
    frame.classList.toggle("swipe", narrow);
    for (const [name, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", zooCompare.say("diagrams")]]) {
      if (narrow) frame.setAttribute(name, value);
      else frame.removeAttribute(name);
    }
    if (!narrow) return;
    const widths = this.figures().map((figure) => Number(figure.style.getPropertyValue("--width")));
    const beside = 36; // pixels of the next diagram that are seen
    frame.style.setProperty("--scale", Math.max(0.8, Math.min(1.15, (frame.clientWidth - beside) / Math.min(...widths))));
  }

  left(index) {
    const [first, figure] = [this.figures()[0], this.figures()[index]];
    return figure.offsetLeft - first.offsetLeft;
  }

  show(index) {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.frame.scrollTo({ left: this.left(index), behavior: still ? "auto" : "smooth" });
  }

  // Where the diagrams were swiped to.
  follow() {
    const { frame } = this;
    const end = frame.scrollLeft >= frame.scrollWidth - frame.clientWidth - 2;
    const away = this.figures().map((_, index) => Math.abs(this.left(index) - frame.scrollLeft));
    const at = end ? away.length - 1 : away.indexOf(Math.min(...away));
    if (at === this.at) return;
    this.at = at;
    this.press();
    const [first, cell] = [0, at].map((index) => this.app.table.querySelectorAll("thead th")[index]);
    this.app.table.scrollLeft = cell.offsetLeft - first.offsetLeft;
  }

  press() {
    this.buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(index === this.at)));
  }
};
