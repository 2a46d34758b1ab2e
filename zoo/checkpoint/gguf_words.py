"""How a byte-level tokenizer of a GGUF file cuts text into words, which the file says by a name (`tokenizer.ggml.pre`).

The rules are those of the tokenizers that the names stand for. Imports no tokenizers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """One rule: the `patterns` cut a text one after the other; without any, GPT-2's does, each digit apart if `digits`.

    Words that the vocabulary has `whole` are not put together from merges. `start`: the start token stands before a text
    where the file does not say. `composed`: characters are brought to Unicode's composed form first.
    """

    patterns: tuple[str, ...] = ()
    digits: bool = False
    whole: bool = False
    start: bool = False
    composed: bool = False


SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SIGN = r"[^\r\n\p{L}\p{N}]?"  # a space or another sign before a word
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def plain(digits: str, letters: str = r"\p{L}") -> tuple[str]:
    """As OpenAI's cl100k: runs of letters, of digits, of other signs with the line ends after them, of spaces."""
    return (rf"{SHORT}|{SIGN}[{letters}]+|{digits}| ?[^\s{letters}\p{{N}}]+[\r\n]*|{SPACES}",)


def cased(digits: str, short: str = "") -> tuple[str]:
    """As OpenAI's o200k: a word also ends before a capital."""
    words = rf"{SIGN}{UPPER}*{LOWER}+{short}|{SIGN}{UPPER}+{LOWER}*{short}"
    return (rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",)


THREE, ONE = r"\p{N}{1,3}", r"\p{N}"
GPT2 = Words()
DIGITS = Words(digits=True)
LLAMA3 = Words(plain(THREE), whole=True, start=True)
QWEN2 = Words(plain(ONE))
GPT4O = Words(cased(THREE, SHORT + "?"))
DEEPSEEK3 = Words(
    (
        THREE,
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES,
    )
)

WORDS = {
    **dict.fromkeys(("gpt-2", "phi-2", "olmo"), GPT2),
    **dict.fromkeys(("starcoder", "refact", "smollm", "command-r"), DIGITS),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "lfm2"), LLAMA3),
    **dict.fromkeys(("smaug-bpe", "dbrx"), Words(plain(THREE))),
    "qwen2": Words(QWEN2.patterns, composed=True),
    **dict.fromkeys(("deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan"), QWEN2),
    "qwen35": Words(plain(ONE, r"\p{L}\p{M}"), composed=True),
    "tekken": Words(cased(ONE), whole=True, start=True),
    **dict.fromkeys(("gpt-4o", "llama4"), GPT4O),
    "deepseek-v3": DEEPSEEK3,
}
