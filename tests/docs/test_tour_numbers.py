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
def test_the_map_has_whole_tokens_and_the_order_of_the_pages(language):
    drawn = tour_map.draw(language)
    tokenizer = zoo.load("llama").tokenizer
    tokens = tour_map.pieces(tokenizer, tokenizer.encode(tour_map.PROMPT[language]))
    assert all(f">{token}<" in drawn for token in tokens)
    assert set(re.findall(r'text-anchor="([^"]*)"', drawn)) <= {"start", "middle", "end"}
    shown = list(dict.fromkeys(re.findall(r'<a href="([^"]+)\.html">', drawn)))
    assert shown.index("attention") < shown.index("positions")
    order = reading_order(language)
    stages = [name for name in shown if name != "cache"]  # the way back leads there
    assert stages == [name for name in order if name in stages] and len(stages) == 9


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_page_leads_to_the_next_one_of_the_list_and_the_formulas_follow_it(language):
    folder = DOCS / ("" if language == "en" else "zh") / "tour"
    order = reading_order(language)
    for name, after in zip(["index", *order], order, strict=False):
        if name == "real-model":
            after = "questions"  # the formulas are there to be looked up
        last = (folder / f"{name}.md").read_text(encoding="utf-8").rstrip().splitlines()[-1]
        assert re.search(r"\]\(([\w/.-]+)\.md\)", last)[1] == after, name
    listed = re.search(
        r"<!-- formulas: text (.*?) -->", (folder / "formulas.md").read_text(encoding="utf-8")
    )[1]
    before_training, _, _ = listed.partition(" training ")
    assert before_training.split() == [name for name in order if name in before_training.split()]


def reading_order(language):
    """The pages of the tour as its first page lists them."""
    text = (DOCS / ("" if language == "en" else "zh") / "tour" / "index.md").read_text(encoding="utf-8")
    return " ".join(re.findall(r"<!-- pages: (.*?) -->", text)).split()


@pytest.mark.parametrize("page", ["tour/one-layer.md", "zh/tour/one-layer.md"])
def test_a_layer_computed_by_its_equations_is_the_models(page):
    found = names(page, None)
    assert len(found["differences"]) == 16 and max(found["differences"]) < 1e-4
    assert abs(found["y"]).max().item() > 1  # not a comparison of zeros


@pytest.mark.parametrize("page", ["tour/attention.md", "zh/tour/attention.md"])
def test_heads_are_a_sum_of_matrices_of_low_rank_and_one_product_gives_all_three(page):
    found = names(page, None)
    assert found["difference"] < 1e-4 and found["same"] and found["d"] < len(found["looks"])


@pytest.mark.parametrize("page", ["tour/feedforward.md", "zh/tour/feedforward.md"])
def test_few_features_do_most_of_a_feedforwards_work(page):
    blocks = PYTHON.findall((DOCS / page).read_text(encoding="utf-8"))
    found = {"__name__": "page", "print": lambda line: lines.append(line)}
    lines = []
    exec(next(code for code in blocks if "argsort" in code), found)
    cosines = [[float(cosine) for cosine in re.findall(r"terms (0\.\d+)", line)] for line in lines]
    assert len(cosines) == 4 and all(one < ten < fifty and fifty > 0.85 for one, ten, fifty in cosines)
