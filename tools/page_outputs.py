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


def rewrite(path: Path, check: bool = False) -> str:
    """Rewrite a page, and the files of its pictures, where an output changed. Returns what to tell: nothing if none did."""
    from building.outputs import Page, place_of
    from building.picture import FOLDER, same_picture

    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    place = place_of(path)
    try:
        new = Page(text, place).rewritten()
    except Exception as error:
        return f"{name}: {type(error).__name__}: {error}"
    folder = (DOCS / "zh" if place.language == "zh" else DOCS) / FOLDER
    told = []
    for stem, svg in place.pictures.items():
        file = folder / f"{stem}.svg"
        if not file.is_file() or not same_picture(file.read_text(encoding="utf-8"), svg):
            told.append(f"{file.relative_to(ROOT)}: {'another picture is drawn' if check else 'rewritten'}")
            if not check:
                folder.mkdir(parents=True, exist_ok=True)
                file.write_text(svg, encoding="utf-8")
    if new != text and check:
        told += difflib.unified_diff(text.splitlines(), new.splitlines(), name, name, n=1, lineterm="")
    elif new != text:
        path.write_text(new, encoding="utf-8")
        told.append(f"{name}: rewritten")
    return "\n".join(told)


if __name__ == "__main__":
    from building.outputs import pages

    check = "--check" in sys.argv
    named = [Path(name).resolve() for name in sys.argv[1:] if name != "--check"] or pages()
    with get_context("spawn").Pool(min(len(named), os.cpu_count() or 1), maxtasksperchild=1) as pool:
        told = [
            line for line in pool.imap_unordered(partial(rewrite, check=check), named, chunksize=1) if line
        ]
    print("\n".join(told))
    sys.exit(any(not line.endswith(": rewritten") for line in "\n".join(told).splitlines()))
