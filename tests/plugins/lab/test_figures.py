"""Figures follow from records: the same record, the same figure."""

import sys
from xml.etree import ElementTree

import pytest

from zoo.errors import ZooError
from zoo_lab.chart_values import drawn_charts
from zoo_lab.figures import draw
from zoo_lab.report import read, save

SVG = "{http://www.w3.org/2000/svg}"


def texts(path):
    return " ".join("".join(element.itertext()) for element in ElementTree.parse(path).iter(f"{SVG}text"))


@pytest.mark.slow
def test_a_record_read_back_draws_the_same_figures(made_up, tmp_path):
    record = made_up([1.0, 1.1, 0.9], [2.0, 2.2, 1.9])
    save(record, tmp_path / "made-up.json")
    first = draw(record, tmp_path / "first", formats=("svg",))
    second = draw(read(tmp_path / "made-up.json"), tmp_path / "second", formats=("svg",))
    assert [path.name for path in first] == ["made-up-curves.svg", "made-up-rows.svg", "made-up-size.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_figure_shows_question_units_and_arms_as_text(made_up, tmp_path):
    curves, rows, size = draw(made_up([1.0, 1.1, 0.9], [2.0, 2.2, 1.9]), tmp_path, formats=("svg",))
    for path in (curves, rows, size):
        assert "Is a lower than b?" in texts(path) and "loss (nats)" in texts(path)
        assert {"a", "b"} <= set(texts(path).split())
        (title,) = ElementTree.parse(path).getroot().findall(f"{SVG}title")
        assert title.text.startswith("Is a lower than b? loss (nats)")


@pytest.mark.slow
def test_other_numbers_draw_another_figure(made_up, tmp_path):
    one, other = (
        draw(made_up([1.0, 1.1, high], [2.0, 2.2, 1.9]), tmp_path / str(high), formats=("svg",))
        for high in (0.9, 1.5)
    )
    assert all(a.read_bytes() != b.read_bytes() for a, b in zip(one, other, strict=True))


def test_png_files_are_pictures(made_up, tmp_path):
    for path in draw(made_up([1.0], [2.0]), tmp_path, formats=("png",)):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_chart_of_nothing_is_left_out(made_up, tmp_path):
    record = made_up([1.0, 1.1], [2.0, 2.2])
    record.runs.clear()
    assert draw(record, tmp_path) == [] and drawn_charts(record) == []


def test_without_matplotlib_the_extra_is_named(made_up, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ZooError, match=r"mlx-zoo\[plots\]"):
        draw(made_up([1.0], [2.0]), tmp_path)


def test_names_of_crowded_points_cover_neither_each_other_nor_the_points():
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from zoo_lab.figures import write_labels

    figure = Figure(figsize=(4, 3))
    axis = figure.subplots()
    points = [(1.0, 1.0), (1.0, 1.01), (1.01, 1.0), (1.01, 1.01), (3.0, 3.0), (3.0, 2.99)]
    axis.plot(*zip(*points, strict=True), "o")
    write_labels(figure, [(axis, x, y, f"point {number}") for number, (x, y) in enumerate(points)])
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in axis.texts]  # without the lines to the points
    assert len(boxes) == 6
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[number + 1 :])
        assert not any(box.contains(*axis.transData.transform(point)) for point in points)
