"use strict";

// The switch between light and dark; what was chosen is kept where the browser allows that.
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const wish = window.matchMedia("(prefers-color-scheme: dark)");
  const kept = (value) => {
    try {
      if (value) localStorage.setItem("zoo-theme", value);
      return localStorage.getItem("zoo-theme");
    } catch {
      return null;
    }
  };
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wish.matches);
  const show = () => {
    button.setAttribute("aria-pressed", String(dark()));
    button.textContent = dark() ? button.dataset.light || "Light" : button.dataset.dark || "Dark";
  };
  const before = kept();
  if (before === "dark" || before === "light") root.dataset.theme = before;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    kept(root.dataset.theme);
    show();
  });
  wish.addEventListener("change", show);
  show();
})();
