"""The commands that run a model. Imports no mlx."""

from __future__ import annotations

from zoo.facts import Described

RUN = {"generate": "run", "denoise": "run", "translate": "run", "fill-mask": "run", "encode": "embed"}


def how_to_run(found: Described) -> list[tuple[str, str]]:
    """The commands that run what is described, or train a small one, each with a remark or "".

    The words in capitals stand for a person's own.
    """
    preset, architecture = found.preset, found.architecture
    command, installed = RUN.get(architecture.task, "run"), architecture.preset()
    lines = []
    if found.path is not None or (preset is not None and preset.embedded):
        lines.append((f"zoo {command} {found.origin} TEXT", ""))
    else:
        if preset is not None and preset.hub:
            lines.append((f"zoo {command} {preset.hub} TEXT", ""))
        if installed is not None and installed.embedded:
            lines.append(
                (f"zoo {command} {architecture.name} TEXT", "the small checkpoint that is installed")
            )
    if not lines and any(p.name == "pocket" for p in architecture.presets):
        lines.append((f"zoo train {architecture.name}", "trains a small one"))
    return lines
