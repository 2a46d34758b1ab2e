"""The device: its dtypes and its memory."""

import copy
import os
import subprocess
import sys

import pytest

import zoo
from zoo import runtime
from zoo.errors import ZooError
from zoo.generation.prompts_file import answer_prompts, read_prompts
from zoo.loading import shortage
from zoo.runtime import device


def test_a_fused_function_can_be_copied_with_the_module_that_holds_it(monkeypatch):
    monkeypatch.setattr(device, "on_gpu", lambda: True)
    assert copy.deepcopy({"activation": runtime.fused(lambda x: x * 2)})["activation"] is not None


def test_dtypes():
    import mlx.core as mx

    assert runtime.compute_dtype("float16") == mx.float16
    if not runtime.on_gpu():
        assert runtime.compute_dtype() == mx.float32
    with pytest.raises(ZooError, match="int4"):
        runtime.compute_dtype("int4")


def test_a_gpu_joins_projections_at_any_size(monkeypatch):
    assert runtime.joins_projections(2**30)
    for gpu in (False, True):
        monkeypatch.setattr(device, "on_gpu", lambda gpu=gpu: gpu)
        assert runtime.joins_projections(2**40) == gpu


@pytest.mark.parametrize(("given", "kept"), [({}, "0"), ({"MLX_ENABLE_TF32": "1"}, "1")])
def test_float32_products_are_not_rounded_unless_asked_for(given, kept):
    code = "import zoo, os; print(os.environ['MLX_ENABLE_TF32'])"
    environment = {name: value for name, value in os.environ.items() if name != "MLX_ENABLE_TF32"} | given
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).strip() == kept


def test_memory_is_measured():
    import mlx.core as mx

    mx.clear_cache()
    mx.reset_peak_memory()
    assert runtime.total_memory() > 2**30
    before = runtime.peak_memory()
    mx.eval(mx.ones((before // 4 + 2**20,)))
    assert runtime.peak_memory() >= before + 2**22


@pytest.fixture
def metal(monkeypatch):
    """The limits that are set on a Mac which recommends 12 GB, and the times that MLX's pool is cleared."""
    import mlx.core as mx

    limits, cleared = [], []
    monkeypatch.setattr(device, "on_metal", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 12 * 10**9})
    monkeypatch.setattr(mx, "set_wired_limit", limits.append)
    monkeypatch.setattr(mx, "clear_cache", lambda: cleared.append(1))
    return limits, cleared


def test_memory_is_wired_while_a_text_is_generated_and_no_longer(metal):
    limits, _ = metal
    loaded = zoo.load("llama")
    assert limits == []
    first, second = (zoo.stream(loaded, "The capital", max_tokens=4) for _ in range(2))
    next(first), next(second)
    assert set(limits) == {12 * 10**9}
    first.close()
    assert 0 not in limits
    list(second)
    assert limits[-1] == 0


def test_memory_is_wired_for_a_file_of_prompts(metal, tmp_path):
    limits, _ = metal
    (tmp_path / "prompts.txt").write_text("The capital\n")
    loaded = zoo.load("llama")
    lines = read_prompts(loaded, tmp_path / "prompts.txt", {})
    answers = list(answer_prompts(loaded, lines, tmp_path / "answers.jsonl", max_tokens=2))
    assert len(answers) == 1 and limits == [12 * 10**9, 0]


def test_a_forked_process_calls_nothing_of_mlx_at_the_end(metal, monkeypatch):
    import mlx.core as mx

    limits, cleared = metal
    monkeypatch.setattr(mx, "synchronize", lambda: pytest.fail("MLX was called"))
    with runtime.wired_memory():
        monkeypatch.setattr(device, "_forked", lambda: True)
    runtime.release_memory()
    assert limits == [12 * 10**9] and not cleared


def test_the_pool_is_cleared_for_each_chunk_of_a_prompt_and_as_caches_grow(metal, monkeypatch):
    _, cleared = metal
    monkeypatch.setattr("zoo.generation.loop.batch_decoder.RELEASED_AFTER", 8)
    loaded = zoo.load("llama")
    zoo.generate(loaded, [5] * 100, prefill_chunk=10, max_tokens=1)
    assert len(cleared) >= 10
    cleared.clear()
    zoo.generate(loaded, [5], max_tokens=18, min_tokens=18)
    assert len(cleared) == 3


def test_a_model_has_the_memory_that_metal_recommends(metal):
    assert runtime.usable_memory() == 12 * 10**9
    assert shortage({"weights": 11 * 10**9}) is None
    assert shortage({"weights": 13 * 10**9}) == "weights 13.0 GB, usable memory 12.0 GB"
