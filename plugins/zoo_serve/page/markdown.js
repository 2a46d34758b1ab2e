// A little Markdown as elements: code blocks, headings, lists, inline code, bold, italics. Everything else is the text as it is.

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
    const kind = fence ? "code" : HEADING.test(line) ? "heading" : ITEM.test(line) ? "list" : line.trim() ? "text" : null;
    const indented = open?.kind === "list" && kind === "text" && /^\s/.test(line);
    if (kind && (indented || (open?.kind === kind && kind !== "heading" && !fence))) open.lines.push(line);
    else if (kind) blocks.push((open = fence ? { kind, fence: fence[1], language: fence[2], lines: [] } : { kind, lines: [line] }));
    else open = null;
  }
  for (const block of blocks) block.source = `${block.kind} ${block.language ?? ""}\n${block.lines.join("\n")}`;
  return blocks;
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

function inline(text) {
  return text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*|\*[^*\s][^*\n]*\*)/).filter(Boolean).map((part) => {
    if (part.length > 2 && part.startsWith("`") && part.endsWith("`")) return make("code", {}, part.slice(1, -1));
    if (part.length > 4 && part.startsWith("**") && part.endsWith("**")) return make("strong", {}, part.slice(2, -2));
    if (part.length > 2 && part.startsWith("*") && part.endsWith("*")) return make("em", {}, part.slice(1, -1));
    return part;
  });
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
