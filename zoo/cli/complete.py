"""What a shell completes where a command takes SOURCE, and how bash is told."""

from __future__ import annotations

import os

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string


def sources(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The architectures that begin like this, after a colon their presets, else files and folders."""
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
    """Bash's completion of words with a colon, which bash itself takes for several.

    Its script hands over the line up to the cursor, and leaves out of an answer what stands before the word's last
    colon: bash replaces what comes after it.
    """

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}" response kind value
    local word="${line##*[[:space:]]}" before=""
    if [[ "$COMP_WORDBREAKS" == *:* && "$word" == *:* ]]; then
        before="${word%%:*}:"
    fi
    COMPREPLY=()
    response=$(env COMP_LINE="$line" %(complete_var)s=bash_complete "$1")
    for response in $response; do
        kind="${response%%%%,*}" value="${response#*,}"
        if [[ "$kind" == dir ]]; then
            compopt -o dirnames
        elif [[ "$kind" == file ]]; then
            compopt -o default
        elif [[ "$kind" == plain ]]; then
            COMPREPLY+=("${value#"$before"}")
        fi
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one under the cursor, and that one."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        if not line or line[-1].isspace():
            return words[1:], ""
        return words[1:-1], words[-1]


def prepare() -> None:
    """Let bash complete by `Bash`."""
    add_completion_class(Bash, "bash")
