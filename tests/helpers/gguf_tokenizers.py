"""Vocabularies in GGUF files, and the texts that tokenizers are compared on."""

import json
from itertools import islice

import gguf
import sentencepiece

from zoo.checkpoint.gguf.header import read_header
from zoo_corpora.atlas import documents

TEXTS = [
    "The capital city of China is Beijing, isn't it? We'LL see; I'VE 1234567 reasons.",
    "中国的首都是北京，人口很多。日本の首都は東京です。",
    "👩‍👩‍👧 and 🚀🚀 — naïve café, Ünïcödé, e\u0301 is not é",
    "def f(x):\n    return x**2  # 3.14\n\n\n\tif x:\r\n        pass   \n",
    "  two spaces before, three after   ",
    "<|endoftext|>begins<|endoftext|> <tool>[1, 2]</tool> ends\n",
    "",
    " ",
    "\n\n",
]


def train_pieces(folder, texts, **options):
    """Train a sentencepiece model of 900 byte pairs like LLaMA's on the atlas and `texts`; gives its file."""
    prefix = folder / "tokenizer"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*islice(documents("train"), 300), *texts]),
        model_prefix=str(prefix),
        model_type="bpe",
        vocab_size=900,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        control_symbols=["<|end|>"],
        minloglevel=2,
        **options,
    )
    return prefix.with_suffix(".model")


def written(path, tokenizer, pre, /, **changes):
    """The tokenizer's vocabulary in a file; `changes` are metadata, None for a key that is left out."""
    told = json.loads(tokenizer.to_str())
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    added = tokenizer.get_added_tokens_decoder()
    keys = {
        "model": "gpt2",
        "pre": pre,
        "tokens": [tokenizer.id_to_token(id) for id in range(size)],
        "token_type": [
            3 if id in added and added[id].special else 4 if id in added else 1 for id in range(size)
        ],
        "merges": [" ".join(pair) for pair in told["model"]["merges"]],
        "bos_token_id": tokenizer.token_to_id("<|endoftext|>"),
        "eos_token_id": tokenizer.token_to_id("<|endoftext|>"),
        **changes,
    }
    return write(path, keys)


def write(path, keys):
    keys = dict(keys)
    writer = gguf.GGUFWriter(str(path), keys.pop("general.architecture", "llama"))
    for key, value in keys.items():
        key = key if "." in key else f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return read_header(path)
