"""`zoo convert`: what it writes, what it refuses, and what it leaves behind when it fails."""

import json
import shutil
import signal
import subprocess
import sys
import time

import mlx.core as mx
import mlx.nn as nn
import pytest
from click.testing import CliRunner
from mlx.utils import tree_flatten

import zoo
from zoo import runtime
from zoo.checkpoint.convert import convert
from zoo.checkpoint.parameters import choose, mixed, parameters_of, parse_quantization
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo.checkpoint.shards import SaveOptions, write
from zoo.cli.convert import convert as command
from zoo.errors import CheckpointError, SourceError, ZooError
from zoo.host.registry import default_registry
from zoo.inspect.perplexity import divergence
from zoo.loading import load


def read(folder):
    return json.loads((folder / "config.json").read_text())


def quantizations(loaded):
    found = parameters_of(loaded.model)
    return {
        path: tensor.quantization for path, tensor in found.items() if isinstance(tensor, QuantizedMatrix)
    }


@pytest.mark.parametrize("layout", ["hf", "mlx"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral", "gpt-oss", "transformer", "lstm"])
def test_another_layout_holds_the_same_numbers(name, layout, tmp_path):
    convert(name, tmp_path / "out", layout=layout)
    source = dict(tree_flatten(load(name).model.parameters()))
    found = dict(tree_flatten(load(tmp_path / "out").model.parameters()))
    assert found.keys() == source.keys()
    assert all(mx.array_equal(found[path], source[path]) for path in source)


def test_quantizing_is_what_mlx_does_to_each_matrix(tmp_path):
    done = convert("llama", tmp_path / "out", quantize="4", group_size=32)
    plain, packed = load("llama").model, load(tmp_path / "out").model
    layer = plain.layers[1].feedforward.up
    weight, scales, _ = mx.quantize(layer.weight.astype(mx.float16), 32, 4)
    assert mx.array_equal(packed.layers[1].feedforward.up.weight, weight)
    assert mx.array_equal(packed.layers[1].feedforward.up.scales, scales.astype(mx.float32))
    assert 5.0 < done.bits < 5.05  # 4 and two 16-bit numbers a group of 32, norms beside
    quantization = {"group_size": 32, "bits": 4, "mode": "affine"}
    assert (
        read(tmp_path / "out")["quantization"]
        == read(tmp_path / "out")["quantization_config"]
        == quantization
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert divergence("llama", tmp_path / "out").mean < 0.1
    assert zoo.generate(load(tmp_path / "out"), "The capital city of China is", max_tokens=3).text.strip()


@pytest.mark.slow
def test_a_folder_quantized_twice_has_the_second_packing(tmp_path):
    convert("llama", tmp_path / "8", quantize="8")
    convert(tmp_path / "8", tmp_path / "4", quantize="mxfp4")
    assert set(quantizations(load(tmp_path / "4")).values()) == {QuantizationSpec(4, 32, "mxfp4")}
    convert(tmp_path / "8", tmp_path / "plain", quantize="none")
    assert not quantizations(load(tmp_path / "plain"))
    assert divergence(tmp_path / "8", tmp_path / "plain").worst < 1e-3


def test_shards_and_their_index(tmp_path):
    convert("qwen3", tmp_path / "out", shard=500_000)
    shards = sorted(tmp_path.glob("out/model-*.safetensors"))
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert len(shards) > 2
    assert set(index["weight_map"].values()) == {path.name for path in shards}
    assert all(path.stat().st_size < 600_000 or len(mx.load(str(path))) == 1 for path in shards)
    tokens = mx.array([[1, 2, 3]])
    assert mx.array_equal(load(tmp_path / "out").model(tokens), load("qwen3").model(tokens))


@pytest.mark.slow
def test_memory_is_that_of_a_shard(tmp_path):
    layer, layers = 4 * 2**20, 24
    file = tmp_path / "in.safetensors"
    mx.save_safetensors(
        str(file), {f"layers.{i}.weight": mx.random.normal((layer // 4096, 1024)) for i in range(layers)}
    )
    mx.clear_cache()
    mx.reset_peak_memory()
    begin = mx.get_active_memory()
    tensors = {name: array.astype(mx.float16) for name, array in mx.load(str(file)).items()}
    shard = 4 * layer
    write(tmp_path / "out", tensors, {}, SaveOptions(shard=shard))
    assert mx.get_peak_memory() - begin < 1.3 * shard + layer


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(quantize="7"), "`quantize` 7: not one of 2, 3, 4, 5, 6, 8, mxfp4"),
        (dict(quantize="four"), "`quantize` four"),
        (dict(quantize="mxfp4", group_size=64), "`group_size` 64: mxfp4 has groups of 32"),
        (dict(quantize="4", group_size=48), "`group_size` 48"),
        (dict(quantize="4", layout="hf"), "`layout` hf"),
        (dict(recipe="mixed-9-9"), "`recipe` mixed-9-9: not one of mixed-2-6"),
        (dict(recipe="mixed-4-6", quantize="4"), "leave `quantize` out"),
        (dict(group_size=32), "`group_size`"),
        (dict(dtype="int8"), "`dtype` 'int8'"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(settings, words, tmp_path):
    with pytest.raises(ZooError) as caught:
        convert("llama", tmp_path / "out", **settings)
    assert words in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_what_belongs_to_a_model_comes_along_and_no_link_out(tmp_path):
    source = tmp_path / "in"
    shutil.copytree(default_registry().architecture("bert").preset("pocket").folder, source)
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    places = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in places.items()
    ]
    (source / "modules.json").write_text(json.dumps(modules))
    (source / "2_Dense").mkdir()
    dim = zoo.load(source).recipe.dim
    dense = {"in_features": dim, "out_features": 3, "activation_function": "torch.nn.Tanh"}
    (source / "2_Dense" / "config.json").write_text(json.dumps(dense))
    weights = {"linear.weight": mx.random.normal((3, dim)), "linear.bias": mx.zeros(3)}
    mx.save_safetensors(str(source / "2_Dense" / "model.safetensors"), weights)
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    (source / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    convert(source, tmp_path / "out")
    vectors = [zoo.embed(zoo.load(folder), ["a text"]) for folder in (source, tmp_path / "out")]
    assert vectors[0].shape == (1, 3) and mx.allclose(*vectors, atol=1e-5)
    (tmp_path / "secret.txt").write_text("secret")
    (source / "notes.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(CheckpointError, match=r"notes\.txt: is a link out of the folder"):
        convert(source, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_folder_that_has_something_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SourceError, match="exists already"):
        convert("llama", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_run_that_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    def fail(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mx, "save_safetensors", fail)
    with pytest.raises(SourceError, match=r"out: cannot be written \(No space left on device\)"):
        convert("llama", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_killed_run_leaves_no_folder_and_does_not_hinder_the_next(tmp_path):
    out = tmp_path / "out"
    slow = "import time, zoo.checkpoint.shards as s; s.write_json = lambda *a: time.sleep(60); "
    code = f"{slow} from zoo.checkpoint.convert import convert; convert('llama', {str(out)!r})"
    process = subprocess.Popen([sys.executable, "-c", code])
    while not list(tmp_path.glob(".part-*/model.safetensors")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(tmp_path.glob(".part-*/model.safetensors")) and not out.exists()
    convert("llama", out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_mixed_recipe_gives_delicate_matrices_more_bits(tmp_path):
    low, more = mixed("mixed-3-6", 16)
    six = QuantizationSpec(6, 64)
    assert low == QuantizationSpec(3, 64)
    assert more("head.output", low) == more("embedding.tokens", low) == six
    chosen = {i for i in range(16) if more(f"layers.{i}.feedforward.down", low) == six}
    assert chosen == {0, 1, 4, 7, 10, 13, 14, 15}
    assert {i for i in range(16) if more(f"layers.{i}.mixer.value", low) == six} == chosen
    assert all(more(f"layers.{i}.mixer.query", low) == low for i in range(16))
    convert("llama", tmp_path / "out", recipe="mixed-3-6")
    found = quantizations(load(tmp_path / "out"))
    assert found["embedding.tokens.weight"] == six and found["layers.0.mixer.query.weight"] == low


def test_routers_keep_eight_bits_and_a_plugin_may_choose_otherwise():
    linear = nn.Linear(128, 4)
    asked = QuantizationSpec(4, 64)
    assert choose("layers.0.feedforward.router.scores", linear, asked) == QuantizationSpec(8, 64)
    assert choose("layers.0.mixer.query", linear, asked, [lambda path, quantization: None]) is None
    assert choose(
        "layers.0.mixer.query", linear, asked, [lambda path, quantization: QuantizationSpec(6, 32)]
    ) == QuantizationSpec(6, 32)
    assert choose("layers.0.mixer.query", nn.Linear(96, 4), asked) is None  # does not divide
    assert parse_quantization("nvfp4") == QuantizationSpec(4, 16, "nvfp4")


def test_a_model_that_does_not_fit_is_refused_with_the_sum(monkeypatch):
    monkeypatch.setattr(runtime, "usable_memory", lambda: 2_000_000)
    with pytest.raises(SourceError, match=r"weights 0\.0 GB, cache of 128 tokens .* `force`"):
        load("llama")
    assert load("llama", force=True).model is not None


def test_the_command_says_how_large_and_how_far(tmp_path):
    done = CliRunner().invoke(command, ["llama", str(tmp_path / "out"), "-q", "8", "--check"])
    assert done.exit_code == 0, done.output
    assert "8.51 bits a weight" in done.output
    assert "KL divergence to the source: 0.0" in done.output


@pytest.mark.parametrize("extra", [{"permutation": mx.arange(63, -1, -1)}, {"global_scale": mx.array([0.5])}])
def test_what_mlx_has_no_place_for_is_written_as_its_numbers(extra, tmp_path):
    weight, scales, biases = mx.quantize(mx.random.normal((8, 64)), 32, 4)
    packed = QuantizedMatrix("a.weight", weight, scales, biases, QuantizationSpec(4, 32), **extra)
    plain = QuantizedMatrix("b.weight", weight, scales, biases, QuantizationSpec(4, 32))
    expected = packed.numbers()
    with pytest.warns(UserWarning, match=r"a\.weight: cannot stay packed without loss"):
        write(tmp_path, {"a.weight": packed, "b.weight": plain}, {}, SaveOptions("mlx"))
    found = mx.load(str(tmp_path / "model.safetensors"))
    assert found.keys() == {"a.weight", "b.weight", "b.scales", "b.biases"}
    assert mx.array_equal(found["a.weight"], expected)


def test_the_second_scale_of_experts_is_written_as_mlx_has_it(tmp_path):
    weight, scales = mx.quantize(mx.random.normal((3, 8, 64)), 16, 4, mode="nvfp4")
    packed = QuantizedMatrix(
        "a.weight", weight, scales, None, QuantizationSpec(4, 16, "nvfp4"), mx.array([[0.5], [1.0], [2.0]])
    )
    write(tmp_path, {"a.weight": packed}, {}, SaveOptions("mlx"))
    assert mx.load(str(tmp_path / "model.safetensors"))["a.global_scale"].tolist() == [1344.0, 2688.0, 5376.0]


def test_a_gguf_file_is_not_written(tmp_path):
    with pytest.raises(
        SourceError, match=r"y\.gguf: GGUF files are read, not written; give the name of a folder"
    ):
        convert("llama", tmp_path / "y.gguf")
    assert not list(tmp_path.iterdir())
