"use strict";

// The table of architectures: sorted by the column whose head is pressed, down, then up, and with the columns that a
// reader chooses. The choice is kept in the address.
for (const frame of document.querySelectorAll(".zoo-matrix")) {
  const table = frame.querySelector("table");
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

  const chooser = frame.parentElement.querySelector(".zoo-columns");
  const boxes = [...chooser.querySelectorAll("input")];
  const first = boxes.filter((box) => box.checked).map((box) => box.name);
  const chosen = () => boxes.filter((box) => box.checked).map((box) => box.name);

  function show() {
    boxes.forEach((box, index) => {
      for (const row of table.rows) row.cells[index + 1].hidden = !box.checked; // the name comes before them
    });
    fit();
    chooser.querySelector("summary").textContent = chooser.dataset.said.replace("{shown}", chosen().length);
  }

  // A table that finds room stands in the page, whose own scrolling then moves its rows below its heads.
  function fit() {
    frame.classList.toggle("fits", table.offsetWidth <= frame.clientWidth);
  }

  function choose(names) {
    boxes.forEach((box) => (box.checked = names.includes(box.name)));
    show();
  }

  // The columns that the address names; those shown at first where it names none.
  function read() {
    const known = boxes.map((box) => box.name);
    const names = (/^#columns=(.*)$/.exec(location.hash)?.[1] ?? "").split(",").filter((name) => known.includes(name));
    choose(names.length ? names : first);
  }

  function write() {
    const names = chosen().join(",");
    const plain = location.pathname + location.search;
    history.replaceState(null, "", names === first.join(",") ? plain : `#columns=${names}`);
  }

  chooser.addEventListener("change", () => {
    show();
    write();
  });
  chooser.querySelector("button").addEventListener("click", () => {
    choose(first);
    write();
  });
  window.addEventListener("hashchange", read);
  window.addEventListener("resize", fit);
  chooser.hidden = false;
  frame.classList.add("chosen");
  read();
}
