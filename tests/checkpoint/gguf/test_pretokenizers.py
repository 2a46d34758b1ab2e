"""Byte-level tokenizers of GGUF files cut as those they were made of: the steps that each tokenizer.json has."""

from itertools import pairwise

import pytest
import regex
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

from tests.helpers.gguf_tokenizers import TEXTS, written
from zoo.checkpoint.gguf.tokenizer import load_gguf_tokenizer
from zoo.errors import TokenizerError
from zoo.tokenizer.classes import part_of
from zoo.tokenizer.pretokenizers import PRE_TOKENIZERS

# Marks that join, precede or follow their letter; digits and signs that only some rules know; spaces of all kinds.
SCRIPTS = [
    "नमस्ते दुनिया, हिन्दी में लिखा हुआ। क्षत्रिय ज्ञान श्रृंखला ४५६७",
    "বাংলা ভাষা তামিল தமிழ் மொழி తెలుగు భాష ಕನ್ನಡ മലയാളം ภาษาไทย ພາສາລາວ မြန်မာ ខ្មែរ",
    "ਪੰਜਾਬੀ ગુજરાતી ଓଡ଼ିଆ සිංහල བོད་ཡིག ሰላም ⵜⴰⵎⴰⵣⵉⵖⵜ ᏣᎳᎩ",
    "السَّلامُ عَلَيْكُمْ، كيف حالك؟ שָׁלוֹם עולם ۱۲۳۴ ٣٤٥ فارسی۔ اردو",
    "한국어 문장입니다 조선말 日本語のテキスト、カタカナ。中文「引号」，句号。",
    "Ελληνικά ΚΕΊΜΕΝΟ Кириллица ГОРОД хлеб հայերեն ქართული Ꭰ ǅ ſ ﬁ K Ω Å",
    "e\u0301 cafe\u0301 n\u0303 A\u030a \u1100\u1161\u11a8 \u212b q\u0307\u0323 q\u0323\u0307",
    "1 12 123 1234 12345 1234567 3.14 1,000,000 0x1F ² ³ ¼ ½ ⅷ ① ১২৩ ５６７",
    "I'm you're they'll we've he'd it's don't I'LL WE'VE O'Brien 'tis rock'n'roll ’s ’t",
    "tabs\t\tand  spaces   \n\n\n  indented\r\n\r\nlines \u00a0\u2003\u3000wide\u200bzero\u200c\u200d\n ",
    "if (x != y && z <= 3) { return `a`+\"b\"; } // **bold** __x__ ~~ $5 #tag @me [1](2) |a|b|",
    "https://example.com/a?b=c&d=1#e user@mail.org C:\\dir\\file.txt /usr/bin --flag=-1",
    "😀😁👩‍👩‍👧‍👦🏳️‍🌈🇩🇪 ½ € £ ¥ © ™ … — – “quoted” «guillemets» ¿qué? ¡no! ，。、！？",
    "   ", "\t", "\n \n", "a", " a", "a ", "  a", "\n\na", "...", "  ...  ", "'''", "\u3000。", "\ufeffbom",
]  # fmt: skip


def isolated(*patterns):
    return [Split(Regex(pattern), "isolated") for pattern in patterns]


def by_bytes(words=False):
    return ByteLevel(add_prefix_space=False, use_regex=words)


CJK = "[一-龥ࠀ-一가-퟿]+"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
# The cutters of Falcon, MPT (GPT-NeoX's), BLOOM, DeepSeek's first models, Mistral Nemo, gpt-oss and LLaMA 4.
CUTTERS = {
    "falcon": [
        Punctuation("contiguous"),
        by_bytes(words=True),
        Digits(individual_digits=False),
        *isolated("[0-9][0-9][0-9]"),
    ],
    "mpt": [by_bytes(words=True)],
    "olmo": [by_bytes(words=True)],
    "bloom": [*isolated(r" ?[^(\s|[.,!?…。，、।۔،])]+"), by_bytes()],
    "deepseek-coder": [
        *isolated(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK),
        Digits(individual_digits=True),
        by_bytes(),
    ],
    "tekken": [*isolated(TEKKEN), by_bytes()],
    "gpt-4o": [*isolated(O200K), by_bytes()],
    "llama4": [*isolated(O200K), by_bytes()],
}
COMPOSED = ("mpt", "olmo")


def trained(cutters, composed=False, whole=False):
    """A byte-level tokenizer with these cutters that has learned from the texts of these tests."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole))
    tokenizer.normalizer = normalizers.NFC() if composed else None
    tokenizer.pre_tokenizer = Sequence(cutters)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([*TEXTS, *SCRIPTS] * 3, trainer)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    return tokenizer


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("pre", CUTTERS)
def test_ids_are_those_of_the_tokenizer_that_a_name_stands_for(tmp_path, pre):
    original = trained(CUTTERS[pre], pre in COMPOSED, pre == "tekken")
    header = written(tmp_path / "a.gguf", original, pre, add_bos_token=False)
    found = load_gguf_tokenizer(header, 2000)
    for text in [*TEXTS, *SCRIPTS]:
        ids = original.encode(text).ids
        assert found.encode(text) == ids, text
        assert found.decode(ids) == original.decode(ids)


def cased_letters():
    """DeepSeek's letters: capitals, small and title letters, but for some that its list leaves out."""
    from unicodedata import category

    from zoo.tokenizer.pretokenizers import CASED_LETTERS

    cut = Split(Regex(f"[A-Za-z{CASED_LETTERS}]"), "removed")
    letters = [chr(code) for code in range(0x1F000) if category(chr(code)) in ("Lu", "Ll", "Lt")]
    return letters, [one for one in letters if not cut.pre_tokenize_str(one)], cut


def test_deepseeks_own_list_of_letters_has_letters_alone():
    letters, found, cut = cased_letters()
    assert len(found) > 2600
    others = "".join(chr(code) for code in range(0x20, 0x1F000) if not 0xD800 <= code < 0xE000)
    left = "".join(piece for piece, _ in cut.pre_tokenize_str(others))
    assert len(others) - len(left) == len(found) and set(found) <= set(letters)
    # Some are told apart from what they are normalised to, as K is from the sign for kelvin.
    assert {"\u212a", "\u2126", "\u1fbe", "\u1fd3", "\u1f7d"} <= set(found)
    assert not {"ա", "ა", "中", "ʻ"} & set(found)


@pytest.mark.filterwarnings("error")
def test_deepseek_llm_cuts_runs_of_its_letters_signs_and_digits(tmp_path):
    from zoo.tokenizer.pretokenizers import CASED_LETTERS

    cutters = [
        *isolated(
            r"[\r\n]", rf"\s?[A-Za-z{CASED_LETTERS}]+", "\\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK
        ),
        Digits(individual_digits=True),
        by_bytes(),
    ]
    original = trained(cutters)
    found = load_gguf_tokenizer(written(tmp_path / "a.gguf", original, "deepseek-llm"), 2000)
    for text in [*TEXTS, *SCRIPTS]:
        assert found.encode(text) == original.encode(text).ids, text


def test_the_rules_differ_on_these_texts():
    """Else the tests above could not tell them apart."""
    cuts = {
        pre: str([Sequence(cutters).pre_tokenize_str(text) for text in SCRIPTS])
        for pre, cutters in CUTTERS.items()
    }
    assert len(set(cuts.values())) == len(cuts) - 2  # LLaMA 4's is gpt-4o's, OLMo's is MPT's
    composed = normalizers.NFC()
    assert any(composed.normalize_str(text) != text for text in SCRIPTS)


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = CL100K.replace("{1,3}", "")
NOT_HAN = O200K.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace(r"[\r\n/]*", r"[\r\n]*")
# The patterns that the models' own files publish, tried on a text one after the other.
PATTERNS = {
    **dict.fromkeys(("gpt-2", "gigachat", "exaone4", "roberta-bpe"), (GPT2,)),
    **dict.fromkeys(("starcoder", "refact", "smollm", "command-r", "exaone", "minerva-7b"), (r"\p{N}", GPT2)),
    **dict.fromkeys(("llama-bpe", "falcon-h1", "dbrx", "glm4", "chatglm-bpe"), (CL100K,)),
    **dict.fromkeys(("deepseek-r1-qwen", "solar-open", "hunyuan", "grok-2", "qwen2"), (QWEN,)),
    "ufakzeka": [QWEN.removeprefix("(?i:'s|'t|'re|'ve|'m|'ll|'d)|")],
    "minicpm5": [r"\p{N}{1,3}", CL100K.replace("{1,3}", "+")],
    "seed-coder": [QWEN.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")],
    "tekken": [TEKKEN],
    **dict.fromkeys(("gpt-4o", "kanana2", "minimax-m2"), (O200K,)),
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
    "kimi-k2": [r"[\p{Han}]+|" + NOT_HAN],
    "youtu": [
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+",
        O200K.replace("{1,3}", ""),
    ],
    "viking": [r" ?[^(\s|[.,!?…。，、।۔،])]+", r"\p{N}"],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "hunyuan-dense": [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
}


def cuts(text, patterns):
    """The pieces of a text: all matches of the first pattern and what lies between, cut by the next, and so on."""
    pieces = [text]
    for pattern in patterns:
        parts = []
        for piece in pieces:
            ends = {0, len(piece)}.union(
                *(match.span() for match in regex.finditer(pattern, piece, regex.V1))
            )
            parts += [piece[start:end] for start, end in pairwise(sorted(ends))]
        pieces = parts
    return pieces


@pytest.mark.parametrize("pre", PATTERNS)
def test_texts_are_cut_where_the_published_patterns_match(pre):
    steps = part_of("pre_tokenizer", {"type": "Sequence", "pretokenizers": list(PRE_TOKENIZERS[pre].steps)})
    for text in [*TEXTS, *SCRIPTS]:
        found = [text[start:end] for _, (start, end) in steps.pre_tokenize_str(text)]
        assert found == cuts(text, PATTERNS[pre]), text


def test_an_unknown_name_is_refused_with_those_that_are_known(tmp_path):
    header = written(tmp_path / "a.gguf", trained(CUTTERS["mpt"]), "flux")
    with pytest.raises(TokenizerError, match=r"ggml\.pre 'flux' is not implemented; known: gpt-2, .*glm4"):
        load_gguf_tokenizer(header, 2000)
