"""`{command}`: a command of the zoo with its options, as the program itself tells them."""

from __future__ import annotations

from docutils import nodes

from building.command_help import command_help, parts
from building.directive import ZooDirective, boxed, literal


class CommandDirective(ZooDirective):
    """`{command} NAME`: the usage, the text and the options of `zoo NAME`."""

    required_arguments = 1
    final_argument_whitespace = True

    def made(self) -> list[nodes.Node]:
        from zoo.cli.program import cli

        found = command_help(cli, self.arguments[0])
        shown: list[nodes.Node] = [literal(found.usage, "text"), *map(self.paragraph, found.text)]
        for title, rows in found.sections:
            shown += [nodes.rubric(title, title), self.listed(rows)]
        return [boxed(*shown, classes=("zoo-command",))]

    def paragraph(self, text: str) -> nodes.paragraph:
        """A paragraph of a help text. Sphinx makes dashes and quotes typographic, except those of code."""
        node = nodes.paragraph()
        for part, is_code in parts(text):
            node += nodes.literal(part, part) if is_code else nodes.Text(part)
        return node

    def listed(self, rows: list[tuple[str, str]]) -> nodes.definition_list:
        """Options and their meanings."""
        found = nodes.definition_list()
        for name, text in rows:
            item = nodes.definition_list_item()
            item += nodes.term("", "", nodes.literal(name, name))
            item += nodes.definition("", self.paragraph(text))
            found += item
        return found


def setup(app: object) -> None:
    """Add the directive."""
    app.add_directive("command", CommandDirective)  # type: ignore[attr-defined]
