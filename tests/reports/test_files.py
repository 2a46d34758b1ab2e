"""What people reported of files that other programs misread, tried here. Each test names the reports."""

import json

import mlx.core as mx
import pytest

import zoo
from tests.checkpoint.test_mlx_quantized import quantize
from tests.helpers.gguf_tokenizers import write
from tests.tokenizer.test_turn_ends import ALPHABET, folder_of, texts
from zoo.checkpoint.convert import convert
from zoo.checkpoint.gguf.tokenizer import CONTROL, NORMAL, load_gguf_tokenizer
from zoo.errors import CheckpointError, ConfigError, ZooError

reported = pytest.mark.reported


def logits(path):
    return zoo.load(path).model(mx.array([[5, 6, 7, 8]]))


def sharded(path, names):
    """Write a folder's tensors in two files with an index; gives the index."""
    arrays = mx.load(str(path / "model.safetensors"))
    half = len(arrays) // 2
    parts = dict(list(arrays.items())[:half]), dict(list(arrays.items())[half:])
    mx.eval(parts)
    for name, part in zip(names, parts, strict=True):
        mx.save_safetensors(str(path / name), part)
    (path / "model.safetensors").unlink()
    index = {"weight_map": {key: name for name, part in zip(names, parts, strict=True) for key in part}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return index


SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@reported("sgl-project/sglang 32279", "Blaizzy/mlx-vlm 1827", "JustVugg/colibri 1317")
def test_a_shard_that_an_index_names_and_nobody_has_is_named(folder):
    path = folder()
    sharded(path, SHARDS)
    (path / SHARDS[1]).unlink()
    with pytest.raises(CheckpointError, match=SHARDS[1]):
        zoo.load(path)


@reported("Blaizzy/mlx-vlm 1464")
def test_a_file_that_the_index_does_not_name_is_not_read(folder):
    path = folder()
    before = logits(path)
    sharded(path, SHARDS)
    mx.save_safetensors(str(path / "model.safetensors"), {"lm_head.weight": mx.zeros((3, 3))})
    assert mx.array_equal(logits(path), before)


@reported("jundot/omlx 2096", "shamantechnology/xotorch 11", "Neph0s/CoSER 3")
def test_files_without_an_index_are_read_together(folder):
    path = folder()
    before = logits(path)
    sharded(path, SHARDS)
    (path / "model.safetensors.index.json").unlink()
    assert mx.array_equal(logits(path), before)


@reported("unslothai/unsloth-zoo 1004")
def test_a_key_that_a_config_lacks_is_named(folder):
    path = folder()
    config = json.loads((path / "config.json").read_text())
    del config["hidden_size"], config["intermediate_size"]
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ZooError, match=r"config\.json: hidden_size is missing"):
        zoo.load(path)


@reported("ml-explore/mlx 1033", "ml-explore/mlx-examples 279", "Blaizzy/mlx-vlm 2066")
def test_matrices_whose_rows_are_no_groups_are_kept_or_the_size_is_refused(folder, tmp_path):
    path = folder("llama", {"intermediate_size": 96}, tokenizer=False)
    try:
        convert(path, tmp_path / "packed", quantize="4", group_size=64)
    except ZooError as error:
        assert "64" in str(error) and not (tmp_path / "packed").exists()
    else:
        assert mx.abs(logits(tmp_path / "packed") - logits(path)).max() < 1


@reported("jjang-ai/vmlx 141")
def test_numbers_of_bits_that_are_none_mean_a_folder_that_is_not_packed(folder):
    before = logits(folder())
    assert mx.array_equal(logits(folder(changes={"quantization": {"bits": None}}, where="null")), before)
    with pytest.raises(ConfigError, match="bits"):
        zoo.load(folder(changes={"quantization": {"bits": "four"}}, where="word"))


@reported("ml-explore/mlx-swift-examples 178")
def test_groups_and_bits_of_any_size_that_mlx_packs_are_read(folder):
    path = folder()
    before = logits(path)
    for bits, group in ((2, 32), (3, 64), (8, 128)):
        given = {"bits": bits, "group_size": group}
        packed = quantize(folder(where=f"{bits}"), given, lambda owner, given=given: given)
        assert logits(packed).shape == before.shape


EOS, TURN, START = "<|endoftext|>", "<|im_end|>", "<|im_start|>"


@reported(
    "Blaizzy/mlx-vlm 309",
    "Blaizzy/mlx-vlm 1501",
    "Blaizzy/mlx-vlm 2112",
    "ml-explore/mlx-lm 1414",
    "turboderp-org/exllamav2 449",
    "raullenchai/Rapid-MLX 546",
)
@pytest.mark.parametrize("named", [None, EOS, TURN, [EOS, TURN]], ids=str)
def test_an_answer_ends_where_either_file_says(tmp_path, named):
    ids = {text: len(ALPHABET) + number for number, text in enumerate((EOS, START, TURN))}
    given = [ids[text] for text in named] if isinstance(named, list) else ids.get(named)
    tokenizer = folder_of(tmp_path, [EOS, START, TURN], generation=given)
    assert texts(tokenizer) == {EOS, TURN}


def file_of(path, **keys):
    tokens = [*ALPHABET, "<s>", "</s>", "<|User|>"]
    kinds = [NORMAL] * len(ALPHABET) + [CONTROL] * 3
    base = {"model": "gpt2", "pre": "llama-bpe", "tokens": tokens, "token_type": kinds, "merges": ["a b"]}
    ends = {"bos_token_id": len(ALPHABET), "eos_token_id": len(ALPHABET) + 1}
    return load_gguf_tokenizer(write(path, {**base, **ends, **keys}), 1000)


@reported("ggml-org/llama.cpp 3966", "nobodywho-ooo/nobodywho 328")
@pytest.mark.parametrize("adds", [True, False])
def test_a_file_says_whether_a_text_begins_with_its_token(tmp_path, adds):
    tokenizer = file_of(tmp_path / "a.gguf", add_bos_token=adds)
    assert (tokenizer.encode("ab")[0] == len(ALPHABET)) == adds


@reported("sgl-project/sglang 3427", "vllm-project/vllm 12985")
def test_a_control_token_in_a_prompt_is_one_token(tmp_path):
    tokenizer = file_of(tmp_path / "a.gguf", add_bos_token=False)
    assert tokenizer.encode("<|User|>ab") == [len(ALPHABET) + 2, ALPHABET.index("ab")]


@reported("huggingface/transformers 31630")
def test_no_space_is_put_before_a_text_of_byte_tokens(tmp_path):
    tokenizer = file_of(tmp_path / "a.gguf", add_bos_token=False)
    assert tokenizer.encode("ab") == [ALPHABET.index("ab")]
    assert tokenizer.decode(tokenizer.encode("ab a")) == "ab a"
