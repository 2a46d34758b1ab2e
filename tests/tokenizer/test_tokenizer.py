"""Text to ids and back, over every kind of tokenizer folder."""

import io
import json
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from zoo.errors import TokenizerError
from zoo.tokenizer import load_tokenizer

CORPUS = ["Hello world, don't you see the cat?", "你好世界 naïve café 😀", "the cat sat on the mat 12345"] * 2


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def copy_of(tokenizer: Tokenizer) -> Tokenizer:
    return Tokenizer.from_str(tokenizer.to_str())


def train_pieces(kind: str, size: int, **options) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(
            CORPUS + [f"line {n} of a longer text on words and numbers" for n in range(200)]
        ),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def llama_model() -> bytes:
    options = {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "byte_fallback": True,
    }
    return train_pieces("bpe", 320, **options)


@pytest.fixture(scope="module")
def t5_model() -> bytes:
    return train_pieces("unigram", 60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


# --- tokenizer.json


def test_a_folder_without_tokenizer_files_has_no_tokenizer(tmp_path):
    write_json(tmp_path / "tokenizer_config.json", {"eos_token": "</s>"})
    assert load_tokenizer(tmp_path) is None


def test_the_post_processor_of_the_file_says_what_is_put_around_a_text(tmp_path, byte_level):
    tokenizer = copy_of(byte_level)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    # The reference ignores these two keys beside a tokenizer.json, and so must we.
    write_json(tmp_path / "tokenizer_config.json", {"add_bos_token": False, "add_eos_token": True})
    loaded = load_tokenizer(tmp_path)
    plain = byte_level.encode("the cat").ids
    assert loaded.encode("the cat") == [0, *plain]
    assert loaded.encode("the cat", special_tokens=False) == plain


def test_a_text_is_neither_cut_nor_filled_up(tmp_path, byte_level):
    tokenizer = copy_of(byte_level)
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=20)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(tmp_path)
    for text in ("the", "the cat sat on the mat 12345"):
        assert loaded.encode(text) == byte_level.encode(text).ids


def test_special_text_in_a_prompt_is_the_special_token(tmp_path, byte_level):
    byte_level.save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(tmp_path)
    ids = loaded.encode("a<|endoftext|>b")
    assert ids[1] == 0 and len(ids) == 3
    assert loaded.decode(ids) == "ab"
    assert loaded.decode(ids, skip_special_tokens=False) == "a<|endoftext|>b"


def test_a_named_token_becomes_special_and_keeps_its_flags(tmp_path, byte_level):
    tokenizer = copy_of(byte_level)
    tokenizer.add_tokens([AddedToken("<turn>", lstrip=True, normalized=False)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write_json(
        tmp_path / "tokenizer_config.json", {"eos_token": {"content": "<turn>", "__type": "AddedToken"}}
    )
    loaded = load_tokenizer(tmp_path)
    turn = loaded.id("<turn>")
    assert loaded.eos_ids == {turn, 0}
    ids = loaded.encode("a   <turn>")
    assert ids == [loaded.id("a"), turn]
    assert loaded.decode(ids) == "a"


def test_a_named_token_that_the_vocabulary_lacks_has_no_id(tmp_path, byte_level):
    byte_level.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "tokenizer_config.json", {"eos_token": "<nowhere>", "bos_token": "<nowhere>"})
    loaded = load_tokenizer(tmp_path)
    assert (loaded.bos_id, loaded.eos_ids, loaded.id("<nowhere>")) == (None, {0}, None)
    assert loaded.vocab_size == byte_level.get_vocab_size()


def test_added_tokens_of_the_config_follow_the_vocabulary(tmp_path, byte_level):
    byte_level.save(str(tmp_path / "tokenizer.json"))
    size = byte_level.get_vocab_size()
    entry = {"content": "<tool>", "special": False, "normalized": False}
    write_json(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": {str(size): entry}})
    loaded = load_tokenizer(tmp_path)
    assert loaded.encode("a<tool>")[1:] == [size]
    assert (loaded.vocab_size, loaded.token(size), loaded.decode([size])) == (size + 1, "<tool>", "<tool>")
    write_json(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": {str(size + 5): entry}})
    with pytest.raises(TokenizerError, match=rf"tokenizer_config\.json.*'<tool>' has id {size + 5}"):
        load_tokenizer(tmp_path)


def test_ids_of_no_token_decode_to_nothing(tmp_path, byte_level):
    byte_level.save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(tmp_path)
    beyond = loaded.vocab_size + 7
    assert loaded.decode([loaded.id("a"), beyond, loaded.id("b")]) == "ab"
    for id in (beyond, -1):
        with pytest.raises(TokenizerError, match=f"id {id}"):
            loaded.token(id)


def test_half_a_character_is_refused(tmp_path, byte_level):
    byte_level.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match="surrogate"):
        load_tokenizer(tmp_path).encode("a\ud83d")


@pytest.mark.parametrize(
    ("model", "expected"),
    [("wordpiece", "it isn't, he's"), ("bpe", "it is n't , he 's")],
    ids=["words", "byte pairs"],
)
def test_spaces_are_cleaned_up_except_for_byte_pairs(tmp_path, model, expected):
    words = ["[UNK]", "it", "is", "n't", ",", "he", "'s"]
    vocab = {word: id for id, word in enumerate(words)}
    made = models.WordPiece(vocab, unk_token="[UNK]") if model == "wordpiece" else models.BPE(vocab, [])
    tokenizer = Tokenizer(made)  # without a decoder, tokens are joined by spaces
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "tokenizer_config.json", {"clean_up_tokenization_spaces": True})
    assert load_tokenizer(tmp_path).decode([1, 2, 3, 4, 5, 6]) == expected


# --- the older vocabulary files

TEXTS = ["Hello world", " the  cat\n", "naïve café 😀 你好", "don't 12345", "a<|endoftext|>b", "Ünïcode"]


def test_gpt2_files_give_the_ids_of_the_same_tokenizer_json(tmp_path, byte_level):
    byte_level.model.save(str(tmp_path))
    loaded = load_tokenizer(tmp_path)
    for text in TEXTS:
        assert loaded.encode(text) == byte_level.encode(text).ids
        assert loaded.decode(loaded.encode(text), skip_special_tokens=False) == text
    assert (loaded.bos_id, loaded.eos_ids) == (0, {0})


def test_gpt2_files_follow_the_flags_of_the_config(tmp_path, byte_level):
    byte_level.model.save(str(tmp_path))
    write_json(tmp_path / "tokenizer_config.json", {"add_bos_token": True, "add_prefix_space": True})
    loaded = load_tokenizer(tmp_path)
    assert loaded.encode("the") == [0, *byte_level.encode(" the").ids]
    assert loaded.encode("the", special_tokens=False) == byte_level.encode(" the").ids


def test_gpt1_files_are_recognised_by_their_vocabulary(tmp_path):
    reference = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"))
    reference.normalizer = normalizers.BertNormalizer(lowercase=True)
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=120, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False
    )
    reference.train_from_iterator(CORPUS, trainer)
    reference.model.save(str(tmp_path))
    loaded = load_tokenizer(tmp_path)
    assert loaded.encode("Hello World, the Cát?") == reference.encode("hello world, the cat?").ids
    assert loaded.decode(loaded.encode("Hello World, the cat?")) == "hello world , the cat ?"


WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "##s",
    "The",
    "caf",
    "##e",
    "##é",
    "你",
    "好",
    ".",
]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, ["[CLS]", "the", "cat", "##s", "caf", "##e", "你", "好", ".", "[SEP]"]),
        ({"do_lower_case": False}, ["[CLS]", "The", "cat", "##s", "caf", "##é", "你", "好", ".", "[SEP]"]),
        ({"strip_accents": False}, ["[CLS]", "the", "cat", "##s", "caf", "##é", "你", "好", ".", "[SEP]"]),
        (
            {"tokenize_chinese_chars": False},
            ["[CLS]", "the", "cat", "##s", "caf", "##e", "[UNK]", ".", "[SEP]"],
        ),
    ],
)
def test_bert_files_follow_the_flags_of_the_config(tmp_path, config, words):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    write_json(tmp_path / "tokenizer_config.json", config)
    loaded = load_tokenizer(tmp_path)
    assert [loaded.token(id) for id in loaded.encode("The cats café 你好.")] == words
    assert loaded.vocab_size == len(WORDS)
    assert loaded.special_tokens["mask_token"] == "[MASK]"
    assert loaded.encode("[MASK]", special_tokens=False) == [4]


def test_bert_text_is_put_together_again(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    loaded = load_tokenizer(tmp_path)
    assert loaded.decode(loaded.encode("the cats.")) == "the cats."


def test_a_class_with_rules_of_its_own_is_refused(tmp_path, byte_level):
    byte_level.model.save(str(tmp_path))
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "WhisperTokenizer"})
    with pytest.raises(TokenizerError, match=r"WhisperTokenizer needs a tokenizer\.json"):
        load_tokenizer(tmp_path)
    # The same class with a tokenizer.json is no trouble, and that file is preferred.
    byte_level.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).encode("the cat") == byte_level.encode("the cat").ids


# --- sentencepiece


def test_llama_texts_begin_with_the_start_token(tmp_path, llama_model):
    (tmp_path / "tokenizer.model").write_bytes(llama_model)
    reference = sentencepiece.SentencePieceProcessor(model_proto=llama_model)
    loaded = load_tokenizer(tmp_path)
    for text in ("Hello world", " the  cat\n", "日本 naïve 😀", ""):
        assert loaded.encode(text) == [1, *reference.encode(text)]
        assert loaded.encode(text, special_tokens=False) == reference.encode(text)
        assert loaded.decode(loaded.encode(text)) == text
    assert (loaded.bos_id, loaded.eos_ids, loaded.vocab_size) == (1, {2}, 320)
    write_json(tmp_path / "tokenizer_config.json", {"add_bos_token": False, "add_eos_token": True})
    assert load_tokenizer(tmp_path).encode("the") == [*reference.encode("the"), 2]


def test_text_after_a_special_token_gets_no_space_unless_legacy(tmp_path, llama_model):
    (tmp_path / "tokenizer.model").write_bytes(llama_model)
    loaded = load_tokenizer(tmp_path)
    words = [loaded.token(id) for id in loaded.encode("<s>the</s> cat", special_tokens=False)]
    assert [words[0], words[1][0], "".join(words[1:])] == ["<s>", "t", "the</s>▁cat"]
    write_json(tmp_path / "tokenizer_config.json", {"legacy": True})
    loaded = load_tokenizer(tmp_path)
    words = [loaded.token(id) for id in loaded.encode("<s>the</s> cat", special_tokens=False)]
    assert "".join(words) == "<s>▁the</s>▁▁cat"


def test_added_tokens_are_taken_out_before_the_model_sees_the_text(tmp_path, llama_model):
    (tmp_path / "tokenizer.model").write_bytes(llama_model)
    added = {
        "320": {"content": "<|user|>", "special": False, "rstrip": True},
        "321": {"content": "<|user|>s", "special": False},
    }
    config = {"added_tokens_decoder": added, "eos_token": "<|user|>"}  # the name makes it special
    write_json(tmp_path / "tokenizer_config.json", config)
    loaded = load_tokenizer(tmp_path)
    ids = loaded.encode("a<|user|> \n b<|user|>s", special_tokens=False)
    assert ids[-1] == 321 and ids.count(320) == 1  # the longer token wins
    assert loaded.decode(ids) == "ab<|user|>s"  # the white space after the first belongs to it
    assert loaded.decode(ids, skip_special_tokens=False) == "a<|user|>b<|user|>s"
    assert (loaded.vocab_size, loaded.eos_ids) == (322, {320})


def test_sentencepiece_follows_the_flags_of_the_config(tmp_path, llama_model):
    (tmp_path / "tokenizer.model").write_bytes(llama_model)
    plain = load_tokenizer(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"add_prefix_space": False})
    loaded = load_tokenizer(tmp_path)
    assert plain.token(plain.encode("the", False)[0]).startswith("▁")
    assert loaded.token(loaded.encode("the", False)[0]).startswith("t")
    assert loaded.decode(loaded.encode(" the")) == " the"
    write_json(tmp_path / "tokenizer_config.json", {"split_special_tokens": True})
    assert plain.encode("</s>", False) == [2] and 2 not in load_tokenizer(tmp_path).encode("</s>", False)
    added = {"320": {"content": "<y>", "special": False, "single_word": True}}
    write_json(tmp_path / "tokenizer_config.json", {"added_tokens_decoder": added})
    loaded = load_tokenizer(tmp_path)
    assert 320 in loaded.encode("a <y> b") and 320 not in loaded.encode("a<y> b")


def test_added_tokens_of_the_older_file(tmp_path, llama_model):
    (tmp_path / "tokenizer.model").write_bytes(llama_model)
    write_json(tmp_path / "added_tokens.json", {"<pad>": 321, "<word>": 320})
    write_json(tmp_path / "special_tokens_map.json", {"pad_token": {"content": "<pad>"}})
    loaded = load_tokenizer(tmp_path)
    assert loaded.encode("<pad><word>") == [1, 321, 320]
    assert loaded.decode([321, 320]) == "<word>"
    assert loaded.special_tokens["pad_token"] == "<pad>"


def test_a_model_without_a_start_piece_ends_its_texts(tmp_path, t5_model):
    (tmp_path / "spiece.model").write_bytes(t5_model)
    reference = sentencepiece.SentencePieceProcessor(model_proto=t5_model)
    loaded = load_tokenizer(tmp_path)
    assert loaded.encode("the cat") == [*reference.encode("the cat"), 1]
    assert (loaded.bos_id, loaded.eos_ids) == (None, {1})
    assert loaded.decode(loaded.encode("  the   cat")) == "the cat"  # its normalizer squeezes spaces
    for legacy in (True, False):  # a space that was written is kept in both
        write_json(tmp_path / "tokenizer_config.json", {"legacy": legacy})
        loaded = load_tokenizer(tmp_path)
        words = "".join(loaded.token(id) for id in loaded.encode("the</s> cat</s>cat", special_tokens=False))
        assert words == ("▁the</s>▁cat</s>▁cat" if legacy else "▁the</s>▁cat</s>cat")
