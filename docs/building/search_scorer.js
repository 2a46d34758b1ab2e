// Ranks what the search finds: the pages that explain come before entries of the glossary, lists and references, and a page
// whose title has what is searched for before others.
const MORE = { "tour/": 2, "tour/formulas": -8, "tour/questions": -6, glossary: -95, changelog: -10, architecture: -6, "architectures/": -4, performance: -8, "reference/": -2, "plugins/": -6, "code/": -10 };
const NAMED = (title) => (title.startsWith(asked) ? 15 : title.includes(asked) ? 10 : 0);
const asked = (new URLSearchParams(location.search).get("q") || "").toLowerCase().trim();
var Scorer = {
  score: ([page, title, anchor, description, score]) =>
    Object.entries(MORE).reduce((sum, [start, more]) => sum + (page.startsWith(start) ? more : 0), score) +
    (asked && !anchor ? NAMED(title.toLowerCase()) : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
// The excerpt of a page is of its text: the strip of shapes on top of it, drawings and outputs are none.
document.addEventListener("DOMContentLoaded", () => {
  const toText = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    page.querySelectorAll(".zoo-shapes, .zoo-diagrams, .zoo-output, .zoo-console, article svg, annotation").forEach((part) => part.remove());
    return toText(page.documentElement.outerHTML, anchor);
  };
});
