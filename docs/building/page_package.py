"""The package that a page tells its reader to write, installed for the commands on that page."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

CODE = re.compile(r"^`(\w[\w./-]*)`:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)


def files_of(page: str) -> str:
    """The part of a page that shows files: the same in each language where the code is."""
    return "\n".join(shown[0] for shown in CODE.finditer(page))


def installed(page: str, folder: Path) -> str:
    """Write the files that a page, or a part of it, shows under `folder`, and what pip would write.

    Returns the PYTHONPATH to find both.
    """
    written: dict[str, str] = {}
    for name, code in CODE.findall(page):
        written[name] = f"{written[name]}\n\n{code}" if name in written else code
    paths = []
    for name, text in written.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.name == "pyproject.toml":
            paths += [str(path.parent), str(_described(path))]
    return os.pathsep.join(paths)


def _described(project: Path) -> Path:
    """The folder in which Python reads what a project is called and what its entry points are."""
    about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    version = about.get("version", "0")
    site = project.parent / ".site"
    info = site / f"{about['name'].replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {version}\n", encoding="utf-8"
    )
    groups = about.get("entry-points", {})
    lines = [
        f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in named.items()) for group, named in groups.items()
    ]
    info.joinpath("entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return site
