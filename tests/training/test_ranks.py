"""Several ranks train as one does with the whole batch, and go on with each other's runs."""

import json
import random
import re
import shutil

import mlx.core as mx
import mlx.nn as nn
import pytest

from tests.helpers import tuning_on_ranks
from tests.helpers.ranks import run_ranks
from zoo.errors import ZooError
from zoo.runtime import ranks
from zoo.training.data_parallel import check_same_weights, part_of, rows_per_rank
from zoo.training.run_folder import open_state, state_path

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Completions of different lengths; a round of them ends with a batch of two, fewer than there are ranks."""
    draw, path = random.Random(0), tmp_path_factory.mktemp("data") / "data.jsonl"
    lines = [
        {"prompt": " ".join(draw.choices(WORDS, k=k % 7 + 1)), "completion": draw.choice(WORDS) * (k % 5 + 1)}
        for k in range(18)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


REFUSED = r"rank 1 has data_sha256 \w{64}, rank 0 has \w{64}; all ranks must have the same"


def on_ranks(count, data, folder, *scenarios):
    return run_ranks(count, tuning_on_ranks.__file__, data, folder, *scenarios)


def record_of(folder):
    return json.loads((folder / "training.json").read_text(encoding="utf-8"))


def check_same_curve(one, other):
    """Losses and tokens are the same within rounding."""
    one, other = record_of(one), record_of(other)
    assert one["tokens"] == other["tokens"] and one["settings"] == other["settings"]
    for curve in ("losses", "validation"):
        assert [step for step, _ in one[curve]] == [step for step, _ in other[curve]]
        for (_, loss), (_, expected) in zip(one[curve], other[curve], strict=True):
            assert loss == pytest.approx(expected, abs=5e-4)


@pytest.mark.slow
@pytest.mark.nightly  # it takes minutes where four ranks share two cores
def test_two_ranks_have_the_curve_of_one_and_runs_go_on_with_other_numbers_of_ranks(data, tmp_path):
    tuning_on_ranks.whole(data, tmp_path / "one")
    assert (
        record_of(tmp_path / "one" / "whole")["losses"][-1][1]
        < 0.9 * record_of(tmp_path / "one" / "whole")["losses"][0][1]
    )
    for rank in (0, 1):
        (tmp_path / str(rank)).mkdir()
        lines = data.read_text(encoding="utf-8").splitlines()[rank:]
        (tmp_path / str(rank) / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    first = on_ranks(2, data, tmp_path, "whole", "stopped", "others", "killed")
    check_same_curve(tmp_path / "whole", tmp_path / "one" / "whole")
    # Stopped on one rank, both stop at the same step, and two ranks again are the uninterrupted run, bit for bit.
    assert {(tmp_path / f"rank-{rank}").read_text() for rank in (0, 1)} == {str(tuning_on_ranks.STOPPED)}
    model = "adapters.safetensors"
    assert (tmp_path / "stopped" / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()
    for rank in (0, 1):
        assert re.fullmatch(REFUSED, (tmp_path / f"refused-{rank}").read_text())
    assert not (tmp_path / "others").exists()
    # Killed, it is the state that was saved last.
    assert "rank 1" in first.stderr and open_state(state_path(tmp_path / "killed")).step == 6
    for count in (1, 2, 4):
        shutil.copytree(tmp_path / "killed", tmp_path / f"killed-{count}")
    tuning_on_ranks.resumed(data, tmp_path)
    for count in (2, 4):
        on_ranks(count, data, tmp_path, "resumed")
    for count in (1, 2, 4):
        check_same_curve(tmp_path / f"killed-{count}", tmp_path / "one" / "whole")


@pytest.fixture
def as_rank(monkeypatch):
    """Let this process be one of several ranks, without the others."""

    def set_rank(rank, size):
        monkeypatch.setattr(ranks, "rank", lambda: rank)
        monkeypatch.setattr(ranks, "size", lambda: size)

    return set_rank


@pytest.mark.parametrize(("rows", "size"), [(16, 2), (5, 2), (7, 4), (3, 4), (2, 3)])
def test_each_example_of_a_batch_goes_to_one_rank(as_rank, rows, size):
    batch = mx.arange(2 * rows).reshape(2 * rows, 1), mx.arange(rows)  # pairs, and a number for each
    found = []
    for rank in range(size):
        as_rank(rank, size)
        pairs, numbers = part_of(batch, rows)
        assert pairs[:, 0].tolist() == [
            half for number in numbers.tolist() for half in (2 * number, 2 * number + 1)
        ]
        assert rows // size <= numbers.size <= -(-rows // size)
        found += numbers.tolist()
    assert found == list(range(rows))


def test_a_batch_with_fewer_rows_than_ranks_is_refused_by_name(as_rank):
    as_rank(0, 4)
    assert rows_per_rank(4) == 1 and rows_per_rank(9) == 3
    with pytest.raises(ZooError, match="`batch`: 3 is fewer than the 4 ranks"):
        rows_per_rank(3)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_one_bit_of_one_weight_that_differs_between_ranks_is_noticed(as_rank, monkeypatch, dtype):
    as_rank(0, 2)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model.set_dtype(dtype)
    sent = []
    monkeypatch.setattr(ranks, "gathered", lambda value: sent.append(value) or [value, sent[0]])
    check_same_weights(model, 7)
    bits = model.layers[1].bias.view(mx.uint16)
    bits[0] = bits[0] ^ 1
    model.layers[1].bias = bits.view(dtype)
    with pytest.raises(ZooError, match="rank 1 has other weights than rank 0 at step 7"):
        check_same_weights(model, 7)


def test_a_rank_with_another_value_is_named_with_the_value(monkeypatch):
    monkeypatch.setattr(ranks, "gathered", lambda value: [value, value, {**value, "seed": 2}])
    with pytest.raises(ZooError, match="rank 2 has seed 2, rank 0 has 1; all ranks must have the same"):
        ranks.check_same({"batch": 4, "seed": 1})
