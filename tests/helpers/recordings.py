"""The recordings of docs/pictures, against what their commands print now."""

import re
import sys
from contextlib import contextmanager
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"


@contextmanager
def recorder(monkeypatch):
    """The module tools/recording.py."""
    monkeypatch.syspath_prepend(TOOLS)
    import recording

    try:
        yield recording
    finally:
        for name in ("recording", "recording_svg", "record_real_model"):
            sys.modules.pop(name)


def shown_and_printed(recording, name, folder):
    """The lines that a recording shows, and those that its commands print now in `folder`, without their statistics."""
    from recording_svg import text_of

    shown = text_of((recording.PICTURES / name).read_text(encoding="utf-8"))
    printed = []
    for command in (command for screen in recording.RECORDINGS[name] for command in screen):
        printed.append(recording.PROMPT + command.text)
        for line in recording.lines(recording.pieces(command.text, folder)):
            printed.append("".join(cell.text for cell in line))
    return without_statistics(shown), without_statistics(printed)


STATISTICS = re.compile(
    r"(^| · )prompt \d+ tokens?\b"
)  # the first, after the model's name or on a line below it


def without_statistics(lines):
    """The lines, blank ones aside, but for what a run says of its own speed and memory."""
    kept, inside = [], False
    for line in lines:
        inside = inside or STATISTICS.search(line) is not None or line.startswith("packed matrices")
        if line.strip() and not inside:
            kept.append(line.rstrip())
        inside = inside and "peak memory" not in line and not line.startswith("packed matrices")
    return kept
