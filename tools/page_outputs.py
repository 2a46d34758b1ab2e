"""What the code and the commands of the pages print, written into the pages between their markers.

python tools/page_outputs.py [PAGE ...]        rewrite these pages, or all that have markers
python tools/page_outputs.py --check [PAGE ...]   fail where an output is another, and show it
"""

from __future__ import annotations

import difflib
import os
import sys
from functools import partial
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path.insert(0, str(DOCS))


def pages() -> list[Path]:
    """The pages that have markers."""
    return [path for path in sorted(DOCS.rglob("*.md")) if "\n<!-- run " in path.read_text(encoding="utf-8")]


def rewrite(path: Path, check: bool = False) -> str:
    """Rewrite a page where an output changed. Returns what to tell: the page, or why it stays."""
    from building.outputs import Page

    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    try:
        new = Page(text).rewritten()
    except Exception as error:
        return f"{name}: {type(error).__name__}: {error}"
    if new == text:
        return ""
    if check:
        return "\n".join(
            difflib.unified_diff(text.splitlines(), new.splitlines(), name, name, n=1, lineterm="")
        )
    path.write_text(new, encoding="utf-8")
    return f"{name}: rewritten"


if __name__ == "__main__":
    check = "--check" in sys.argv
    named = [Path(name).resolve() for name in sys.argv[1:] if name != "--check"] or pages()
    with get_context("spawn").Pool(min(len(named), os.cpu_count() or 1), maxtasksperchild=1) as pool:
        told = [
            line for line in pool.imap_unordered(partial(rewrite, check=check), named, chunksize=1) if line
        ]
    print("\n".join(told))
    sys.exit(any(not line.endswith(": rewritten") for line in told))
