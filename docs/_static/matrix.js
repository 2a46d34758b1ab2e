// Sorts the table of architectures by the column whose head is pressed: down, then up.
for (const table of document.querySelectorAll(".zoo-matrix table")) {
  const heads = [...table.querySelectorAll("thead th")];
  const body = table.tBodies[0];

  function compared(one, other, column) {
    const [a, b] = [one.cells[column], other.cells[column]];
    if (a.dataset.number !== undefined && b.dataset.number !== undefined) return a.dataset.number - b.dataset.number;
    return a.textContent.localeCompare(b.textContent, document.documentElement.lang);
  }

  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      body.append(...[...body.rows].sort((one, other) => sign * compared(one, other, column)));
    });
  });
}
