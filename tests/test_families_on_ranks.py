"""Models divided among ranks that are processes write what whole ones write."""

import json

import pytest

from tests.helpers import families_on_ranks
from tests.helpers.ranks import exit_statuses, launch, run_ranks, zoo_lines
from zoo.checkpoint.convert import convert

pytestmark = pytest.mark.slow
FAMILIES = [
    *("llama", "gpt2", "gemma2", "qwen3", "mixtral", "deepseek-v3", "gpt-oss"),
    *("mamba", "lstm", "llada", "prefix-lm", "bert", "transformer"),
]
THREE = ["llama", "mamba", "transformer"]


def check(count, way, *sources, how="all"):
    """Start a script for all sources on `count` ranks, and compare what it prints."""
    done = run_ranks(count, families_on_ranks.__file__, way, how, *sources, timeout=1800)
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [record["source"] for record in records] == list(map(str, sources)), done.stderr
    for record in records:
        assert record["off"] < 1e-5, record["source"]
        assert record["divided"] == record["whole"], record["source"]
        whole, own = record["numbers"]
        assert own < whole, record["source"]
    assert done.returncode == 0, done.stderr


def test_two_ranks_write_what_one_does_in_every_family():
    check(2, "tensor", *FAMILIES)


def test_ranks_with_whole_experts_write_what_one_does():
    check(2, "experts", "mixtral", "deepseek-v3", "gpt-oss")


@pytest.mark.nightly
def test_four_ranks_write_what_one_does():
    check(4, "tensor", *THREE, how="sampled,batch")


@pytest.mark.nightly
def test_four_ranks_write_what_one_does_in_every_way():
    check(4, "tensor", *THREE)


@pytest.mark.nightly
def test_ranks_of_packed_models_write_what_one_does(tmp_path):
    for name in THREE:
        convert(name, tmp_path / name, quantize="4", group_size=32)
    check(2, "tensor", *(tmp_path / name for name in THREE))


def test_heads_that_do_not_divide_are_refused_in_one_line():
    done = launch(3, "-m", "zoo", "run", "llama", "text", "--parallel", "tensor")
    lines = zoo_lines(done)
    assert lines and all(
        "layers.0.mixer.heads: 4 does not divide evenly among 3 ranks" in line for line in lines
    )
    assert set(exit_statuses(done)) == {0, 1, 2}  # of the ranks; the launcher's own is 0
    assert "Traceback" not in done.stderr
