"""Decoders whose config says `is_causal: false` are encoders: they give vectors, and no text."""

import json

import mlx.core as mx
import pytest

import zoo
from tests.helpers.gguf_files import random_folder
from zoo.checkpoint.convert import convert
from zoo.describe import describe
from zoo.errors import ConfigError, ZooError
from zoo.host.registry import default_registry

REGISTRY = default_registry()
DECODERS = [a.name for a in REGISTRY.architectures.values() if a.task == "generate" and not a.bridged]
TEXTS = [[5, 3, 9, 8, 1, 7, 7, 2], [4, 4, 30]]


def two_sided(folder, name="llama", **changes):
    """A folder of random weights of a decoder, whose attention goes both ways."""
    random_folder(folder, name, **changes)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "is_causal": False}))
    return folder


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "mistral", "gpt2", "gpt-oss"])
def test_each_token_sees_those_after_it(tmp_path, name):
    loaded = zoo.load(two_sided(tmp_path / "model", name))
    assert (loaded.architecture.task, loaded.architecture.causality) == ("encode", "full")
    assert (loaded.recipe.task, loaded.recipe.causality) == ("encode", "full")
    first, second = (loaded.model.encode(mx.array([[5, 3, 9, last]])) for last in (1, 2))
    assert mx.abs(first[:, 0] - second[:, 0]).max() > 1e-3


def test_texts_are_embedded_alone_and_in_a_batch_alike(tmp_path):
    loaded = zoo.load(two_sided(tmp_path / "model"))
    together = zoo.embed(loaded, TEXTS)
    alone = mx.concatenate([zoo.embed(loaded, [text]) for text in TEXTS])
    assert mx.allclose(together, alone, atol=1e-5)


def test_a_window_reaches_as_far_on_both_sides(tmp_path):
    loaded = zoo.load(two_sided(tmp_path / "model", "mistral", sliding_window=2, num_hidden_layers=1))
    states = [loaded.model.encode(mx.array([[*range(1, 10), last]])) for last in (20, 21)]
    changed = [bool(mx.abs(a - b).max() > 1e-6) for a, b in zip(states[0][0], states[1][0], strict=True)]
    assert changed == [False] * 7 + [True] * 3


def test_text_is_refused_by_the_task(tmp_path):
    loaded = zoo.load(two_sided(tmp_path / "model"))
    with pytest.raises(ZooError, match="encode"):
        zoo.generate(loaded, TEXTS[0], max_tokens=2)


def test_it_is_described_and_converted_as_it_loads(tmp_path):
    folder = two_sided(tmp_path / "model")
    loaded = zoo.load(folder)
    found = describe(str(folder), REGISTRY)
    assert (found.recipe, found.architecture.task) == (loaded.recipe, "encode")
    convert(folder, tmp_path / "out")
    assert mx.array_equal(zoo.embed(zoo.load(tmp_path / "out"), TEXTS), zoo.embed(loaded, TEXTS))
    assert (
        REGISTRY.plugin_of(loaded.architecture).name
        == REGISTRY.plugin_of(REGISTRY.architecture("llama")).name
    )


@pytest.mark.parametrize("name", ["mamba", "jamba", "qwen3-next", "t5", "bart"])
def test_models_that_cannot_are_refused_by_the_key(tmp_path, name):
    with pytest.raises(ConfigError, match="is_causal False is not implemented"):
        zoo.load(two_sided(tmp_path / "model", name))


@pytest.mark.filterwarnings("error")
def test_an_encoder_is_not_changed(tmp_path):
    plain, both = random_folder(tmp_path / "a", "bert"), two_sided(tmp_path / "b", "bert")
    assert zoo.load(plain).recipe == zoo.load(both).recipe
