"""A plugin of version 1 of the contract, never edited: what it does must go on as it was."""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

import zoo
from zoo.architecture import API
from zoo.checkpoint.parameters import export
from zoo.checkpoint.save import save
from zoo.config import Config
from zoo.errors import ConfigError, RecipeError
from zoo.host.discovery import load_plugins
from zoo.host.registry import Registry, using
from zoo.testing import check_architecture, same, subject

FOLDER = Path(__file__).parents[1] / "frozen_v1"
NAMES = ("frozen", "frozen-memory", "frozen-llama")

# Of every file of the folder. A change here is a change of what is published: raise `zoo.architecture.API` instead.
FROZEN = {
    "pyproject.toml": "dcba1c33eae952d4c6399d7a6636d0c8bebdaa269521170bb6debc2c6c41c5e7",
    "zoo_frozen/__init__.py": "3595481d5987a7d7f2c6d3cfc2e40832c5eba80ad262909d1f83181bd58fdd6b",
    "zoo_frozen/block.py": "7059f2f391015e42c1c5024e0722e4a27dcace729d3f2af1254b838057428e68",
    "zoo_frozen/command.py": "69e09642c7deb463c70acaf9e1826cb2871c4aef903d958e42c68a38a7461708",
    "zoo_frozen/strategy.py": "4239fe67ea95772ec0f1a3c33eb982b3bc3d1377cb868576bea897f4d69e6ef7",
}


@pytest.fixture
def known(site):
    site.install(FOLDER)
    found = Registry(load_plugins({"ZOO_STRICT": "1"}))
    with using(found):
        yield found
    for name in [name for name in sys.modules if name.partition(".")[0] == "zoo_frozen"]:
        del sys.modules[name]


def test_nobody_has_edited_it():
    found = {
        str(path.relative_to(FOLDER)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in (".py", ".toml")
    }
    assert found == FROZEN


def test_its_version_is_still_spoken(known):
    plugin = known.plugin("zoo-frozen")
    assert plugin.state == "loaded" and API >= 1
    assert plugin.gives == [
        *NAMES,
        *("norm/frozen-length", "mixer/frozen-attention", "mixer/frozen-memory", "layer/frozen-gated"),
        *("strategy/frozen-greedy", "zoo frozen", "zoo_resolve"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_its_architectures_hold_the_suite(known, name):
    check_architecture(name, known=known)


def test_its_recipe_is_what_it_was(known):
    architecture = known.architecture("frozen")
    recipe = architecture.recipe(Config(architecture.preset("tiny").config))
    assert [layer.mixer.window for layer in recipe.layers] == [None, 6]
    assert recipe.layers[0].mixer.rope.interleaved and recipe.layers[0].mixer.rope.theta == 50.0
    assert recipe.layers[0].feedforward.router.top_k == 2 and recipe.head.vocab == 128
    assert recipe.parameters(32) == 39_764
    assert (recipe.cached(32), recipe.carried(32)) == (128, 0)
    assert (
        known.architecture("frozen-memory").recipe(Config(dict(width=16, layers=2, vocab=64))).carried(16)
        == 32
    )
    for changes, key in (
        ({"biases": True}, "biases"),
        ({"decay": None}, "decay"),
        ({"norm": "none"}, "norm"),
        ({"heads": 5}, "heads"),
    ):
        with pytest.raises(ConfigError, match=key):
            architecture.recipe(Config(dict(architecture.preset("tiny").config) | changes))
    with pytest.raises(RecipeError, match="decay"):
        known.architecture("frozen-memory").recipe(Config(dict(width=16, layers=2, vocab=64, decay=1.0)))


NAMED = {
    *("net.words.weight", "final.weight", "final.bias", "logits.weight"),
    *(
        f"body.{i}.{name}"
        for i in range(2)
        for name in (
            *("qkv", "out", "head_scale", "gain", "gate", "router.weight"),
            *(f"shared.{part}.weight" for part in ("gate", "up", "down")),
            *(f"expert.{e}.{part}.weight" for e in range(4) for part in ("gate", "up", "down")),
        )
    ),
}


def test_its_tensors_have_the_names_and_orientations_they_had(known):
    made = subject("frozen", known=known)
    tensors = export(made.model, made.architecture, made.recipe)
    assert set(tensors) == NAMED
    layer = made.model.layers[0]
    joined = mx.concatenate([layer.mixer.query.weight, layer.mixer.key.weight, layer.mixer.value.weight])
    assert mx.array_equal(tensors["body.0.qkv"], joined.T)
    assert mx.array_equal(tensors["body.0.out"], layer.mixer.output.weight.T)
    assert mx.array_equal(tensors["body.0.expert.3.up.weight"], layer.feedforward.experts.up.weight[3])


@pytest.mark.filterwarnings("ignore:config.json. unknown to this architecture, ignored. frozen_marks")
def test_a_checkpoint_in_either_layout_is_found_by_its_model_type(known, tmp_path):
    made = subject("frozen", known=known)
    save(tmp_path / "hf", made.model, made.architecture, made.recipe, made.numbers)
    tensors = {
        f"model.{path}".replace("model.layers.", "model.body.")
        .replace("model.embedding.tokens", "model.words")
        .replace("model.norm.", "model.final.")
        .replace("model.head.output", "logits"): array
        for path, array in tree_flatten(made.model.parameters())
    }
    (tmp_path / "mlx").mkdir()
    mx.save_safetensors(str(tmp_path / "mlx" / "model.safetensors"), tensors, metadata={"format": "mlx"})
    (tmp_path / "mlx" / "config.json").write_text(json.dumps({"model_type": "frozen-v1", **made.numbers}))
    (tmp_path / "marked").mkdir()
    shutil.copy(tmp_path / "hf" / "model.safetensors", tmp_path / "marked")
    marked = {"frozen_marks": 1, **made.numbers}  # zoo_resolve knows it, and no model_type is there
    (tmp_path / "marked" / "config.json").write_text(json.dumps(marked))
    for folder in ("hf", "mlx", "marked"):
        loaded = zoo.load(tmp_path / folder, dtype="float32")
        assert loaded.architecture is made.architecture
        same(loaded.model(made.tokens), made.model(made.tokens), folder)


def test_its_strategy_says_what_greedy_decoding_says(known):
    llama = zoo.load("llama")
    prompt = "The capital city of China is"
    made = zoo.generate(llama, prompt, strategy="frozen-greedy", max_tokens=12)
    plain = zoo.generate(llama, prompt, max_tokens=12)
    assert (made.tokens, made.text, made.finish_reason) == (plain.tokens, plain.text, plain.finish_reason)
    with pytest.raises(zoo.ZooError, match="`max_tokens`"):
        zoo.stream(llama, prompt, strategy="frozen-greedy", max_tokens=0)


def test_its_command_runs(site, command):
    site.install(FOLDER)
    done = command("frozen", "as ever", environment=site.environment)
    assert done.stdout == "frozen: as ever\n"
    refused = command("frozen", "", environment=site.environment)
    assert refused.returncode == 1 and refused.stderr == "zoo: error: the word is empty\n"
