"""Several adapters of one model: each text uses the one that it names, or none."""

from functools import partial

import mlx.core as mx
import pytest

import zoo
from tests.checkpoint.test_adapter import adapter
from zoo.checkpoint.convert import convert
from zoo.errors import CheckpointError, PromptError
from zoo.inspect.tracing import trace
from zoo.testing.subjects import same
from zoo.training.adapters import AdapterSettings, adapter_files, add_adapters, write_adapter

PROMPTS = ["The capital city of China is", "The capital of France is", "中国的首都是"]


def write(source, folder, kind="lora", parts=("all",)):
    """An adapter of random numbers for all linear layers of a model."""
    loaded = zoo.load(source)
    settings = AdapterSettings(kind=kind, parts=parts)
    chosen = add_adapters(loaded.model, settings, seed=sum(map(ord, folder.name)))
    for layer in loaded.model.modules():
        if "lora_b" in layer:
            layer.lora_b = 0.02 * mx.random.normal(layer.lora_b.shape)
    folder.mkdir()
    write_adapter(folder, *adapter_files(loaded.model, settings, chosen, loaded.architecture, loaded.recipe))
    return folder


def texts(loaded, **settings):
    return [found.text for found in zoo.batch(loaded, PROMPTS, max_tokens=8, **settings)]


@pytest.fixture
def packed(tmp_path):
    convert("llama", tmp_path / "packed", quantize="8", group_size=32)
    return tmp_path / "packed"


@pytest.mark.slow
@pytest.mark.parametrize("source", ["llama", "mixtral", "mamba", "packed"])
def test_texts_side_by_side_are_those_of_models_with_one_adapter_each(source, tmp_path, request):
    source = request.getfixturevalue("packed") if source == "packed" else source
    folders = {
        "a": write(source, tmp_path / "a", parts=("all", "embedding.tokens")),
        "b": write(source, tmp_path / "b", "dora" if source in ("llama", "mamba") else "lora"),
    }
    load = partial(zoo.load, source, dtype="float32")  # random changes make near ties
    expected = {name: texts(load(adapter=folder)) for name, folder in folders.items()}
    expected[None] = texts(load())
    assert len({tuple(found) for found in expected.values()}) == 3
    loaded = load(adapters=folders)
    engine = zoo.Engine(loaded, prompt_cache=zoo.PromptCache(loaded))
    for _ in range(2):  # the second time, the prompt cache has all prompts
        handles = {
            engine.add(prompt, max_tokens=8, adapter=name): (name, index)
            for index, prompt in enumerate(PROMPTS)
            for name in expected
        }
        found = dict.fromkeys(handles, "")
        for handle, step in engine.run():
            found[handle] += step.text
        for handle, (name, index) in handles.items():
            assert found[handle] == expected[name][index], (name, PROMPTS[index])


@pytest.mark.parametrize("settings", [{"beams": 2}, {"strategy": "best-of", "seed": 1}, {"prompt_lookup": 3}])
def test_every_strategy_uses_the_adapter(settings, tmp_path):
    folder = write("llama", tmp_path / "a")
    loaded, alone = zoo.load("llama", adapters={"a": folder}), zoo.load("llama", adapter=folder)
    expected = zoo.generate(alone, PROMPTS[0], max_tokens=4, **settings).text
    assert zoo.generate(loaded, PROMPTS[0], max_tokens=4, adapter="a", **settings).text == expected


def test_without_a_name_the_model_is_as_it_was(tmp_path):
    loaded, plain = zoo.load("llama", adapters={"a": write("llama", tmp_path / "a")}), zoo.load("llama")
    zoo.generate(loaded, PROMPTS[0], max_tokens=2, adapter="a")
    tokens = mx.array([plain.tokenizer.encode(PROMPTS[0])])
    same(loaded.model(tokens), plain.model(tokens), "logits without an adapter", 1e-5)
    assert "layers.3.mixer.query" in trace(loaded, PROMPTS[0])


def test_an_unknown_name_and_an_adapter_of_whole_weights_are_refused(tmp_path):
    with pytest.raises(PromptError, match="`adapter` a: the model was loaded with none"):
        zoo.generate(zoo.load("llama"), PROMPTS[0], adapter="a")
    adapter(tmp_path / "full", {"model.norm.weight": mx.zeros((128,))}, fine_tune_type="full")
    with pytest.raises(CheckpointError, match=r"adapter full: norm\.weight is new as a whole"):
        zoo.load("llama", adapters={"full": tmp_path / "full"})


def test_what_an_adapter_computed_is_kept_in_no_file(tmp_path):
    loaded = zoo.load("llama", adapters={"a": write("llama", tmp_path / "a")})
    cache = zoo.PromptCache(loaded)
    for name in (None, "a"):
        zoo.generate(loaded, PROMPTS[0], max_tokens=2, adapter=name, prompt_cache=cache)
    cache.save(tmp_path / "prompts")
    kept = zoo.PromptCache.load(tmp_path / "prompts", loaded)
    assert [policy.adapter for policy in kept.trees] == [None]
