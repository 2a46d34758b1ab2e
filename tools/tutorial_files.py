"""The files that a page about plugins tells its reader to write.

python tools/tutorial_files.py FOLDER [PAGE]        write them there; PAGE is tutorial, or extending
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))

from building.page_package import CODE  # noqa: E402

PAGES = DOCS / "plugins"


def files(page: str = "tutorial") -> dict[str, str]:
    """The text of each file by its name; one that the page tells in pieces is joined."""
    contents: dict[str, str] = {}
    for name, code in CODE.findall((PAGES / f"{page}.md").read_text(encoding="utf-8")):
        contents[name] = f"{contents[name]}\n\n{code}" if name in contents else code
    return contents


def write(folder: Path, page: str = "tutorial") -> None:
    """Write every file of a page under `folder`."""
    for name, text in files(page).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), *sys.argv[2:3])
