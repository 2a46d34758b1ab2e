"""The README's table of architectures, from the registry.

python tools/readme_table.py        rewrite it in README.md
"""

from __future__ import annotations

import re
from pathlib import Path

from zoo.host.registry import default_registry

README = Path(__file__).parent.parent / "README.md"
SECTION = re.compile(r"(<!-- architectures -->\n).*?(<!-- end -->)", re.DOTALL)


def table() -> str:
    """A Markdown row for each of our own architectures."""
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


def rewritten(readme: str) -> str:
    """The README's text with its table made anew."""
    return SECTION.sub(lambda match: match[1] + table() + match[2], readme)


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8")
