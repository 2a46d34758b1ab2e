"""The files that the plugin tutorial tells its reader to write.

python tools/tutorial_files.py FOLDER        write them there
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "plugins" / "tutorial.md"
CODE = re.compile(r"```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)```", re.DOTALL)


def files() -> dict[str, str]:
    """The text of each file by its name; one that the page tells in pieces is joined."""
    found: dict[str, str] = {}
    for name, code in CODE.findall(PAGE.read_text(encoding="utf-8")):
        found[name] = f"{found[name]}\n\n{code}" if name in found else code
    return found


def write(folder: Path) -> None:
    """Write every file under `folder`."""
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
