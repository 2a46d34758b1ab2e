// The texts of the page in English or Chinese, and elements that hold them.

const HTML_LANGUAGE = { en: "en", zh: "zh-CN" };
const PLACES = {
  text: (element, text) => (element.textContent = text),
  label: (element, text) => element.setAttribute("aria-label", text),
  hint: (element, text) => element.setAttribute("placeholder", text),
};
const TEXTS = await (await fetch("texts.json")).json();
let language = keep("localStorage", "zoo-language");
if (!(language in TEXTS)) {
  const wished = navigator.languages.map((tag) => tag.split("-")[0]);
  language = wished.find((tag) => tag in TEXTS) ?? "en";
}

// Reads a value of "localStorage" or "sessionStorage", after setting it if one is given; null where it is forbidden.
export function keep(storage, name, value) {
  try {
    if (value !== undefined) window[storage].setItem(name, value);
    return window[storage].getItem(name);
  } catch {
    return value ?? null;
  }
}

export function say(key, values = {}) {
  const text = TEXTS[language][key];
  if (text === undefined) throw new Error(`no text ${key}`);
  const written = (value) => (typeof value === "number" ? number(value) : value);
  return text.replace(/\{(\w+)\}/g, (_, name) => written(values[name]));
}

export function number(value, digits = 2) {
  return value.toLocaleString(HTML_LANGUAGE[language], { maximumFractionDigits: digits });
}

export function percent(share) {
  const digits = share < 0.1 ? 1 : 0;
  return share.toLocaleString(HTML_LANGUAGE[language], { style: "percent", maximumFractionDigits: digits });
}

// Gives an element a text, an aria-label or a placeholder ("text", "label", "hint") that follows the language.
export function word(element, place, key, values = {}) {
  element.dataset[place] = key;
  element.dataset.values = JSON.stringify(values);
  PLACES[place](element, say(key, values));
  return element;
}

// Makes an element with attributes, listeners (onclick) and children; a string is a text node.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export function button(key, onclick, attributes = {}) {
  return word(make("button", { type: "button", onclick, ...attributes }), "text", key);
}

function translate() {
  document.documentElement.lang = HTML_LANGUAGE[language];
  for (const [place, fill] of Object.entries(PLACES))
    for (const element of document.querySelectorAll(`[data-${place}]`))
      fill(element, say(element.dataset[place], JSON.parse(element.dataset.values ?? "{}")));
  const other = document.getElementById("language"), theme = document.getElementById("theme");
  other.lang = HTML_LANGUAGE[language === "en" ? "zh" : "en"];
  other.textContent = say("other_language");
  theme.dataset.light = say("light");
  theme.dataset.dark = say("dark");
  theme.textContent = say(theme.getAttribute("aria-pressed") === "true" ? "light" : "dark");
}

document.getElementById("language").addEventListener("click", () => {
  language = keep("localStorage", "zoo-language", language === "en" ? "zh" : "en");
  translate();
});
translate();
