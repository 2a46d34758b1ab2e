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
