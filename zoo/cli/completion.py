"""Shell completion of SOURCE, and of words with a colon in bash."""

from __future__ import annotations

import os

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string


def complete_source(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The architectures whose names begin with the word, their presets after a colon, or else files and folders."""
    from zoo.host.registry import default_registry

    architectures = default_registry().architectures
    name, colon, _ = incomplete.rpartition(":")
    if colon and name in architectures:
        presets = architectures[name].presets
        found = [CompletionItem(f"{name}:{preset.name}", help=preset.summary) for preset in presets]
    else:
        found = [CompletionItem(name, help=made.summary) for name, made in architectures.items()]
    return [item for item in found if item.value.startswith(incomplete)] or [
        CompletionItem(incomplete, type="file")
    ]


class Bash(BashComplete):
    """Bash's completion of words with a colon, which bash itself splits into three: `llama`, `:` and `pocket`."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one under the cursor, and that one, joined again at its colons."""
        words = split_arg_string(os.environ["COMP_WORDS"])
        number = int(os.environ["COMP_CWORD"])
        whole: list[str] = []
        for word in [*words, ""][: number + 1]:
            if whole and ":" in (word, whole[-1][-1:]):
                whole[-1] += word
            else:
                whole.append(word)
        self.split = whole[-1].rpartition(":")[1] in words
        return whole[1:-1], whole[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """One answer to bash, which replaces only the part after the colon."""
        value = item.value.rpartition(":")[2] if self.split else item.value
        return f"{item.type},{value}"


def register_bash() -> None:
    """Use `Bash` for completion in bash."""
    add_completion_class(Bash, "bash")
