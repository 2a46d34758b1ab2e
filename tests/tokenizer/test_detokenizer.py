"""Streamed text: the pieces joined are the decoded text, and each comes as early as it is certain."""

import io
import random

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.tokenizer_kinds import DECODERS, byte_level, fallback, load
from zoo.tokenizer import load_tokenizer
from zoo.tokenizer.detokenizer import CleanUp, clean_up


def check_stream(tokenizer, favourites=(), rounds=400):
    """Random ids, unknown and special ones among them, give in pieces what they give at once."""
    generator = random.Random(7)
    for _ in range(rounds):
        ids = [
            generator.choice(favourites)
            if favourites and generator.random() < 0.7
            else generator.randrange(tokenizer.vocab_size + 2)
            for _ in range(generator.randrange(12))
        ]
        for skip in (True, False):
            stream = tokenizer.detokenizer(skip)
            said = [stream.add(id) for id in ids]
            said.append(stream.finish())
            assert "".join(said) == tokenizer.decode(ids, skip), ids


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("cleaned", [False, True], ids=["plain", "cleaned"])
def test_pieces_joined_are_the_decoded_text(tmp_path, kind, cleaned):
    tokenizer = load(tmp_path, DECODERS[kind](), clean_up_tokenization_spaces=cleaned)
    # Bytes of characters, and the pieces around them, meet more often than chance would have it.
    favourites = [i for i in range(tokenizer.vocab_size) if tokenizer.token(i)[:3] not in ("<0x", "")]
    favourites += [
        tokenizer.id(f"<0x{byte:02X}>") or 1 for byte in (0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0x98, 0x80)
    ]
    check_stream(tokenizer, favourites)


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "bpe", "remove_extra_whitespaces": False, "normalization_rule_name": "identity"},
        {"model_type": "unigram", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
        {"model_type": "unigram", "user_defined_symbols": ["<x>"], "control_symbols": ["<ctl>"]},
    ],
    ids=["llama", "no prefix", "squeezed"],
)
def test_sentencepiece_streams_as_its_own_library_decodes(tmp_path, options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat 你好", "hello world the end"] * 5),
        model_writer=model,
        vocab_size=290,
        byte_fallback=True,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    (tmp_path / "tokenizer.model").write_bytes(model.getvalue())
    tokenizer = load_tokenizer(tmp_path)
    reference = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    spaced = [id for id in range(reference.get_piece_size()) if "▁" in reference.id_to_piece(id)]
    bytes_ = [reference.piece_to_id(f"<0x{byte:02X}>") for byte in (0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0x98, 0x80)]
    check_stream(tokenizer, spaced * 3 + bytes_)
    plain = [
        i
        for i in range(reference.get_piece_size())
        if not (reference.is_control(i) or reference.is_unknown(i))
    ]
    generator = random.Random(3)
    for _ in range(400):
        pool = plain if generator.random() < 0.5 else spaced + bytes_
        ids = [generator.choice(pool) for _ in range(generator.randrange(9))]
        assert tokenizer.decode(ids, skip_special_tokens=False) == reference.decode(ids), ids


def test_a_character_comes_whole_and_at_once(tmp_path):
    tokenizer = load(tmp_path, byte_level())
    stream = tokenizer.detokenizer()
    said = [stream.add(id) for token in ("a", "ä½", "ł", "b", "ðŁĺ", "Ģ") for id in [tokenizer.id(token)]]
    assert said == ["a", "", "你", "b", "", "😀"]
    assert stream.finish() == ""


def test_an_unfinished_character_is_flushed(tmp_path):
    tokenizer = load(tmp_path, byte_level())
    stream = tokenizer.detokenizer()
    assert [stream.add(tokenizer.id("a")), stream.add(tokenizer.id("ðŁĺ")), stream.finish()] == [
        "a",
        "",
        "\ufffd",
    ]


def test_a_word_is_said_before_the_next_one_comes(tmp_path):
    tokenizer = load(tmp_path, DECODERS["word ends"]())
    stream = tokenizer.detokenizer()
    assert [stream.add(tokenizer.id("a</w>")), stream.add(tokenizer.id("b")), stream.finish()] == [
        "a",
        " b",
        "",
    ]


def test_a_byte_run_is_said_when_it_ends(tmp_path):
    tokenizer = load(tmp_path, fallback())
    stream = tokenizer.detokenizer()
    ids = [tokenizer.id(token) for token in ("<0xE4>", "<0xBD>", "<0xA0>", "a")]
    assert [stream.add(id) for id in ids] == ["", "", "", "你a"]


def test_detokenizers_do_not_share_what_they_hold(tmp_path):
    tokenizer = load(tmp_path, byte_level())
    first, second = tokenizer.detokenizer(), tokenizer.detokenizer()
    first.add(tokenizer.id("ä½"))
    assert second.add(tokenizer.id("a")) == "a"
    assert first.add(tokenizer.id("ł")) == "你"


@pytest.mark.slow
@given(st.lists(st.sampled_from([*" '.nmtsvx", "n't", "ve", "  ", "x "]), max_size=9))
@settings(max_examples=500, deadline=None)
@example(["  ' v", "e"])
@example(["x n'", "t"])
def test_clean_up_in_pieces_is_clean_up_at_once(texts):
    step = CleanUp()
    said = [part for text in texts for part in step.push([text])] + step.flush()
    assert "".join(said) == clean_up("".join(texts))


def test_clean_up_holds_only_what_may_change():
    step = CleanUp()
    assert ["".join(step.push([text])) for text in ("I am", " here", " .")] == ["I am", " here", ""]
    assert step.push([" It"]) == [". It"]
