"""Diagrams as SVG: boxes hold their text, nothing overlaps, nothing comes from outside."""

import itertools
import re
from xml.etree import ElementTree

import pytest

from zoo.describe.diagram import Box, Diagram, LayerStack, Note, marked, to_svg
from zoo.describe.diagram.model import without_notes
from zoo.describe.diagram.svg import DARK, LIGHT, to_svgs
from zoo.describe.diagram.text_width import text_width

SVG = "{http://www.w3.org/2000/svg}"
SHIFT = {None: 0, "middle": 0.5, "end": 1}  # the part of a text that is left of its point
BOLD = re.compile("title|name|count|stack|differs")
PAIRS = [("gpt2", "gpt2-postln"), ("llama", "deepseek-v3"), ("transformer", "t5"), ("bert", "llama")]


def rectangles(root, kind):
    """The left, upper, right and lower edges of rectangles, moved by the groups that they are in."""

    def visit(element, dx):
        moved = re.match(r"translate\(([\d.]+) 0\)", element.get("transform", ""))
        dx += float(moved[1]) if moved else 0.0
        for child in element:
            if child.tag == f"{SVG}rect" and kind(element, child):
                x, y, width, height = (float(child.get(name)) for name in ("x", "y", "width", "height"))
                yield x + dx, y, x + dx + width, y + height
            yield from visit(child, dx)

    return list(visit(root, 0.0))


def texts(root):
    """Each text with its edges, by the estimate of the layout."""

    def visit(element, dx, bold):
        moved = re.match(r"translate\(([\d.]+) 0\)", element.get("transform", ""))
        dx += float(moved[1]) if moved else 0.0
        for child in element:
            if child.tag == f"{SVG}text":
                heavy = bool(BOLD.search(child.get("class", ""))) or "cell differs" in element.get(
                    "class", ""
                )
                size, width = float(child.get("font-size")), 0.0
                width = text_width(child.text, size, heavy)
                left = float(child.get("x")) + dx - width * SHIFT[child.get("text-anchor")]
                y = float(child.get("y"))
                yield element, child, (left, y - 0.8 * size, left + width, y + 0.25 * size)
            yield from visit(child, dx, bold)

    return list(visit(root, 0.0, False))


def overlap(a, b):
    return a[0] < b[2] - 0.1 and b[0] < a[2] - 0.1 and a[1] < b[3] - 0.1 and b[1] < a[3] - 0.1


def holds(outer, inner):
    return (
        outer[0] <= inner[0] + 0.1
        and outer[1] <= inner[1] + 0.1
        and outer[2] >= inner[2] - 0.1
        and outer[3] >= inner[3] - 0.1
    )


def check(svg):
    root = ElementTree.fromstring(svg)
    whole = (0.0, 0.0, float(root.get("width")), float(root.get("height")))
    outer = rectangles(root, lambda group, rect: rect.get("class") == "box")
    inner = rectangles(root, lambda group, rect: "cell" in group.get("class", ""))
    frames = rectangles(root, lambda group, rect: "frame" in group.get("class", ""))
    for a, b in itertools.combinations(outer, 2):
        assert not overlap(a, b)
    for a, b in itertools.combinations(inner, 2):
        assert not overlap(a, b)
    for cell in inner:
        assert any(holds(box, cell) for box in outer)
    for box in outer:
        assert holds(whole, box)
        assert all(holds(frame, box) or not overlap(frame, box) for frame in frames)
    written = texts(root)
    for group, text, edges in written:
        assert holds(whole, edges), text.text
        kind = text.get("class")
        if kind == "part" and text.text not in "×+":
            assert any(holds(cell, edges) for cell in inner), text.text
        if kind == "title" and group.find(f"{SVG}rect") is not None:
            assert any(holds(box, edges) for box in outer), text.text
        if kind.startswith("note"):
            assert not any(overlap(box, edges) for box in outer), text.text
            assert all(holds(frame, edges) or not overlap(frame, edges) for frame in frames), text.text
    for (_, a, first), (_, b, second) in itertools.combinations(written, 2):
        assert not overlap(first, second), (a.text, b.text)


def test_every_architecture_has_room(every):
    for diagram in every.values():
        check(to_svg([diagram]))


def test_a_diagram_without_notes_is_narrower_and_has_room(every):
    for diagram in every.values():
        plain = without_notes(diagram)
        drawn = to_svg([plain])
        check(drawn)
        assert 'class="note' not in drawn
        widths = [float(re.search(r'width="([\d.]+)"', svg)[1]) for svg in (drawn, to_svg([diagram]))]
        assert widths[0] < 0.7 * widths[1]


@pytest.mark.parametrize("names", PAIRS, ids=" ".join)
def test_pairs_have_room(every, names):
    check(to_svg(marked([every[name] for name in names])))


def test_long_words_of_a_third_party_have_room():
    word = "Supercalifragilisticexpialidocious" * 3
    rows = ((), ())
    box = Box("attention", f"{word} attention", notes=(Note(f"many {word}"), Note("32 heads")), rows=rows[:0])
    check(
        to_svg(
            [Diagram(word, word, (LayerStack("decoder", "", (box,), Box("input", "T"), Box("output", "L")),))]
        )
    )


def test_one_role_stands_in_one_line(every):
    pictures = to_svgs(marked([every["llama"], every["bert"]]))
    lines = []
    for svg in pictures:
        root = ElementTree.fromstring(svg)
        lines.append(
            {
                group.get("data-role"): float(rect.get("y")) + float(rect.get("height"))
                for group in root.iter(f"{SVG}g")
                if group.get("data-role") in ("embedding", "attention", "feedforward", "head")
                for rect in group.findall(f"{SVG}rect")
            }
        )
    assert lines[0] == lines[1] and len(lines[0]) == 4


def test_it_says_what_it_is_and_where_from(every):
    root = ElementTree.fromstring(to_svg(marked([every["llama"], every["mixtral"]]), ident="x"))
    assert root.find(f"{SVG}title").text == "Block diagram of llama:8b, mixtral:8x7b"
    described = root.find(f"{SVG}desc").text
    assert (
        "32 layers, each: residual sum around: RMSNorm, Masked grouped-query attention (32 heads" in described
    )
    assert "Mixture of experts (8 experts, 2 used" in described
    paths = {element.get("data-path") for element in root.iter() if element.get("data-path")}
    assert {
        "embedding",
        "layers.*",
        "layers.*.mixer",
        "layers.*.mixer.query",
        "layers.*.feedforward",
    } <= paths
    svg = to_svg([every["llama"]])
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|href", svg)


def test_names_are_escaped():
    start, end = Box("input", "<a>"), Box("output", '"&"')
    svg = to_svg([Diagram("<script>x</script>", "&", (LayerStack("decoder", "", (), start, end),))])
    assert "<script>" not in svg
    assert ElementTree.fromstring(svg) is not None


@pytest.mark.parametrize("name", ["a\x01b", "a\x00b", "a\ufffeb", "a\ud800b"])
def test_characters_that_xml_cannot_hold_are_replaced(name):
    start, end = Box("input", name), Box("output", name)
    svg = to_svg([Diagram(name, name, (LayerStack("decoder", "", (), start, end),))])
    assert "a\ufffdb" in "".join(ElementTree.fromstring(svg.encode()).itertext())


def luminance(colour):
    values = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return sum(weight * v for weight, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(theme):
    for text in ("ink", "quiet", "accent"):
        for ground in ("ground", "box", "cell", "frame", "tint"):
            one, two = sorted((luminance(theme[text]), luminance(theme[ground])))
            assert (two + 0.05) / (one + 0.05) >= 4.5, (text, ground)
