"""The strips of shapes on the tour's pages: their numbers are those of traces, and each page has one that marks its stage."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from building import shape_picture, shapes
from building.page_parts import words_of

import zoo

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(
    path.stem for path in (DOCS / "tour").glob("*.md") if path.stem not in ("formulas", "kinds", "questions")
)
STRIP = re.compile(r"^<!-- shapes: (.+) -->\n!\[", re.MULTILINE)
TEXT = "The capital city of China is"


def sizes_of(row, stage):
    return tuple(row.sizes.get(axis, axis) for axis in stage.axes)


@pytest.mark.parametrize(
    ("model", "text", "settings"),
    [
        ("llama", TEXT, {"max_tokens": 1}),
        ("gpt2", TEXT, {"max_tokens": 1}),
        ("mixtral", TEXT, {"max_tokens": 1}),
        ("lstm", TEXT, {"max_tokens": 1}),
        ("mamba", TEXT, {"max_tokens": 1}),
        ("bert", "The capital city of [MASK] is Beijing.", {}),
    ],
)
def test_the_numbers_are_the_shapes_of_a_trace(model, text, settings):
    trace = zoo.trace(zoo.load(model), text, **settings)
    [row] = shapes.rows([model], text)
    found = {stage.address: sizes_of(row, stage) for stage in row.stages if stage.address}
    assert len(found) >= 2
    assert found == {address: trace[address].shape for address in found}
    assert row.count == len(zoo.load(model).model.layers)


def test_the_shapes_of_both_stacks_of_a_translator_are_those_of_a_trace():
    text = "I love NLP."
    trace = zoo.trace(zoo.load("transformer"), text, max_tokens=32)
    encoder, decoder = shapes.rows(["transformer"], text)
    for stage in encoder.stages[:-1]:
        if stage.address:
            assert trace[stage.address].shape == sizes_of(encoder, stage)
    patterns = {stage.name: sizes_of(decoder, stage) for stage in decoder.stages}
    count = len(trace.tokens)
    assert patterns["attention"][1:] == (count, count)
    assert patterns["cross"] == (4, count, len(trace.prompt))


def test_a_step_of_decoding_sees_the_cache_and_itself():
    _, row = shapes.rows(["llama"], TEXT, "decode")
    trace = zoo.trace(zoo.load("llama"), TEXT, max_tokens=2)
    whole = trace["layers.0.mixer.pattern"].shape[-1]
    found = {stage.name: sizes_of(row, stage) for stage in row.stages}
    assert found["attention"] == (4, "1", whole) and found["kept"][1] == whole


def test_a_diffusion_model_reads_prompt_and_masks_in_each_pass():
    [row] = shapes.rows(["llada"], TEXT, masks=6)
    trace = zoo.trace(zoo.load("llada"), TEXT, max_tokens=6)
    found = {stage.address: sizes_of(row, stage) for stage in row.stages if stage.address}
    assert len(found) > 3 and found == {address: trace[address].shape for address in found}
    assert row.sizes["L"] == 6


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_page_of_the_tour_has_a_strip_that_marks_one_of_its_stages(language, page):
    path = (DOCS if language == "en" else DOCS / "zh") / "tour" / f"{page}.md"
    [given] = STRIP.findall(path.read_text(encoding="utf-8"))
    strip = shapes.strip_of(*words_of(given), language)
    at = strip.at
    assert bool(at) == (page not in ("index", "one-layer", "real-model"))
    drawn = strip.html(page)
    assert drawn.count('aria-current="step"') == bool(at)
    assert not at or "zoo-shapes-here" in drawn
    linked = set(re.findall(r'href="([\w-]+)\.html"', drawn))
    assert page not in linked and linked <= set(PAGES)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_on_kinds_has_a_strip_of_each_of_the_three(language):
    path = (DOCS if language == "en" else DOCS / "zh") / "tour" / "kinds.md"
    models = [words_of(given)[0] for given in STRIP.findall(path.read_text(encoding="utf-8"))]
    assert models == [["bert"], ["llama"], ["transformer"]]


def test_a_stage_that_a_strip_does_not_have_is_an_error_that_lists_them():
    with pytest.raises(ValueError, match="the stages are tokens, embedding, queries"):
        shapes.strip_of(["llama"], {"at": "state"}, "en")


def test_an_option_that_a_strip_does_not_have_is_an_error():
    with pytest.raises(ValueError, match="no option of a strip: model"):
        shapes.strip_of(["llama"], {"model": "llama"}, "en")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("models", [["llama"], ["transformer"], ["lstm", "gru", "mamba"]])
def test_the_picture_of_a_strip_has_what_the_strip_has_within_its_width(models, language):
    strip = shapes.strip_of(models, {}, language)
    drawn = ElementTree.fromstring(shape_picture.picture(strip))
    width = float(drawn.get("viewBox").split()[2])
    texts = [one for one in drawn.iter() if one.tag.endswith("text")]
    written = [one.text for one in texts]
    for row in strip.rows:
        for stage in row.stages:
            assert set(shape_picture.said(stage, row, language)) - {""} <= set(written)
    assert all(0 <= float(one.get("x")) <= width - 16 for one in texts)
