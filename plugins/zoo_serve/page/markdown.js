// A little Markdown as elements: code blocks, headings, lists, inline code, bold, italics. The rest is text.

import { button, make, word } from "./words.js";

const ITEM = /^\s*(?:[-*+]|(\d+)[.)])\s+(.*)$/;
const HEADING = /^#{1,6}\s+(.*)$/;
const FENCE = /^\s*(```+|~~~+)\s*([\w+#.-]*).*$/;

// Shows a text in an element. Blocks whose text is as before stay, so that a selection in them outlives the stream.
export function render(element, text) {
  const blocks = split(text);
  blocks.forEach((block, index) => {
    const shown = element.children[index];
    if (shown?.source === block.source) return;
    const fresh = DRAWN[block.kind](block);
    fresh.source = block.source;
    if (shown) shown.replaceWith(fresh);
    else element.append(fresh);
  });
  while (element.children.length > blocks.length) element.lastChild.remove();
}

// The blocks of a text; a code block that is still open ends with the text.
function split(text) {
  const blocks = [];
  let open = null;
  for (const line of text.split("\n")) {
    const fence = FENCE.exec(line);
    if (open?.fence) {
      if (fence && fence[1].startsWith(open.fence) && !fence[2]) open = null;
      else open.lines.push(line);
      continue;
    }
    const kind = fence ? "code" : kindOf(line);
    const indented = open?.kind === "list" && kind === "text" && /^\s/.test(line);
    if (indented || (open?.kind === kind && (kind === "list" || kind === "text"))) {
      open.lines.push(line);
      continue;
    }
    open = kind && (fence ? { kind, fence: fence[1], language: fence[2], lines: [] } : { kind, lines: [line] });
    if (open) blocks.push(open);
  }
  for (const block of blocks) block.source = `${block.kind} ${block.language ?? ""}\n${block.lines.join("\n")}`;
  return blocks;
}

function kindOf(line) {
  if (HEADING.test(line)) return "heading";
  if (ITEM.test(line)) return "list";
  return line.trim() ? "text" : null;
}

const DRAWN = {
  code: ({ lines, language }) => codeBlock(lines.join("\n"), language),
  heading: ({ lines }) => make("h4", {}, ...inline(HEADING.exec(lines[0])[1])),
  text: ({ lines }) => make("p", {}, ...inline(lines.join("\n"))),
  list: ({ lines }) => {
    const items = [];
    for (const line of lines) {
      const item = ITEM.exec(line);
      if (item) items.push({ number: item[1], text: item[2] });
      else items.at(-1).text += `\n${line.trim()}`;
    }
    const { number } = items[0];
    const list = number ? make("ol", { start: number }) : make("ul");
    list.append(...items.map(({ text }) => make("li", {}, ...inline(text))));
    return list;
  },
};

// Inline code, bold and italics among other text, which holds no line of them.
function inline(text) {
  const marked = [...text.matchAll(/`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*/g)];
  let at = 0;
  const parts = marked.flatMap(({ 0: whole, 1: code, 2: strong, 3: em, index }) => {
    const before = text.slice(at, index);
    at = index + whole.length;
    const [tag, inner] = Object.entries({ code, strong, em }).find(([, inner]) => inner);
    return [before, make(tag, {}, inner)];
  });
  return [...parts, text.slice(at)];
}

// A code block that can be scrolled by the keyboard, with a button that copies it where the browser allows that.
export function codeBlock(text, language = "") {
  const copy = button("copy", async () => {
    await navigator.clipboard.writeText(text);
    word(copy, "text", "copied");
    setTimeout(() => word(copy, "text", "copy"), 2000);
  });
  const top = make("div", { class: "code-top" }, make("span", {}, language), navigator.clipboard ? copy : "");
  return make("div", { class: "code" }, top, make("pre", { tabindex: 0 }, make("code", {}, text)));
}
