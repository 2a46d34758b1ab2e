"""What the page on SmolLM2 says in words holds for its record."""

import json
import re
from pathlib import Path
from statistics import mean

import pytest

RECORD = json.loads(
    (Path(__file__).parents[2] / "docs" / "records" / "real_model.json").read_text(encoding="utf-8")
)


@pytest.fixture
def outputs():
    return {name: "\n".join(one["out"]) for name, one in RECORD["commands"]["outputs"].items()}


def test_it_answers_and_remembers(outputs):
    assert outputs["run"] == "The capital of France is Paris."
    assert outputs["chat"].splitlines() == [
        "The capital of France is Paris.",
        "The capital of Italy is Rome.",
    ]
    assert outputs["regex"] == "No."
    assert "part of a character" in outputs["tokenize"] and "tied" in outputs["compare"]


def test_the_answer_comes_late_and_earlier_in_the_pocket():
    models = RECORD["traces"]["lens"]["models"]
    real, pocket = ([depth["answer"] for depth in models[name]["depths"]] for name in ("SmolLM2", "LLaMA"))
    assert max(real[:-3]) < 1e-3 < real[-2] < 0.5 < real[-1]
    assert pocket[-2] > 0.5  # a layer earlier, and there are few
    assert models["SmolLM2"]["depths"][-1]["tokens"][-1] == models["SmolLM2"]["answer"] == "␣Paris"
    assert "␣Paris".startswith(models["LLaMA"]["answer"])
    before = [depth["tokens"][-1] for depth in models["SmolLM2"]["depths"][2:-2]]
    assert set(before) == {".", "␣", "␣the"}


def test_the_heads_have_their_habits():
    found = RECORD["traces"]["attention"]
    before, induction, first = (found["heads"][name] for name in ("before", "induction", "first"))
    pieces, last = found["pieces"], induction["pattern"][-1]
    assert pieces[last.index(max(last))] == "␣Paris" and pieces[-1] == "␣is"
    again = [at for at, piece in enumerate(pieces) if piece == "␣capital"]
    assert max(induction["pattern"][again[1]]) == induction["pattern"][again[1]][again[0] + 1]
    assert int(before["address"].split(".")[1]) < int(induction["address"].split(".")[1])
    assert all(row[0] > 0.95 for row in first["pattern"])
    weights = found["first"]
    assert sum(weight > 0.5 for weight in weights["SmolLM2"]) > 20 and max(weights["LLaMA"]) < 0.3


def test_each_step_of_sampling_leaves_fewer_tokens():
    stages = RECORD["traces"]["sampling"]["stages"]
    assert [stage["name"] for stage in stages] == ["model", "temperature", "top_k", "top_p", "min_p"]
    kept = [stage["kept"] for stage in stages]
    assert kept[0] == kept[1] > kept[2] > kept[3] > kept[4] and stages[-1]["chances"][-1] == 0
    assert stages[1]["chances"][0] / stages[2]["chances"][0] < 0.75  # of the probability that top-k leaves


def test_heads_that_look_at_the_first_token_take_little_from_it():
    values = RECORD["traces"]["attention"]["values"]
    assert values["SmolLM2"]["sink"] < 0.3 < values["SmolLM2"]["other"]
    assert values["LLaMA"]["sink heads"] == 0 < values["SmolLM2"]["sink heads"]


def test_the_same_heads_have_their_habits_on_a_chinese_sentence():
    found, english = RECORD["traces"]["chinese"], RECORD["traces"]["attention"]["heads"]
    pieces, heads = found["pieces"], found["heads"]
    assert [head["address"] for head in heads.values()] == [head["address"] for head in english.values()]
    parts = [piece for piece in pieces if re.fullmatch(r"[0-9a-f]{2}( [0-9a-f]{2})*", piece)]
    assert len(parts) > len(pieces) / 2
    before, induction, first = (heads[name]["pattern"] for name in ("before", "induction", "first"))
    assert sum(max(row) == row[place] for place, row in enumerate(before[1:])) >= len(pieces) - 2
    once, again = (at for at, piece in enumerate(pieces) if piece == "的")
    length = len(pieces) - 1 - again  # of the part that comes twice, up to the mark
    assert pieces[once : once + length] == pieces[again : again + length]
    followed = [max(row := induction[again + at]) == row[once + at + 1] for at in range(length)]
    assert sum(followed) > length / 2
    assert all(row[0] > 0.95 for row in first)


def test_words_of_a_kind_are_near_one_another():
    found = RECORD["embeddings"]
    kind_of = {point["word"]: point["kind"] for point in found["points"]}
    nearest = {point["word"]: re.match(r"\w+", point["near"])[0] for point in found["points"]}
    assert all(kind_of[word] == kind_of[near] for word, near in nearest.items())
    by_kind = {
        kind: [(point["x"], point["y"]) for point in found["points"] if point["kind"] == kind]
        for kind in dict.fromkeys(kind_of.values())
    }
    left, top = (
        {kind: mean(place[axis] for place in places) for kind, places in by_kind.items()} for axis in (0, 1)
    )
    assert min(left, key=left.get) == "day" and max(left, key=left.get) == "colour"
    assert top["country"] < top["family"] < top["animal"] < top["colour"] < top["day"]


def test_spellings_and_sums_have_the_neighbours_that_the_page_names():
    found = RECORD["embeddings"]
    near = {one["text"]: [piece for piece, _ in one["nearest"]] for one in found["tokens"] + found["sums"]}
    assert near["␣France"][0] == "France" and near["␣king"][:2] == ["␣King", "King"]
    assert near["人"][0] == "␣humankind" and re.fullmatch(r"[0-9a-f]{2}( [0-9a-f]{2})+", near["人"][1])
    assert near["␣French - ␣France + ␣Germany"][0] == "␣German"
    assert near["␣Paris - ␣France + ␣Germany"][0] == "␣Berlin"
    rome = near["␣Paris - ␣France + ␣Italy"]
    assert "␣Milan" in rome and not any("Rome" in piece for piece in rome)


def test_eight_bits_lose_nothing_four_a_little_by_the_head_alone_and_three_much():
    found = {one["name"]: one["perplexity"] for one in RECORD["perplexity"]["models"]}
    assert found["Q4_1"] == pytest.approx(found["float32"], rel=1e-4)
    assert found["8"] == pytest.approx(found["float32"], rel=0.01)
    assert found["float32"] < found["6"] < found["4"] < found["3"]
    assert 1.02 < found["4"] / found["float32"] < 1.2 and found["3"] > 3 * found["float32"]
    text = RECORD["perplexity"]["text"]
    assert (
        text.startswith("docs/records/") and (Path(__file__).parents[2] / text).is_file()
    )  # no page that changes
