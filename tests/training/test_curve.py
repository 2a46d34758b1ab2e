"""The loss curve: in eighty columns, and as an SVG that any browser reads."""

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from zoo.training.record import BLUE, GREY, ORANGE, TrainingRecord, drawn, joined, svg, ticks


def record(losses, validation, name="llama"):
    return TrainingRecord(name, 1_000_000, {}, losses=losses, validation=validation)


FALLING = record(
    [[1, 8.0], *([step, 8 * math.exp(-step / 300)] for step in range(10, 2001, 10))],
    [[step, 8 * math.exp(-step / 300) + 0.2] for step in range(200, 2001, 200)],
)
HARD = {
    "one step": record([[1, 3.0]], [[1, 3.0]]),
    "no validation": record([[1, 3.0], [10, 2.0]], []),
    "nothing": record([], []),
    "flat": record([[1, 1.0], [10, 1.0]], [[10, 1.0]]),
    "not a number": record([[1, 3.0], [10, float("nan")], [20, 1.0]], [[20, float("inf")]]),
    "huge": record([[1, 1e9], [10**7, 1e-9]], [[10**7, 5.0]]),
    "a name with marks": record([[1, 3.0]], [], "<b>&\"'</b>"),
}


def test_in_a_terminal_it_falls_from_the_upper_left_to_the_lower_right():
    lines = drawn(FALLING).splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) == 15
    chart = [line.partition("│")[2] for line in lines if "│" in line]
    dots = [[column for column, mark in enumerate(line) if "\u2801" <= mark <= "\u28ff"] for line in chart]
    assert dots[0] and max(dots[0]) < 5 and dots[-1] and min(dots[-1]) > 20
    assert sum(line.count("○") for line in chart) == 10
    assert chart[0].count("○") == 0
    assert "8.00" in lines[1] and "step" in lines[-1] and lines[-1].endswith("2000")
    assert "training" in lines[0] and "validation" in lines[0] and "loss" in lines[0]


def test_the_svg_has_both_lines_and_labelled_axes():
    tree = ElementTree.fromstring(svg(FALLING))
    space = "{http://www.w3.org/2000/svg}"
    lines = {line.get("stroke"): line.get("points").split() for line in tree.iter(f"{space}polyline")}
    assert set(lines) == {BLUE, ORANGE} and len(lines[BLUE]) == 201
    heights = [float(point.split(",")[1]) for point in lines[BLUE]]
    assert heights == sorted(heights)  # downward in an SVG is a greater y
    texts = {text.text for text in tree.iter(f"{space}text")}
    assert {"step", "loss, nats a token", "training", "validation", "0", "2000"} <= texts
    assert not [rect for rect in tree.iter(f"{space}rect")]  # no background


@pytest.mark.parametrize("name", HARD)
def test_any_record_is_drawn(name):
    assert max(map(len, drawn(HARD[name]).splitlines())) <= 80
    text = svg(HARD[name])
    ElementTree.fromstring(text)
    assert "nan" not in text and "inf" not in text


@pytest.mark.parametrize("ground", ["#ffffff", "#0d1117"])
@pytest.mark.parametrize(("colour", "least"), [(GREY, 4.1), (BLUE, 3.0), (ORANGE, 3.0)])
def test_its_colours_stand_out_on_light_and_dark(colour, least, ground):
    """The contrast ratio of WCAG 2.1."""

    def luminance(code):
        parts = [int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(colour), luminance(ground)))
    assert (high + 0.05) / (low + 0.05) >= least


def test_ticks_are_round_and_within():
    assert ticks(0, 2000) == [0, 500, 1000, 1500, 2000]
    assert ticks(0.31, 7.66) == [2, 4, 6]
    for low, high in ((0, 1), (0.01, 0.02), (3, 1e6)):
        found = ticks(low, high)
        assert 3 <= len(found) <= 7 and all(low <= value <= high for value in found)
        assert all(re.fullmatch(r"[\d.e+-]+", f"{value:g}") for value in found)


def test_a_line_goes_from_its_first_point_to_its_last_without_a_gap():
    line = joined([[0, 4.0], [10, 2.0]], 20)
    assert line[0] == (0.0, 4.0) and line[-1] == (10.0, 2.0)
    assert max(right[0] - left[0] for left, right in itertools.pairwise(line)) <= 10 / 20
    assert joined([[5, 1.0]], 20) == [(5.0, 1.0)]
