"""What the README and the page of architectures say from records and the registry.

python tools/readme.py        rewrite the marked sections
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zoo.cli.list import published_presets
from zoo.describe import describe
from zoo.describe.facts.fact import text_of
from zoo.host.registry import default_registry
from zoo.loading import memory_needed

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "docs" / "records"


def architectures() -> str:
    """A Markdown row for each architecture that this package brings."""
    rows = [
        "| Architecture | Task | Variant of | Embedded | What it is |",
        "|---|---|---|---|---|",
    ]
    for name, architecture in default_registry().architectures.items():
        if not default_registry().plugin_of(architecture).first_party:
            continue
        embedded = any(preset.embedded for preset in architecture.presets)
        base = f"`{architecture.base}`" if architecture.base else ""
        mark = "yes" if embedded else ""
        rows.append(f"| `{name}` | {architecture.task} | {base} | {mark} | {architecture.summary} |")
    return "\n".join(rows) + "\n"


def models() -> str:
    """A Markdown row for each published model whose download the zoo knows, the smallest first."""
    rows = ["| Name | What it does | Parameters | Download | Memory |", "|---|---|---|---|---|"]
    presets = [row for row in published_presets(default_registry()) if row["download_bytes"]]
    for row in sorted(presets, key=lambda row: row["parameters"]):
        recipe = describe(f"{row['architecture']}:{row['preset']}", default_registry()).recipe
        sizes = [
            text_of(row["parameters"], "parameters"),
            text_of(row["download_bytes"], "bytes"),
            text_of(memory_needed(recipe, width=2), "bytes"),
        ]
        rows.append(f"| `{row['name']}` | {row['summary']} | {' | '.join(sizes)} |")
    return "\n".join(rows) + "\n"


def measured() -> str:
    """What the records say of the speed beside mlx-lm, each figure as a multiple of mlx-lm's."""
    bench = _read("benchmarks/llama-1b-cuda.json")
    zoo, other = bench["engines"]["zoo"], bench["engines"]["mlx-lm"]
    prefill, decode, rows = (
        f"{zoo[key] / other[key]:.1f}" for key in ("prefill_rate", "decode_rate", "batch_rate")
    )
    served = _read("serving/throughput.json")
    ratio = served["speed"]["throughput"]["zoo serve / mlx_lm.server"]["median"]
    gpu = bench["versions"]["machine"].rpartition(", ")[2]
    return (
        f"**It runs models fast.** On one {gpu}, {bench['source'].partition(' on ')[0].rstrip(',')}: {prefill} times\n"
        f"mlx-lm's speed for the prompt, {decode} for each token, {rows} for {bench['rows']} texts at once. `zoo serve` writes {ratio:.1f}\n"
        f"times the tokens of `mlx_lm.server` on a CPU. Nothing has been measured on Metal yet; `zoo bench --suite` measures\n"
        f"your Mac. [How it was measured](docs/performance.md).\n"
    )


def _read(name: str) -> Any:
    return json.loads((RECORDS / name).read_text(encoding="utf-8"))


SECTIONS: dict[str, Callable[[], str]] = {
    "architectures": architectures,
    "models": models,
    "measured": measured,
}
PAGES = (ROOT / "README.md", ROOT / "docs" / "reference" / "architectures.md")
SECTION = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewrite(text: str) -> str:
    """A page's text with its marked sections made anew."""
    return SECTION.sub(lambda match: match[1] + SECTIONS[match[2]]() + match[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rewrite(page.read_text(encoding="utf-8")), encoding="utf-8")
