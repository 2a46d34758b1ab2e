// What each step of generation computes, with a KV cache and without.

const { el, count } = globalThis.zooTrace;

const LANGUAGE = document.documentElement.lang.startsWith("zh") ? "zh" : "en";
const amount = (n) => new Intl.NumberFormat(LANGUAGE, { notation: "compact", maximumSignificantDigits: 3 }).format(n); // 6.31M, 631万
const ROWS = 12; // of the strip; of a longer text these are the last

// `steps`: of each pass the positions that it computed and found in the cache, and its multiply-adds, both ways.
export function drawWork(holder, told, steps, cache, say) {
  const way = cache ? "with" : "without";
  const row = (step, number) => {
    const { positions, cached, work } = step[way], tells = say("strip_tells", { computed: positions, cached });
    const cells = Array.from({ length: positions + cached }, (_, at) => el("i", { class: at < cached ? "cached" : "" }));
    return el("tr", { "data-computed": positions, "data-cached": cached, "data-work": work },
      el("th", { scope: "row" }, number ? say("strip_step", { number }) : say("strip_prompt")),
      el("td", {}, el("div", { class: "cellsof", role: "img", "aria-label": tells, title: tells }, ...cells)), el("td", { class: "number" }, amount(work)));
  };
  const names = ["", say("column_positions"), say("column_work")];
  holder.replaceChildren(el("table", {}, el("colgroup", {}, ...["first", "", "last"].map((name) => el("col", { class: name }))),
    el("thead", {}, el("tr", {}, ...names.map((name, at) => el(name ? "th" : "td", name ? { scope: "col", class: at === 2 ? "number" : "" } : {}, name)))),
    el("tbody", {}, ...steps.map(row).slice(-ROWS))));
  const total = (name) => steps.reduce((sum, step) => sum + step[name].work, 0);
  const gap = Math.max(...steps.map((step) => step.gap));
  told.textContent = say("totals", { with: amount(total("with")), without: amount(total("without")), gap: gap ? gap.toExponential(0) : count(0) });
  Object.assign(told.dataset, { with: total("with"), without: total("without") });
}
