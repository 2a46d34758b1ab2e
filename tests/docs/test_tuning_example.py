"""What the guide to tuning says in words holds for its record and its data."""

import json
import sys
from pathlib import Path

import pytest

from zoo.training.data import read_examples

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "guides" / "examples"
RECORD = json.loads((ROOT / "docs" / "records" / "tuning" / "example.json").read_text(encoding="utf-8"))


@pytest.fixture
def data(monkeypatch):
    """The module tools/tuning_data.py."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import tuning_data

    yield tuning_data
    del sys.modules["tuning_data"]


def right(answers, when="after"):
    """How many answers have what is expected of them."""
    return sum(one["expected"].lower() in one[when].lower() for one in answers)


def test_the_data_are_those_of_the_tool(data):
    for name, lines in data.files().items():
        written = (EXAMPLES / name).read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in written] == lines


@pytest.mark.parametrize("name", RECORD)
def test_the_record_was_made_with_these_data(name):
    assert RECORD[name]["training"]["settings"]["data_sha256"] == read_examples(EXAMPLES / name).digest


@pytest.mark.parametrize("name", RECORD)
def test_the_loss_of_the_held_out_examples_falls(name):
    found = RECORD[name]
    assert found["training"]["validation"][-1][1] < 0.5 * found["before"]


def test_the_catalogue_is_learned_in_one_direction_and_other_answers_suffer():
    found = RECORD["catalogue"]
    assert right(found["held_out"], "before") == 0
    assert right(found["held_out"]) > 0.8 * len(found["held_out"])
    assert right(found["backward"]) == 0
    assert all(one["after"].startswith("{") for one in found["unknown"])
    assert 0 < right(found["unrelated"]) < right(found["unrelated"], "before")


def test_the_small_models_learn_and_keep_what_they_knew():
    for name in ("words", "countries"):
        *new, known = RECORD[name]["answers"]
        assert right(new, "before") < 0.3 * len(new) and right(new) > 0.5 * len(new)
        assert right([known], "before") == right([known]) == 1
    before, after = RECORD["pairs"]["ranks"]["before"], RECORD["pairs"]["ranks"]["after"]
    assert sum(after) < 0.5 * sum(before)
