"use strict";

// What is wider than its place scrolls: it can be reached with Tab then, and only then.
(() => {
  const wide = "pre, .table-wrapper, .zoo-drawing, .zoo-formula, .zoo-diagrams figure";
  const update = () => {
    for (const one of document.querySelectorAll(wide)) {
      if (one.scrollWidth > one.clientWidth) one.setAttribute("tabindex", "0");
      else one.removeAttribute("tabindex");
    }
  };
  document.addEventListener("DOMContentLoaded", update);
  window.addEventListener("resize", update);
})();

// What a reader may open is printed open.
(() => {
  const closed = [];
  window.addEventListener("beforeprint", () => {
    closed.push(...document.querySelectorAll("article details:not([open])"));
    closed.forEach((one) => (one.open = true));
  });
  window.addEventListener("afterprint", () => closed.splice(0).forEach((one) => (one.open = false)));
})();
