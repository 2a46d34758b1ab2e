"""What the tour says in words of numbers that its pages compute."""

import re
from pathlib import Path

import pytest
from figures import tour_map

import zoo

DOCS = Path(__file__).parents[2] / "docs"
PYTHON = re.compile(
    r"^(?:```\{python\}\n(?::[a-z-]+:\n)*\n?|<!-- run python[^\n]* -->\n```python\n|<!-- run python[^\n>]*\n)(.*?)^(?:```|-->)$",
    re.DOTALL | re.MULTILINE,
)


def names(page, count):
    """The names that the first `count` blocks of Python on a page leave, in either language."""
    found = {"__name__": "page"}
    blocks = PYTHON.findall((DOCS / page).read_text(encoding="utf-8"))
    for code in blocks[:count]:
        exec(compile(code, page, "exec"), found)
    return found


@pytest.mark.parametrize("page", ["tour/positions.md", "zh/tour/positions.md"])
def test_attention_without_positions_sees_the_order_with_a_causal_mask_only(page):
    found = names(page, 2)
    assert found["without_mask"] < 1e-6
    assert found["causal"] > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("page", ["tour/experts.md", "zh/tour/experts.md"])
def test_neighbouring_tokens_share_an_expert_more_often_than_random_ones(page):
    found = names(page, 1)
    same, by_load = found["same"], found["by_load"]
    even = 1 / found["value"]("mixtral:pocket", "decoder.experts")
    assert (even < by_load).all() and (by_load < same).all()
    assert by_load[0] - even < 0.05 and same[0] - by_load[0] < 0.05  # close to chance in the first layer
    assert same[-1] - by_load[-1] > 0.1


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_first_figure_has_whole_tokens_and_the_residual_sum_before_the_feedforward(language):
    drawn = tour_map.draw(language)
    tokenizer = zoo.load("llama").tokenizer
    tokens = tour_map.pieces(tokenizer, tokenizer.encode(tour_map.PROMPT[language]))
    assert all(f">{token}<" in drawn for token in tokens)
    assert set(re.findall(r'text-anchor="([^"]*)"', drawn)) <= {"start", "middle", "end"}
    pages = re.findall(r'<a href="([^"]+)\.html">', drawn)
    assert pages.index("attention") < pages.index("residuals-and-norms") < pages.index("feedforward")
