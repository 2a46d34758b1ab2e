"""What is in a diagram: boxes, residual sums, frames, and how a plugin says it."""

import dataclasses
from dataclasses import dataclass

import pytest

from zoo.architecture import Drawing, hookimpl
from zoo.describe import describe
from zoo.describe.diagram import Box, Frame, Residual, diagram_of
from zoo.describe.diagram.draw import which
from zoo.describe.diagram.model import boxes
from zoo.describe.diagram.parts import side_by_side
from zoo.errors import PluginError
from zoo.host.registry import default_registry, isolated
from zoo.recipe import Layer, RMSNorm, Spec


def frames(diagram, stack=0):
    return [item for item in diagram.stacks[stack].items if isinstance(item, Frame)]


def shape(items):
    """Items as nested roles: a residual is a list."""
    return [item.role if isinstance(item, Box) else shape(item.items) for item in items]


def box(diagram, role, stack=0):
    return next(found for found in boxes(diagram.stacks[stack].items) if found.role == role)


def texts(found):
    return [note.text for note in found.notes]


def test_norms_stand_where_the_forward_pass_has_them(every):
    before = [["norm", "attention"], ["norm", "feedforward"]]
    after = [["attention"], "norm", ["feedforward"], "norm"]
    both = [["norm", "attention", "norm"], ["norm", "feedforward", "norm"]]
    for name, expected in {"llama": before, "gpt2": before, "bert": after, "gpt2-postln": after}.items():
        assert shape(frames(every[name])[0].items) == expected
    assert shape(frames(every["gemma2"])[0].items) == both
    assert shape(frames(every["mamba"])[0].items) == [["norm", "attention"]]
    assert shape(frames(every["lstm"])[0].items) == ["attention"]
    assert shape(frames(every["transformer"], 1)[0].items) == [*after[:2], ["cross"], "norm", *after[2:]]
    assert shape(frames(every["t5"], 1)[0].items) == [before[0], ["norm", "cross"], before[1]]


@pytest.mark.parametrize(
    "name, title",
    [
        ("llama", "Masked grouped-query attention"),
        ("gpt2", "Masked multi-head attention"),
        ("bert", "Bidirectional multi-head attention"),
        ("llada", "Bidirectional multi-head attention"),
        ("prefix-lm", "Prefix-masked multi-head attention"),
        ("deepseek-v3", "Masked multi-head latent attention"),
        ("mamba", "Selective state space"),
        ("gru", "Gated recurrent unit"),
    ],
)
def test_mixers_have_the_names_of_the_field(every, name, title):
    assert box(every[name], "attention").title == title


def test_numbers_stand_with_the_box_that_they_belong_to(every):
    llama = every["llama"]
    assert texts(box(llama, "attention")) == [
        *("32 heads", "8 key/value heads", "head width 128", "RoPE base 500,000", "LLaMA-3 scaling ×8")
    ]
    assert texts(box(llama, "embedding")) == ["vocabulary 128,256", "width 4,096"]
    assert texts(llama.stacks[0].start) == ["context 131,072"]
    assert texts(box(every["mixtral"], "feedforward")) == [
        *("8 experts, 2 used", "hidden 14,336", "SwiGLU experts")
    ]
    assert "shared expert, hidden 5,632" in texts(box(every["qwen2-moe"], "feedforward"))
    assert "tied to embedding" in texts(box(every["gpt2"], "head"))


def test_query_norms_and_positions_are_inside_the_attention_box(every):
    rows = [[cell.title for cell in row] for row in box(every["qwen3"], "attention").rows]
    assert rows == [["Query", "Key", "Value"], ["RMSNorm", "RMSNorm", ""], ["RoPE", "RoPE", ""]]
    assert box(every["qwen3"], "attention").rows[1][0].path == "layers.*.mixer.query_norm"


def test_layers_that_differ_in_numbers_are_one_frame_and_others_have_their_own(every):
    (gemma,) = frames(every["gemma2"])
    assert gemma.count == 26 and "window 4,096 in even layers" in texts(box(every["gemma2"], "attention"))
    assert [(frame.count, frame.label) for frame in frames(every["deepseek-v3"])] == [
        (3, "first 3 layers"),
        (58, "last 58 layers"),
    ]


def test_many_kinds_of_layers_share_a_frame_at_last():
    registry = default_registry()
    recipe = describe("llama:8b", registry).recipe
    activations = ("relu", "relu2", "gelu", "silu", "tanh", "sigmoid", "quick_gelu")
    recipe = recipe.change_layers(
        lambda index, layer: dict(feedforward=dict(activation=activations[index % len(activations)]))
    )
    found = frames(diagram_of(recipe, "many", registry))
    assert len(found) == 5 and sum(frame.count for frame in found) == 32


def test_many_numbers_are_told_by_the_first_and_the_last():
    registry = default_registry()
    recipe = describe("llama:8b", registry).recipe
    recipe = recipe.change_layers(lambda index, layer: dict(feedforward=dict(hidden=100 + index)))
    (frame,) = frames(diagram_of(recipe, "growing", registry))
    assert frame.count == 32
    assert texts(box(diagram_of(recipe, "growing", registry), "feedforward")) == [
        "hidden 100 to hidden 131, by layer"
    ]


@pytest.mark.parametrize(
    "indices, words",
    [
        (range(8), ""),
        ([0, 2, 4, 6], "even layers"),
        ([1, 3, 5, 7], "odd layers"),
        ([3, 7], "every 4th layer from 3"),
        ([0, 1, 2, 4, 5, 6], "all but every 4th layer from 3"),
        ([0, 1], "first 2 layers"),
        ([6, 7], "last 2 layers"),
        ([2, 3], "layers 2–3"),
        ([5], "layer 5"),
        ([0, 1, 5], "layers 0, 1, 5"),
    ],
)
def test_which_layers_in_words(indices, words):
    assert which(list(indices), 8) == words


def test_stacks_of_an_encoder_decoder(every):
    encoder, decoder = every["t5"].stacks
    assert (encoder.role, decoder.role, encoder.end.role) == ("encoder", "decoder", "memory")
    assert [found.title for found in boxes(decoder.items) if found.memory] == ["Cross-attention"]
    assert box(every["t5"], "cross", 1).path == "decoder.layers.*.cross"
    assert every["bert"].stacks[0].role == "encoder"


@dataclass(frozen=True)
class Doubled(RMSNorm):
    kind, name = "norm", "doubled"
    times: float = 2.0


@dataclass(frozen=True)
class Beside(Spec):
    """x + mixer(norm(x)) + feedforward(norm(x))."""

    kind, name = "layer", "beside"
    norm: Spec
    mixer: Spec
    feedforward: Spec


@dataclass(frozen=True)
class Unknown(Spec):
    kind, name = "mixer", "strange_mixer"
    order: int
    weighed: bool = True


def beside(subject):
    return Residual((*subject.part("norm"), subject.box("Both", rows=[["a", "b"]], role="attention")))


def wrong(subject):
    return ["a text"]


def broken(subject):
    return subject.spec.nothing


class Plugin:
    def __init__(self, *drawings):
        self.drawings = drawings

    @hookimpl
    def zoo_drawings(self):
        return self.drawings


def third_party(layer, *drawings):
    registry = isolated(Plugin(*drawings))
    recipe = describe("llama:8b", registry).recipe
    return diagram_of(dataclasses.replace(recipe, layers=(layer,) * 3), "theirs", registry)


def parts():
    layer = describe("llama:8b", default_registry()).recipe.layers[0]
    return dict(mixer=layer.mixer, feedforward=layer.feedforward)


def test_a_third_party_draws_its_own_layer():
    drawing = Drawing(Beside, f"{__name__}:beside")
    diagram = third_party(Beside(norm=RMSNorm(), **parts()), drawing)
    assert shape(frames(diagram)[0].items) == [["norm", "attention"]]
    assert box(diagram, "attention").title == "Both"


def test_a_layer_that_nobody_draws_claims_no_order():
    (layer,) = frames(third_party(Beside(norm=RMSNorm(), **parts())))[0].items
    assert layer.title == "Beside" and isinstance(layer, Box)
    titles = [cell.title for row in layer.rows for cell in row]
    assert titles == ["RMSNorm", "Masked grouped-query attention", "SwiGLU feed-forward"]
    assert "32 heads" in texts(layer) and "hidden 14,336" in texts(layer)


def test_a_mixer_that_nobody_draws_has_its_fields():
    layer = describe("llama:8b", default_registry()).recipe.layers[0]
    diagram = third_party(layer.change(mixer=Unknown(order=3)))
    found = box(diagram, "attention")
    assert found.title == "Strange mixer" and texts(found) == ["order 3", "weighed"]


def test_a_subclass_is_drawn_as_its_base_with_what_it_adds():
    layer = describe("llama:8b", default_registry()).recipe.layers[0]
    found = box(third_party(layer.change(mixer_norm=Doubled())), "norm")
    assert found.title == "RMSNorm" and texts(found) == ["doubled", "times 2"]


def test_a_layer_of_a_subclass_is_not_drawn_as_its_base():
    @dataclass(frozen=True)
    class Swapped(type(describe("llama:8b", default_registry()).recipe.layers[0])):
        kind, name = "layer", "swapped"

    llama = describe("llama:8b", default_registry()).recipe.layers[0]
    layer = Swapped(**{field.name: getattr(llama, field.name) for field in dataclasses.fields(llama)})
    assert shape(frames(third_party(layer))[0].items) == ["layer"]


@pytest.mark.parametrize("function", ["wrong", "broken", "missing"])
def test_a_broken_drawing_is_named(function):
    drawing = Drawing(Beside, f"{__name__}:{function}")
    with pytest.raises(PluginError, match=f":{function}"):
        third_party(Beside(norm=RMSNorm(), **parts()), drawing)


def test_a_drawing_names_a_spec():
    with pytest.raises(PluginError, match="spec"):
        Drawing(int, "a:b")


def test_what_mlx_lm_runs_is_a_closed_box():
    from zoo_mlx_lm.spec import Bridged

    recipe = Bridged("gemma3", "{}", vocab=100, dim=16, depth=7, parameter_count=12.0)
    diagram = diagram_of(recipe, "bridged", default_registry())
    assert frames(diagram)[0].count == 7 and box(diagram, "layer").title == "Layer run by mlx-lm"


@dataclass(frozen=True)
class Parallel(Layer):
    kind, name = "layer", "parallel"


def in_parallel(subject):
    fields = dict(mixer="Attention", feedforward="Feed-forward")
    return Residual((side_by_side(subject, "Both in parallel", **fields),))


def test_parts_that_read_the_same_stand_side_by_side():
    llama = describe("llama:8b", default_registry()).recipe.layers[0]
    layer = Parallel(**{field.name: getattr(llama, field.name) for field in dataclasses.fields(llama)})
    found = box(third_party(layer, Drawing(Parallel, f"{__name__}:in_parallel")), "attention")
    assert [[cell.title for cell in row] for row in found.rows] == [
        ["RMSNorm", "RMSNorm"],
        ["Attention", "Feed-forward"],
        ["+"],
    ]
    assert "8 key/value heads" in texts(found) and "Feed-forward: hidden 14,336" in texts(found)
