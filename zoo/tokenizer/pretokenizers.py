"""The rules by which byte-level tokenizers cut text into words, by llama.cpp's names of them (`tokenizer.ggml.pre`)."""

from __future__ import annotations

from typing import Any

from zoo.frozen import Frozen, frozen

Steps = tuple[dict[str, Any], ...]
"""Pre-tokenizers that cut a text one after the other, as a `tokenizer.json` has them."""


@frozen()
class PreTokenizer(Frozen):
    """One rule. The last of its `steps` makes bytes of a text where none does before.

    Words that the vocabulary has `whole` are not put together from merges. `start`: the start token stands before a text
    where the file does not say. `composed`: characters are brought to Unicode's composed form first.
    """

    steps: Steps
    whole: bool = False
    start: bool = False
    composed: bool = False


def split(*patterns: str) -> Steps:
    """Each match of a pattern is a word."""
    return tuple(
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in patterns
    )


def byte_level(words: bool) -> Steps:
    """Bytes in place of characters; cut into GPT-2's `words` before."""
    return ({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": words},)


BYTES, GPT2 = byte_level(words=False), byte_level(words=True)
DIGITS: Steps = ({"type": "Digits", "individual_digits": True},)
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SIGN = r"[^\r\n\p{L}\p{N}]?"  # a space or another sign before a word
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def plain(digits: str, letters: str = r"\p{L}", short: str = SHORT + "|") -> Steps:
    """As OpenAI's cl100k: runs of letters, of digits, of other signs with the line ends after them, of spaces."""
    return split(rf"{short}{SIGN}[{letters}]+|{digits}| ?[^\s{letters}\p{{N}}]+[\r\n]*|{SPACES}") + BYTES


def cased(digits: str, short: str = "", ends: str = r"\r\n/", han: bool = False) -> Steps:
    """As OpenAI's o200k: a word also ends before a capital. `han`: runs of Chinese characters are words (Kimi)."""
    upper, lower = (rf"[{part}&&[^\p{{Han}}]]" if han else part for part in (UPPER, LOWER))
    words = rf"{SIGN}{upper}*{lower}+{short}|{SIGN}{upper}+{lower}*{short}"
    words = rf"\p{{Han}}+|{words}" if han else words
    return split(rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[{ends}]*|{SPACES}") + BYTES


THREE, ONE = r"\p{N}{1,3}", r"\p{N}"
# Latin, Greek, Cyrillic and the like, in DeepSeek's own list of ranges.
CASED_LETTERS = (
    "µÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕ"
    "Ἐ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄ"
    "Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
DEEPSEEK_CJK = "[一-龥\u0800-一가-\ud7ff]+"
DEEPSEEK3 = (
    THREE,
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES,
)
DEEPSEEK_LLM = (
    "[\r\n]",
    rf"\s?[A-Za-z{CASED_LETTERS}]+",
    "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
    r"\s+$",
    DEEPSEEK_CJK,
)
DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK)
# Digits are looked for among the characters that stand for bytes, some of which are such signs as ² and ¼.
FALCON: Steps = (
    {"type": "Punctuation", "behavior": "Contiguous"},
    *GPT2,
    {"type": "Digits", "individual_digits": False},
    *split("[0-9][0-9][0-9]"),
)

BLOOM = split(r" ?[^(\s|[.,!?…。，、।۔،])]+")
# Groups of three digits, counted from the last.
THREE_FROM_END = r"\d{1,3}(?=(?:\d{3})*\b)"
YOUTU = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+"
SEED = rf"{SHORT}|{SIGN}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{SPACES}"

# Rules, each with the names that share it.
RULES = (
    (
        PreTokenizer(GPT2),
        "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 jais trillion granite-docling roberta-bpe modern-bert",
    ),
    (PreTokenizer(GPT2, composed=True), "mpt olmo"),
    (
        PreTokenizer(DIGITS + GPT2),
        "starcoder refact smollm command-r codeshell exaone minerva-7b mellum2",
    ),
    (
        PreTokenizer(plain(THREE), whole=True, start=True),
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral lfm2 midm-2.0",
    ),
    (PreTokenizer(plain(THREE)), "smaug-bpe dbrx glm4 chatglm-bpe"),
    (
        PreTokenizer(plain(ONE)),
        "deepseek-r1-qwen stablelm2 megrez hunyuan kormo f2llmv2 solar-open grok-2",
    ),
    (PreTokenizer(plain(ONE, short="")), "ufakzeka"),
    (PreTokenizer(plain(ONE), composed=True), "qwen2"),
    (PreTokenizer(plain(ONE, r"\p{L}\p{M}"), composed=True), "qwen35"),
    (PreTokenizer(split(THREE) + plain(r"\p{N}+"), whole=True), "minicpm5"),
    (PreTokenizer(split(SEED) + BYTES), "seed-coder"),
    (PreTokenizer(cased(ONE), whole=True, start=True), "tekken"),
    (PreTokenizer(cased(THREE, SHORT + "?")), "gpt-4o llama4 kanana2 talkie minimax-m2"),
    (PreTokenizer(split(THREE_FROM_END) + cased(THREE, SHORT + "?")), "tiny_aya cohere2moe"),
    (PreTokenizer(cased(THREE, SHORT + "?", r"\r\n", han=True), whole=True), "kimi-k2"),
    (PreTokenizer(split(YOUTU) + cased(ONE, SHORT + "?"), whole=True), "youtu"),
    (PreTokenizer(FALCON), "falcon"),
    (PreTokenizer(BLOOM + BYTES), "bloom poro-chat gpt3-finnish"),
    (PreTokenizer(BLOOM + split(ONE) + BYTES), "viking"),
    (PreTokenizer(split(r"\p{N}+", r"(?=(\d{3})+(?!\d))") + BYTES), "superbpe"),
    (PreTokenizer(split(*DEEPSEEK_LLM) + DIGITS + BYTES), "deepseek-llm"),
    (PreTokenizer(split(*DEEPSEEK_CODER) + DIGITS + BYTES), "deepseek-coder"),
    (PreTokenizer(split(*DEEPSEEK3) + BYTES), "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
)
PRE_TOKENIZERS = {name: rule for rule, names in RULES for name in names.split()}
# The rule of files that name none, by the architecture where all models of it have one tokenizer.
UNNAMED = {
    **{"gpt2": "gpt-2", "starcoder2": "starcoder", "command-r": "command-r"},
    **dict.fromkeys(("qwen2", "qwen2moe", "qwen3", "qwen3moe"), "qwen2"),
}
