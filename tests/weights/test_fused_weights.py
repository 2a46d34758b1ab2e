"""Fused tensors: parts of any size, interleaved by head or by group, packed or not, and back."""

import mlx.core as mx
import numpy as np
import pytest

import zoo
from zoo.architecture import Split
from zoo.checkpoint.adapter import LowRankUpdate
from zoo.checkpoint.convert import convert
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, join, quantize_matrix
from zoo.errors import CheckpointError, PluginError
from zoo.recipe import Attention, Decoder, Embedding, GatedMLP, Head, Layer, RMSNorm, repeat
from zoo.weights import apply, invert, owner

HEADS, GROUPS, WIDTH, DIM = 6, 2, 8, 32
PARTS = tuple(f"layers.{{i}}.mixer.{part}.*" for part in ("query", "key", "value"))
PATHS = [f"layers.1.mixer.{part}.weight" for part in ("query", "key", "value")]


def recipe(kv_heads=GROUPS):
    mixer = Attention(heads=HEADS, kv_heads=kv_heads, head_dim=WIDTH)
    layer = Layer(
        mixer=mixer, feedforward=GatedMLP(hidden=12), mixer_norm=RMSNorm(), feedforward_norm=RMSNorm()
    )
    return Decoder(Embedding(7, DIM), repeat(layer, 2), RMSNorm(), Head())


def parts(kv_heads, *inner):
    """Queries, keys and values of random rows, as layers hold them: head after head."""
    random = np.random.default_rng(0)
    return [random.normal(size=(heads * WIDTH, *inner)) for heads in (HEADS, kv_heads, kv_heads)]


def by_head(query, key, value):
    """As GPT-NeoX and Bloom fuse them: each head's query, key and value rows."""
    rows = [part.reshape(HEADS, 1, WIDTH, *part.shape[1:]) for part in (query, key, value)]
    return np.concatenate(rows, axis=1).reshape(-1, *query.shape[1:])


def by_group(query, key, value):
    """As Falcon-40B and InternLM2 fuse them: the queries of a group, then its key and value."""
    each = [part.reshape(GROUPS, -1, *part.shape[1:]) for part in (query, key, value)]
    return np.concatenate(each, axis=1).reshape(-1, *query.shape[1:])


def unequal(query, key, value):
    """As Phi-3 does: all queries, all keys, all values."""
    return np.concatenate([query, key, value])


LAYOUTS = {
    "equal": (dict(), HEADS, unequal),
    "by head": (dict(groups="heads"), HEADS, by_head),
    "by group": (dict(sizes=("heads", "kv_heads", "kv_heads"), groups="kv_heads"), GROUPS, by_group),
    "unequal": (dict(sizes=("heads", "kv_heads", "kv_heads")), GROUPS, unequal),
    "unequal, in numbers": (dict(sizes=(3, 1, 1)), GROUPS, unequal),
}


@pytest.mark.parametrize("inner", [(DIM,), ()], ids=["matrix", "bias"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_come_apart_and_together(layout, inner):
    settings, kv_heads, fuse = LAYOUTS[layout]
    expected, rule = parts(kv_heads, *inner), Split("h.{i}.qkv.*", PARTS, **settings)
    whole = fuse(*expected)
    found, left = apply([rule], {"h.1.qkv.weight": whole}, recipe(kv_heads), np.concatenate)
    assert not left and list(found) == PATHS
    for path, part in zip(PATHS, expected, strict=True):
        np.testing.assert_array_equal(found[path], part)
    back, left = invert([rule], found, recipe(kv_heads), np.concatenate)
    assert not left
    np.testing.assert_array_equal(back["h.1.qkv.weight"], whole)


@pytest.mark.parametrize("layout", ["by head", "by group", "unequal"])
def test_a_matrix_stored_inputs_first(layout):
    settings, kv_heads, fuse = LAYOUTS[layout]
    expected, rule = parts(kv_heads, DIM), Split("h.{i}.qkv.*", PARTS, transpose=True, **settings)
    whole = fuse(*expected).T
    found, _ = apply([rule], {"h.1.qkv.weight": whole}, recipe(kv_heads), np.concatenate)
    np.testing.assert_array_equal(found[PATHS[2]], expected[2])
    back, _ = invert([rule], found, recipe(kv_heads), np.concatenate)
    np.testing.assert_array_equal(back["h.1.qkv.weight"], whole)


def test_matrices_stacked_over_experts_have_their_outputs_second():
    whole = np.arange(2 * 24 * 4).reshape(2, 24, 4)
    targets = tuple(f"layers.{{i}}.feedforward.{part}.weight" for part in ("gate", "up"))
    rule = Split("h.{i}.gate_up", targets, axis=1, groups="hidden")  # gate and up in turn
    found, _ = apply([rule], {"h.0.gate_up": whole}, recipe(), np.concatenate)
    np.testing.assert_array_equal(found["layers.0.feedforward.gate.weight"], whole[:, 0::2])
    np.testing.assert_array_equal(found["layers.0.feedforward.up.weight"], whole[:, 1::2])
    np.testing.assert_array_equal(invert([rule], found, recipe(), np.concatenate)[0]["h.0.gate_up"], whole)


def test_packed_experts_stored_inputs_first_stay_packed():
    targets = tuple(f"layers.{{i}}.feedforward.{part}.weight" for part in ("gate", "up"))
    rule = Split("h.{i}.gate_up", targets, transpose=True, axis=1, groups="hidden")
    whole = quantize_matrix(
        "h.0.gate_up", mx.random.normal((2, 24, DIM)), QuantizationSpec(4, 32, "mxfp4")
    ).swapaxes(1, 2)
    found, _ = apply([rule], {"h.0.gate_up": whole}, recipe(), join)
    for first, path in enumerate(("layers.0.feedforward.gate.weight", "layers.0.feedforward.up.weight")):
        assert isinstance(found[path], QuantizedMatrix) and not found[path].swapped
        assert mx.array_equal(found[path].numbers(), whole.numbers()[..., first::2].swapaxes(1, 2)).item()
    back, _ = invert([rule], found, recipe(), join)
    assert back["h.0.gate_up"].swapped and not whole.dequantized
    assert mx.array_equal(back["h.0.gate_up"].weight, whole.weight).item()


@pytest.mark.parametrize("scaled", [None, 1, "rows"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_matrices_stay_packed_both_ways(layout, scaled):
    settings, kv_heads, fuse = LAYOUTS[layout]
    expected, rule = parts(kv_heads, DIM), Split("h.{i}.qkv.*", PARTS, **settings)
    packed = quantize_matrix(
        "h.1.qkv.weight", mx.array(fuse(*expected), dtype=mx.float32), QuantizationSpec(8, 32)
    )
    if scaled is not None:
        rows = packed.shape[0] if scaled == "rows" else 1
        packed = QuantizedMatrix(
            packed.name, packed.weight, packed.scales, packed.biases, packed.quantization,
            global_scale=mx.arange(1, rows + 1, dtype=mx.float32),
        )  # fmt: skip
    whole = packed.numbers()
    found, _ = apply([rule], {packed.name: packed}, recipe(kv_heads), join)
    assert all(isinstance(found[path], QuantizedMatrix) for path in PATHS)
    plain, _ = apply([rule], {packed.name: whole}, recipe(kv_heads), join)
    for path in PATHS:
        assert found[path].shape == plain[path].shape
        assert mx.array_equal(found[path].numbers(), plain[path]).item()
    back, _ = invert([rule], found, recipe(kv_heads), join)
    assert isinstance(back[packed.name], QuantizedMatrix) and not packed.dequantized
    assert mx.array_equal(back[packed.name].weight, packed.weight).item()
    assert mx.array_equal(back[packed.name].numbers(), whole).item()


@pytest.mark.parametrize("layout", ["by head", "by group", "unequal"])
def test_a_tensor_that_does_not_split_is_named_with_what_was_expected(layout):
    settings, kv_heads, _ = LAYOUTS[layout]
    rule = Split("h.{i}.qkv.*", PARTS, **settings)
    with pytest.raises(
        CheckpointError, match=r"h\.1\.qkv\.weight: shape \(51, 32\) does not split into .*parts"
    ):
        apply([rule], {"h.1.qkv.weight": np.zeros((51, DIM))}, recipe(kv_heads), np.concatenate)


def test_a_tensor_of_no_layer_is_left_to_be_named():
    rule = Split("h.{i}.qkv.*", PARTS, groups="heads")
    for number in ("2", "x", "9" * 5000):
        tensors = {f"h.{number}.qkv.weight": np.zeros((48, DIM))}
        found, left = apply([rule], tensors, recipe(), np.concatenate)
        assert not found and set(left) == set(tensors)


def test_a_field_that_the_spec_lacks_is_named():
    for name, kv_heads in (("key_heads", GROUPS), ("kv_heads", None), ("bias", GROUPS)):
        rule = Split("h.{i}.qkv.*", PARTS, groups=name)
        with pytest.raises(
            PluginError, match=rf"mixer/attention at layers\.1\.mixer\.query\.weight .*'{name}'"
        ):
            apply([rule], {"h.1.qkv.weight": np.zeros((48, DIM))}, recipe(kv_heads), np.concatenate)


@pytest.mark.parametrize(
    "settings",
    [
        dict(sizes=("heads", "kv_heads")),
        dict(sizes=["heads", "kv_heads", "kv_heads"]),
        dict(sizes=(2, 1, 0)),
        dict(sizes=(2, 1, "kv heads")),
        dict(groups=0),
        dict(groups=True),
        dict(groups=2.0),
    ],
)
def test_a_rule_is_checked_when_it_is_made(settings):
    with pytest.raises(PluginError, match=r"Split\('h\.\{i\}\.qkv\.\*'\)"):
        Split("h.{i}.qkv.*", PARTS, **settings)


def test_a_second_tensor_for_a_parameter_is_refused():
    tensors = {"h.1.qkv.weight": np.zeros((3, 2)), "model.h.1.qkv.weight": np.zeros((3, 2))}
    with pytest.raises(CheckpointError, match="second tensor"):
        apply([Split("[model.]h.{i}.qkv.*", PARTS)], tensors, recipe(), np.concatenate)


def test_a_parameters_owner_is_the_innermost_spec_on_its_way():
    made = recipe()
    assert owner(made, "layers.1.mixer.query.weight") is made.layers[1].mixer
    assert owner(made, "layers.0.mixer_norm.weight") is made.layers[0].mixer_norm
    assert owner(made, "embedding.tokens.weight") is made.embedding
    assert owner(made, "scale") is made
    assert owner(made, "layers.2.mixer.query.weight") is None


@pytest.mark.parametrize("layout", ["by head", "by group", "unequal"])
def test_an_adapter_of_a_fused_matrix_comes_apart_as_the_matrix_does(layout):
    settings, kv_heads, fuse = LAYOUTS[layout]
    rule, rows = Split("h.{i}.qkv.*", PARTS, **settings), fuse(*parts(kv_heads, DIM)).shape[0]
    change = LowRankUpdate(
        "h.1.qkv", mx.random.normal((rows, 4)), mx.random.normal((4, DIM)), mx.ones((rows,))
    )
    found, _ = apply([rule], {"h.1.qkv.weight": change}, recipe(kv_heads), join)
    plain, _ = apply([rule], {"h.1.qkv.weight": change.b @ change.a}, recipe(kv_heads), join)
    for path in PATHS:
        assert found[path].shape == plain[path].shape and found[path].magnitude.shape == plain[path].shape[:1]
        assert mx.allclose(found[path].b @ found[path].a, plain[path], atol=1e-5).item()


def test_a_missing_fused_tensor_is_named_whichever_of_its_parts_is_asked_for(folder):
    source = folder("gpt2", tokenizer=False)
    tensors = mx.load(str(source / "model.safetensors"))
    tensors.pop(name := next(name for name in tensors if name.endswith("h.1.attn.c_attn.weight")))
    mx.save_safetensors(str(source / "model.safetensors"), tensors, {"format": "pt"})
    with pytest.raises(CheckpointError) as caught:
        zoo.load(source)
    assert str(caught.value).count(f"missing tensor {name} (for layers.1.mixer.") == 3


def test_a_fused_projection_has_one_packing_whatever_its_parts_are_given(folder, tmp_path):
    source = folder("gpt2", tokenizer=False, preset="pocket")
    convert(source, tmp_path / "out", recipe="mixed-4-6", group_size=32)
    tensors = mx.load(str(tmp_path / "out" / "model.safetensors"))
    projections = {name: array for name, array in tensors.items() if name.endswith("c_attn.weight")}
    assert len(projections) == 4 and all(array.dtype == mx.uint32 for array in projections.values())
    bits = {int(name.split(".")[2]): array.shape[-1] * 32 // 128 for name, array in projections.items()}
    assert bits == {0: 4, 1: 4, 2: 6, 3: 4}  # the values of every third layer have more
    mixers = [layer.mixer for layer in zoo.load(tmp_path / "out").model.layers]
    assert [[part.bits for part in (one.query, one.key, one.value)] for one in mixers] == [
        [bits[index]] * 3 for index in range(4)
    ]
