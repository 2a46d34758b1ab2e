"""What `zoo run` and `zoo.load` say to input that cannot be: one line that names the culprit."""

import json
import struct

import mlx.core as mx
import pytest

import zoo
from zoo.errors import CheckpointError, ConfigError, SourceError, ZooError

PROMPT = [1, 2, 3]


def refused(path, error, *words, **settings):
    with pytest.raises(error) as caught:
        zoo.load(path, **settings)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert str(word) in message, f"{word!r} is not in {message!r}"


def rewrite(folder, change):
    """Load a folder's tensors, let `change` alter the dictionary, and write them back."""
    path = folder / "model.safetensors"
    tensors = dict(mx.load(str(path)))
    mx.eval(tensors)
    change(tensors)
    mx.save_safetensors(str(path), tensors, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("lama", ["lama", "llama"]),
        ("qwen33", ["qwen3"]),
        ("llama:huge", ["huge", "pocket", "8b"]),
        ("llama:of::two", ["'of::two'", "pocket"]),
        ("lla\0ma", ["'lla\\x00ma' is no architecture"]),
        ("./nowhere", ["./nowhere", "no such folder"]),
        ("/no/such/folder", ["/no/such/folder"]),
        ("mistral:tiny", ["a configuration but no weights"]),
    ],
)
def test_a_source_that_is_not_there(source, words):
    refused(source, SourceError, *words)


def test_a_hub_id_that_cannot_be_fetched(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused("nobody/nothing", SourceError, "nobody/nothing")


def test_a_file_instead_of_a_folder(folder):
    path = folder() / "model.safetensors"
    refused(path, SourceError, path, "folder")


def test_an_unknown_architecture_by_option(folder):
    refused(folder(), SourceError, "lamma", "llama", architecture="lamma")


def test_a_folder_without_a_config(folder):
    path = folder()
    (path / "config.json").unlink()
    refused(path, ConfigError, path / "config.json", "missing")


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": ' * 100_000])
def test_a_config_that_is_no_json_object(folder, text):
    path = folder()
    (path / "config.json").write_text(text)
    refused(path, ConfigError, path / "config.json")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": None}, ["hidden_size", "missing"]),
        ({"hidden_size": "128"}, ["hidden_size"]),
        ({"hidden_size": -4}, ["hidden_size"]),
        ({"hidden_size": 10**12}, ["hidden_size"]),
        ({"num_hidden_layers": 10**9}, ["num_hidden_layers"]),
        ({"num_attention_heads": 7}, ["num_attention_heads"]),
        ({"num_key_value_heads": 3}, ["num_key_value_heads"]),
        ({"hidden_act": "gelu_10"}, ["hidden_act", "gelu_10"]),
        ({"rms_norm_eps": "tiny"}, ["rms_norm_eps"]),
        ({"attention_bias": 1}, ["attention_bias"]),
        ({"rope_scaling": {"rope_type": "ntk", "factor": 2.0}}, ["rope_scaling.rope_type", "ntk"]),
        ({"rope_scaling": {"rope_type": "linear"}}, ["rope_scaling.factor", "missing"]),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, ["rope_scaling.factor"]),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "twist": 1}}, ["rope_scaling.twist"]),
        ({"rope_parameters": {"rope_theta": -1}}, ["rope_theta"]),
        ({"rope_theta": 1}, ["rope_theta", "greater than 1"]),
        ({"rope_theta": 10**400}, ["rope_theta"]),
        ({"rope_theta": float("inf")}, ["rope_theta"]),
        ({"rms_norm_eps": 1e-320}, ["rms_norm_eps"]),
        ({"rms_norm_eps": float("nan")}, ["rms_norm_eps"]),
        ({"rope_scaling": {"rope_type": "linear", "factor": 1e30}}, ["rope_scaling.factor"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": -1}}, ["rope_scaling.beta_fast"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 0}}, ["attention_factor"]),
        (
            {"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 4096}},
            ["factor", "128"],
        ),
        ({"num_hidden_layers": 2000}, ["parameters", "bytes"]),
        ({"intermediate_size": 16_777_216}, ["parameters", "bytes"]),
        ({"rope_scaling": "linear"}, ["rope_scaling"]),
        ({"model_type": "perceptron"}, ["model_type", "perceptron"]),
        ({"model_type": None}, ["model_type"]),
        ({"quantization": {"bits": 7}}, ["quantization", "bits 7"]),
        ({"quantization_config": {"quant_method": "magic"}}, ["quant_method", "magic"]),
    ],
)
def test_a_config_value_that_cannot_be(folder, changes, words):
    refused(folder(changes=changes), ConfigError, "config.json", *words)


def test_a_number_that_no_formula_takes(folder):
    refused(folder(changes={"rms_norm_eps": -1.0}), ZooError, "eps", "at least 0")


def test_sizes_that_the_weights_cannot_have_are_refused_before_a_module_is_made(folder, monkeypatch):
    path = folder(changes={"hidden_size": 16_777_216, "head_dim": 64})
    monkeypatch.setattr("zoo.checkpoint.open.assemble", None)
    refused(path, ConfigError, "config.json", "parameters")


def test_what_a_folder_says_is_one_line_of_bounded_length(folder):
    path = folder()
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": ["\n" * 9000]}))
    with pytest.raises(ZooError) as caught:
        zoo.load(path)
    assert len(str(caught.value)) <= 2000 and str(path) in str(caught.value)
    assert str(ZooError("a\nb\r\nc")) == "a b c"


def test_an_unknown_key_is_warned_of_by_name(folder):
    with pytest.warns(UserWarning, match="flux_capacitor"):
        zoo.load(folder(changes={"flux_capacitor": 1.21}))


def test_no_warning_for_keys_that_change_nothing(folder, recwarn):
    zoo.load(folder(changes={"attention_dropout": 0.1, "use_cache": True, "pretraining_tp": 1}))
    assert not recwarn.list


def test_a_folder_without_weights(folder):
    path = folder()
    (path / "model.safetensors").unlink()
    refused(path, CheckpointError, path, "model.safetensors")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_a_pickle_is_never_opened(folder, name):
    path = folder()
    (path / "model.safetensors").rename(path / name)
    refused(path, CheckpointError, path / name, "pickle", "save_pretrained")


def test_a_truncated_file(folder):
    path = folder() / "model.safetensors"
    data = path.read_bytes()
    for end in (0, 4, 200, len(data) - 10):
        path.write_bytes(data[:end])
        refused(path.parent, CheckpointError, path)


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"[]",
        b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 1000000]}}',
        b'{"a": 1}',
        b"\xff\xfe",
    ],
)
def test_a_header_that_lies(folder, header):
    path = folder() / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 16)
    refused(path.parent, CheckpointError, path)


def test_a_header_length_past_the_end(folder):
    path = folder() / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + b"{}")
    refused(path.parent, CheckpointError, path)


def test_a_tensor_of_another_shape(folder):
    path = folder()
    name = "model.layers.1.mlp.up_proj.weight"
    rewrite(path, lambda tensors: tensors.update({name: mx.zeros((7, 128))}))
    refused(path, CheckpointError, name, "(384, 128)", "(7, 128)")


def test_a_tensor_of_integers(folder):
    path = folder()
    name = "model.layers.0.input_layernorm.weight"
    rewrite(path, lambda tensors: tensors.update({name: mx.ones((128,), mx.int32)}))
    refused(path, CheckpointError, name, "I32")


def test_a_missing_tensor(folder):
    path = folder()
    name = "model.layers.2.self_attn.k_proj.weight"
    rewrite(path, lambda tensors: tensors.pop(name))
    refused(path, CheckpointError, name, "missing", "(64, 128)")


def test_an_unexpected_tensor(folder):
    path = folder()
    rewrite(path, lambda tensors: tensors.update({"model.layers.0.self_attn.sinks": mx.zeros((4,))}))
    refused(path, CheckpointError, "model.layers.0.self_attn.sinks", "unexpected", "(4,)")


def test_a_fused_tensor_that_does_not_split(folder):
    path = folder("gpt2", tokenizer=False)
    name = "transformer.h.1.attn.c_attn.weight"
    rewrite(path, lambda tensors: tensors.update({name: mx.zeros((128, 200))}))
    refused(path, CheckpointError, name, "(200, 128)")


def shard(path, count=2):
    """Rewrite a folder as shards with an index."""
    tensors = dict(mx.load(str(path / "model.safetensors")))
    mx.eval(tensors)
    (path / "model.safetensors").unlink()
    names, files = sorted(tensors), {}
    for number in range(count):
        file = f"model-{number + 1:05}-of-{count:05}.safetensors"
        part = names[number::count]
        mx.save_safetensors(
            str(path / file), {name: tensors[name] for name in part}, metadata={"format": "pt"}
        )
        files |= {name: file for name in part}
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))


def test_shards_give_the_same_logits(folder):
    path = folder()
    whole = zoo.load(path).model(mx.array([PROMPT]))
    shard(path, 3)
    assert mx.array_equal(zoo.load(path).model(mx.array([PROMPT])), whole)


def test_a_missing_shard(folder):
    path = folder()
    shard(path)
    (path / "model-00002-of-00002.safetensors").unlink()
    refused(path, CheckpointError, "model-00002-of-00002.safetensors", "missing")


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "other.bin", 3])
def test_an_index_that_points_elsewhere(folder, name):
    path = folder()
    shard(path)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    refused(path, CheckpointError, "model.safetensors.index.json")


def test_prefix_may_be_left_out(folder):
    for name, prefix in (("llama", "model."), ("gpt2", "transformer.")):
        path = folder(name, tokenizer=False, where=name)
        before = zoo.load(path).model(mx.array([PROMPT]))

        def strip(tensors, prefix=prefix):
            for key in [key for key in tensors if key.startswith(prefix)]:
                tensors[key.removeprefix(prefix)] = tensors.pop(key)

        rewrite(path, strip)
        assert mx.array_equal(zoo.load(path).model(mx.array([PROMPT])), before)


def test_computed_buffers_are_left_out(folder):
    path = folder("gpt2", tokenizer=False)
    mask = mx.ones((1, 1, 64, 64), mx.uint8)
    rewrite(path, lambda tensors: tensors.update({"transformer.h.0.attn.bias": mask}))
    assert zoo.load(path)


def test_a_folder_without_a_tokenizer_takes_ids(folder):
    loaded = zoo.load(folder(tokenizer=False))
    assert loaded.tokenizer is None
    assert len(zoo.generate(loaded, PROMPT, max_tokens=3).tokens) == 3
    with pytest.raises(ZooError, match="tokenizer"):
        zoo.generate(loaded, "text")


def test_a_dtype_is_cast_to_or_refused(folder):
    path = folder()
    assert zoo.load(path, dtype="bfloat16").model.layers[0].mixer.query.weight.dtype == mx.bfloat16
    refused(path, ZooError, "int8", dtype="int8")


def test_a_published_qwen_config_is_read_whole(recwarn):
    from zoo.checkpoint.open import make_recipe
    from zoo.host.registry import default_registry

    published = dict(
        architectures=["Qwen2ForCausalLM"],
        attention_dropout=0.0,
        bos_token_id=151643,
        eos_token_id=151645,
        hidden_act="silu",
        hidden_size=896,
        initializer_range=0.02,
        intermediate_size=4864,
        max_position_embeddings=32768,
        max_window_layers=21,
        model_type="qwen2",
        num_attention_heads=14,
        num_hidden_layers=24,
        num_key_value_heads=2,
        rms_norm_eps=1e-06,
        rope_theta=1000000.0,
        sliding_window=32768,
        tie_word_embeddings=True,
        torch_dtype="bfloat16",
        transformers_version="4.43.1",
        use_cache=True,
        use_sliding_window=False,
        vocab_size=151936,
    )
    recipe = make_recipe(default_registry().architecture("qwen2"), published, default_registry())
    assert recipe.parameters(896) == 494_032_768
    assert not recwarn.list
