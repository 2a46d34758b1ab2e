"""WordPiece and Unigram vocabularies in GGUF files give the ids of the tokenizers that they are from."""

from itertools import islice

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from tests.helpers.gguf_tokenizers import TEXTS, write
from zoo.checkpoint.gguf.tokenizer import load_gguf_tokenizer, save_gguf_tokenizer
from zoo.errors import TokenizerError
from zoo.tokenizer import load_tokenizer
from zoo_corpora.atlas import documents

MORE = [
    "Ünïcödé Çédille ÉCOLE naïve ﬁne ½ Ⅷ Ａｂｃ １２３ ｶﾞ ﷺ",
    "नमस्ते দুনিয়া தமிழ் ภาษาไทย שָׁלוֹם السَّلام 한국어 日本語",
    "e\u0301 \u200b zero\u00a0width \ufffd tab\there  [MASK] and [unused1] ##ing ▁under",
    "unaffable, o'clock; $5.00 (50%) #1 — «x»",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer_of(vocab, cased):
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def bert(cased):
    """A WordPiece tokenizer as BERT's, trained now."""
    tokenizer = tokenizer_of({}, cased)
    trainer = trainers.WordPieceTrainer(
        vocab_size=900, special_tokens=[*SPECIAL, "[unused1]"], show_progress=False
    )
    tokenizer.train_from_iterator([*islice(documents("train"), 200), *TEXTS, MORE[0]], trainer)
    # Reserved tokens are part of a vocabulary and no special ones.
    tokenizer = tokenizer_of(tokenizer.get_vocab(), cased)
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def with_word_pieces(path, tokenizer, brackets=False, **changes):
    """The vocabulary as llama.cpp's converter writes it; in the form of 2024, all in `brackets` stays as it is."""
    words = [tokenizer.id_to_token(id) for id in range(tokenizer.get_vocab_size())]
    tokens, kinds = [], []
    for word in words:
        control = word in SPECIAL
        kinds.append(3 if control else 1)
        if control or (brackets and word.startswith("[") and word.endswith("]")):
            tokens.append(word)
        else:
            tokens.append(word[2:] if word.startswith("##") else "▁" + word)
    keys = {"general.architecture": "bert", "model": "bert", "pre": "bert-bge", "tokens": tokens}
    keys |= {"token_type": kinds, "token_type_count": 2, "unknown_token_id": 1, "seperator_token_id": 3}
    return write(path, keys | {"padding_token_id": 0, "cls_token_id": 2, "mask_token_id": 4} | changes)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("brackets", [False, True])
@pytest.mark.parametrize("cased", [False, True])
def test_word_pieces_are_berts(tmp_path, cased, brackets):
    original = bert(cased)
    header = with_word_pieces(tmp_path / "a.gguf", original, brackets)
    found = load_gguf_tokenizer(header, 1000)
    save_gguf_tokenizer(header, tmp_path, {})
    saved = load_tokenizer(tmp_path)
    assert found.vocab_size == original.get_vocab_size()
    for id in range(found.vocab_size):
        assert found.token(id) == original.id_to_token(id)
    for text in [*TEXTS, *MORE]:
        # The original here knows no special tokens in a text; these are cut out first.
        plain = text.replace("[MASK]", "")
        ids = original.encode(plain).ids
        assert found.encode(plain) == saved.encode(plain) == ids, text
        assert found.encode(plain, special_tokens=False) == ids[1:-1]
    assert 4 in found.encode("a [MASK] b")
    assert found.special_tokens == saved.special_tokens
    assert found.special_tokens["mask_token"] == "[MASK]"


def test_a_vocabulary_without_its_special_tokens_is_refused(tmp_path):
    tokens = ["[PAD]", "▁a", "▁b", "c"]
    keys = {"general.architecture": "bert", "model": "bert", "tokens": tokens, "token_type": [3, 1, 1, 1]}
    with pytest.raises(TokenizerError, match=r"a\.gguf: lacks the unk_token '\[UNK\]'"):
        load_gguf_tokenizer(write(tmp_path / "a.gguf", keys), 10)


@pytest.fixture(scope="module")
def unigram(tmp_path_factory):
    """A sentencepiece model as T5's: Unigram, NFKC, no start token, extra white space taken away."""
    prefix = tmp_path_factory.mktemp("unigram") / "spiece"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*islice(documents("train"), 300), *TEXTS, *MORE]),
        model_prefix=str(prefix),
        model_type="unigram",
        vocab_size=700,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return prefix.with_suffix(".model")


def with_unigram(path, model, **changes):
    """The model in a file, as llama.cpp's converter puts it there, with padding up to the model's size."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.read_bytes())
    extra = range(len(proto.pieces), len(proto.pieces) + 5)
    keys = {
        "general.architecture": "t5",
        "model": "t5",
        "pre": "default",
        "tokens": [*(piece.piece for piece in proto.pieces), *(f"[PAD{id}]" for id in extra)],
        "scores": [*(piece.score for piece in proto.pieces), *[-10000.0] * 5],
        "token_type": [*(piece.type for piece in proto.pieces), *[5] * 5],
        "add_space_prefix": proto.normalizer_spec.add_dummy_prefix,
        "remove_extra_whitespaces": proto.normalizer_spec.remove_extra_whitespaces,
        "precompiled_charsmap": list(proto.normalizer_spec.precompiled_charsmap),
        "eos_token_id": 1,
        "unknown_token_id": 2,
        "padding_token_id": 0,
    }
    return write(path, keys | changes)


@pytest.mark.filterwarnings("error")
def test_unigram_pieces_are_t5s(tmp_path, unigram):
    original = sentencepiece.SentencePieceProcessor(str(unigram))
    header = with_unigram(tmp_path / "a.gguf", unigram)
    found = load_gguf_tokenizer(header, 1000)
    save_gguf_tokenizer(header, tmp_path, {})
    saved = load_tokenizer(tmp_path)
    for text in [*TEXTS[:5], *TEXTS[6:], *MORE, "[PAD700]"]:
        ids = original.encode(text)
        assert found.encode(text) == saved.encode(text) == [*ids, 1], text
        if 2 not in ids:  # which that library decodes to a sign of its own
            assert found.decode(ids) == original.decode(ids)
    assert found.eos_ids == {1} and found.bos_id is None
    assert found.vocab_size == original.get_piece_size() + 5


def test_unigram_pieces_with_tokens_around(tmp_path, unigram):
    """XLM-RoBERTa's, which a file has both ends for."""
    keys = {"add_bos_token": True, "add_eos_token": True, "bos_token_id": 0}
    found = load_gguf_tokenizer(with_unigram(tmp_path / "a.gguf", unigram, **keys), 1000)
    ids = sentencepiece.SentencePieceProcessor(str(unigram)).encode("Beijing")
    assert found.encode("Beijing") == [0, *ids, 1]


@pytest.mark.parametrize("table", [[256], [-129], ["a"], [1.5], 3])
def test_a_table_of_characters_that_is_none_is_refused(tmp_path, unigram, table):
    header = with_unigram(tmp_path / "a.gguf", unigram, precompiled_charsmap=table)
    with pytest.raises(TokenizerError, match=r"ggml\.precompiled_charsmap must be a list"):
        load_gguf_tokenizer(header, 1000)
