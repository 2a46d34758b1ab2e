"""Records of timed runs: what is in them, and what cannot be measured."""

import json

import pytest

import zoo
from zoo.checkpoint.save import save
from zoo.errors import PromptError, SourceError, ZooError
from zoo.insight.benchmark import FIGURES, Lengths, benchmark, compared, is_record, peers, read_record

# What mlx-lm wants to read, and the zoo has defaults for.
WRITTEN = {"model_type": "llama", "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
SHORT = Lengths(prompt=8, new=3, rows=2)


@pytest.mark.slow
def test_every_work_has_its_figures_in_every_engine_that_does_it(tmp_path):
    folder = tmp_path / "model"
    loaded = zoo.load("llama")
    save(folder, loaded.model, loaded.architecture, loaded.recipe, loaded.config | WRITTEN)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((loaded.folder / name).read_bytes())
    told = []
    record = benchmark(
        folder,
        ["mlx", "mlx-lm"],
        lengths=SHORT,
        runs=1,
        report=lambda done, total: told.append((done, total)),
    )
    engines = record["engines"]
    every = {one.name for one in FIGURES}
    assert set(engines["zoo"]) - {"runs"} == set(engines["mlx-lm"]) - {"runs"} == every
    assert set(engines["mlx"]) - {"runs"} == {"load_seconds", "peak_bytes"}
    assert all(value > 0 for values in engines.values() for name, value in values.items() if name != "runs")
    assert engines["zoo"]["primitives"] < engines["mlx-lm"]["primitives"]
    assert told[0] == (0, 6) and told[-1] == (6, 6)
    assert is_record(json.loads(json.dumps(record)))


@pytest.mark.slow
def test_only_what_is_asked_for_is_run():
    record = benchmark("llama", lengths=SHORT, only=["host"], runs=1)
    assert set(record["engines"]["zoo"]) == {"host_seconds", "primitives", "runs"}


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: Lengths(new=1), PromptError, "`new`"),
        (lambda: Lengths(rows=0), PromptError, "`rows`"),
        (lambda: benchmark("llama", runs=0), PromptError, "`runs`"),
        (lambda: benchmark("llama", ["vllm"]), ZooError, "'vllm'"),
        (lambda: benchmark("llama", only=["speed"]), ZooError, "'speed'"),
        (lambda: benchmark("./nowhere"), SourceError, "nowhere"),
    ],
)
def test_what_cannot_be_is_one_line(call, error, word):
    with pytest.raises(error, match=word):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "bert", "llada"])
def test_a_model_that_writes_no_text_token_by_token_is_refused_and_its_loading_timed(name):
    with pytest.raises(SourceError, match=f"{name}: not a model that writes"):
        benchmark(name, lengths=SHORT, only=["decode"], runs=1)
    assert benchmark(name, only=["load"], runs=1)["engines"]["zoo"]["load_seconds"] > 0


def test_an_engine_that_is_not_installed_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    with pytest.raises(SourceError, match="pip install mlx-lm"):
        benchmark("llama", ["mlx-lm"])


def test_two_records_are_compared_by_what_is_better():
    old = {"engines": {"zoo": {"decode_rate": 100.0, "host_seconds": 0.002, "load_seconds": 1.0}}}
    new = {"engines": {"zoo": {"decode_rate": 50.0, "host_seconds": 0.001, "runs": []}}}
    rows = {name: ratio for name, _, _, ratio in compared(new, old)}
    assert rows == {"decode_rate": 0.5, "host_seconds": 2.0}


@pytest.mark.parametrize("text", ["{", "[]", '{"what": "load"}'])
def test_a_file_without_a_record_is_refused(tmp_path, text):
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(SourceError, match=r"old\.json"):
        read_record(path)
    with pytest.raises(SourceError, match="No such file"):
        read_record(tmp_path / "none.json")
