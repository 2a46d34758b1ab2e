"""A text's pieces: their bytes are the text's, their places are right, whatever kind the tokenizer is."""

import io
import json

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

from tests.helpers import tokenizer_kinds
from tests.helpers.gguf_tokenizers import written as write_gguf
from tests.helpers.random_tokenizers import Draw
from zoo.errors import SourceError, TokenizerError, ZooError
from zoo.inspect.tokenization import Piece, byte_counts, tokenization, tokenize_pieces, tokenizer_of
from zoo.tokenizer import Backend, Tokenizer, load_tokenizer

CORPUS = ["Hello world, don't you see the cat?", "你好世界 naïve café", "the cat sat on the mat 12345"] * 2
FAMILY = "👩\u200d👩\u200d👧"


@pytest.fixture(scope="module")
def byte_level():
    return tokenizer_of("llama")


def sentencepiece_model(kind, size, **options):
    model = io.BytesIO()
    lines = CORPUS + [f"line {n} of a longer text on words and numbers" for n in range(200)]
    options |= {"model_type": kind, "vocab_size": size, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options)
    return model.getvalue()


def sentencepiece_folder(path, kind, size, **options):
    path.mkdir()
    (path / "tokenizer.model").write_bytes(sentencepiece_model(kind, size, **options))
    return load_tokenizer(path)


@pytest.fixture(scope="module")
def llama_pieces(tmp_path_factory):
    options = {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "byte_fallback": True,
    }
    return sentencepiece_folder(tmp_path_factory.mktemp("pieces") / "model", "bpe", 320, **options)


@pytest.fixture(scope="module")
def word_pieces(tmp_path_factory):
    path = tmp_path_factory.mktemp("words")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "token", "##iz", "##er", ",", "中"]
    (path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return load_tokenizer(path)


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_the_bytes_of_a_byte_level_tokenizers_pieces_are_the_texts(byte_level, text):
    pieces = tokenize_pieces(byte_level, text)
    assert b"".join(piece.bytes for piece in pieces) == text.encode("utf-8")
    assert [piece.id for piece in pieces] == byte_level.encode(text)
    # Each covers exactly the characters that it has bytes of, and all are covered.
    covered = {index for piece in pieces for index in range(piece.start, piece.end)}
    assert covered == set(range(len(text)))
    for piece in pieces:
        assert piece.bytes in text[piece.start : piece.end].encode("utf-8")
        assert piece.partial == (piece.bytes != text[piece.start : piece.end].encode("utf-8"))


def test_a_character_split_over_pieces_is_told_byte_by_byte(byte_level):
    pieces = tokenize_pieces(byte_level, f"a{FAMILY}")[1:]
    assert all(piece.partial and piece.text == "\ufffd" for piece in pieces)
    assert {(piece.start, piece.end) for piece in pieces} == {(n, n + 1) for n in range(1, 6)}


def test_the_sign_for_what_is_no_character_is_one_itself(byte_level):
    assert not Piece(0, "", "\ufffd", "\ufffd".encode()).partial
    assert Piece(0, "", "\ufffd", b"\xe4").partial


def test_a_special_token_in_the_text_is_marked_and_is_no_unknown_one(byte_level):
    pieces = tokenize_pieces(byte_level, "a<|endoftext|>b")
    assert [piece.special for piece in pieces] == [False, True, False]
    assert (pieces[1].start, pieces[1].end, pieces[1].bytes) == (1, 14, b"<|endoftext|>")
    assert not any(piece.added or piece.unknown for piece in pieces)


def test_word_pieces_cover_the_text_as_it_was_written(word_pieces):
    text = "Hello Tokenizer,中☃"
    pieces = tokenize_pieces(word_pieces, text)
    assert [piece.id for piece in pieces] == word_pieces.encode(text)
    assert [piece.text for piece in pieces] == [
        "[CLS]",
        "hello",
        "token",
        "iz",
        "er",
        ",",
        "中",
        "[UNK]",
        "[SEP]",
    ]
    assert [text[p.start : p.end] for p in pieces[1:-1]] == ["Hello", "Token", "iz", "er", ",", "中", "☃"]
    assert [(p.added, p.special, p.start) for p in (pieces[0], pieces[-1])] == [(True, True, None)] * 2
    assert [p.unknown for p in pieces].index(True) == 7 and pieces[7].bytes == b"" and not pieces[7].special
    assert [p.id for p in tokenize_pieces(word_pieces, text, special_tokens=False)] == word_pieces.encode(
        text, False
    )


def test_sentencepiece_tells_spaces_and_the_bytes_of_what_it_lacks(llama_pieces):
    text = f"the cat {FAMILY}"
    pieces = tokenize_pieces(llama_pieces, text)
    assert pieces[0].added and pieces[0].token == "<s>"
    # The space in front is the tokenizer's own: it covers nothing of the text.
    assert b"".join(piece.bytes for piece in pieces[1:]) == b" " + text.encode("utf-8")
    assert pieces[1].start == 0 and pieces[-1].end == len(text)
    assert pieces[-1].partial and pieces[-1].bytes == FAMILY.encode()[-1:]


def test_what_a_vocabulary_of_pieces_lacks_is_unknown(tmp_path):
    tokenizer = sentencepiece_folder(tmp_path / "model", "unigram", 60)
    found = tokenization("it", tokenizer, "the cat ☃")
    assert found.unknown == 1
    assert [piece.bytes for piece in found.pieces if piece.unknown] == [b""]


def test_a_translators_pieces_have_the_ids_of_its_table(tmp_path):
    model = sentencepiece_model("unigram", 60)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    known = [processor.id_to_piece(id) for id in range(3, processor.get_piece_size())]
    tokens = ["</s>", "<unk>", *known, ">>fra<<", "<pad>"]
    (tmp_path / "source.spm").write_bytes(model)
    (tmp_path / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    tokenizer = tokenizer_kinds.load_tokenizer(tmp_path)
    pieces = tokenize_pieces(tokenizer, ">>fra<< the cat")
    assert [piece.id for piece in pieces] == tokenizer.encode(">>fra<< the cat")
    assert pieces[0].bytes == b">>fra<<" and pieces[-1].added and pieces[-1].token == "</s>"
    assert b"".join(piece.bytes for piece in pieces[1:-1]) == b" the cat"
    assert any(piece.unknown for piece in tokenize_pieces(tokenizer, "the ☃"))


def test_a_normalized_text_has_the_places_that_the_library_knows(tmp_path):
    library = LibraryTokenizer(models.BPE({"a": 0, "b": 1, "Ġ": 2, "ab": 3}, [("a", "b")]))
    library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.save(str(tmp_path / "tokenizer.json"))
    pieces = tokenize_pieces(load_tokenizer(tmp_path), "AB a")
    assert [(p.bytes, p.start, p.end) for p in pieces] == [(b"ab", 0, 2), (b" ", 2, 3), (b"a", 3, 4)]


def test_a_gguf_files_tokenizer_gives_the_same_pieces(tmp_path, byte_level):
    from zoo.checkpoint.gguf.tokenizer import load_gguf_tokenizer

    library = LibraryTokenizer.from_str(byte_level._backend.tokenizer.to_str())
    found = load_gguf_tokenizer(write_gguf(tmp_path / "a.gguf", library, "gpt-2"), byte_level.vocab_size)
    text = f"The capital 中国 {FAMILY}"
    assert [p.bytes for p in tokenize_pieces(found, text)] == [
        p.bytes for p in tokenize_pieces(byte_level, text)
    ]


def test_bytes_as_tokens_are_told(tmp_path):
    from zoo_translation.tokenizers import ByteTokenizer

    pieces = tokenize_pieces(Tokenizer(ByteTokenizer({})), "é!")
    assert [(p.bytes, p.start, p.end, p.added) for p in pieces] == [
        (b"\xc3", 0, 1, False),
        (b"\xa9", 0, 1, False),
        (b"!", 1, 2, False),
        (b"</s>", None, None, True),
    ]


class Letters(Backend):
    """A backend that tells no bytes: an id is a character."""

    vocab_size = 0x110000
    special_tokens = {"eos_token": "\0"}  # noqa: RUF012

    def encode(self, text, special_tokens):
        return [ord(letter) for letter in text] + [0] * special_tokens

    def decode(self, ids, skip_special_tokens):
        return "".join(chr(id) for id in ids if id or not skip_special_tokens)

    def id(self, token):
        return ord(token)

    def token(self, id):
        return chr(id)

    def detokenizer(self, skip_special_tokens):
        return self

    def add(self, id):
        return chr(id)

    def finish(self):
        return ""


def test_a_plugins_backend_that_tells_no_bytes_is_followed_by_its_decoder():
    pieces = tokenize_pieces(Tokenizer(Letters()), "né")
    assert [(p.text, p.bytes, p.start, p.end) for p in pieces[:2]] == [
        ("n", b"n", 0, 1),
        ("é", "é".encode(), 1, 2),
    ]
    assert pieces[2].added and pieces[2].special


def test_counts_are_of_the_text_alone(word_pieces):
    found = tokenization("it", word_pieces, "hello 中")
    assert (len(found.pieces), found.own, found.unknown) == (4, 2, 0)
    assert (found.bytes_per_token, found.characters_per_token) == (4.5, 3.5)
    values = json.loads(json.dumps(found.as_json()))
    assert values["tokens"] == 4 and values["pieces"][2]["bytes"] == "e4b8ad"
    empty = tokenization("it", word_pieces, "")
    assert empty.own == 0 and empty.bytes_per_token is None


def test_bytes_are_counted_where_they_are_the_texts(byte_level, word_pieces, llama_pieces):
    text = f"the cat {FAMILY}"
    for tokenizer in (byte_level, llama_pieces):
        counts = byte_counts(tokenizer, text, tokenizer.encode(text, special_tokens=False))
        assert sum(counts) == len(text.encode("utf-8"))
    assert byte_counts(word_pieces, "Hello", word_pieces.encode("Hello", special_tokens=False)) is None


def test_only_the_tokenizer_is_loaded(folder):
    path = folder()
    (path / "model.safetensors").unlink()
    assert tokenizer_of(path).encode("a")
    bare = folder(tokenizer=False, where="bare")
    with pytest.raises(TokenizerError, match="bare: has no tokenizer"):
        tokenizer_of(bare)
    with pytest.raises(SourceError, match="nothing"):
        tokenizer_of("nothing/here/at/all")


def test_of_a_hub_id_the_weights_are_not_fetched(hub, repository):
    from tests.helpers.loopback_hub import ID

    assert tokenizer_of(ID).encode("a")
    assert sorted(hub.asked()) == ["config.json", "tokenizer.json", "tokenizer_config.json"]


def test_the_pieces_of_absurd_tokenizers_are_their_ids_and_lie_in_the_text(tmp_path):
    placed = 0
    for seed in range(60):
        draw = Draw(seed)
        (tmp_path / "tokenizer.json").write_text(json.dumps(draw.tokenizer()))
        try:
            tokenizer = load_tokenizer(tmp_path)
        except ZooError:
            continue
        for text in ("", "a", "the ab b. n't x", "Hello 你好 é \n ab  b"):
            try:
                ids, pieces = tokenizer.encode(text), tokenize_pieces(tokenizer, text)
            except ZooError:
                continue
            assert [piece.id for piece in pieces] == ids
            for piece in pieces:
                assert piece.start is None or 0 <= piece.start <= piece.end <= len(text)
                placed += piece.start is not None
    assert placed > 500
