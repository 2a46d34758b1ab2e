"""The tokenizer of a converted GGUF file gives transformers and mlx-lm the ids that it gives the zoo."""

import json

import mlx.core as mx
import pytest
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2
from transformers import AutoTokenizer

import zoo
from tests.helpers import gguf_files, gguf_tokenizers
from zoo.checkpoint.gguf.tokenizer import load_gguf_tokenizer, save_gguf_tokenizer

TEXTS = [
    "The capital city of China is Beijing.",
    "中国的首都是北京。",
    " one space",
    "  two",
    "a\n\nb",
    "naïve 123",
    "x<|end|>y",
]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """The metadata of a sentencepiece model of byte pairs."""
    model = gguf_tokenizers.train_pieces(tmp_path_factory.mktemp("pieces"), TEXTS)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.read_bytes())
    return {
        "model": "llama",
        "pre": "default",
        "tokens": [piece.piece for piece in proto.pieces],
        "scores": [piece.score for piece in proto.pieces],
        "token_type": [piece.type for piece in proto.pieces],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }


def test_no_space_is_put_in_front_where_the_file_says_so(tmp_path, vocabulary):
    """Gemma's."""
    from mlx_lm.utils import load_tokenizer

    header = gguf_tokenizers.write(tmp_path / "a.gguf", vocabulary | {"add_space_prefix": False})
    save_gguf_tokenizer(header, tmp_path, {})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma2"}))
    found, original = load_gguf_tokenizer(header, 1000), AutoTokenizer.from_pretrained(tmp_path)
    other = load_tokenizer(tmp_path)
    for text in TEXTS:
        assert found.encode(text) == original.encode(text) == other.encode(text), text


def test_special_tokens_take_the_white_space_after_them(tmp_path, vocabulary):
    """Phi-3's, by the flag `rstrip` that the converted folder has."""
    control = dict.fromkeys(("<|user|>", "<|assistant|>"), 3)
    kinds = dict(zip(vocabulary["tokens"], vocabulary["token_type"], strict=True)) | control
    keys = {"general.architecture": "phi3", "tokens": list(kinds), "token_type": list(kinds.values())}
    keys["scores"] = [*vocabulary["scores"], *[-1000.0] * (len(kinds) - len(vocabulary["tokens"]))]
    header = gguf_tokenizers.write(tmp_path / "a.gguf", vocabulary | keys | {"add_space_prefix": False})
    save_gguf_tokenizer(header, tmp_path, {})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "phi3"}))
    found, original = load_gguf_tokenizer(header, 1000), AutoTokenizer.from_pretrained(tmp_path)
    texts = ("<|user|>\nHello there\n<|assistant|>\n\n", "<|user|>Hello there\n<|assistant|>")
    for text in texts:
        assert found.encode(text) == original.encode(text), text
    assert found.encode(texts[0]) == found.encode(texts[1])


def test_a_file_that_mlx_lm_exports_is_the_model(tmp_path, vocabulary):
    """`mlx_lm.fuse --export-gguf`: half precision, scores that are all the same, no name of a pre-tokenizer."""
    from mlx_lm.gguf import convert_to_gguf

    folder = gguf_files.random_folder(tmp_path / "folder", "llama", vocab_size=900, tie_word_embeddings=False)
    save_gguf_tokenizer(gguf_tokenizers.write(tmp_path / "a.gguf", vocabulary), folder, {})
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | {"rms_norm_eps": 1e-6, "rope_theta": 10000.0}
    weights = mx.load(str(folder / "model.safetensors"))
    convert_to_gguf(folder, weights, config, str(tmp_path / "model.gguf"))
    loaded, original = zoo.load(tmp_path / "model.gguf"), zoo.load(folder)
    assert loaded.recipe == original.recipe
    assert gguf_files.difference(loaded, original) <= 1e-3
    pieces = SentencePieceProcessor(str(gguf_tokenizers.train_pieces(tmp_path, TEXTS)))
    for text in TEXTS[:-1]:  # the last has a special token
        ids = loaded.tokenizer.encode(text, special_tokens=False)
        assert ids == pieces.encode(text), text
        assert loaded.tokenizer.decode(ids) == text
