"""The pictures of docs/pictures: each is what the zoo makes now."""

from pathlib import Path

import pytest

from tests.helpers.invoked import invoke
from tests.helpers.recordings import recorder, shown_and_printed

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"


@pytest.fixture
def recording(monkeypatch):
    with recorder(monkeypatch) as module:
        yield module


def test_the_comparison_is_what_the_command_writes(tmp_path):
    made = tmp_path / "comparison.svg"
    done = invoke(tmp_path, ["compare", "llama:8b", "mixtral:8x7b", "--svg", str(made)])
    assert done.returncode == 0, done.stderr
    assert made.read_bytes() == (PICTURES / "comparison.svg").read_bytes(), (
        "run: zoo compare llama:8b mixtral:8x7b --svg docs/pictures/comparison.svg"
    )


def test_the_recordings_text_is_what_the_commands_print(recording, tmp_path):
    shown, printed = shown_and_printed(recording, "recording.svg", tmp_path)
    assert shown == printed, "run: python tools/recording.py recording.svg"
    assert " Beijing." in shown


@pytest.mark.parametrize("name", ["recording.svg", "real_model.svg"])
def test_a_recording_is_small_and_has_a_still_view(name):
    svg = (PICTURES / name).read_text(encoding="utf-8")
    assert len(svg.encode()) < 60_000 and "peak memory" in svg
    assert "prefers-reduced-motion" in svg and "prefers-color-scheme" in svg
    assert "<script" not in svg and "<title" in svg and "<desc" in svg


@pytest.mark.parametrize("name", ["recording.svg", "real_model.svg"])
def test_a_recording_begins_with_a_full_view(name, visit):
    page = visit(PICTURES / name)
    seen = page.evaluate(
        """() => {
          for (const one of document.getAnimations()) { one.pause(); one.currentTime = 0; }
          const view = document.querySelector("svg > svg").getBoundingClientRect();
          const shown = [...document.querySelectorAll(".b text")].filter((text) => {
            const { top, bottom } = text.getBoundingClientRect();
            return getComputedStyle(text.parentNode).opacity === "1" && bottom > view.top && top < view.bottom;
          });
          const typing = [...document.querySelectorAll(".c")].some((one) => getComputedStyle(one).opacity === "1");
          return [shown.map((text) => text.textContent), typing];
        }"""
    )
    assert len(seen[0]) > 10 and any("zoo run" in text for text in seen[0])
    assert not seen[1], "a command is being typed"


def test_a_recorder_wraps_styles_and_places_letters_as_a_terminal_does(recording):
    written = [(0.5, "\x1b[1mbold\x1b[0m and 中国\r\n"), (0.9, "x" * recording.COLUMNS + "y")]
    lines = recording.lines(written)
    assert ["".join(cell.text for cell in line) for line in lines] == [
        "bold and 中国",
        "x" * recording.COLUMNS,
        "y",
    ]
    assert [cell.text for cell in lines[0] if "bold" in cell.style] == list("bold")
    assert sum(cell.width for cell in lines[0]) == len("bold and ") + 4
    with pytest.raises(ValueError, match="not shown"):
        recording.lines([(0.0, "\x1b[2Jcleared\x1b[0m")])


def test_a_progress_bar_leaves_nothing_in_a_recording(recording):
    bar = (
        "\x1b[?25lreading \x1b[38;5;237m━\x1b[0m\r\x1b[2Kreading \x1b[38;5;197m━\x1b[0m\r\n\x1b[?25h\r\x1b[1A"
    )
    written = recording.characters(
        [(0.1, b"before\r\n" + bar.encode()), (0.2, b"\x1b[2"), (0.3, b"KBeijing.\r\n")]
    )
    lines = recording.lines(written)
    assert ["".join(cell.text for cell in line) for line in lines] == ["before", "Beijing."]
    assert {cell.moment for cell in lines[1]} == {0.3}
