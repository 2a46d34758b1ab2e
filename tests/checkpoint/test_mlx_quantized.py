"""MLX's own quantized folders, written here by `mx.quantize`; those by mlx-lm's code are in tests/parity."""

import json
import warnings

import mlx.core as mx
import pytest

import zoo
from zoo.checkpoint.quantized_matrix import QuantizationSpec
from zoo.checkpoint.quantized_tensors import ExpectedQuantization, gather, method_of
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError, ConfigError, ZooError
from zoo.host.registry import default_registry

DOWN, QUERY = "model.layers.0.mlp.down_proj", "model.layers.1.self_attn.q_proj"
FOUR = dict(group_size=64, bits=4)


def quantize(path, settings, paths=None, plain=(), name="quantization", also=None):
    """Quantize a folder's matrices in place, those of `paths` otherwise; `settings` go into config.json."""
    file = path / "model.safetensors"
    numbers = dict(mx.load(str(file)))
    tensors = {}
    for key, array in numbers.items():
        owner = key.removesuffix(".weight")
        if array.ndim != 2 or owner in plain:
            tensors[key] = array
            continue
        quantization = dict(FOUR if paths is None else paths(owner))
        parts = zip(("weight", "scales", "biases"), mx.quantize(array, **quantization), strict=False)
        tensors |= {f"{owner}.{part}": value for part, value in parts}
    mx.eval(tensors)
    mx.save_safetensors(str(file), tensors, {"format": "mlx"})
    config = json.loads((path / "config.json").read_text())
    config |= {key: settings for key in (name, also) if key}
    (path / "config.json").write_text(json.dumps(config))
    return path


def warned(path):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loaded = zoo.load(path)
    return loaded, [str(each.message) for each in told]


@pytest.mark.parametrize("name", ["quantization", "quantization_config"])
@pytest.mark.parametrize("also", [None, "quantization"])
@pytest.mark.parametrize("mode", [{}, {"mode": "affine"}])
def test_settings_under_either_name_or_both(folder, name, also, mode):
    loaded, told = warned(quantize(folder(), FOUR | mode, name=name, also=also))
    assert not told
    assert (loaded.model.layers[0].mixer.query.bits, loaded.model.embedding.tokens.bits) == (4, 4)


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("sized", [True, False])
def test_modes_with_and_without_their_sizes(folder, mode, sized):
    sizes = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}[mode]
    settings = dict(mode=mode) | (dict(bits=sizes[0], group_size=sizes[1]) if sized else {})
    loaded, told = warned(quantize(folder(), settings, lambda owner: dict(mode=mode)))
    assert not told
    assert loaded.model.layers[0].mixer.query.mode == mode


def test_a_quantized_embedding_serves_as_the_tied_head(folder):
    path = quantize(folder(), FOUR)
    loaded, _ = warned(path)
    table = loaded.model.embedding.tokens
    numbers = mx.dequantize(table.weight, table.scales, table.biases, **FOUR)
    hidden = loaded.model.backbone(mx.array([[1, 2, 3]]))
    assert mx.allclose(loaded.model.head(hidden), hidden @ numbers.T, atol=1e-4)


def eight(owner):
    return dict(group_size=32, bits=8) if owner in (DOWN, QUERY) else FOUR


@pytest.mark.parametrize("named", [(DOWN, QUERY), ("layers.0.feedforward.down", "layers.1.mixer.query")])
def test_a_path_is_a_name_of_the_checkpoint_or_of_the_model(folder, named):
    settings = FOUR | {path: dict(group_size=32, bits=8) for path in named}
    loaded, told = warned(quantize(folder(), settings, eight))
    assert not told
    assert loaded.model.layers[0].feedforward.down.bits == 8 == loaded.model.layers[1].mixer.query.bits


@pytest.mark.parametrize("named", [DOWN, "layers.0.feedforward.down"])
def test_false_is_a_matrix_left_as_it_was(folder, named):
    loaded, told = warned(quantize(folder(), FOUR | {named: False}, plain=(DOWN,)))
    assert not told
    assert "scales" not in loaded.model.layers[0].feedforward.down


@pytest.mark.parametrize(
    ("override", "paths", "plain", "message"),
    [
        # 4 bits in groups of 64 fit the words and scales of 8 in groups of 32: the model's width tells.
        (
            {},
            eight,
            (),
            f"{DOWN}: affine 4 bits, groups of 64; its tensors: affine 8 bits, groups of 32 (and 1 more)",
        ),
        (
            {DOWN: dict(bits=8, group_size=32)},
            None,
            (),
            f"{DOWN}: affine 8 bits, groups of 32; its tensors: affine 4",
        ),
        (
            {DOWN: dict(bits=3, group_size=64)},
            None,
            (),
            f"{DOWN}: affine 3 bits, groups of 64; its tensors: affine 4",
        ),
        ({DOWN: dict(mode="mxfp4")}, None, (), f"{DOWN}: mxfp4 4 bits, groups of 32; its tensors: affine 4"),
        ({DOWN: False}, None, (), f"{DOWN}: not quantized; its tensors: affine 4 bits"),
        (
            {DOWN: dict(bits=8)},
            None,
            (DOWN,),
            f"{DOWN}: affine 8 bits, groups of 64; its tensors: not quantized",
        ),
    ],
)
def test_the_tensors_decide_where_the_config_is_wrong_and_it_is_said(folder, override, paths, plain, message):
    right, _ = warned(quantize(folder(where="right"), FOUR, paths, plain))
    wrong, told = warned(quantize(folder(where="wrong"), FOUR | override, paths, plain))
    assert (
        len(told) == 1
        and told[0].startswith(f"config.json says of {message}")
        and "The tensors decide" in told[0]
    )
    tokens = mx.array([[5, 6, 7, 8]])
    assert mx.array_equal(wrong.model(tokens), right.model(tokens))


def test_quantized_tensors_without_any_settings_load_without_a_word(folder):
    loaded, told = warned(quantize(folder(), None, eight))
    assert not told and loaded.model.layers[0].feedforward.down.bits == 8


def test_a_matrix_that_its_layer_cannot_hold_packed_is_unpacked_and_said(folder):
    """GPT-2's fused matrix is stored (in, out) and cut along what the quantization took for its inputs."""
    path = folder("gpt2", {"quantization": dict(group_size=32, bits=8)})
    numbers = mx.load(str(path / "model.safetensors"))
    owner = next(name for name in numbers if name.endswith("h.0.attn.c_attn.weight")).removesuffix(".weight")
    array = numbers[f"{owner}.weight"]
    weight, scales, biases = mx.quantize(array, 32, 8)
    tensors = {**numbers, f"{owner}.weight": weight, f"{owner}.scales": scales, f"{owner}.biases": biases}
    mx.eval(tensors)
    mx.save_safetensors(str(path / "model.safetensors"), tensors, {"format": "pt"})
    with pytest.warns(UserWarning) as caught:
        loaded = zoo.load(path)
    told = [str(each.message) for each in caught if "config.json says" not in str(each.message)]
    assert told == [f"{owner}.weight: cannot stay packed without loss, dequantized"]
    expected = mx.dequantize(weight, scales, biases, 32, 8)[:, : array.shape[0]].T
    assert mx.allclose(loaded.model.layers[0].mixer.query.weight, expected, atol=1e-6)


def test_mlxs_global_scale_is_2688_times_the_multiplier():
    """The largest scale, 448, times the largest number, 6: a matrix's largest magnitude becomes both."""
    matrix = mx.random.normal((32, 64), key=mx.random.key(3))
    largest = mx.abs(matrix).max()
    weight, scales = mx.quantize(matrix, mode="nvfp4", global_scale=largest)
    given = {"a.weight": weight, "a.scales": scales, "a.global_scale": largest}
    packed = gather(Tensors(given, {}, {}), {}, default_registry()).arrays["a.weight"]
    assert mx.allclose(packed.global_scale * 2688, largest)
    assert mx.linalg.norm(packed.numbers(mx.float32) - matrix) < 0.15 * mx.linalg.norm(matrix)


def test_stacked_matrices_have_a_global_scale_each():
    parts = [
        mx.quantize(mx.random.normal((32, 64)), mode="nvfp4", global_scale=mx.array(s)) for s in (3.0, 5.0)
    ]
    given = {
        "a.weight": mx.stack([weight for weight, _ in parts]),
        "a.scales": mx.stack([scales for _, scales in parts]),
        "a.global_scale": mx.array([3.0, 5.0]),
    }
    packed = gather(Tensors(given, {}, {}), {}, default_registry()).arrays["a.weight"]
    for number, scale in enumerate((3.0, 5.0)):
        expected = mx.dequantize(*parts[number], mode="nvfp4", dtype=mx.float32) * (scale / 2688)
        assert mx.allclose(packed[number].numbers(mx.float32), expected, rtol=1e-6)


def parts(**change):
    weight, scales, biases = mx.quantize(mx.ones((8, 128)), **FOUR)
    return {"weight": weight, "scales": scales, "biases": biases} | change


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (dict(biases=None), "without biases"),
        (dict(biases=mx.zeros((8, 3))), "biases (8, 3)"),
        (dict(scales=mx.zeros((8, 2), mx.uint8)), "with biases"),
        (dict(scales=mx.zeros((8, 2), mx.int32)), "scales of mlx.core.int32"),
        (dict(scales=mx.zeros((7, 2)), biases=mx.zeros((7, 2))), "(8, 16) and (7, 2)"),
        (dict(scales=mx.zeros((8, 0)), biases=mx.zeros((8, 0))), "(8, 0)"),
        (dict(scales=mx.zeros((8, 9)), biases=mx.zeros((8, 9))), "16 words and 9 scales a row"),
        (dict(global_scale=mx.ones(3)), "global_scale (3,)"),
        (dict(global_scale=mx.ones(1, mx.int32)), "global_scale (1,)"),
    ],
)
def test_parts_that_do_not_belong_together_are_named(change, word):
    given = {f"a.b.{part}": value for part, value in parts(**change).items() if value is not None}
    with pytest.raises(CheckpointError, match=r"^a\.b") as caught:
        gather(Tensors(given, {}, {}), {}, default_registry())
    assert word in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (dict(bits=7), "quantization: bits 7"),
        (dict(bits=4, group_size=48), "group_size 48"),
        (dict(bits="4"), "bits '4'"),
        (dict(bits=True), "bits True"),
        (dict(bits=4.0), "bits 4.0"),
        (dict(mode=["affine"]), "mode ['affine']"),
        (dict(mode="int4"), "mode 'int4'"),
        (dict(mode="mxfp4", bits=8), "bits 8"),
        ({"a.b": dict(bits=9)}, "a.b: bits 9"),
        ([4], "expected an object"),
    ],
)
def test_settings_that_cannot_be(settings, word):
    with pytest.raises(ConfigError, match=r"config\.json: ") as caught:
        ExpectedQuantization({"quantization": settings})
    assert word in str(caught.value)


def test_the_packing_of_a_path():
    expected = ExpectedQuantization(
        {"quantization": FOUR | {"a": dict(mode="mxfp8"), "b": False, "c": True, "d": dict(bits=8)}}
    )
    assert expected.of("a") == QuantizationSpec(8, 32, "mxfp8")
    assert expected.of("x", "b") is None and expected.of("b", "a") is None
    assert expected.of("c") == expected.of("x") == QuantizationSpec(4, 64)
    assert expected.of("d") == QuantizationSpec(8, 64)


@pytest.mark.parametrize(
    "method", ["aqlm", "bitnet", "eetq", "exl2", "exl3", "higgs", "nvfp4", "quanto", "spqr", "vptq"]
)
def test_other_methods_are_refused_by_name_with_what_can_be_loaded(folder, method):
    with pytest.raises(ZooError) as caught:
        zoo.load(folder(changes={"quantization_config": dict(quant_method=method)}))
    line = str(caught.value)
    assert line.startswith(f"config.json: quant_method '{method}' cannot be loaded; known: MLX's own, ")
    for known in ("awq", "compressed-tensors", "fp8", "gptq", "modelopt", "mxfp4"):
        assert known in line


@pytest.mark.parametrize("flag", ["load_in_4bit", "load_in_8bit"])
def test_bitsandbytes_is_known_by_its_flags(flag):
    assert method_of({flag: True, "bnb_4bit_quant_type": "nf4"}) == "bitsandbytes"


@pytest.mark.parametrize("method", [["awq"], 3, {"name": "awq"}])
def test_a_method_that_is_no_name(folder, method):
    with pytest.raises(ConfigError, match="quant_method"):
        zoo.load(folder(changes={"quantization_config": dict(quant_method=method)}))
