"""Adapters: what a low-rank change does to a matrix, packed or not, and which folders are refused."""

import json

import mlx.core as mx
import pytest
from click.testing import CliRunner

from zoo.checkpoint.convert import convert
from zoo.checkpoint.parameters import parameters_of
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, quantize_matrix
from zoo.cli.run import run
from zoo.errors import ZooError
from zoo.loading import load

QUERY = "model.layers.1.self_attn.q_proj"
PATH = "layers.1.mixer.query.weight"


def adapter(folder, tensors=None, **settings):
    """An adapter folder of the pocket llama: one query matrix, of rank 2, unless other tensors are given."""
    folder.mkdir()
    if tensors is None:
        draw = mx.random.split(mx.random.key(3))
        tensors = {
            f"{QUERY}.lora_a": mx.random.normal((128, 2), key=draw[0]),
            f"{QUERY}.lora_b": mx.random.normal((2, 128), key=draw[1]),
        }
    mx.save_safetensors(str(folder / "adapters.safetensors"), tensors)
    settings = {"fine_tune_type": "lora", "lora_parameters": {"rank": 2, "scale": 0.5}} | settings
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return tensors


def test_a_matrix_becomes_the_sum(tmp_path):
    tensors = adapter(tmp_path / "a")
    plain, changed = (
        parameters_of(load("llama").model),
        parameters_of(load("llama", adapter=tmp_path / "a").model),
    )
    product = 0.5 * (tensors[f"{QUERY}.lora_a"] @ tensors[f"{QUERY}.lora_b"]).T
    assert mx.allclose(changed[PATH], plain[PATH] + product, atol=2e-3)  # stored as float16
    assert not mx.allclose(changed[PATH], plain[PATH], atol=0.1)
    others = [path for path in plain if path != PATH]
    assert all(mx.array_equal(plain[path], changed[path]) for path in others)


def test_dora_gives_rows_the_lengths_that_it_names(tmp_path):
    tensors = adapter(tmp_path / "lora")
    lengths = mx.arange(1.0, 129.0)
    adapter(tmp_path / "dora", tensors | {f"{QUERY}.m": lengths}, fine_tune_type="dora")
    lora, dora = (
        parameters_of(load("llama", adapter=tmp_path / kind).model)[PATH] for kind in ("lora", "dora")
    )
    assert mx.allclose(mx.linalg.norm(dora, axis=1), lengths, rtol=1e-3)
    assert mx.allclose(dora / lengths[:, None], lora / mx.linalg.norm(lora, axis=1, keepdims=True), atol=1e-3)


def test_a_packed_matrix_stays_packed_and_gives_the_sums_logits(tmp_path):
    adapter(tmp_path / "a")
    convert("llama", tmp_path / "packed", quantize="4", group_size=32)
    convert(tmp_path / "packed", tmp_path / "fused", adapter=tmp_path / "a", quantize="none", dtype="float32")
    adapted = load(tmp_path / "packed", adapter=tmp_path / "a").model
    assert "scales" in adapted.layers[1].mixer.query.layer
    tokens = mx.array([[1, 5, 7, 300]])
    assert mx.allclose(adapted(tokens), load(tmp_path / "fused").model(tokens), atol=1e-3)


def test_fusing_packs_anew(tmp_path):
    adapter(tmp_path / "a")
    convert("llama", tmp_path / "packed", quantize="4", group_size=32)
    convert(tmp_path / "packed", tmp_path / "fused", adapter=tmp_path / "a")
    before, after = (parameters_of(load(tmp_path / name).model)[PATH] for name in ("packed", "fused"))
    assert isinstance(after, QuantizedMatrix) and after.quantization == before.quantization
    assert not mx.array_equal(after.weight, before.weight)


KINDS = {
    "lora": {},
    "dora": dict(fine_tune_type="dora"),
}


def sum_of(folder, kind):
    """The matrix of the packed source in `folder` with the change of the adapter beside it, in float32."""
    tensors = adapter(folder / "a", **KINDS[kind])
    if kind == "dora":
        tensors[f"{QUERY}.m"] = mx.arange(1, 129).astype(mx.float32) / 64
        mx.save_safetensors(str(folder / "a" / "adapters.safetensors"), tensors)
    convert("llama", folder / "packed", quantize="2", group_size=32)
    matrix = parameters_of(load(folder / "packed").model)[PATH].numbers(mx.float32)
    changed = matrix + 0.5 * (tensors[f"{QUERY}.lora_a"] @ tensors[f"{QUERY}.lora_b"]).T
    if kind == "dora":
        changed *= (tensors[f"{QUERY}.m"] / mx.linalg.norm(changed, axis=-1))[:, None]
    return changed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [dict(layout="hf"), dict(quantize="none")])
def test_where_the_result_is_not_packed_the_sum_is_not_either(kind, how, tmp_path):
    expected = sum_of(tmp_path, kind)
    convert(tmp_path / "packed", tmp_path / "fused", adapter=tmp_path / "a", dtype="float32", **how)
    found = parameters_of(load(tmp_path / "fused").model)[PATH]
    assert mx.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", ["8", "2"])
def test_where_it_is_packed_otherwise_the_sum_is_packed_once(kind, bits, tmp_path):
    expected = sum_of(tmp_path, kind)
    convert(tmp_path / "packed", tmp_path / "fused", adapter=tmp_path / "a", quantize=bits, dtype="float32")
    found = parameters_of(load(tmp_path / "fused").model)[PATH]
    assert found.quantization == QuantizationSpec(int(bits), 32)
    once = quantize_matrix(PATH, expected, found.quantization).numbers(mx.float32)
    assert mx.allclose(found.numbers(mx.float32), once, atol=1e-4)


def other(name, **shapes):
    return {f"{name}.{part}": mx.zeros(shape) for part, shape in shapes.items()}


@pytest.mark.parametrize(
    ("tensors", "settings", "words"),
    [
        (
            None,
            dict(fine_tune_type="ia3"),
            "fine_tune_type 'ia3' is not implemented; known: lora, dora, full",
        ),
        (None, dict(lora_parameters={"alpha": 2}), "lora_parameters.scale is missing"),
        (None, dict(lora_parameters=None), "lora_parameters.scale"),
        (
            None,
            dict(peft_type="LORA"),
            "no adapter_config.json with adapter_model.safetensors, so no adapter",
        ),
        (
            other(QUERY, lora_a=(64, 2), lora_b=(2, 128)),
            {},
            f"for {PATH} expected (128, 128), found (128, 64)",
        ),
        (
            other(QUERY, lora_a=(128, 2), lora_b=(3, 128)),
            {},
            "(2, 128) and (128, 3) are of no low-rank product",
        ),
        (
            other(QUERY, lora_a=(128, 129), lora_b=(129, 128)),
            {},
            f"{QUERY}.lora_a: rank 129 is more than a matrix of shape (128, 128) can have",
        ),
        (other(QUERY, lora_a=(128, 2)), {}, f"has no {QUERY}.lora_b"),
        (
            other("model.layers.9.self_attn.q_proj", lora_a=(128, 2), lora_b=(2, 128)),
            {},
            "layers.9.mixer.query.weight",
        ),
        (other("model.vision.proj", lora_a=(128, 2), lora_b=(2, 128)), {}, "model.vision.proj.weight"),
        (
            other(QUERY, weight=(3, 3)),
            dict(fine_tune_type="full"),
            f"for {PATH} expected (128, 128), found (3, 3)",
        ),
    ],
)
def test_what_is_no_adapter_of_this_model_is_refused(tensors, settings, words, tmp_path):
    adapter(tmp_path / "a", tensors, **settings)
    with pytest.raises(ZooError) as caught:
        load("llama", adapter=tmp_path / "a")
    assert words in str(caught.value)


def test_a_folder_without_an_adapter_is_refused_by_the_command(tmp_path):
    done = CliRunner().invoke(run, ["llama", "Hello", "--adapter", str(tmp_path)])
    assert "no adapter_config.json with adapters.safetensors, so no adapter" in str(done.exception)
