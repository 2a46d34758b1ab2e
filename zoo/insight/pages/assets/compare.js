"use strict";

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const field = (id) => document.getElementById(id);
  const context = field("context");
  const slider = field("slider");
  const quantize = field("quantize");
  const policy = field("policy");

  // Numbers as zoo/facts/fact.py writes them: three digits and a unit.
  const three = (number) => (number >= 999.5 ? number.toFixed(0) : String(Number(number.toPrecision(3))));
  const amount = (number) => {
    for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
      if (number >= size * 0.9995) return `${three(number / size)} ${unit}`;
    }
    return `${Math.round(number)} `;
  };
  const grouped = (number) => number.toLocaleString("en-US");

  const cacheBytes = (model, tokens) => {
    const each = model.cache_bytes[policy.value];
    let bytes = 0;
    for (const kept of model.cache) {
      const held = kept.window === null ? tokens : Math.min(tokens, kept.window);
      bytes += Math.round(kept.numbers_per_token * held * each) + kept.state_numbers * data.state_bytes;
    }
    return bytes;
  };

  const packed = (rows, format) =>
    rows.reduce((sum, [inputs, numbers]) => {
      if (inputs % format.group) return sum + 2 * numbers;
      const scales = Math.floor(numbers / format.group) * format.scale_bytes;
      return sum + Math.floor((numbers * format.bits) / 8) + scales;
    }, 0);

  const weightBytes = (model) => {
    const format = data.formats[quantize.value];
    if (!format.group) return Math.floor((model.parameters * format.bits) / 8);
    if (model.weights === null) return null;
    const { rows, router_rows: routers, whole, bytes } = model.weights;
    if (bytes) return bytes[quantize.value]; // by a rule of the architecture's own
    return packed(rows, format) + packed(routers, data.router) + 2 * whole;
  };

  // A count that is linear between the points [tokens, FLOPs].
  const between = (points, tokens) => {
    let index = 1;
    while (index < points.length - 1 && tokens > points[index][0]) index += 1;
    const [[x0, y0], [x1, y1]] = [points[index - 1], points[index]];
    return y0 + ((y1 - y0) * (tokens - x0)) / (x1 - x0);
  };

  const prefillFlops = ({ prefill, head, sums }, tokens) => {
    if (!sums) return between(prefill, tokens) - (head * (tokens - 1)) / tokens;
    let total = 0;
    let first = 1;
    for (const last of [...prefill.map(([at]) => at).filter((at) => at < tokens), tokens]) {
      if (last < first) continue;
      total += ((last - first + 1) * (between(prefill, first) + between(prefill, last))) / 2;
      first = last + 1;
    }
    return (total - (tokens - 1) * head) / tokens;
  };

  const computed = {
    "cache.context": (model, tokens) => {
      const grows = model.cache.some((kept) => kept.numbers_per_token || kept.state_numbers);
      return grows ? `${amount(cacheBytes(model, tokens))}B` : "–";
    },
    "weights.chosen": (model) => {
      const bytes = weightBytes(model);
      return bytes === null ? "–" : `${amount(bytes)}B`;
    },
    "flops.decode": (model, tokens) =>
      model.flops.decode ? amount(between(model.flops.decode, tokens)).trimEnd() : "–",
    "flops.prefill": (model, tokens) =>
      model.flops.prefill ? amount(prefillFlops(model.flops, tokens)).trimEnd() : "–",
  };
  const labels = {
    "cache.context": (tokens) => `cache at ${grouped(tokens)} tokens`,
    "weights.chosen": () => `weights, ${quantize.selectedOptions[0].textContent}`,
    "flops.decode": (tokens) => `FLOPs a token, after ${grouped(tokens)}`,
    "flops.prefill": (tokens) => `FLOPs a token, reading ${grouped(tokens)}`,
  };

  const update = () => {
    const tokens = Math.floor(Number(context.value));
    if (!(tokens >= 1 && tokens <= 2 ** 31)) {
      field("status").textContent = "The context is a number of tokens, 1 or more.";
      return;
    }
    field("status").textContent = "";
    for (const [name, compute] of Object.entries(computed)) {
      const row = document.querySelector(`tr[data-fact="${name}"]`);
      if (!row) continue;
      const cells = [...row.querySelectorAll("td")];
      const texts = data.models.map((model) => compute(model, tokens));
      cells.forEach((cell, index) => {
        cell.textContent = texts[index];
      });
      const differs = new Set(texts).size > 1;
      row.classList.toggle("differs", differs);
      row.querySelector(".mark").textContent = differs ? "≠" : "";
      row.querySelector(".label").textContent = labels[name](tokens);
    }
  };

  const fromSlider = () => {
    context.value = String(2 ** Number(slider.value));
    update();
  };
  const fromNumber = () => {
    const tokens = Number(context.value);
    if (tokens >= 1) slider.value = String(Math.round(Math.log2(tokens)));
    update();
  };
  slider.addEventListener("input", fromSlider);
  context.addEventListener("input", fromNumber);
  quantize.addEventListener("change", update);
  policy.addEventListener("change", update);
  field("settings").addEventListener("submit", (event) => event.preventDefault());
  slider.value = String(Math.round(Math.log2(Number(context.value))));

  // A box marks the rows of its facts, and shows them at the edge of the window, since the table may be out of sight.
  const peek = field("peek");
  const rows = [...document.querySelectorAll("tr[data-fact]")];
  const mark = (box) => {
    const keys = box ? data.about[box.dataset.role] || [] : [];
    const path = box ? box.dataset.path : "";
    const stack = path.startsWith("encoder.") ? "encoder" : path.startsWith("decoder.") ? "decoder" : "";
    for (const row of rows) {
      const own = !stack || !row.dataset.stack || row.dataset.stack === stack;
      row.classList.toggle("about", own && keys.includes(row.dataset.key));
    }
    const table = document.createElement("table");
    table.append(...rows.filter((row) => row.classList.contains("about")).map((row) => row.cloneNode(true)));
    for (const row of table.querySelectorAll("tr")) row.classList.remove("about");
    peek.replaceChildren(table);
    peek.hidden = !table.rows.length;
  };
  for (const box of document.querySelectorAll(".zoo-diagram .block")) {
    if (!(data.about[box.dataset.role] || []).length) continue;
    box.setAttribute("tabindex", "0");
    box.addEventListener("mouseenter", () => mark(box));
    box.addEventListener("mouseleave", () => mark(null));
    box.addEventListener("focus", () => mark(box));
    box.addEventListener("blur", () => mark(null));
  }
})();
