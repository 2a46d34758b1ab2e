"""The tokenizer of a GGUF file: a byte-level one with merges, sentencepiece's with scores, or BERT's.

The rules by which byte-level ones cut text into words (`tokenizer.ggml.pre`) are those of the tokenizers that their names
stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoo.checkpoint.gguf.header import Header, shown
from zoo.checkpoint.gguf.vocabulary import CONTROL, KEY, USER, GGUFVocabulary, model_proto
from zoo.tokenizer import Tokenizer
from zoo.tokenizer.huggingface import Backend, TokenizersBackend, bert, library_errors, put_around


@dataclass(frozen=True)
class PreTokenizer:
    """One rule: the `steps` that cut a text one after the other, the last of them into bytes where none does before.

    A step is a name and its setting: "split" (each match of a pattern is a word), "digits" (True: each apart; False:
    runs of them), "punctuation" (runs of it), "bytes" (True: into GPT-2's words first). Words that the vocabulary has
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


def load_gguf_tokenizer(header: Header, rows: int) -> Tokenizer | None:
    """The tokenizer of a file whose model has `rows` tokens, None where it has no vocabulary.

    TokenizerError names the key whose value cannot be followed.
    """
    vocabulary = vocabulary_of(header)
    if vocabulary is None:
        return None
    if len(vocabulary.tokens) > rows:
        raise vocabulary.error("tokens", f"has {len(vocabulary.tokens)} tokens, the model {rows}")
    return Tokenizer(
        backend_of(vocabulary),
        bos_id=vocabulary.id("bos_token_id"),
        eos_ids=vocabulary.ends,
        chat_template=vocabulary.chat_template,
    )


def save_gguf_tokenizer(header: Header, folder: Path, generation: Mapping[str, Any]) -> None:
    """Write the same tokenizer as the files of a model folder, `generation` and all ids that end a text among them."""
    from zoo.files.writing import write_json

    vocabulary = vocabulary_of(header)
    if vocabulary is None:
        return
    values: dict[str, Any] = {**vocabulary.special, "clean_up_tokenization_spaces": False}
    if vocabulary.chat_template is not None:
        values["chat_template"] = vocabulary.chat_template
    if vocabulary.model not in FILES:
        backend: Any = backend_of(vocabulary)
        backend.tokenizer.save(str(folder / "tokenizer.json"))
        values["tokenizer_class"] = "PreTrainedTokenizerFast"
    else:
        name, kind = FILES[vocabulary.model]
        (folder / name).write_bytes(model_proto(vocabulary))
        values |= {"tokenizer_class": kind, **around(vocabulary)}
        # Other programs do not ask the model's own file whether a space stands before a text.
        values["add_prefix_space"] = vocabulary.value("add_space_prefix", bool, True)
        tokens = [asdict(token) for token in vocabulary.settings({}).added_tokens]
        values["added_tokens_decoder"] = {str(token.pop("id")): token for token in tokens}
    write_json(folder / "tokenizer_config.json", values)
    if generation or len(vocabulary.ends) > 1:
        write_json(folder / "generation_config.json", {**generation, "eos_token_id": vocabulary.ends})


def vocabulary_of(header: Header) -> GGUFVocabulary | None:
    """The file's vocabulary, None where there is none; TokenizerError for a tokenizer that is not implemented."""
    if header.metadata.get(KEY + "model") in (None, "none", "no_vocab"):
        return None
    return GGUFVocabulary(header)


def backend_of(vocabulary: GGUFVocabulary) -> Backend:
    """What encodes and decodes with this vocabulary; the pieces of a sentencepiece model are run by that library."""
    if vocabulary.model == "gpt2":
        return byte_level(vocabulary)
    if vocabulary.model == "bert":
        return word_pieces(vocabulary)
    from zoo.tokenizer.sentencepiece import SentencePieceBackend

    settings = vocabulary.settings(around(vocabulary))
    return SentencePieceBackend(vocabulary.path, settings, model_proto(vocabulary))


def byte_level(vocabulary: GGUFVocabulary) -> TokenizersBackend:
    """A tokenizer whose tokens are bytes, put together by the merges."""
    from tokenizers import AddedToken as LibraryToken
    from tokenizers import Tokenizer as LibraryTokenizer
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    pre_tokenizer = pre_tokenizer_of(vocabulary)
    merges = [tuple(merge.split(" ")) for merge in vocabulary.array("merges", str, None)]
    if any(len(pair) != 2 for pair in merges):
        raise vocabulary.error("merges", "must each be two tokens with a space between")
    ids = {text: id for id, text in enumerate(vocabulary.tokens)}
    with library_errors(vocabulary.path, "holds no tokenizer"):
        tokenizer = LibraryTokenizer(models.BPE(ids, merges, ignore_merges=pre_tokenizer.whole))
        if pre_tokenizer.composed:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_cutters(pre_tokenizer))
        tokenizer.decoder = decoders.ByteLevel()
        for kind, add in ((CONTROL, tokenizer.add_special_tokens), (USER, tokenizer.add_tokens)):
            add([LibraryToken(text, normalized=False) for text in vocabulary.of(kind).values()])
        backend = TokenizersBackend(tokenizer, vocabulary.settings({}), vocabulary.special)
        starts = vocabulary.value("add_bos_token", bool, pre_tokenizer.start)
        ends = vocabulary.value("add_eos_token", bool, False)
        special = vocabulary.special.get
        put_around(backend, special("bos_token") if starts else None, special("eos_token") if ends else None)
    return backend


def pre_tokenizer_of(vocabulary: GGUFVocabulary) -> PreTokenizer:
    """The rule that cuts text into words; TokenizerError for an unknown one, and for a file that does not name it."""
    name = vocabulary.value("pre", str, "default")
    if name == "default":
        name = UNNAMED.get(str(vocabulary.architecture))
        if name is None:
            why = "does not say how text is cut into words; newer converters write it"
            raise vocabulary.error("pre", why)
    if name not in PRE_TOKENIZERS:
        raise vocabulary.error("pre", f"{shown(name)} is not implemented; known: {', '.join(PRE_TOKENIZERS)}")
    return PRE_TOKENIZERS[name]


def _cutters(pre_tokenizer: PreTokenizer) -> list[Any]:
    from tokenizers import Regex, pre_tokenizers

    makers: dict[str, Callable[[Any], Any]] = {
        "split": lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated"),
        "digits": lambda each: pre_tokenizers.Digits(individual_digits=each),
        "punctuation": pre_tokenizers.Punctuation,
        "bytes": lambda words: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words),
    }
    return [makers[name](setting) for name, setting in pre_tokenizer.steps]


def word_pieces(vocabulary: GGUFVocabulary) -> TokenizersBackend:
    """BERT's tokenizer. A file says nothing of capitals: a vocabulary that has some keeps them."""
    normal = [text for text, kind in zip(vocabulary.tokens, vocabulary.kinds, strict=True) if kind != CONTROL]
    cased = any(text != text.lower() for text in normal if not text.startswith("["))
    with library_errors(vocabulary.path, "holds no tokenizer"):
        return bert(vocabulary.path, vocabulary.tokens, vocabulary.settings({"do_lower_case": not cased}))


def around(vocabulary: GGUFVocabulary) -> dict[str, bool]:
    """The special tokens around a text; "legacy" puts a space after each special token, as llama.cpp does."""
    pairs = vocabulary.model == "llama"
    start = vocabulary.value("add_bos_token", bool, pairs)
    end = vocabulary.value("add_eos_token", bool, not pairs)
    return {"add_bos_token": start, "add_eos_token": end, "legacy": True}


FILES = {"llama": ("tokenizer.model", "LlamaTokenizer"), "t5": ("spiece.model", "T5Tokenizer")}
