"""A tokenizer.json by which a short text would grow without end, or be looked at for hours, is refused when it is read."""

import json

import pytest

from zoo.errors import TokenizerError
from zoo.tokenizer import load_tokenizer

WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "<unk>": 2}, "unk_token": "<unk>"}
EMPTY = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))


def load(folder, **parts):
    description = EMPTY | {"version": "1.0", "added_tokens": [], "model": WORDS} | parts
    (folder / "tokenizer.json").write_text(json.dumps(description))
    return load_tokenizer(folder)


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def normalizers(*parts):
    return {"normalizer": {"type": "Sequence", "normalizers": list(parts)}}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (normalizers(*[replace({"String": "a"}, "aa")] * 40), "its normalizer may make a text over 10000"),
        (normalizers(*[replace({"String": ""}, "a")] * 40), "its normalizer may make"),
        (normalizers(*[replace({"Regex": "(?=a)"}, "a")] * 40), "its normalizer may make"),
        (normalizers(*[normalizers(replace({"Regex": "a"}, "a" * 999))["normalizer"]] * 2), "may make"),
        (normalizers(*[replace({"Regex": "\\p{L}"}, "\ufdfa"), {"type": "NFKD"}] * 8), "may make"),
        (normalizers(*[{"type": "ByteLevel"}] * 30), "its normalizer may make"),
        (normalizers(*[{"type": "NFC"}] * 1000), "its normalizer has 1000 parts, more than 100"),
        (
            {"decoder": {"type": "Sequence", "decoders": [replace({"String": "a"}, "aa")] * 40}},
            "its decoder may make",
        ),
        (
            {
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [{"type": "Digits", "individual_digits": True}] * 1000,
                }
            },
            "its pre_tokenizer has 1000 parts",
        ),
        (
            {
                "model": {
                    "type": "WordPiece",
                    "vocab": {"a": 0, "<unk>": 1},
                    "unk_token": "<unk>",
                    "continuing_subword_prefix": "##",
                    "max_input_chars_per_word": 10**9,
                }
            },
            "max_input_chars_per_word 1000000000 is more than 1000",
        ),
    ],
)
def test_a_part_without_bounds_is_named(tmp_path, parts, words):
    with pytest.raises(TokenizerError, match=f"tokenizer.json: .*{words}"):
        load(tmp_path, **parts)


def test_what_published_tokenizers_do_is_allowed(tmp_path):
    quotes = [replace({"String": "``"}, '"'), replace({"String": "''"}, '"')]
    spaces = replace({"Regex": " {2,}"}, " ")
    forms = [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]
    tokenizer = load(tmp_path, **normalizers(*quotes, *forms, spaces, {"type": "Prepend", "prepend": "b"}))
    assert tokenizer.encode("a") == [2]
