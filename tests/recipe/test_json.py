"""Recipes as JSON: every architecture's survives, an edit by hand is one, and what cannot be names its field."""

import json
from dataclasses import dataclass

import pytest

from zoo.config import Config
from zoo.describe import describe
from zoo.errors import RecipeError
from zoo.host.registry import default_registry, isolated
from zoo.host.resolve import read_recipe, recipe_from_json
from zoo.recipe import Decoder, Model, RMSNorm, Spec, from_json

REGISTRY = default_registry()
PRESETS = [
    (architecture.name, preset.name)
    for architecture in REGISTRY.architectures.values()
    for preset in architecture.presets
    if preset.config is not None
]


def recipe_of(name):
    return describe(name, REGISTRY).recipe


def edited(name="llama:pocket"):
    return json.loads(json.dumps(recipe_of(name).to_json()))


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_every_recipe_survives_json(name, preset):
    config = REGISTRY.architecture(name).preset(preset).config
    architecture = REGISTRY.architecture(name).with_causality(config)
    recipe = architecture.recipe(Config(config))
    text = json.dumps(recipe.to_json())
    back = recipe_from_json(json.loads(text), REGISTRY)
    assert back == recipe and type(back) is type(recipe)
    assert list(map(type, dict(back.walk()).values())) == list(map(type, dict(recipe.walk()).values()))
    assert json.dumps(back.to_json()) == text
    assert isinstance(recipe, Model)
    # A BERT that was published without its head makes vectors only.
    task = "encode" if recipe.head is None else architecture.task
    assert (recipe.task, recipe.causality) == (task, architecture.causality)


def test_the_json_says_every_field_and_equal_layers_once():
    value = edited()
    assert list(value)[:3] == ["block", "embedding", "layers"] and value["block"] == "model/decoder"
    assert value["context"] == 128 and value["head"] == {
        "block": "head/logits",
        "tied": True,
        "bias": False,
        "vocab": 2048,
        "scale": 1.0,
    }
    (run,) = value["layers"]
    assert run["repeat"] == 4 and run["layer"]["mixer"]["block"] == "mixer/attention"
    windows = edited("mistral:tiny") | {}
    assert len(windows["layers"]) == 1
    alternating = recipe_of("llama:pocket").change_layers(
        lambda index, layer: dict(mixer=dict(window=8 if index == 1 else None))
    )
    counts = [item.get("repeat", 1) for item in alternating.to_json()["layers"]]
    assert counts == [1, 1, 2]


def test_one_layer_is_edited_by_hand_and_defaults_may_be_left_out():
    value = edited()
    layer = value["layers"][0]["layer"]
    value["layers"] = [
        {"repeat": 2, "layer": layer},
        layer | {"mixer": {"block": "mixer/attention", "heads": 8}},
    ]
    recipe = recipe_from_json(value, REGISTRY)
    assert [layer.mixer.heads for layer in recipe.layers] == [4, 4, 8]
    assert recipe.layers[2].mixer.kv_heads is None and recipe.layers[0] is recipe.layers[1]


def change(path, new):
    """A function that sets the value at a path of a JSON object; `...` removes it."""

    def apply(value):
        *above, last = path
        for step in above:
            value = value[step]
        if new is ...:
            del value[last]
        else:
            value[last] = new

    return apply


LAYER = ("layers", 0, "layer")
MIXER = (*LAYER, "mixer")
LEARNED = {"block": "position/learned", "context": 64}


@pytest.mark.parametrize(
    ("path", "new", "message"),
    [
        ((*MIXER, "block"), "mixer/attnetion", "layers.0.mixer.block: no installed plugin has the block"),
        ((*MIXER, "block"), "mixer/attnetion", "did you mean mixer/attention"),
        ((*MIXER, "block"), 3, "layers.0.mixer.block: expected text, got 3"),
        ((*MIXER, "block"), ..., "layers.0.mixer.block: is missing"),
        ((*MIXER, "head"), 3, "layers.0.mixer.head: mixer/attention has no such field; did you mean heads?"),
        ((*MIXER, "heads"), ..., "layers.0.mixer.heads: is missing from mixer/attention"),
        ((*MIXER, "heads"), "4", "layers.0.mixer.heads: expected a whole number, got '4'"),
        ((*MIXER, "heads"), 4.0, "layers.0.mixer.heads: expected a whole number, got 4.0"),
        ((*MIXER, "heads"), 0, "layers.0.mixer.heads: must lie in 1..16777216, got 0"),
        ((*MIXER, "heads"), 2**24 + 1, "layers.0.mixer.heads: must lie in 1..16777216, got 16777217"),
        ((*MIXER, "heads"), [4], "layers.0.mixer.heads: expected a whole number"),
        ((*MIXER, "bias"), 1, "layers.0.mixer.bias: expected true or false, got 1"),
        ((*MIXER, "scale"), 1e999, "layers.0.mixer.scale: must be finite, got inf"),
        ((*MIXER, "kv_heads"), 3, "layers.0.mixer.kv_heads: 3 does not divide heads, 4"),
        ((*MIXER, "rope"), {"block": "norm/rmsnorm"}, "layers.0.mixer.rope: norm/rmsnorm is no position"),
        ((*MIXER, "rope"), LEARNED, "layers.0.mixer.rope: position/learned is added to embeddings"),
        ((*MIXER, "head_dim"), 31, "layers.0.mixer.rope.dims: 31 is odd"),
        ((*MIXER, "rope", "dims"), 40, "layers.0.mixer.rope.dims: 40 of a head that has only 32"),
        ((*MIXER, "rope", "theta"), 1, "layers.0.mixer.rope.theta: must be greater than 1"),
        ((*LAYER, "mixer"), None, "layers.0.mixer: expected a block, got None"),
        ((*LAYER, "mixer"), {"block": "norm/rmsnorm"}, "layers.0.mixer: norm/rmsnorm is no mixer"),
        ((*LAYER, "placement"), "both", "layers.0.placement: 'both' is neither 'pre' nor 'post'"),
        ((*LAYER, "feedforward", "activation"), "sine", "layers.0.feedforward.activation: 'sine' is not"),
        (("layers", 0, "repeat"), 0, "layers.0.repeat: expected a whole number above zero, got 0"),
        (("layers", 0, "repeat"), True, "layers.0.repeat: expected a whole number above zero, got True"),
        (("layers", 0, "repeat"), 10**9, "layers: holds more than 2000"),
        (("layers", 0, "leyer"), {}, "layers.0: expected \"repeat\" and \"layer\", got 'repeat', 'layer', 'leyer'"),
        (("layers",), [], "layers: a model needs at least one"),
        (("layers",), [{"block": "norm/rmsnorm"}], "layers.0: norm/rmsnorm is no layer"),
        (("layers",), "four", "layers: expected a list, got 'four'"),
        (("embedding",), [1], "embedding: expected embedding/tokens, got"),
        (("embedding", "dim"), 130, "heads"),
        (("embedding", "dim"), 2**40, "embedding.dim: must lie in"),
        (("embedding", "positions"), LEARNED, "embedding.positions.context: 64 positions are fewer than the model's"),
        (("embedding", "positions"), {"block": "position/rope"}, "embedding.positions: position/rope turns queries"),
        (("head", "vocab"), 100, "head.vocab: 100 is not the embedding's vocabulary, 2048"),
        (("causality",), "both", "causality: 'both' is not one of causal, prefix, full"),
        (("block",), "norm/rmsnorm", "embedding: norm/rmsnorm has no such field"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line_with_the_fields_path(path, new, message, tmp_path):
    value = edited()
    if message == "heads":  # only a width that nothing else says divides into heads
        value["layers"][0]["layer"]["mixer"]["head_dim"] = None
        message = "layers.0.mixer.heads: 4 does not divide the width, 130"
    change(path, new)(value)
    file = tmp_path / "r.json"
    file.write_text(json.dumps(value))
    if new == 1e999:  # what `json.dumps` writes for it is JSON to Python alone
        assert "Infinity" in file.read_text()
    with pytest.raises(RecipeError) as caught:
        read_recipe(file, REGISTRY)
    text = str(caught.value)
    assert text.startswith(f"{file}: ") and message in text and "\n" not in text
    if not message.startswith("did you"):
        assert text.removeprefix(f"{file}: ").startswith(message)


def test_no_model_no_object_and_endless_nesting_are_refused():
    with pytest.raises(RecipeError, match="block: norm/rmsnorm is not a whole model"):
        recipe_from_json({"block": "norm/rmsnorm"}, REGISTRY)
    with pytest.raises(RecipeError, match="recipe: expected an object with a block, got 3"):
        recipe_from_json(3, REGISTRY)
    mixture = edited("mixtral:tiny")["layers"][0]["layer"]["feedforward"]
    value = edited()
    value["layers"][0]["layer"]["feedforward"] = deepest = mixture
    for _ in range(500):
        deepest["shared"] = deepest = dict(mixture)
    with pytest.raises(
        RecipeError, match=r"layers\.0\.feedforward\.shared\.shared.*more than 16 blocks deep"
    ):
        recipe_from_json(value, REGISTRY)


@dataclass(frozen=True)
class Spectrum(Spec):
    """A third party's norm, with fields of other types."""

    kind, name = "norm", "spectrum"
    bands: tuple[int, ...]
    label: str = "plain"
    norms: tuple[Spec, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        if sum(self.bands) > 100:
            raise ValueError("too wide")


def test_a_third_partys_block_survives_and_its_mistakes_are_told_by_path():
    from zoo.architecture import Block, hookimpl

    class Mine:
        @hookimpl
        def zoo_blocks(self):
            yield Block(Spectrum, "somewhere:Spectrum")

    registry = isolated(Mine())
    norm = Spectrum(bands=(1, 2, 2), label="é", norms=(RMSNorm(), RMSNorm()))
    recipe = recipe_of("llama:pocket").change(norm=norm)
    value = json.loads(json.dumps(recipe.to_json()))
    assert value["norm"]["bands"] == [1, 2, 2] and value["norm"]["norms"][0]["repeat"] == 2
    assert recipe_from_json(value, registry) == recipe
    with pytest.raises(RecipeError, match=r"^norm\.block: no installed plugin has the block 'norm/spectrum'"):
        recipe_from_json(value, REGISTRY)
    value["norm"]["bands"] = [60, 60]
    with pytest.raises(RecipeError, match=r"^norm: norm/spectrum: too wide"):
        recipe_from_json(value, registry)
    value["norm"]["bands"] = [1, "two"]
    with pytest.raises(RecipeError, match=r"^norm\.bands: expected a whole number, got 'two'"):
        recipe_from_json(value, registry)


def test_a_field_without_a_json_form_is_refused():
    @dataclass(frozen=True)
    class Odd(Spec):
        kind, name = "norm", "odd"
        table: object = None

    with pytest.raises(RecipeError, match="table: dict has no JSON form"):
        Odd({}).to_json()


def test_a_spec_is_read_without_a_registry_too():
    blocks = {spec.block(): spec for _, spec in recipe_of("llama:pocket").walk()}
    recipe = from_json(edited(), lambda name: type(blocks[name]))
    assert isinstance(recipe, Decoder) and recipe == recipe_of("llama:pocket")
