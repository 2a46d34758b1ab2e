"""`{python}`: code that is run when the docs are built, with what it prints, and the role `{py}` for a value of it."""

from __future__ import annotations

import contextlib
import tempfile
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList

from building.directive import ZooDirective, ZooRole, boxed, literal, page_data
from building.page_code import run


def namespace(env: Any) -> dict[str, Any]:
    """The names that the code of a page shares."""
    found: dict[str, Any] = page_data(env, "zoo-names", lambda: {"__name__": "page"})
    return found


class Python(ZooDirective):
    """Code, and what it prints.

    `:folder:` runs it in a folder of the page, which is empty at first; `:markdown:` reads what it prints as a part of the page.
    """

    has_content = True
    option_spec = {  # noqa: RUF012
        "hidden": directives.flag,
        "output-only": directives.flag,
        "folder": directives.flag,
        "markdown": directives.flag,
    }

    def made(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        with contextlib.ExitStack() as stack:
            if "folder" in self.options:
                folder = page_data(self.env, "zoo-python-folder", tempfile.TemporaryDirectory)
                stack.enter_context(contextlib.chdir(folder.name))
            output = run(code, namespace(self.env)).rstrip()
        if "hidden" in self.options:
            return []
        if "markdown" in self.options:
            inside = nodes.container()
            lines = StringList(output.splitlines(), source=self.env.docname)
            self.state.nested_parse(lines, self.content_offset, inside)
            return inside.children
        shown: list[nodes.Node] = [] if "output-only" in self.options else [literal(code, "python")]
        if output:
            shown.append(boxed(literal(output, "text"), classes=("zoo-output",)))
        return [boxed(*shown, classes=("zoo-python",))]


class Value(ZooRole):
    """The value of an expression, as text."""

    def said(self) -> str:
        return str(eval(self.text, namespace(self.env)))


def setup(app: Any) -> None:
    """Add the directive and the role."""
    app.add_directive("python", Python)
    app.add_role("py", Value())
