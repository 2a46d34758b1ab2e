"""Outputs that stand in a page between markers."""

import re

import pytest
from building.build_cache import DOCS
from building.outputs import Page, pages, place_of, same
from building.page_parts import part
from building.picture import FOLDER, picture_file, same_picture

PAGE = """\
<!-- run python hidden
x = 3
-->

<!-- run python -->
```python
print(x + 1)
```

```text
OLD
```
<!-- end -->

It is <!-- py: x -->OLD<!-- end --> or <!-- fact: llama:8b decoder.layers -->OLD<!-- end -->.

<!-- run python markdown
print("| a |\\n|---|")
-->
<!-- end -->

<!-- run python folder -->
```python
from pathlib import Path
```
<!-- end -->
"""


def test_code_of_a_page_runs_in_order_and_its_outputs_stand_after_it():
    new = Page(PAGE).rewritten()
    assert "OLD" not in new
    assert "print(x + 1)\n```\n\n```text\n4\n```\n<!-- end -->" in new
    assert "It is <!-- py: x -->3<!-- end --> or <!-- fact: llama:8b decoder.layers -->32<!-- end -->." in new
    assert "-->\n\n| a |\n|---|\n\n<!-- end -->" in new
    assert Page(new).rewritten() == new


def test_code_that_fails_is_an_error():
    with pytest.raises(ZeroDivisionError):
        Page("<!-- run python hidden\n1 / 0\n-->\n").rewritten()


TABLE = "model  nats    tokens  tokens/s\n─────  ──────  ──────  ────────\n"


@pytest.mark.parametrize(
    ("old", "new", "equal"),
    [
        ("prompt 6 tokens, 88.1 tokens/s", "prompt 6 tokens,  9.25 tokens/s", True),
        ("prompt 6 tokens, 88.1 tokens/s", "prompt 7 tokens, 88.1 tokens/s", False),
        ("peak memory 5.4 MB", "peak memory 1.2 GB", True),
        ("difference 7.6e-06, logit 23.0", "difference 1.1e-05, logit 23.0", True),
        ("difference 7.6e-06, logit 23.0", "difference 7.6e-06, logit 24.0", False),
        ("weights 5.4 MB", "weights 5.5 MB", False),
        ("loss 2.6312", "loss 2.6319", True),
        ("loss 2.6312 of 3", "loss 2.6312 of 4", False),
        ("loss 2.63", "loss 2.73", False),
        ("a\nb", "a", False),
        ("a  b", "a b", False),
        (f"{TABLE}gpt2   2.2352  19      921", f"{TABLE}gpt2   2.2352  19      1,921", True),
        (f"{TABLE}gpt2   2.2352  19      921", f"{TABLE}gpt2   2.3352  19      921", False),
        (f"{TABLE}gpt2   2.2352  19      921", f"{TABLE}gpt2   2.2352  18      921", False),
        ("loss  tok/s  tokens\n 5.1    155    0.1k", "loss  tok/s  tokens\n 5.1     90    0.1k", True),
        ("loss  tok/s  tokens\n 5.1    155    0.1k", "loss  tok/s  tokens\n 5.2    155    0.1k", False),
        ("tokens/s            1,013\nnats  2.1", "tokens/s   934\nnats  2.1", True),
        ("tokens/s            1,013\nnats  2.1", "tokens/s   934\nnats  2.2", False),
        ("peak memory  6.4 MB  0.6 MB   10.86 ×", "peak memory  5.9 MB  0.6 MB   9.97 ×", True),
        ("loading  107 ms  88.9 ms  1.21 ×", "loading  102 ms  98.5 ms  1.03 ×", True),
        ("loading  107 ms  8 ms\nsteps    217     –", "loading  10 ms  8.5 ms\nsteps    217    –", True),
        ("fits in this memory  70 tokens  9 tokens", "fits in this memory   8 tokens   –", True),
        ("fits in this memory: 25.3 GB, 16-bit", "fits in this memory: 9 GB, 16-bit", True),
        ("rows 8 · Linux x86_64, 2 cores · CPU", "rows 8 · Darwin arm64, 8 cores · Metal", True),
        ("rows 8 · Linux x86_64, 2 cores · CPU", "rows 9 · Linux x86_64, 2 cores · CPU", False),
        ("loading 1.02 s, loss 2.63", "loading 998 ms, loss 2.63", True),
        ("weights  1 MB  2 MB  2.00 ×", "weights  1 MB  2 MB  2.50 ×", False),
        ('{"id":"cmpl-53","created":17,"index":0}', '{"id":"cmpl-a5","created":18,"index":0}', True),
        ('{"id":"cmpl-53","created":17,"index":0}', '{"id":"cmpl-53","created":17,"index":1}', False),
        ('"generated_tokens": 5, "load_seconds": 0.1', '"generated_tokens": 5, "load_seconds": 3', True),
        ('"generated_tokens": 5, "load_seconds": 0.1', '"generated_tokens": 6, "load_seconds": 0.1', False),
    ],
)
def test_outputs_differ_in_what_depends_on_the_machine_alone(old, new, equal):
    assert same(old, new) is equal


@pytest.mark.parametrize("page", pages(), ids=str)
def test_no_line_of_a_sentence_begins_with_a_marker_that_would_make_it_html(page):
    """A line that begins with a comment is HTML, in which no link and no code is read."""
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^ *<!-- (?:py|fact|finding): .*$", text, re.MULTILINE) == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_pictures_are_those_that_the_pages_show(language):
    top = DOCS / "zh" if language == "zh" else DOCS
    shown = set()
    for page in pages():
        if place_of(page).language == language:
            for target in re.findall(r"\]\(([^()\s]+\.svg)\)", page.read_text(encoding="utf-8")):
                path = (page.parent / target).resolve()
                assert path.is_file(), f"{page}: {target}"
                shown.add(path)
    drawn = set((top / FOLDER).glob("*.svg"))
    assert len(drawn) > 40 and drawn <= shown
    assert all(path.stat().st_size < 100_000 for path in drawn)


def test_parts_are_made_for_their_place(tmp_path):
    text = "<!-- code: formulas.attention:softmax -->\n<!-- end -->\n\n<!-- diagram: gpt2:small -->\n<!-- end -->\n"
    page = Page(text, place_of(DOCS / "zh" / "tour" / "x.md"))
    new = page.rewritten()
    assert (
        "[`docs/formulas/attention.py`](../../../docs/formulas/attention.py)\n\n```python\ndef softmax(z)"
        in new
    )
    assert "](../pictures/drawn/diagram.gpt2-small.svg)" in new and "gpt2:small 的结构图" in new
    assert list(page.place.pictures) == ["diagram.gpt2-small"]
    assert Page(new, place_of(DOCS / "zh" / "tour" / "x.md")).rewritten() == new


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- code: formulas.attention:hardmax -->\n<!-- end -->\n", "hardmax"),
        ("<!-- shapes: llama at=nowhere -->\n<!-- end -->\n", "the stages are"),
        ("<!-- compare: no-such-model -->\n<!-- end -->\n", "no-such-model"),
        ("![x](pictures/drawn/no_such_figure.svg)\n", "no_such_figure"),
    ],
)
def test_a_part_that_cannot_be_made_is_an_error(text, message):
    with pytest.raises(Exception, match=message):
        Page(text).rewritten()


def test_a_picture_has_both_themes_and_what_is_drawn_without_what_only_a_page_can_use():
    drawn = (
        '<div><svg viewBox="0 0 500 100"><a href="x.html"><rect x="1"><title>hover</title></rect></a></svg>'
        '<svg viewBox="0 0 400 50"><text fill="var(--ink)">0.5</text></svg></div>'
    )
    made = picture_file(drawn)
    assert "prefers-color-scheme:dark" in made and 'role="img"' in made
    assert "<a " not in made and "hover" not in made
    assert 'viewBox="-8 -8 516 186"' in made  # the second does not fit beside the first
    assert same_picture(made, made.replace("0.5", "0.501")) and not same_picture(
        made, made.replace("0.5", "0.6")
    )
    assert same_picture(made, made.replace('x="1"', 'x="1.3"'))
    assert not same_picture(made, made.replace('x="1"', 'x="9"')) and not same_picture(made, made + "<g/>")


def test_the_formulas_of_pages_stand_after_what_introduces_them():
    made = part("formulas", "residuals-and-norms", place_of(DOCS / "tour" / "formulas.md"))
    heading, text, formula = made.split("\n\n")[:3]
    assert heading == "## [Residual connections and norms](residuals-and-norms.md)"
    assert text.startswith("The residual connection ([He et al., 2015")
    assert formula == "$$y = x + F(x)$$"
    page = (DOCS / "tour" / "residuals-and-norms.md").read_text(encoding="utf-8")
    assert made.count("$$") == page.count("$$") and "<!--" not in made
