// Ranks what the search finds: the pages that explain come before entries of the glossary, lists and references.
const MORE = { "tour/": 2, glossary: -95, changelog: -10, "reference/": -6, "plugins/reference": -6, "plugins/hooks": -6, "plugins/parts": -6, "plugins/catalogue": -6, "architectures/": -4, "code/": -10 };
var Scorer = {
  score: ([page, title, anchor, description, score]) =>
    Object.entries(MORE).reduce((sum, [start, more]) => sum + (page.startsWith(start) ? more : 0), score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
// The excerpt of a page begins with its text, not with the strip of shapes on top of it.
document.addEventListener("DOMContentLoaded", () => {
  const toText = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    page.querySelectorAll(".zoo-shapes, .zoo-diagrams").forEach((part) => part.remove());
    return toText(page.documentElement.outerHTML, anchor);
  };
});
