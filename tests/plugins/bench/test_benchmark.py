"""Records of timed runs: what is in them, and what cannot be measured."""

import json
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import pytest

import zoo
from zoo.checkpoint.convert import save
from zoo.describe.facts.memory import cache_sizes
from zoo.errors import PromptError, SourceError, ZooError
from zoo.testing import subject
from zoo_bench import engine, profile
from zoo_bench.benchmark import benchmark, compared, is_record, read_record, share
from zoo_bench.engine import BenchmarkEngine, Lengths
from zoo_bench.limits import needs
from zoo_bench.profile import BlockClock
from zoo_bench.workloads import CODE, METRICS, ON_REQUEST, Workload, code, metric_named

# What mlx-lm wants to read, and the zoo has defaults for.
WRITTEN = {"model_type": "llama", "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
SHORT = Lengths(prompt=8, new=3, rows=2, context=20, chat=10)


@pytest.mark.slow
@pytest.mark.nightly
def test_every_work_has_its_figures_in_every_engine_that_does_it(tmp_path):
    folder = tmp_path / "model"
    loaded = zoo.load("llama")
    save(folder, loaded.model, loaded.architecture, loaded.recipe, loaded.config | WRITTEN)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((loaded.folder / name).read_bytes())
    reports = []
    record = benchmark(
        folder,
        ["mlx", "mlx-lm"],
        lengths=SHORT,
        runs=1,
        report=lambda done, total: reports.append((done, total)),
    )
    engines = record["engines"]
    usual = {one.name for one in METRICS if one.work not in (*ON_REQUEST, "translate")}
    assert set(engines["zoo"]) - {"runs"} == set(engines["mlx-lm"]) - {"runs"} == usual
    assert set(engines["mlx"]) - {"runs"} == {"load_seconds", "peak_bytes"}
    assert all(value > 0 for values in engines.values() for name, value in values.items() if name != "runs")
    assert engines["zoo"]["primitives"] < engines["mlx-lm"]["primitives"]
    assert reports[0] == (0, 7) and reports[-1] == (7, 7)
    assert all(
        share(record, metric_named(name)) > 0 for name in ("prefill_rate", "decode_rate", "batch_rate")
    )
    assert is_record(json.loads(json.dumps(record)))


@pytest.mark.slow
def test_only_what_is_asked_for_is_run():
    record = benchmark("llama", lengths=SHORT, only=["host"], runs=1)
    assert set(record["engines"]["zoo"]) == {"host_seconds", "primitives", "runs"}
    asked = [work for work in ON_REQUEST if work != "graph"]  # which is counted alone
    record = benchmark("llama", lengths=SHORT, only=asked, runs=1, profile=True)
    names = {one.name for one in METRICS if one.work in asked}
    assert set(record["engines"]["zoo"]) == names | {"runs"}
    for kinds in record["profile"].values():
        assert {"Attention", "Linear", "RMSNorm", "rest"} <= set(kinds) and min(kinds.values()) >= 0


@pytest.mark.slow
@pytest.mark.nightly
def test_a_translator_translates():
    record = benchmark("transformer", lengths=SHORT, runs=1, profile=True)
    assert all(
        {"Attention", "CrossAttention", "Linear", "rest"} <= set(kinds)
        for kinds in record["profile"].values()
    )
    rates = {"translation_rate", "translations_rate"}
    assert rates <= set(record["engines"]["zoo"]) and "decode_rate" not in record["engines"]["zoo"]
    with pytest.raises(SourceError, match="a translator"):
        benchmark("transformer", lengths=SHORT, only=["decode"], runs=1)


def test_a_token_reads_the_matrices_of_the_experts_that_it_chooses():
    recipe = subject("mixtral").recipe
    found = needs(recipe, 4.0, 4, Lengths(prompt=10, rows=2, context=1000))
    experts = recipe.layers[0].feedforward.experts.count
    assert found["batch_rate"] * 2 < 4 * recipe.parameters(recipe.dim) and experts > 1
    recipe = subject("llama").recipe
    found = needs(recipe, 4.0, 4, Lengths(prompt=10, rows=2, context=1000))
    cached = sum(kept.numbers_per_token for kept in cache_sizes(recipe))
    assert found["context_rate"] - found["decode_rate"] == pytest.approx(4 * cached * 990)


def test_without_a_tokenizer_words_that_are_alike_are_one_id():
    engine = BenchmarkEngine()
    engine.vocab = 5000
    found = code(Workload(engine, SHORT))
    assert len(set(found)) < len(found) / 2
    engine.encode = lambda text: list(text.encode())
    assert bytes(code(Workload(engine, SHORT))).decode() == CODE


def test_the_longest_text_is_that_of_the_works_asked_for():
    lengths = Lengths(prompt=10, new=5, rows=2, context=100, chat=50)
    assert lengths.longest(["decode"]) < 50 <= lengths.longest(["turn"]) < 100 <= lengths.longest(["context"])


def test_blocks_are_timed_without_the_blocks_in_them(monkeypatch):
    now = 0.0

    def pass_time(seconds):
        nonlocal now
        now += seconds

    monkeypatch.setattr(profile, "time", SimpleNamespace(perf_counter=lambda: now))

    class Inner(nn.Module):
        def __call__(self, x):
            pass_time(2)
            return x

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def __call__(self, x):
            pass_time(1)
            return self.inner(x)

    clock, model = BlockClock(), Outer()
    for kind in (Inner, Outer):
        clock.watch(kind)
    assert model(mx.array([1])).item() == 1
    assert clock.take() == {"Inner": 2, "Outer": 1}
    assert clock.take() == {}


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
@pytest.mark.parametrize("name", ["bert", "llada"])
def test_a_model_that_writes_no_text_token_by_token_is_refused_and_its_loading_timed(name):
    with pytest.raises(SourceError, match=f"{name}: not a model that writes"):
        benchmark(name, lengths=SHORT, only=["decode"], runs=1)
    assert benchmark(name, only=["load"], runs=1)["engines"]["zoo"]["load_seconds"] > 0


def test_an_engine_that_is_not_installed_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
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
    with pytest.raises(SourceError, match=r"none\.json: missing"):
        read_record(tmp_path / "none.json")
