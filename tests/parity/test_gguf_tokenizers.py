"""The tokenizer of a converted GGUF file gives transformers and mlx-lm the ids that it gives the zoo."""

import json

import pytest
from sentencepiece import sentencepiece_model_pb2
from transformers import AutoTokenizer

from tests.helpers import gguf_tokenizers
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
