"""The rules by which byte-level tokenizers of GGUF files cut text into words, by name (`tokenizer.ggml.pre`).

The rules are those of the tokenizers that the names stand for. Imports no tokenizers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PreTokenizer:
    """One rule: the `steps` that cut a text one after the other, the last of them into bytes where none does before.

    A step is a name and its setting: "split" (each match of a pattern is a word), "digits" (True: each apart; False:
    runs of them), "punctuation" (runs of it), "bytes" (True: into GPT-2's words first). PreTokenizer that the vocabulary has
    `whole` are not put together from merges. `start`: the start token stands before a text where the file does not say.
    `composed`: characters are brought to Unicode's composed form first.
    """

    steps: tuple[tuple[str, Any], ...] = (("bytes", True),)
    whole: bool = False
    start: bool = False
    composed: bool = False


def split(*patterns: str, digits: bool = False) -> tuple[tuple[str, Any], ...]:
    """The steps of a tokenizer that cuts by patterns alone, each digit apart at the end if `digits`."""
    last = (("digits", True),) if digits else ()
    return (*(("split", pattern) for pattern in patterns), *last, ("bytes", False))


SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SIGN = r"[^\r\n\p{L}\p{N}]?"  # a space or another sign before a word
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def plain(digits: str, letters: str = r"\p{L}") -> tuple[tuple[str, Any], ...]:
    """As OpenAI's cl100k: runs of letters, of digits, of other signs with the line ends after them, of spaces."""
    return split(rf"{SHORT}|{SIGN}[{letters}]+|{digits}| ?[^\s{letters}\p{{N}}]+[\r\n]*|{SPACES}")


def cased(digits: str, short: str = "") -> tuple[tuple[str, Any], ...]:
    """As OpenAI's o200k: a word also ends before a capital."""
    words = rf"{SIGN}{UPPER}*{LOWER}+{short}|{SIGN}{UPPER}+{LOWER}*{short}"
    return split(rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}")


THREE, ONE = r"\p{N}{1,3}", r"\p{N}"
GPT2 = PreTokenizer()
NEOX = PreTokenizer(composed=True)
DIGITS = PreTokenizer((("digits", True), ("bytes", True)))
# Digits are looked for among the characters that stand for bytes, some of which are such signs as ² and ¼.
FALCON = PreTokenizer(
    (("punctuation", "contiguous"), ("bytes", True), ("digits", False), ("split", "[0-9][0-9][0-9]"))
)
LLAMA3 = PreTokenizer(plain(THREE), whole=True, start=True)
QWEN2 = PreTokenizer(plain(ONE))
GPT4O = PreTokenizer(cased(THREE, SHORT + "?"))
# Latin, Greek, Cyrillic and the like, in DeepSeek's own list of ranges.
CASED_LETTERS = (
    "µÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕ"
    "Ἐ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄ"
    "Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
DEEPSEEK_CJK = "[一-龥\u0800-一가-\ud7ff]+"
DEEPSEEK_LLM = PreTokenizer(
    split(
        "[\r\n]",
        rf"\s?[A-Za-z{CASED_LETTERS}]+",
        "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
        r"\s+$",
        DEEPSEEK_CJK,
        digits=True,
    )
)
DEEPSEEK_CODER = PreTokenizer(split("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, digits=True))
DEEPSEEK3 = PreTokenizer(
    split(
        THREE,
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES,
    )
)
BLOOM = PreTokenizer(split(r" ?[^(\s|[.,!?…。，、।۔،])]+"))

PRE_TOKENIZERS = {
    **dict.fromkeys(("gpt-2", "phi-2"), GPT2),
    **dict.fromkeys(("mpt", "olmo"), NEOX),
    **dict.fromkeys(("starcoder", "refact", "smollm", "command-r"), DIGITS),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "lfm2"), LLAMA3),
    **dict.fromkeys(("smaug-bpe", "dbrx"), PreTokenizer(plain(THREE))),
    "qwen2": PreTokenizer(QWEN2.steps, composed=True),
    **dict.fromkeys(("deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan"), QWEN2),
    "qwen35": PreTokenizer(plain(ONE, r"\p{L}\p{M}"), composed=True),
    "tekken": PreTokenizer(cased(ONE), whole=True, start=True),
    **dict.fromkeys(("gpt-4o", "llama4"), GPT4O),
    "falcon": FALCON,
    "bloom": BLOOM,
    "deepseek-llm": DEEPSEEK_LLM,
    "deepseek-coder": DEEPSEEK_CODER,
    "deepseek-v3": DEEPSEEK3,
}
# The rule of files that name none, by the architecture where all models of it have one tokenizer.
UNNAMED = {"gpt2": "gpt-2", **dict.fromkeys(("qwen2", "qwen2moe", "qwen3", "qwen3moe"), "qwen2")}
