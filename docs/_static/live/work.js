// What each step of generation computes, with a KV cache and without.

const { el } = globalThis.zooTrace;
const LANGUAGE = document.documentElement.lang.startsWith("zh") ? "zh" : "en";
const AMOUNT = new Intl.NumberFormat(LANGUAGE, { notation: "compact", maximumSignificantDigits: 3 }); // 6.31M, 631万
const ROWS = 12; // of the strip; of a longer text these are the last

// `steps`: of each pass the positions that it computed and found in the cache, and its multiply-adds, both ways.
export function drawWork(holder, told, steps, cache, say) {
  const row = (step, number) => {
    const { positions, cached, work } = step[cache ? "with" : "without"], tells = say("strip_tells", { computed: positions, cached });
    const cells = Array.from({ length: positions + cached }, (_, at) => el("i", { class: at < cached ? "cached" : "" }));
    return el("tr", { "data-computed": positions, "data-cached": cached, "data-work": work },
      el("th", { scope: "row" }, number ? say("strip_step", { number }) : say("strip_prompt")),
      el("td", {}, el("div", { class: "cellsof", role: "img", "aria-label": tells, title: tells }, ...cells)),
      el("td", { class: "number" }, AMOUNT.format(work)));
  };
  const columns = ["first", "", "last"].map((kind) => el("col", { class: kind }));
  const heads = [el("td"), el("th", { scope: "col" }, say("column_positions")), el("th", { scope: "col", class: "number" }, say("column_work"))];
  const body = el("tbody", {}, ...steps.map(row).slice(-ROWS));
  holder.replaceChildren(el("table", {}, el("colgroup", {}, ...columns), el("thead", {}, el("tr", {}, ...heads)), body));
  const total = (way) => steps.reduce((sum, step) => sum + step[way].work, 0), gap = Math.max(...steps.map((step) => step.gap));
  const sums = { with: total("with"), without: total("without") };
  told.textContent = say("totals", { with: AMOUNT.format(sums.with), without: AMOUNT.format(sums.without), gap: gap ? gap.toExponential(0) : 0 });
  Object.assign(told.dataset, sums);
}
