"""`zoo evaluate` as a person types it."""

import json

import mlx.core as mx
import pytest

from .conftest import CAPITALS


@pytest.fixture
def adapter(tmp_path):
    """A LoRA of llama's first output projection, as mlx-lm writes one, large enough to change its answers."""
    folder = tmp_path / "my-adapter"
    folder.mkdir()
    settings = {"fine_tune_type": "lora", "num_layers": 4, "lora_parameters": {"rank": 2, "scale": 8.0}}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    name = "model.layers.0.self_attn.o_proj"
    tensors = {f"{name}.lora_a": mx.ones((128, 2)), f"{name}.lora_b": mx.ones((2, 128))}
    mx.save_safetensors(str(folder / "adapters.safetensors"), tensors)
    return folder


def record(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_one_model_has_each_metric_with_its_interval(command, lines):
    done = command("evaluate", "llama", "--data", lines(CAPITALS))
    assert done.returncode == 0, done.stderr
    head, _, *rows = done.stdout.splitlines()
    assert head.split()[:2] == ["metric", "value"] and "95 % interval" in head
    assert [row.split()[0] for row in rows] == ["loss", "bits_per_byte", "accuracy"]
    assert all(" to " in row for row in rows) and "0.5" in rows[2]


def test_several_models_have_their_differences_from_the_first(command, lines):
    found = record(command("evaluate", "llama", "gpt2", "mamba", "--data", lines(CAPITALS), "--json"))
    assert found["items"] == 4 and found["versions"]["mlx-zoo"]
    losses = [figure for figure in found["figures"] if figure["metric"] == "loss"]
    assert [figure["model"] for figure in losses] == ["llama", "gpt2", "mamba"]
    assert losses[0]["difference"] is None
    for figure in losses[1:]:
        difference = figure["difference"]
        expected = figure["value"]["value"] - losses[0]["value"]["value"]
        assert difference["value"] == pytest.approx(expected)
        assert difference["low"] <= difference["value"] <= difference["high"] and difference["count"] == 4


def test_an_adapter_is_compared_with_the_model_without_it(command, lines, adapter):
    found = record(
        command(
            "evaluate",
            "llama",
            "--adapter",
            adapter,
            "--data",
            lines(CAPITALS),
            "--metrics",
            "loss",
            "--json",
        )
    )
    assert [figure["model"] for figure in found["figures"]] == ["llama", "llama + my-adapter"]
    assert found["figures"][1]["difference"]["value"] != 0


def test_the_record_is_written_as_it_is_printed_and_only_asked_items_are_judged(command, lines, tmp_path):
    asked = ("evaluate", "llama", "--data", lines(CAPITALS), "--limit", 2, "--metrics", "accuracy", "--json")
    found = record(command(*asked, "--out", "record.json"))
    written = json.loads((tmp_path / "record.json").read_text())
    assert written.pop("generator") and written == found
    assert found["items"] == 2 and found["figures"][0]["value"]["value"] == 1.0


def test_divergence_is_shown_of_the_second_model(command, lines):
    done = command("evaluate", "llama", "gpt2", "--data", lines(CAPITALS), "--metrics", "divergence")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split()[:2] == ["divergence", "gpt2"]


@pytest.mark.slow
def test_a_corpus_is_asked_without_data(command):
    found = record(command("evaluate", "gru", "--json"))
    assert {score["relation"] for score in found["scores"]} == {"capital"}
    assert all(score["right"] > 0 for score in found["scores"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["llama", "bert"], "bert fills masked tokens: it does not answer prompts"),
        (["llama", "--metrics", "recall@1"], "--metrics: 'recall@1' is not one of loss"),
        (["llama", "--metrics", "divergence"], "divergence compares two models: give a second SOURCE"),
        (["llama", "--num-fewshot", "1"], "--num-fewshot needs --tasks"),
        (["llama", "--tasks", "x"], "give either --data or --tasks"),
    ],
)
def test_what_cannot_be_judged_is_one_line(command, lines, arguments, words):
    done = command("evaluate", *arguments, "--data", lines(CAPITALS))
    assert done.returncode != 0 and done.stdout == ""
    assert words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["llama", "gpt2"], "give --data or --tasks to judge several models"),
        (["llama", "--metrics", "loss"], "--metrics needs --data"),
        (["llama", "--data", "missing.jsonl"], "missing.jsonl: no such file"),
    ],
)
def test_an_incomplete_command_is_one_line(command, arguments, words):
    done = command("evaluate", *arguments)
    assert done.returncode != 0 and words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tasks", "arc_easy"], "tasks need lm_eval and datasets"),
        (["--metrics", "bleu", "--data", "data.jsonl"], "BLEU and chrF need sacrebleu"),
    ],
)
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    command, lines, monkeypatch, arguments, words
):
    lines(CAPITALS)
    for module in ("tasks", "generated"):
        monkeypatch.setattr(f"zoo_evaluate.{module}.find_spec", lambda name: None)
    done = command("evaluate", "llama", *arguments)
    assert done.returncode != 0
    assert words in done.stderr and "pip install 'mlx-zoo[eval]'" in done.stderr
