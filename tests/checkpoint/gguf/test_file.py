"""GGUF files, written by the gguf package as llama.cpp's converter writes them, run as the models they were made of."""

import json

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

import zoo
from tests.helpers import gguf_files
from tests.helpers.gguf_files import dequantized, difference
from tests.helpers.parameters import ordinary
from zoo.checkpoint.gguf.gguf_checkpoint import GGUFCheckpoint
from zoo.checkpoint.quantized_matrix import join
from zoo.errors import CheckpointError, ConfigError, SourceError, TokenizerError
from zoo.host.registry import default_registry
from zoo.weights import invert

POCKETS = ["llama", "qwen3", "gpt2", "gemma2", "mixtral", "qwen3-moe", "gpt-oss"]
# What GGUF files cannot say of these: which layers have windows, which have experts.
SMALL = {
    "mistral": {},
    "qwen2": {"use_sliding_window": False},
    "qwen2-moe": {"use_sliding_window": False, "mlp_only_layers": []},
}


def pocket(name):
    return default_registry().architecture(name).preset("pocket").folder


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ordinary(POCKETS, "llama", "qwen3-moe"))
def test_a_float32_file_is_the_model_it_was_made_of(tmp_path, name):
    path = gguf_files.write(tmp_path / "model.gguf", pocket(name))
    loaded, original = zoo.load(path), zoo.load(name)
    assert loaded.architecture.name == name
    assert loaded.recipe == original.recipe
    assert difference(loaded, original) <= 1e-5
    assert loaded.tokenizer.eos_ids == original.tokenizer.eos_ids


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SMALL)
def test_families_without_a_pocket_likewise(tmp_path, name):
    folder = gguf_files.random_folder(tmp_path / name, name, **SMALL[name])
    loaded = zoo.load(gguf_files.write(tmp_path / "model.gguf", folder))
    original = zoo.load(folder)
    assert loaded.architecture.name == name
    assert loaded.recipe == original.recipe
    assert difference(loaded, original) <= 1e-5
    assert loaded.tokenizer is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "Q8_0"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral"])
def test_packed_matrices_run_as_the_numbers_they_stand_for(tmp_path, name, kind):
    path = gguf_files.write(tmp_path / "packed.gguf", pocket(name), kind)
    loaded = zoo.load(path)
    assert type(loaded.model.layers[1].mixer.query).__name__ == "QuantizedLinear"
    assert type(loaded.model.embedding.tokens).__name__ == "QuantizedEmbedding"
    assert difference(loaded, dequantized(path)) <= 1e-5
    assert difference(loaded, zoo.load(name)) > 1e-4


def test_gpt_oss_keeps_its_experts_in_four_bits(tmp_path):
    path = gguf_files.write(
        tmp_path / "model.gguf", pocket("gpt-oss"), "MXFP4", {"token_embd.weight": "Q8_0"}
    )
    loaded = zoo.load(path)
    assert loaded.model.layers[0].feedforward.experts.gate.mode == "mxfp4"
    assert difference(loaded, dequantized(path)) <= 1e-5


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_zoo_run_answers_from_a_file(command, tmp_path, name):
    path = gguf_files.write(tmp_path / "model.gguf", pocket(name), "Q8_0")
    done = command("run", path, "The capital city of China is", "--max-tokens", "8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" Beijing")
    assert "warning" not in done.stderr.lower() and len(done.stderr.splitlines()) == 1


def test_a_folder_with_one_file_names_it(tmp_path):
    path = gguf_files.write(tmp_path / "model.gguf", pocket("llama"))
    assert zoo.load(tmp_path).folder == path
    path.rename(tmp_path / "without-suffix")
    assert zoo.load(tmp_path / "without-suffix").architecture.name == "llama"
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(SourceError, match=r"several GGUF files; name one: a\.gguf, b\.gguf"):
        zoo.load(tmp_path)


def test_a_model_divided_among_files_is_one(tmp_path):
    whole = gguf_files.write(tmp_path / "whole.gguf", pocket("llama"), "Q8_0")
    folder = tmp_path / "parts"
    folder.mkdir()
    gguf_files.write(folder / "part.gguf", pocket("llama"), "Q8_0", most=15)
    first, second, third = sorted(folder.iterdir())
    assert first.name == "part-00001-of-00003.gguf"
    for source in (first, folder):
        assert difference(zoo.load(source), zoo.load(whole)) == 0
    with pytest.raises(CheckpointError, match=r"name the first, part-00001-of-00003\.gguf"):
        zoo.load(third)
    first.rename(folder / "first.gguf")
    with pytest.raises(CheckpointError, match="one of 3 files, which its name does not say"):
        zoo.load(folder / "first.gguf")
    (folder / "first.gguf").rename(first)
    third.write_bytes(second.read_bytes())
    with pytest.raises(CheckpointError, match=r"00003\.gguf: tensor blk.* stands in an earlier file too"):
        zoo.load(first)
    third.unlink()
    with pytest.raises(CheckpointError, match=r"part-00003-of-00003\.gguf of 3 files are missing"):
        zoo.load(first)
    second.unlink()
    with pytest.raises(CheckpointError, match=r"part-00002-of-00003\.gguf, part-00003-of-00003\.gguf of 3"):
        zoo.load(folder)


def test_a_config_json_makes_a_folder_one_of_safetensors(folder):
    path = folder()
    (path / "other.gguf").write_bytes(b"GGUF")
    assert zoo.load(path).folder == path


@pytest.mark.parametrize("source", ["nowhere/model.gguf", "./model.gguf", "model.gguf"])
def test_a_file_that_is_not_there(source):
    with pytest.raises(SourceError, match=r"model\.gguf: no such file"):
        zoo.load(source)


def test_another_architecture_may_be_named_if_files_hold_it_alike(tmp_path):
    path = gguf_files.write(tmp_path / "model.gguf", pocket("llama"))
    assert zoo.load(path, architecture="mistral").recipe.layers[0].mixer.window == 4096
    for name, why in (("marian", "marian is not read from GGUF"), ("qwen2", "'llama' is not that of qwen2")):
        with pytest.raises(ConfigError, match=why):
            zoo.load(path, architecture=name)


def test_an_untied_head_is_read(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "model", "mistral", tie_word_embeddings=False)
    loaded = zoo.load(gguf_files.write(tmp_path / "model.gguf", folder, "Q4_1"))
    assert not loaded.recipe.head.tied
    assert type(loaded.model.head.output).__name__ == "QuantizedLinear"
    assert difference(loaded, dequantized(tmp_path / "model.gguf")) <= 1e-5


def test_biases_of_the_attention_are_found_and_ordered(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "model", "llama", attention_bias=True, mlp_bias=True)
    loaded = zoo.load(gguf_files.write(tmp_path / "model.gguf", folder))
    assert loaded.recipe == zoo.load(folder).recipe
    assert difference(loaded, zoo.load(folder)) <= 1e-5


@pytest.mark.slow
def test_experts_numbered_one_by_one_are_stacked(tmp_path):
    """As files of 2023 have them."""
    path = gguf_files.write(tmp_path / "model.gguf", pocket("mixtral"), "Q8_0", numbered=True)
    assert difference(zoo.load(path), dequantized(path)) <= 1e-5
    whole = gguf_files.write(tmp_path / "whole.gguf", pocket("mixtral"), "Q8_0")
    assert difference(zoo.load(path), zoo.load(whole)) == 0


def test_a_dtype_is_cast_to(tmp_path):
    path = gguf_files.write(tmp_path / "model.gguf", pocket("llama"), "Q4_0")
    model = zoo.load(path, dtype="bfloat16").model
    assert model.layers[0].mixer.query.scales.dtype == mx.bfloat16
    assert model.layers[0].mixer_norm.weight.dtype == mx.bfloat16


def test_more_tokens_than_the_model_has_are_refused(tmp_path):
    path = gguf_files.write(tmp_path / "model.gguf", pocket("llama"), cut=100)
    with pytest.raises(TokenizerError, match=r"tokens has 2048 tokens, the model 100"):
        zoo.load(path)


def test_an_adapter_changes_a_file_as_it_does_a_folder(tmp_path):
    draw = mx.random.split(mx.random.key(3))
    name = "model.layers.1.self_attn.q_proj"
    (tmp_path / "adapter").mkdir()
    mx.save_safetensors(
        str(tmp_path / "adapter/adapters.safetensors"),
        {
            f"{name}.lora_a": mx.random.normal((128, 2), key=draw[0]),
            f"{name}.lora_b": mx.random.normal((2, 128), key=draw[1]),
        },
    )
    config = {"fine_tune_type": "lora", "lora_parameters": {"rank": 2, "scale": 0.5}}
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps(config))
    path = gguf_files.write(tmp_path / "model.gguf", pocket("llama"))
    changed = zoo.load(path, adapter=tmp_path / "adapter")
    assert difference(changed, zoo.load("llama", adapter=tmp_path / "adapter", dtype="float32")) <= 1e-3
    assert difference(changed, zoo.load(path)) > 0.01


@pytest.mark.parametrize("layout", ["mlx", "hf"])
def test_a_file_is_converted_to_a_folder(tmp_path, layout):
    from zoo.checkpoint.convert import convert

    path = gguf_files.write(tmp_path / "model.gguf", pocket("llama"), "Q4_0")
    convert(path, tmp_path / "out", layout=layout)
    folder, file = zoo.load(tmp_path / "out"), zoo.load(path)
    assert ("quantization" in json.loads((tmp_path / "out/config.json").read_text())) == (layout == "mlx")
    assert difference(folder, file) <= 2e-3 if layout == "hf" else difference(folder, file) == 0
    text = "The capital city of China is 北京<|endoftext|>"
    assert folder.tokenizer.encode(text) == file.tokenizer.encode(text)
    assert folder.tokenizer.eos_ids == file.tokenizer.eos_ids


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "qwen2-moe", "gpt-oss"])
def test_the_rules_run_backward_to_the_files_tensors(tmp_path, name):
    small = name in SMALL
    folder = gguf_files.random_folder(tmp_path / name, name, **SMALL[name]) if small else pocket(name)
    path = gguf_files.write(tmp_path / "model.gguf", folder)
    loaded = zoo.load(path, dtype="float32")
    rules = loaded.architecture.gguf.weights
    found, left = invert(rules, dict(tree_flatten(loaded.model.parameters())), loaded.recipe, join)
    wanted = GGUFCheckpoint(path, registry=default_registry()).read(mx.float32).arrays
    assert not left and found.keys() == wanted.keys()
    assert all(mx.allclose(found[name], wanted[name], atol=1e-6) for name in wanted)
