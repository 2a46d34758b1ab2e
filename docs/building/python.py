"""`{python}`: code that is run when the docs are built, with what it prints, and the role `{py}` for a value of it."""

from __future__ import annotations

import ast
import contextlib
import io
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxRole

from building.pieces import ZooDirective, boxed, literal, page_data


def namespace(env: Any) -> dict[str, Any]:
    """The names that the code of a page shares."""
    found: dict[str, Any] = page_data(env, "zoo-names", lambda: {"__name__": "page"})
    return found


def run(code: str, names: dict[str, Any]) -> str:
    """Run code as at a prompt: what it prints, and the value of its last line where that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<page>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<page>", "eval"), names)
            if value is not None:
                print(repr(value))
    return printed.getvalue()


class Python(ZooDirective):
    """Code, and what it prints."""

    has_content = True
    option_spec = {"hidden": directives.flag, "output-only": directives.flag}  # noqa: RUF012

    def made(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        output = run(code, namespace(self.env)).rstrip()
        if "hidden" in self.options:
            return []
        shown: list[nodes.Node] = [] if "output-only" in self.options else [literal(code, "python")]
        if output:
            shown.append(boxed(literal(output, "text"), classes=("zoo-output",)))
        return [boxed(*shown, classes=("zoo-python",))]


class Value(SphinxRole):
    """The value of an expression, as text."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        try:
            text = str(eval(self.text, namespace(self.env)))
        except Exception as error:
            problem = self.inliner.reporter.error(f"py: {self.text}: {error}", line=self.lineno)
            return [], [problem]
        return [nodes.Text(text)], []


def setup(app: Any) -> None:
    """Add the directive and the role."""
    app.add_directive("python", Python)
    app.add_role("py", Value())
