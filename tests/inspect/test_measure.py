"""Sources measured side by side: the record is complete, its figures are numbers, and what cannot run is named."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.errors import PromptError, RecipeError, SourceError
from zoo.host.registry import default_registry
from zoo.inspect.measure import MEASURED, measure, source_model, to_json
from zoo.inspect.timing import alternating, run_in_subprocess
from zoo.testing import subject


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "mine.json"
    path.write_text(json.dumps(subject("llama").recipe.to_json()))
    return str(path)


@pytest.fixture(scope="module")
def found(recipe):
    told = []
    sources = ["llama", recipe, "bert", "llada", "transformer", "bart:tiny", "prefix-lm"]
    measured = measure(sources, runs=1, report=lambda *pair: told.append(pair))
    return dict(zip(sources, measured, strict=True)), told


@pytest.mark.slow
def test_every_source_has_a_whole_record(found, recipe):
    measured, told = found
    assert told == [(done, 7) for done in range(8)]
    assert [one.source for one in measured.values()] == list(measured)
    for one in measured.values():
        assert (
            one.parameters > 1000 and one.dtype == "float32" and one.peak_memory_bytes >= 4 * one.parameters
        )
        assert len(one.runs) == 1 and set(one.runs[0]) == set(MEASURED)
    assert {one.prompt_tokens for one in measured.values()} == {
        48
    }  # BART's tiny preset has the least context, 64
    assert measured["llama"].measured == "llama:pocket" and not measured["llama"].random
    assert measured[recipe].random and measured["bart:tiny"].random and not measured["transformer"].random
    assert measured[recipe].parameters == subject("llama").recipe.parameters(subject("llama").recipe.dim)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("llama", {"prefill", "decode", "first"}),
        ("prefix-lm", {"prefill", "decode", "first"}),
        ("transformer", {"prefill", "decode", "first"}),
        ("bert", {"prefill"}),
        ("llada", {"decode", "first"}),
    ],
)
def test_what_a_kind_of_model_does_not_do_is_none(found, name, done):
    one = found[0][name]
    figures = {
        "prefill": one.prefill_tokens_per_second,
        "decode": one.decode_tokens_per_second,
        "first": one.first_token_seconds,
    }
    assert {key for key, value in figures.items() if value is not None} == done
    assert all(value > 0 and math.isfinite(value) for value in figures.values() if value is not None)
    assert one.new_tokens == (16 if "decode" in done else None)


@pytest.mark.slow
def test_the_json_has_numbers(found):
    values = json.loads(to_json(list(found[0].values())))
    assert values["versions"]["mlx"]
    for one in values["measured"]:
        for name in (*MEASURED, "parameters", "prompt_tokens"):
            assert one[name] is None or (type(one[name]) in (int, float) and one[name] > 0)


def test_what_does_not_fit_is_refused_with_the_sum():
    with pytest.raises(
        SourceError, match=r"deepseek-v3:671b: does not fit.*weights (2684|1342)\.\d GB.*usable memory"
    ):
        measure(["llama", "deepseek-v3:671b"])


@pytest.mark.parametrize(
    ("sources", "options", "error", "word"),
    [
        (["nope"], {}, SourceError, "nope"),
        (["llama:nope"], {}, SourceError, "'nope'"),
        (["absent.json"], {}, SourceError, "no such file"),
        (["mlx-lm::llama"], {}, SourceError, "no numbers"),
        (["llama"], {"runs": 0}, PromptError, "`runs`"),
        (["llama"], {"prompt_tokens": 0}, PromptError, "`prompt_tokens`"),
        (["gpt2"], {"prompt_tokens": 60, "new_tokens": 5}, PromptError, "smallest context, 64"),
    ],
)
def test_what_cannot_be_measured_is_named(sources, options, error, word):
    with pytest.raises(error, match=word):
        measure(sources, **options)


def test_a_damaged_recipe_is_named(tmp_path):
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(RecipeError, match=r"bad\.json"):
        source_model(str(tmp_path / "bad.json"), default_registry())


def test_a_process_that_fails_is_one_line(tmp_path, monkeypatch):
    code = "import os, sys, signal\nif sys.argv[1] == 'killed': os.kill(os.getpid(), signal.SIGKILL)\nraise OSError('no')"
    (tmp_path / "failing.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(SourceError, match=r"^it: OSError: no$"):
        run_in_subprocess("failing", ["x"], "it")
    with pytest.raises(SourceError, match=r"^it: its process was ended by signal 9"):
        run_in_subprocess("failing", ["killed"], "it")
    with pytest.raises(SourceError, match="nowhere: no such folder"):
        run_in_subprocess("zoo.inspect.measure", ["./nowhere", "1", "1"], "./nowhere")


def test_names_take_turns_and_a_warm_up_is_not_kept():
    order = []
    taken = alternating(("a", "b"), 2, lambda name: order.append(name) or {"n": len(order)}, warm_up=1)
    assert order == ["a", "b"] * 3
    assert [row["n"] for row in taken["a"]] == [3, 5]


@pytest.mark.slow
def test_a_third_partys_architecture_is_measured_too(site):
    site.install(Path(__file__).parents[2] / "docs" / "plugins" / "examples" / "zoo-gpt-neox")
    code = (
        "from zoo.inspect.measure import measure, to_json; print(to_json(measure(['gpt-neox:tiny'], runs=1)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | site.environment
    )
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["measured"]
    assert one["architecture"] == "gpt-neox" and one["random"] and one["decode_tokens_per_second"] > 0
