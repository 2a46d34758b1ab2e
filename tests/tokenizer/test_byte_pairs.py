"""Tokenizers of merges and of ranks: the ids are those recorded from other programs on the same files.

tests/parity/test_tokenizer_files.py compares thousands of texts with these programs themselves.
"""

import json

import pytest

from tests.helpers.ranked_tokenizers import write_tekken, write_tiktoken
from zoo.errors import TokenizerError
from zoo.tokenizer import load_tokenizer
from zoo.tokenizer.detokenizer import byte_values

# Each of two tokens before it, all bytes among these.
PAIRS = [
    ("h", "e"),
    ("l", "l"),
    ("he", "ll"),
    ("hell", "o"),
    (" ", "w"),
    ("o", "r"),
    (" w", "or"),
    ("l", "d"),
]
PAIRS += [
    (" wor", "ld"),
    ("1", "2"),
    ("12", "3"),
    ("'", "s"),
    ("\n", "\n"),
    ("c", "a"),
    ("ca", "t"),
    ("d", "C"),
]
TOKENS = [bytes([value]) for value in range(256)] + [(left + right).encode() for left, right in PAIRS]
TEXT = "hello world's 1234 你好, dogCat e\u0301\n\n  x"


def write_merges(folder, special=(), **settings):
    letters = {value: letter for letter, value in byte_values().items()}

    def spell(token):
        return "".join(letters[value] for value in token.encode())

    vocab = ["".join(letters[value] for value in token) for token in TOKENS]
    write_json(folder / "vocab.json", {token: id for id, token in enumerate([*vocab, *special])})
    lines = ["#version: 0.2", *(f"{spell(left)} {spell(right)}" for left, right in PAIRS)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json(folder / "tokenizer_config.json", settings)


def write_json(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")


def ids(text):
    return list(map(int, text.split()))


FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
# Recorded from transformers 5.24.
MERGES = {
    "GPT2Tokenizer": (
        ("<|endoftext|>",),
        ids(
            """259 264 267 32 266 52 32 228 189 160 229 165 189 44 32 100 111 103 67 97 116 32 101 204 129 268
32 32 120"""
        ),
    ),
    "RobertaTokenizer": (
        ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
        ids(
            """272 259 264 267 32 266 52 32 228 189 160 229 165 189 44 32 100 111 103 67 97 116 32 101 204 129
268 32 32 120 274"""
        ),
    ),
    "CohereTokenizer": (
        ("<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
        ids(
            """259 264 267 32 49 50 51 52 32 228 189 160 229 165 189 44 32 100 111 103 67 97 116 32 195 169
268 32 32 120"""
        ),
    ),
    "Qwen2Tokenizer": (
        ("<|endoftext|>",),
        ids(
            """259 264 267 32 49 50 51 52 32 228 189 160 229 165 189 44 32 100 111 103 67 97 116 32 195 169
268 32 32 120"""
        ),
    ),
}


@pytest.mark.parametrize("name", MERGES)
def test_the_class_says_how_text_is_cut_and_what_stands_around_it(tmp_path, name):
    special, expected = MERGES[name]
    write_merges(tmp_path, special, tokenizer_class=name)
    assert load_tokenizer(tmp_path).encode(TEXT) == expected


def test_the_model_type_says_the_class_where_the_folder_names_none(tmp_path):
    write_merges(tmp_path)
    ids = load_tokenizer(tmp_path, {"model_type": "qwen2"}).encode(TEXT)
    assert ids == MERGES["Qwen2Tokenizer"][1]


# Recorded from tiktoken 0.14 and mistral-common 1.13.
QWEN = ids(
    """259 264 267 32 49 50 51 52 32 228 189 160 229 165 189 44 32 100 111 103 67 97 116 32 195 169
268 32 32 120"""
)
KIMI = ids(
    """259 264 267 32 266 52 32 228 189 160 229 165 189 44 32 100 111 103 67 97 116 32 101 204 129 268
32 32 120"""
)
TEKKEN = ids(
    """1 279 284 287 52 69 70 71 72 52 248 209 180 249 185 209 64 52 120 131 123 87 117 136 52 121 224
149 288 52 52 140"""
)


def test_qwens_ranks_have_the_special_tokens_of_its_code(tmp_path):
    write_tiktoken(tmp_path / "qwen.tiktoken", TOKENS)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode(TEXT) == QWEN
    assert tokenizer.encode("<|im_start|>a<|extra_204|>") == [273, 97, 272 + 3 + 204]
    assert tokenizer.vocab_size == 272 + 208 and tokenizer.eos_ids == {272, 274}
    assert tokenizer.decode(QWEN) == TEXT.replace("e\u0301", "é")


def test_kimis_ranks_have_the_special_tokens_of_the_settings(tmp_path):
    write_tiktoken(tmp_path / "tiktoken.model", TOKENS)
    decoder = {"274": {"content": "[EOS]", "special": True}, "273": {"content": "<t>", "special": False}}
    settings = dict(tokenizer_class="TikTokenTokenizer", eos_token="[EOS]", added_tokens_decoder=decoder)
    write_json(tmp_path / "tokenizer_config.json", settings)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode(TEXT) == KIMI
    assert tokenizer.encode("<t>[EOS]<|reserved_token_272|>") == [273, 274, 272]
    assert tokenizer.decode([273, 274]) == "<t>" and tokenizer.eos_ids == {274}
    assert tokenizer.vocab_size == 272 + 256


def test_tekken_json_says_all_of_its_tokenizer(tmp_path):
    write_tekken(tmp_path / "tekken.json", TOKENS)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode(TEXT) == TEKKEN
    assert tokenizer.encode("[INST]</s>", False) == [3, 2]
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.vocab_size) == (1, {2}, 292)
    write_json(tmp_path / "tokenizer_config.json", {"add_bos_token": False})
    assert load_tokenizer(tmp_path).encode(TEXT) == TEKKEN[1:]
    write_tekken(tmp_path / "tekken.json", TOKENS, None)
    assert load_tokenizer(tmp_path).encode("[IMG]<SPECIAL_19>") != load_tokenizer(tmp_path).encode("[IMG]")


TEKKEN_CONFIG = {"config": {"pattern": "x"}}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("qwen.tiktoken", "IQ== 0\nIg==\n", r"qwen\.tiktoken: line 2 must be a token and its rank"),
        ("qwen.tiktoken", "I!== 0\n", r"line 1: 'I!==' is not a token in base64"),
        ("qwen.tiktoken", "IQ== 0\n", r"lacks a token for the byte 0"),
        ("qwen.tiktoken", "IQ== 1\n", r"ranks must be 0 to 0, each once"),
        ("tiktoken.model", "IQ== 0\n", r"tokenizer_class is missing; tiktoken\.model alone serves TikTokenT"),
        ("tekken.json", "{}", r"tekken\.json: config\.pattern must be a string"),
        ("tekken.json", json.dumps(TEKKEN_CONFIG), r"vocab must be a list"),
        (
            "tekken.json",
            json.dumps(TEKKEN_CONFIG | {"vocab": [{"rank": 1}]}),
            r"vocab\[0\] must be the token",
        ),
        ("tekken.json", json.dumps(TEKKEN_CONFIG | {"vocab": [{}]}), r"vocab\[0\]\.token_bytes: None is not"),
        ("tekken.json", json.dumps({"config": {"pattern": "("}, "vocab": []}), r"config\.pattern cannot"),
        (
            "tekken.json",
            json.dumps(TEKKEN_CONFIG | {"vocab": [], "special_tokens": [3]}),
            r"special_tokens must",
        ),
    ],
)
def test_a_damaged_file_of_ranks_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(TokenizerError, match=message) as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def test_ranks_of_a_class_with_another_pattern_are_refused(tmp_path):
    write_tiktoken(tmp_path / "tiktoken.model", TOKENS)
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "HYTokenizer"})
    with pytest.raises(TokenizerError, match=r"HYTokenizer needs a tokenizer\.json"):
        load_tokenizer(tmp_path)
