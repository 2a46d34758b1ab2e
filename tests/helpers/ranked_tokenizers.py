"""Tokenizer files other than `tokenizer.json`, trained on a few sentences, and random texts for them."""

import base64
import json
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from zoo.tokenizer.classes import part_of
from zoo.tokenizer.detokenizer import byte_values
from zoo.tokenizer.pretokenizers import PRE_TOKENIZERS

CORPUS = [
    "Hello world, don't you SEE? It's 你好世界 naïve café über 한국어 日本語です",
    "the quick brown fox jumps over the lazy dog 12345 times! 😀👍🏽",
    "def f(x):\n    return x + 1\n\t# ok\r\n\r\nCamelCaseWords http://a.b/c?d=e",
    *[f"hello world the cat {number} sat on the mat number {number * 7}" for number in range(100)],
]
SNIPPETS = [
    *(
        "hello",
        "Hello",
        "HELLO",
        "helloWorld",
        " the",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "你好",
        "世",
        "你a",
        "日本語",
    ),
    *(
        "😀",
        "👍🏽",
        "é",
        "e\u0301",
        "naïve",
        "don't",
        "'s",
        "'LL",
        "1",
        "123",
        "12345",
        "²",
        "½",
        "!",
        "?!",
        "...",
    ),
    *(
        "\u00a0",
        "\u200b",
        "\u3000",
        "\x00",
        "Ａ",
        "ﬁ",
        "Straße",
        "한국어",
        "हिन्दी",
        "عربى",
        "//",
        "_x_",
        "\u2028",
    ),
]
PATTERNS = {
    "qwen": PRE_TOKENIZERS["qwen2"].steps[0]["pattern"]["Regex"],
    "kimi": PRE_TOKENIZERS["kimi-k2"].steps[0]["pattern"]["Regex"],
    "tekken": PRE_TOKENIZERS["tekken"].steps[0]["pattern"]["Regex"],
}


def random_texts(count, special=(), seed=1):
    """Texts of up to eleven snippets, special tokens among them."""
    draw, snippets = random.Random(seed), [*SNIPPETS, *special]
    return ["".join(draw.choice(snippets) for _ in range(draw.randrange(12))) for _ in range(count)]


def train(steps, size=400, special=()):
    """A byte-level tokenizer whose words are cut by these steps."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = part_of("pre_tokenizer", {"type": "Sequence", "pretokenizers": list(steps)})
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    options = dict(initial_alphabet=alphabet, special_tokens=list(special), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, **options))
    return tokenizer


def ranks_of(name):
    """The tokens of a trained tokenizer as bytes, in the order of their ranks; those of one byte come first."""
    rule = {"qwen": "qwen2", "kimi": "kimi-k2", "tekken": "tekken"}[name]
    values = byte_values()
    vocab = train(PRE_TOKENIZERS[rule].steps).get_vocab()
    longer = sorted((token for token in vocab if len(token) > 1), key=vocab.__getitem__)
    return [bytes([value]) for value in range(256)] + [bytes(map(values.get, token)) for token in longer]


def write_tiktoken(path, ranks):
    """tiktoken's file: a token in base64 and its rank on each line."""
    lines = (f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(ranks))
    path.write_text("".join(lines))


def write_tekken(path, ranks, special=("<unk>", "<s>", "</s>", "[INST]", "[/INST]"), count=20, **config):
    """Mistral's file; `special` None leaves its list of special tokens out."""
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(ranks)
    ]
    settings = dict(
        pattern=PATTERNS["tekken"],
        num_vocab_tokens=len(ranks),
        default_vocab_size=len(ranks) + count,
        default_num_special_tokens=count,
        version="v3" if special is None else "v7",
    )
    values = dict(config=settings | config, vocab=vocab)
    if special is not None:
        values["special_tokens"] = [
            {"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(special)
        ]
    path.write_text(json.dumps(values))
