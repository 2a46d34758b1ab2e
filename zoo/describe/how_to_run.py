"""The commands that run a described model, or train a small one. Imports no mlx."""

from __future__ import annotations

from zoo.describe.described import Described

COMMANDS = {"encode": "embed"}  # of tasks that `zoo run` does not serve


def command_of(task: str) -> str:
    """The command that runs models of a task: "run" or "embed"."""
    return COMMANDS.get(task, "run")


def how_to_run(found: Described) -> list[tuple[str, str]]:
    """The command lines that run a described model, each with a remark or ""; [] for none. TEXT stands for a person's text.

    A folder or an installed checkpoint is named itself, a published one by its hub id, and beside that the installed
    checkpoint of its architecture. Where none can be run, `zoo train` is the line for an architecture that has the numbers
    of a small one.
    """
    preset, architecture = found.preset, found.architecture
    command, installed = command_of(architecture.task), architecture.preset()
    if found.path is not None or (preset is not None and preset.embedded):
        return [(f"zoo {command} {found.origin} TEXT", "")]
    lines = []
    if preset is not None and preset.hub:
        lines.append((f"zoo {command} {preset.hub} TEXT", ""))
    if installed is not None and installed.embedded:
        lines.append((f"zoo {command} {architecture.name} TEXT", "the small checkpoint that is installed"))
    if not lines and architecture.preset("pocket") is not None:
        lines.append((f"zoo train {architecture.name}", "trains a small one"))
    return lines
