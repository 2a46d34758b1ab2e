"""The tokenizer in a GGUF file gives the ids of the tokenizer that its vocabulary is from."""

import json
from functools import cache
from itertools import islice

import pytest
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.helpers.gguf_tokenizers import TEXTS, train_pieces, write, written
from zoo.checkpoint.gguf.tokenizer import load_gguf_tokenizer, save_gguf_tokenizer
from zoo.errors import TokenizerError
from zoo.tokenizer import load_tokenizer
from zoo_corpora.atlas import documents

SHORT, SPACES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"\s*[\r\n]+|\s+(?!\S)|\s+"
# As the tokenizer.json of LLaMA 3, Qwen 2, Mistral Nemo, gpt-oss and DeepSeek-V3 spell them.
PATTERNS = {
    "llama-bpe": [
        rf"{SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
    ],
    "qwen2": [rf"{SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"],
    "tekken": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "gpt-4o": [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        r"[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
}


def cutter(pre):
    """How the tokenizers that a name stands for cut text into words."""
    if pre in PATTERNS:
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS[pre]]
        return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(False, use_regex=False)])
    digits = [pre_tokenizers.Digits(individual_digits=True)] if pre == "smollm" else []
    return pre_tokenizers.Sequence([*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


@cache
def byte_level(pre, size=700):
    """A byte-level tokenizer trained with the cutter of a name, and special and plain added tokens."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre in ("llama-bpe", "tekken")))
    tokenizer.normalizer = normalizers.NFC() if pre == "qwen2" else None
    tokenizer.pre_tokenizer = cutter(pre)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([*islice(documents("train"), 200), *TEXTS], trainer)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("</tool>", normalized=False)])
    return tokenizer


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("pre", ["gpt-2", "smollm", *PATTERNS])
def test_byte_level_ids_are_the_originals(tmp_path, pre):
    original = byte_level(pre)
    found = load_gguf_tokenizer(written(tmp_path / "a.gguf", original, pre, add_bos_token=False), 1000)
    for text in TEXTS:
        ids = original.encode(text).ids
        assert found.encode(text) == ids, text
        for skip in (True, False):
            assert found.decode(ids, skip) == original.decode(ids, skip_special_tokens=skip)
    assert found.vocab_size == original.get_vocab_size()


def test_the_cutters_differ_on_these_texts():
    """Else the test above could not tell them apart."""
    cuts = {
        pre: str([cutter(pre).pre_tokenize_str(text) for text in TEXTS])
        for pre in ("gpt-2", "smollm", *PATTERNS)
    }
    assert len(set(cuts.values())) == len(cuts)


@pytest.mark.parametrize(
    ("pre", "changes", "first", "last"),
    [
        ("gpt-2", {}, False, False),
        ("llama-bpe", {}, True, False),
        ("llama-bpe", {"add_bos_token": False}, False, False),
        ("gpt-2", {"add_bos_token": True, "add_eos_token": True}, True, True),
    ],
)
def test_what_stands_around_a_text(tmp_path, pre, changes, first, last):
    original = byte_level(pre)
    end = original.token_to_id("<|endoftext|>")
    found = load_gguf_tokenizer(written(tmp_path / "a.gguf", original, pre, **changes), 1000)
    ids = original.encode("Hello").ids
    assert found.encode("Hello") == [*([end] * first), *ids, *([end] * last)]
    assert found.encode("Hello", special_tokens=False) == ids
    assert found.bos_id == end and found.eos_ids == {end}


def test_the_end_of_a_turn_ends_too(tmp_path):
    header = written(tmp_path / "a.gguf", byte_level("gpt-2"), "gpt-2", eot_token_id=5, eom_token_id=10**6)
    assert load_gguf_tokenizer(header, 1000).eos_ids == {5, header.metadata["tokenizer.ggml.eos_token_id"]}


def test_a_chat_template_comes_along(tmp_path):
    changes = {"tokenizer.chat_template": "{{ messages[0].content }}"}
    header = written(tmp_path / "a.gguf", byte_level("gpt-2"), "gpt-2", **changes)
    assert load_gguf_tokenizer(header, 1000).chat_template == "{{ messages[0].content }}"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("pre", [None, "default"])
def test_a_file_that_does_not_say_how_it_cuts_is_refused_unless_its_family_does(tmp_path, pre):
    original = byte_level("gpt-2")
    header = written(tmp_path / "a.gguf", original, pre)
    with pytest.raises(TokenizerError, match=r"ggml\.pre does not say how text is cut into words"):
        load_gguf_tokenizer(header, 1000)
    for architecture, name in (("gpt2", "gpt-2"), ("qwen2", "qwen2")):
        original = byte_level(name)
        header = written(tmp_path / "a.gguf", original, pre, **{"general.architecture": architecture})
        assert load_gguf_tokenizer(header, 1000).encode(TEXTS[0]) == original.encode(TEXTS[0]).ids


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pre": "grok-9"}, "tokenizer.ggml.pre 'grok-9' is not implemented; known: gpt-2"),
        ({"pre": 3}, "tokenizer.ggml.pre must be text, got int"),
        ({"model": "rwkv"}, "tokenizer.ggml.model 'rwkv' is not implemented; known: gpt2, llama"),
        ({"tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"tokens": [1, 2]}, "tokenizer.ggml.tokens must be a list, each text"),
        ({"tokens": ["a", "b", "a"]}, "tokenizer.ggml.tokens has a token twice"),
        ({"token_type": [1, 1]}, "token_type has 2 values for"),
        ({"token_type": [-1] * 703}, "token_type holds -1, which is none of the kinds 1 to 6"),
        ({"merges": None}, "merges is missing"),
        ({"merges": ["a b c"]}, "must each be two tokens"),
        ({"merges": ["a nowhere"]}, "holds no tokenizer"),
        ({"add_bos_token": 1}, "add_bos_token must be true or false, got int"),
        ({"bos_token_id": "0"}, "bos_token_id must be an integer, got str"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_its_key(tmp_path, changes, words):
    header = written(tmp_path / "a.gguf", byte_level("gpt-2"), "gpt-2", **changes)
    with pytest.raises(TokenizerError) as caught:
        load_gguf_tokenizer(header, 1000)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_no_tokenizer_is_none(tmp_path):
    assert load_gguf_tokenizer(write(tmp_path / "a.gguf", {}), 10) is None
    assert load_gguf_tokenizer(write(tmp_path / "a.gguf", {"model": "none"}), 10) is None


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A sentencepiece model of byte pairs like LLaMA's: bytes for what it does not know, tokens of its user."""
    return train_pieces(tmp_path_factory.mktemp("pieces"), TEXTS, user_defined_symbols=["<tool>", "▁▁▁▁"])


def with_pieces(path, model, **changes):
    """The pieces, scores and kinds of a sentencepiece model in a file, as llama.cpp's converter puts them there."""
    processor = sentencepiece.SentencePieceProcessor(str(model))
    tokens, scores, kinds = [], [], []
    for id in range(processor.get_piece_size()):
        piece = processor.id_to_piece(id)
        kind = 1
        if processor.is_unknown(id):
            kind = 2
        elif processor.is_control(id):
            kind = 3
        elif piece in ("<tool>", "▁▁▁▁"):
            kind, piece = 4, piece.replace("▁", " ")
        elif processor.is_byte(id):
            kind = 6
        tokens.append(piece)
        scores.append(float(processor.get_score(id)))
        kinds.append(kind)
    keys = {"model": "llama", "pre": "default", "tokens": tokens, "scores": scores, "token_type": kinds}
    keys |= {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    return write(path, keys | changes)


@pytest.mark.filterwarnings("error")
def test_pieces_are_cut_as_their_model_cuts(tmp_path, pieces):
    original = sentencepiece.SentencePieceProcessor(str(pieces))
    found = load_gguf_tokenizer(with_pieces(tmp_path / "a.gguf", pieces), 1000)
    for text in TEXTS:
        ids = original.encode(text)
        assert found.encode(text) == [1, *ids], text
        assert found.decode(ids) == original.decode(ids)
    ends = {2, original.piece_to_id("<|end|>")}
    assert found.bos_id == 1 and found.eos_ids == ends and found.special_tokens["bos_token"] == "<s>"


def test_a_control_token_in_a_text_is_that_token(tmp_path, pieces):
    original = sentencepiece.SentencePieceProcessor(str(pieces))
    found = load_gguf_tokenizer(with_pieces(tmp_path / "a.gguf", pieces, add_bos_token=False), 1000)
    end = original.piece_to_id("<|end|>")
    ids = found.encode("Beijing<|end|>Beijing</s>")
    assert ids == [*original.encode("Beijing"), end, *original.encode("Beijing"), 2]
    assert found.decode(ids) == "Beijing Beijing"


def test_pieces_without_a_space_before_them(tmp_path, pieces):
    """Gemma's."""
    found = load_gguf_tokenizer(with_pieces(tmp_path / "a.gguf", pieces, add_space_prefix=False), 1000)
    with_one = load_gguf_tokenizer(with_pieces(tmp_path / "b.gguf", pieces), 1000)
    assert found.encode(" Beijing") == with_one.encode("Beijing") != found.encode("Beijing")


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_a_saved_tokenizer_is_the_same(tmp_path, pieces, kind):
    changes = {"tokenizer.chat_template": "{{ bos_token }}", "eot_token_id": 7}
    if kind == "bytes":
        header = written(tmp_path / "a.gguf", byte_level("llama-bpe"), "llama-bpe", **changes)
    else:
        header = with_pieces(tmp_path / "a.gguf", pieces, **changes)
    save_gguf_tokenizer(header, tmp_path, {"do_sample": True, "temperature": 0.5})
    assert json.loads((tmp_path / "generation_config.json").read_text())["temperature"] == 0.5
    one, other = load_gguf_tokenizer(header, 1000), load_tokenizer(tmp_path)
    for text in [*TEXTS, "Beijing<|end|>Beijing"]:
        assert one.encode(text) == other.encode(text)
        assert one.decode(one.encode(text)) == other.decode(other.encode(text))
    for name in ("bos_id", "eos_ids", "chat_template", "special_tokens"):
        assert getattr(one, name) == getattr(other, name)


def test_pieces_that_are_no_model_are_refused(tmp_path, pieces):
    header = with_pieces(tmp_path / "a.gguf", pieces, token_type=[3] * 900, unknown_token_id=None)
    tokens = ["[?]" if token == "<unk>" else token for token in header.metadata["tokenizer.ggml.tokens"]]
    header = with_pieces(
        tmp_path / "a.gguf", pieces, token_type=[3] * 900, unknown_token_id=None, tokens=tokens
    )
    with pytest.raises(TokenizerError, match=r"a\.gguf: not a sentencepiece model"):
        load_gguf_tokenizer(header, 1000)


@pytest.mark.parametrize("named", [0, None])
def test_padding_that_is_called_unknown_is_padding(tmp_path, pieces, named):
    """Phi-3's."""
    plain = load_gguf_tokenizer(with_pieces(tmp_path / "a.gguf", pieces), 1000)
    metadata = with_pieces(tmp_path / "a.gguf", pieces).metadata
    more = {key: [*metadata[f"tokenizer.ggml.{key}"]] for key in ("tokens", "scores", "token_type")}
    more["tokens"] += ["[PAD900]", "[PAD901]"]
    more["scores"] += [-10000.0] * 2
    more["token_type"] += [2, 2]
    found = load_gguf_tokenizer(
        with_pieces(tmp_path / "b.gguf", pieces, **more, unknown_token_id=named), 1000
    )
    for text in [*TEXTS, "[PAD900]"]:
        assert found.encode(text) == plain.encode(text)
    assert found.vocab_size == 902 and found.special_tokens["unk_token"] == "<unk>"


def test_an_unknown_token_that_is_called_control_is_the_unknown_one(tmp_path, pieces):
    plain = load_gguf_tokenizer(with_pieces(tmp_path / "a.gguf", pieces), 1000)
    kinds = with_pieces(tmp_path / "a.gguf", pieces).metadata["tokenizer.ggml.token_type"]
    found = load_gguf_tokenizer(with_pieces(tmp_path / "b.gguf", pieces, token_type=[3, *kinds[1:]]), 1000)
    for text in TEXTS:
        assert found.encode(text) == plain.encode(text)


@pytest.mark.parametrize("scores", ["alike", None])
def test_pieces_without_scores_are_in_the_order_they_were_learned_in(tmp_path, pieces, scores):
    """A converter that finds no `tokenizer.model` writes -1000 for all."""
    original = sentencepiece.SentencePieceProcessor(str(pieces))
    scores = [-1000.0] * original.get_piece_size() if scores else None
    found = load_gguf_tokenizer(with_pieces(tmp_path / "a.gguf", pieces, scores=scores), 1000)
    for text in TEXTS:
        assert found.encode(text) == [1, *original.encode(text)], text


def test_scores_that_are_no_numbers_are_refused(tmp_path, pieces):
    header = with_pieces(tmp_path / "a.gguf", pieces, scores=[float("nan")] * 900)
    with pytest.raises(TokenizerError, match=r"ggml\.scores holds what is not a number"):
        load_gguf_tokenizer(header, 1000)
