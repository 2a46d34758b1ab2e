"""Every architecture of mlx-lm that instantiates from a small config runs through the bridge, as mlx-lm runs it.

A random model is saved by mlx-lm, found by its model_type or asked for by name, loaded, run with its caches, streamed,
quantized by the zoo's converter and loaded by both again. `pytest -s` shows the count, and the reasons of the others.
"""

import pytest

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from tests.helpers.mlx_lm_configs import VOCAB, load, write
from zoo.checkpoint.convert import convert
from zoo.host.registry import default_registry
from zoo.testing import same
from zoo_mlx_lm import modules

LENGTH, NEW = 14, 5
MOST = 122  # of 126: two have kernels for Metal alone, one needs a package, one exists packed only
ran, failed = [], {}


@pytest.fixture(autouse=True, scope="module")
def interpreted():
    """No kernels are compiled: on a CPU each would call the C++ compiler."""
    mx.disable_compile()
    yield
    mx.enable_compile()


def finite(logits):
    """What is −∞ by a model's design set aside."""
    return mx.where(mx.isfinite(logits), logits, 0)


def logits(network, tokens):
    """mlx-lm's own."""
    found = finite(network(tokens, cache=make_prompt_cache(network)))
    mx.eval(found)
    return found


def agree(loaded, expected, tokens):
    same(finite(loaded.model(tokens, loaded.model.make_cache())), expected, "logits")


@pytest.mark.parametrize("module", modules())
def test_runs_as_in_mlx_lm(module, tmp_path):
    tokens = mx.random.randint(0, VOCAB, (1, LENGTH), key=mx.random.key(1))
    try:
        expected = logits(write(tmp_path / "model", module), tokens)
    except (Exception, SystemExit) as error:
        failed[module] = f"{type(error).__name__}: {error}"
        return  # mlx-lm itself does not make or run it; the count below notices when these become more
    name = f"mlx-lm::{module}"
    loaded = zoo.load(tmp_path / "model", architecture=None if name in default_registry().bridged else name)
    assert loaded.architecture.name == name
    agree(loaded, expected, tokens)
    prompt = tokens[0].tolist()
    new = zoo.generate(loaded, prompt, max_tokens=NEW, temperature=0.0, prefill_chunk=6).tokens
    rows = finite(loaded.model(mx.array([prompt + new]))[0, LENGTH - 1 : -1])  # (NEW, V)
    for row, token in zip(rows, new, strict=True):
        lost = (row.max() - row[token]).item()
        assert lost <= 1e-3 * (row.max() - row.min()).item(), f"{token} is not the likeliest"
    convert(tmp_path / "model", tmp_path / "q", quantize="4", group_size=32, architecture=name)
    expected = logits(load(tmp_path / "q", module), tokens)
    agree(zoo.load(tmp_path / "q", architecture=name), expected, tokens)
    ran.append(module)


def test_the_count():
    if len(ran) + len(failed) < len(modules()):
        pytest.skip("counts all of the others, which did not all run or pass")
    print(f"\n{len(ran)} of mlx-lm's {len(modules())} architectures instantiate and run through the bridge")
    print(*(f"not {name}: {reason}" for name, reason in failed.items()), sep="\n")
    assert len(ran) >= MOST
