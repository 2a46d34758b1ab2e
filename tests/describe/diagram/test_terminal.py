"""Diagrams in a terminal: nothing wider than it, nothing cut."""

import dataclasses
import re

import pytest
from rich.cells import cell_len as cells

from zoo.describe.diagram import Box, Diagram, LayerStack, Note, marked, to_text
from zoo.describe.diagram.terminal import to_spans
from zoo.host.registry import default_registry

NAMES = sorted(default_registry().architectures)


@pytest.mark.parametrize("width", [38, 40, 80, 120, 200])
def test_every_architecture_fits_and_says_all(every, width):
    for name, diagram in every.items():
        text = to_text([diagram], width)
        assert max(cells(line) for line in text.splitlines()) <= width, name
        plain = re.sub(r"[^\w]+", " ", text)
        for stack in diagram.stacks:
            for box in (item for item in stack.items if isinstance(item, Box)):
                assert re.sub(r"[^\w]+", " ", box.title).split()[0] in plain, (name, box.title)


def test_stacks_stand_side_by_side_where_they_fit(every):
    pair = marked([every["llama"], every["mixtral"]])
    side = to_text(pair, 80).splitlines()
    assert side[0].split() == ["llama:8b", "mixtral:8x7b"]
    below = to_text(pair, 60).splitlines()
    assert below[0] == "llama:8b" and "mixtral:8x7b" in below


def test_differences_are_marked_without_colour(every):
    text = to_text(marked([every["llama"], every["mixtral"]]), 80)
    assert "≠ Mixture of experts" in text and "≠ vocabulary 32,000" in text
    assert text.count("┏") == 2 and "≠" not in to_text([every["llama"]], 80)


def test_boxes_are_closed(every):
    for name in NAMES:
        text = to_text([every[name]], 80)
        assert text.count("┌") == text.count("└") == text.count("┐") == text.count("┘"), name
        assert text.count("⊕") == text.count("→"), name


def test_spans_are_the_text(every):
    for width in (50, 120):
        lines = to_spans([every["gemma2"]], width)
        assert "\n".join("".join(text for _, text in line) for line in lines) == to_text(
            [every["gemma2"]], width
        )


def test_wide_characters_take_two_cells():
    box = Box("attention", "注意力" * 12, notes=(Note("头数 32"),))
    diagram = Diagram(
        "模型" * 30, "", (LayerStack("decoder", "", (box,), Box("input", "词"), Box("output", "词")),)
    )
    for line in to_text([diagram], 40).splitlines():
        assert cells(line) <= 40
        if "注" in line:
            assert cells(line) == 38 and line.endswith(" │")


def test_long_notes_lose_nothing_where_they_are_wrapped(draw):
    note = (
        "a long note with 2 groups, 4 heads, 16 channels, 128 states and 9 other numbers, each in its place"
    )
    diagram = draw("gpt2")
    (stack,) = diagram.stacks
    items = (*stack.items[:-1], stack.items[-1].with_notes(note))
    changed = dataclasses.replace(diagram, stacks=(dataclasses.replace(stack, items=items),))
    shown = re.sub(r"[^\w,]+", " ", to_text([changed], 80))
    assert all(word in shown.split() for word in note.split())


def test_a_row_of_parts_ends_between_two_parts(draw):
    lines = to_text([draw("bert")], 80).splitlines()
    (row,) = (number for number, line in enumerate(lines) if "Tokens  Learned positions" in line)
    assert lines[row + 1].strip("│ ") == "Token types"
