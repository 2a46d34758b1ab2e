"""A recipe edited by hand is trained, loaded, quantized, resumed, and refused where it cannot be."""

import json

import mlx.core as mx
import pytest

import zoo
from zoo.architecture import Block, Corpus, hookimpl
from zoo.assemble import assemble
from zoo.checkpoint.convert import convert
from zoo.describe import describe
from zoo.errors import ConfigError, RecipeError, ZooError
from zoo.host.registry import default_registry, isolated
from zoo.host.resolve import recipe_architecture, recipe_config, recipe_from_json
from zoo.recipe import EncoderDecoder, LearnedPositions, RMSNorm
from zoo.testing import checks_of, outcome, subject, subject_of
from zoo.training import objective
from zoo.training.loop import Stopped, TrainingCallbacks
from zoo.training.masked_lm import MASKED_LM
from zoo.training.record import TrainingSettings
from zoo.training.run import pocket_config, settings_of, train_folder
from zoo.training.run_folder import settings_to_resume
from zoo_llada.objective import DIFFUSION
from zoo_prefix.objective import PREFIX_LM
from zoo_translation.objective import TRANSLATION

REGISTRY = default_registry()
SHORT = dict(batch=2, length=16, warmup=2)


def json_of(name, dim=16):
    """The JSON of a preset's recipe, made small."""
    value = json.loads(json.dumps(describe(name, REGISTRY).recipe.to_json()))
    value["embedding"]["dim"] = dim
    (run,) = value["layers"]
    run["repeat"] = 2
    return value


def holds_the_suite(loaded):
    subject = subject_of(loaded)
    failed = [result for check in checks_of(subject) if not (result := outcome(check, subject)).passed]
    assert not failed, failed


@pytest.fixture
def mixed():
    """LLaMA's pocket without rotary positions, with learned ones and Mixtral's experts for feed-forwards."""
    value = json_of("llama:pocket")
    layer = value["layers"][0]["layer"]
    layer["mixer"] |= dict(heads=2, kv_heads=1, head_dim=8, rope=None)
    value["embedding"]["positions"] = {"block": "position/learned", "context": 128}
    moe = json_of("mixtral:pocket")["layers"][0]["layer"]["feedforward"]
    moe["router"] |= dict(experts=4, top_k=2)
    moe["experts"] |= dict(count=4, hidden=32)
    layer["feedforward"] = moe
    return value


@pytest.fixture
def run(text, tokenizer_folder):
    def go(value, out, steps=3, **given):
        recipe = recipe_from_json(value, REGISTRY)
        if given.get("resume"):
            return train_folder(recipe, out, settings_to_resume(out, {"steps": steps}), **given)
        settings = TrainingSettings(steps=steps, corpus=str(text), **SHORT)
        return train_folder(recipe, out, settings, tokenizer=tokenizer_folder, **given)

    return go


@pytest.mark.slow
def test_learned_positions_and_experts_are_one_edited_file_away(mixed, run, tmp_path):
    record = run(mixed, tmp_path / "out")
    loaded = zoo.load(tmp_path / "out", dtype="float32")
    assert record.architecture == loaded.architecture.name == "zoo-recipe" and len(record.losses) == 3
    vocab = loaded.tokenizer.vocab_size
    edited = recipe_from_json(mixed, REGISTRY)
    assert vocab != edited.vocab and loaded.recipe == edited.with_vocab(vocab)
    assert loaded.recipe.parameters(16) == record.parameters
    assert isinstance(loaded.recipe.embedding.positions, LearnedPositions)
    layer = loaded.model.layers[1]
    assert layer.feedforward.experts.gate.weight.shape == (4, 32, 16) and layer.mixer.rope is None
    names = mx.load(str(tmp_path / "out" / "model.safetensors")).keys()
    assert {"embedding.positions.weight", "layers.1.feedforward.router.scores.weight"} <= names
    holds_the_suite(loaded)
    first = zoo.generate(loaded, "one two", max_tokens=4)
    assert len(first.tokens) == 4 and first.text
    convert(tmp_path / "out", tmp_path / "packed", quantize="4", group_size=32)
    packed = zoo.load(tmp_path / "packed")
    assert packed.recipe == loaded.recipe and "scales" in packed.model.layers[0].feedforward.experts.down
    assert len(zoo.generate(packed, "one two", max_tokens=4).tokens) == 4
    holds_the_suite(zoo.load(tmp_path / "packed", dtype="float32"))


def test_the_numbers_of_a_recipe_reach_the_model(mixed, run, tmp_path):
    mixed["layers"] = [mixed["layers"][0]["layer"]] * 2
    mixed["layers"][1] = json.loads(json.dumps(mixed["layers"][1]))
    mixed["layers"][1]["mixer"] |= dict(window=4, heads=4)
    mixed["layers"][1]["mixer_norm"]["eps"] = 0.25
    run(mixed, tmp_path / "out", steps=1)
    layers = zoo.load(tmp_path / "out").model.layers
    assert [layer.mixer.spec.heads for layer in layers] == [2, 4]
    assert [layer.mixer_norm.eps for layer in layers] == [1e-6, 0.25]
    assert [layer.mixer.query.weight.shape[0] for layer in layers] == [16, 32]


@pytest.mark.slow
def test_a_run_is_resumed_by_its_recipe_or_by_nothing_and_by_no_other(mixed, run, tmp_path):
    run(mixed, tmp_path / "whole", steps=5)
    done = []
    stopping = TrainingCallbacks(step=lambda step, *_: done.append(step), stop=lambda: len(done) == 2)
    with pytest.raises(Stopped):
        run(mixed, tmp_path / "out", steps=5, callbacks=stopping)
    run(mixed, tmp_path / "out", steps=5, resume=True)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "out")]
    assert models[0] == models[1]
    settings = settings_to_resume(tmp_path / "out", {"steps": 6})
    assert train_folder(None, tmp_path / "out", settings, resume=True).settings["steps"] == 6
    mixed["norm"]["eps"] = 0.5
    with pytest.raises(ZooError, match="its run has another recipe; leave the given one out"):
        run(mixed, tmp_path / "out", steps=7, resume=True)
    settings = settings_to_resume(tmp_path / "out", {"steps": 7})
    with pytest.raises(ZooError, match="its run trains zoo-recipe, not llama"):
        train_folder("llama", tmp_path / "out", settings, resume=True)
    with pytest.raises(ZooError, match="leave `config` out"):
        train_folder(None, tmp_path / "out", settings, resume=True, config={})


@pytest.mark.slow
def test_an_encoder_and_a_translator_say_what_they_do(tmp_path, tokenizer_folder, text):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"source": "one", "target": "eins"}\n{"source": "two", "target": "zwei"}\n')
    for name, task, method in (
        ("bert:pocket", "fill-mask", MASKED_LM),
        ("llada:pocket", "denoise", DIFFUSION),
        ("prefix-lm:pocket", "generate", PREFIX_LM),
        ("transformer:pocket", "translate", TRANSLATION),
    ):
        recipe = describe(name, REGISTRY).recipe
        assert settings_of(recipe, {}).steps == method.steps
        assert objective.objective_of(recipe_architecture(recipe_config(recipe), REGISTRY)) is method
        out = tmp_path / task / name.partition(":")[0]
        corpus = str(pairs if task == "translate" else text)
        train_folder(
            recipe, out, TrainingSettings(steps=1, corpus=corpus, **SHORT), tokenizer=tokenizer_folder
        )
        loaded = zoo.load(out)
        assert loaded.architecture.task == task and loaded.architecture.causality == recipe.causality
        assert type(loaded.recipe) is type(recipe)
        if isinstance(recipe, EncoderDecoder):
            assert loaded.recipe.encoder.embedding.vocab == loaded.recipe.head.vocab
        prompt = "one [MASK]" if task == "fill-mask" else "one two"
        assert list(zoo.stream(loaded, prompt))


def test_positions_that_are_too_few_for_a_row_are_said(mixed, run, tmp_path):
    mixed["context"], mixed["embedding"]["positions"]["context"] = 12, 12
    with pytest.raises(ConfigError, match="`length`: zoo-recipe has 12 positions, fewer than 16"):
        run(mixed, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_that_memory_cannot_hold_is_refused_by_the_sum(mixed, run, tmp_path, monkeypatch):
    count = recipe_from_json(mixed, REGISTRY).parameters(16)
    monkeypatch.setattr("zoo.runtime.usable_memory", lambda: 16 * count - 1)
    monkeypatch.setattr("zoo.training.run.assemble", None)
    with pytest.raises(RecipeError, match=f"the model does not fit: 4 × {count:,} parameters in float32"):
        run(mixed, tmp_path / "out")
    monkeypatch.setattr(
        "zoo.runtime.usable_memory", lambda: 16 * count + 4 * 2 * 16 * SHORT["batch"] * 16 - 1
    )
    with pytest.raises(RecipeError, match="the layers' outputs for 32 tokens a step"):
        run(mixed, tmp_path / "out")
    numbers = dict(pocket_config(REGISTRY.architecture("llama")), intermediate_size=16_000_000)
    with pytest.raises(RecipeError, match="the model does not fit"):
        train_folder("llama", tmp_path / "out", TrainingSettings(steps=1), config=numbers)
    assert not (tmp_path / "out").exists()


def test_random_weights_beyond_memory_are_not_made(monkeypatch):
    recipe = subject("llama").recipe
    monkeypatch.setattr("zoo.runtime.usable_memory", lambda: 4 * recipe.parameters(recipe.dim))
    assert assemble(recipe, REGISTRY, copies=1)
    with pytest.raises(RecipeError, match="the model does not fit"):
        assemble(recipe, REGISTRY, copies=2)


def test_a_recipe_goes_with_no_config_and_nothing_is_not_trained(mixed, run, tmp_path):
    with pytest.raises(ZooError, match="a recipe says everything about its model: leave `config` out"):
        run(mixed, tmp_path / "out", config={"hidden_size": 32})
    with pytest.raises(ZooError, match="only `resume` goes without"):
        train_folder(None, tmp_path / "out", TrainingSettings(steps=1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda value: value.pop("recipe"), "config.json: recipe is missing"),
        (
            lambda value: value["recipe"].pop("head"),
            "config.json: recipe.head: is missing from model/decoder",
        ),
        (
            lambda value: value["recipe"]["layers"][0]["layer"]["mixer"].update(kv_heads=3),
            "config.json: recipe.layers.0.mixer.kv_heads: 3 does not divide heads, 2",
        ),
        (
            lambda value: value["recipe"]["layers"][0].update(repeat=1999),
            r"config.json: its sizes make [\d,]+ parameters, but the weights are",
        ),
    ],
)
def test_a_damaged_folder_names_the_field(mixed, run, tmp_path, change, words):
    run(mixed, tmp_path / "out", steps=1)
    path = tmp_path / "out" / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=f"^{words}"):
        zoo.load(tmp_path / "out")


class Mine:
    """A plugin with a norm of its own and a corpus, known to one registry alone."""

    @hookimpl
    def zoo_blocks(self):
        yield Block(Doubled, f"{__name__}:DoubledNorm")

    @hookimpl
    def zoo_corpora(self):
        yield Corpus("counting", f"{__name__}:counting", tasks=("generate",))


class Doubled(RMSNorm):
    """Twice what RMSNorm gives."""

    name = "doubled"


def counting(split, seed):
    return iter([f"{n} and one is {n + 1}." for n in range(seed, seed + (40 if split == "train" else 4))])


def test_a_third_partys_block_is_trained_through_the_registry_given(
    mixed, tmp_path, tokenizer_folder, monkeypatch
):
    import sys

    from zoo.blocks.norm import RMSNorm as Norm

    class DoubledNorm(Norm):
        def __call__(self, x):
            return 2 * super().__call__(x)

    module = sys.modules[__name__]
    monkeypatch.setattr(module, "DoubledNorm", DoubledNorm, raising=False)
    registry = isolated(Mine())
    mixed["norm"]["block"] = "norm/doubled"
    with pytest.raises(RecipeError, match=r"norm\.block: no installed plugin has the block 'norm/doubled'"):
        recipe_from_json(mixed, REGISTRY)
    recipe = recipe_from_json(mixed, registry)
    settings = settings_of(recipe, dict(steps=1, corpus="counting", **SHORT), registry)
    asked = []
    monkeypatch.setattr("zoo.training.run.sample", lambda loaded, *prompt: asked.append(loaded.registry))
    train_folder(recipe, tmp_path / "out", settings, tokenizer=tokenizer_folder, registry=registry)
    assert asked == [registry]
    loaded = zoo.load(tmp_path / "out", registry=registry)
    assert isinstance(loaded.model.norm, DoubledNorm) and loaded.registry is registry
    with pytest.raises(ConfigError, match=r"config.json: recipe\.norm\.block: no installed plugin has"):
        zoo.load(tmp_path / "out")
