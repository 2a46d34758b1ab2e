"""`{console}`: commands that are run when the docs are built, with what they print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives

from building.directive import ZooDirective, boxed, literal, page_data
from building.page_package import files_of
from building.shell import Shell


class Console(ZooDirective):
    """Lines that begin with `$ `, run one after the other.

    `:package:` on the first of a page installs the package that the page tells its reader to write.
    """

    has_content = True
    option_spec = {  # noqa: RUF012
        "lines": directives.positive_int,
        "stderr": directives.flag,
        "exit": directives.nonnegative_int,
        "package": directives.flag,
    }

    def made(self) -> list[nodes.Node]:
        shell = page_data(self.env, "zoo-shell", Shell)
        if "package" in self.options:
            shell.page = files_of(Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf-8"))
        wanted = self.options.get("exit", 0)
        shown = []
        for line in self.content:
            if not line.startswith("$ "):
                raise ValueError(f"a line must begin with '$ ': {line!r}")
            found = shell.run(line[2:], wanted)
            shown.append(line)
            both = found["err"] if "stderr" in self.options or wanted else ""
            output = (found["out"].rstrip() + "\n" + both.rstrip()).strip("\n")
            lines = [text.rstrip() for text in output.splitlines()]
            limit = self.options.get("lines", len(lines))
            shown += [*lines[:limit], "…"] if len(lines) > limit else lines
        return [boxed(literal("\n".join(shown), "console"), classes=("zoo-console",))]


def setup(app: Any) -> None:
    """Add the directive."""
    app.add_directive("console", Console)
