"""A small tokenizer of every kind: each sort of file that a folder may hold, each decoder, GGUF's, a plugin's."""

import io
import json
import tempfile
from functools import cache
from pathlib import Path

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.helpers import gguf_tokenizers
from zoo import tokenizer as zoo_tokenizer
from zoo.architecture import TokenizerFormat
from zoo.checkpoint.gguf.tokenizer import load_gguf_tokenizer
from zoo.host.registry import default_registry

BYTES = [f"<0x{value:02X}>" for value in range(256)]
PIECES = ["<unk>", "<s>", "</s>", *BYTES, "▁", "▁▁", "a", "▁a", "b", "你", " ", "c▁d", "<0x+A>"]
WORDS = [
    "[UNK]",
    "[SEP]",
    "a",
    "##b",
    ".",
    "?",
    "'",
    "s",
    "n't",
    "do not",
    "##.",
    "##",
    "re",
    " ",
    "very",
    "##'",
]
ENDED = ["<unk>", "a</w>", "b", "c</w>", "</w>", "x</w>y</w>z", "你</w>", "."]
CORPUS = ["the cat sat on the mat 你好", "hello world the end", '{"a": [1, true, null], "b": "é"} x-y_z'] * 5


def pairs(tokens, decoder, special=()):
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, [], unk_token=tokens[0]))
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.add_special_tokens(list(special))
    tokenizer.add_tokens(["foo", "▁bar", "é你", "é"])
    return tokenizer


def fallback(*end):
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *end]
    return pairs(PIECES, decoders.Sequence(parts), ["<s>", "</s>"])


def words(decoder):
    tokenizer = Tokenizer(models.WordPiece({word: id for id, word in enumerate(WORDS)}, unk_token="[UNK]"))
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["[SEP]"])
    return tokenizer


def byte_level():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return pairs(["<|end|>", *alphabet, "Ġthe", "ä½", "ðŁĺ"], decoders.ByteLevel(), ["<|end|>"])


# The decoders of the tokenizers library, by what they do.
DECODERS = {
    "byte level": byte_level,
    "byte fallback": fallback,
    "byte fallback, stripped": lambda: fallback(decoders.Strip(" ", 1, 0)),
    "byte fallback, two stripped": lambda: fallback(decoders.Strip(" ", 2, 0)),
    "word ends": lambda: pairs(ENDED, decoders.BPEDecoder(), ["<unk>"]),
    "word pieces": lambda: words(decoders.WordPiece("##", cleanup=True)),
    "word pieces, raw": lambda: words(decoders.WordPiece("##", cleanup=False)),
    "no decoder": lambda: words(None),
    "metaspace": lambda: pairs(PIECES, decoders.Metaspace()),
    "metaspace, never": lambda: pairs(PIECES, decoders.Metaspace(prepend_scheme="never")),
    "fallback, metaspace": lambda: pairs(
        PIECES, decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    ),
    "expression": lambda: pairs(PIECES, decoders.Replace(Regex("[ab]+"), "xx")),
    "stripped right": lambda: pairs([token for token in PIECES if token], decoders.Strip("a", 0, 1)),
    "not to be streamed": lambda: pairs(PIECES, decoders.CTC(pad_token="a", word_delimiter_token="▁")),
    "replaced when joined": lambda: pairs(
        PIECES, decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", "x")])
    ),
}

# Models of the sentencepiece library, by how they are trained.
MODELS = {
    "pieces": dict(model_type="bpe", remove_extra_whitespaces=False, normalization_rule_name="identity"),
    "pieces, no prefix": dict(model_type="unigram", add_dummy_prefix=False, remove_extra_whitespaces=False),
    "pieces, squeezed": dict(model_type="unigram", user_defined_symbols=["<x>"], control_symbols=["<ctl>"]),
    "pieces, no bytes": dict(model_type="unigram", byte_fallback=False, vocab_size=60),
}


def load_tokenizer(folder):
    """The tokenizer of a folder, by the formats of the installed plugins too."""
    formats = default_registry().table(TokenizerFormat).listed()
    return zoo_tokenizer.load_tokenizer(folder, formats=formats)


def load(folder, tokenizer, **config):
    """The tokenizer that a folder gives whose `tokenizer.json` is this one."""
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load_tokenizer(folder)


def sentencepiece_model(**options):
    """The bytes of a model trained on a few sentences."""
    model = io.BytesIO()
    options = dict(vocab_size=310, byte_fallback=True) | options
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    return model.getvalue()


def trained_bytes():
    """A byte-level tokenizer with merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def gpt2_files(folder):
    trained_bytes().model.save(str(folder))
    return load_tokenizer(folder)


def gpt1_files(folder):
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=120, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.model.save(str(folder))
    return load_tokenizer(folder)


def bert_files(folder):
    tokens = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "cat",
        "##s",
        "caf",
        "##e",
        "你",
        "好",
        ".",
        "'",
    ]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return load_tokenizer(folder)


def pieces_file(name):
    def make(folder):
        (folder / "tokenizer.model").write_bytes(sentencepiece_model(**MODELS[name]))
        return load_tokenizer(folder)

    return make


def t5_files(folder):
    options = dict(model_type="unigram", vocab_size=60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (folder / "spiece.model").write_bytes(sentencepiece_model(byte_fallback=False, **options))
    return load_tokenizer(folder)


def known_pieces(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(id) for id in range(3, processor.get_piece_size())]


def marian_files(folder):
    model = sentencepiece_model(**MODELS["pieces, no bytes"])
    tokens = ["</s>", "<unk>", *known_pieces(model), ">>fra<<", "<pad>"]
    (folder / "source.spm").write_bytes(model)
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    return load_tokenizer(folder)


def m2m_files(folder):
    model = sentencepiece_model(**MODELS["pieces, no bytes"])
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *known_pieces(model)]
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    return load_tokenizer(folder)


def nllb_files(folder):
    tokenizer = pairs(["<unk>", "</s>", *PIECES[259:]], decoders.Metaspace(), ["</s>"])
    tokenizer.add_special_tokens(["eng_Latn", "fra_Latn"])
    config = dict(tokenizer_class="NllbTokenizer", eos_token="</s>", src_lang="eng_Latn", tgt_lang="fra_Latn")
    return load(folder, tokenizer, **config)


def gguf_bytes(folder):
    tokenizer = trained_bytes()
    tokenizer.add_tokens(["<tool>"])
    header = gguf_tokenizers.written(folder / "a.gguf", tokenizer, "gpt-2")
    return load_gguf_tokenizer(header, 1000)


def gguf_pieces(kind, **changes):
    def make(folder):
        processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(**MODELS["pieces"]))
        ids = range(processor.get_piece_size())
        kinds = [
            2
            if processor.is_unknown(id)
            else 3
            if processor.is_control(id)
            else 6
            if processor.is_byte(id)
            else 1
            for id in ids
        ]
        keys = {
            "model": kind,
            "tokens": [processor.id_to_piece(id) for id in ids],
            "scores": [float(processor.get_score(id)) for id in ids],
            "token_type": kinds,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "unknown_token_id": 0,
        }
        return load_gguf_tokenizer(gguf_tokenizers.write(folder / "a.gguf", keys | changes), 1000)

    return make


class Characters(zoo_tokenizer.Backend):
    """A plugin's tokenizer, which gives a token to each character of Latin-1 and says no more than it must."""

    vocab_size = 256
    special_tokens = {"eos_token": "\0"}  # noqa: RUF012

    def encode(self, text, special_tokens):
        return [ord(letter) for letter in text if ord(letter) < 256] + [0] * special_tokens

    def id(self, token):
        return ord(token)

    def token(self, id):
        return chr(id) if id < 256 else None

    def detokenizer(self, skip_special_tokens):
        return Spelling(skip_special_tokens)


class Spelling:
    """Ids to characters."""

    def __init__(self, skip):
        self.skip = skip

    def add(self, id):
        return "" if id >= 256 or (self.skip and id == 0) else chr(id)

    def finish(self):
        return ""


def library_file(name):
    return lambda folder: load(folder, DECODERS[name]())


KINDS = {
    **{name: library_file(name) for name in DECODERS},
    **{name: pieces_file(name) for name in MODELS},
    "merges": lambda folder: load(folder, trained_bytes()),
    "files of GPT-2": gpt2_files,
    "files of GPT-1": gpt1_files,
    "files of BERT": bert_files,
    "files of T5": t5_files,
    "files of Marian": marian_files,
    "files of M2M-100": m2m_files,
    "files of NLLB": nllb_files,
    "GGUF, bytes": gguf_bytes,
    "GGUF, pieces": gguf_pieces("llama"),
    "GGUF, pieces without a space before them": gguf_pieces("llama", add_space_prefix=False),
    "GGUF, T5": gguf_pieces("t5"),
    "a plugin's": lambda folder: zoo_tokenizer.Tokenizer(Characters(), eos_ids=[0]),
}


@cache
def tokenizer_of(kind):
    """The tokenizer of a kind, made once."""
    with tempfile.TemporaryDirectory() as folder:
        return KINDS[kind](Path(folder))
