"""A command of the zoo with its options, as the program itself tells them, for the site."""

from __future__ import annotations

from docutils import nodes

from building.command_help import command_help, parts
from building.directive import boxed, literal
from building.translated import help_in


def command(name: str, language: str) -> nodes.container:
    """The usage, the text and the options of `zoo NAME`."""
    from zoo.cli.program import cli

    found = help_in(language, command_help(cli, name))
    shown: list[nodes.Node] = [literal(found.usage, "text"), *map(paragraph, found.text)]
    for title, rows in found.sections:
        shown += [nodes.rubric(title, title), listed(rows)]
    return boxed(*shown, classes=("zoo-command",))


def paragraph(text: str) -> nodes.paragraph:
    """A paragraph of a help text. Sphinx makes dashes and quotes typographic, except those of code."""
    node = nodes.paragraph()
    for part, is_code in parts(text):
        node += nodes.literal(part, part) if is_code else nodes.Text(part)
    return node


def listed(rows: list[tuple[str, str]]) -> nodes.definition_list:
    """Options and their meanings."""
    found = nodes.definition_list()
    for name, text in rows:
        item = nodes.definition_list_item()
        item += nodes.term("", "", nodes.literal(name, name))
        item += nodes.definition("", paragraph(text))
        found += item
    return found
