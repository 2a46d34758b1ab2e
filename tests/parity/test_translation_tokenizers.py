"""The tokenizers of Marian, M2M-100 and NLLB against transformers, on folders that both load."""

import json
import random
from itertools import islice

import pytest
import sentencepiece
import torch
import transformers
from transformers import M2M100Tokenizer, MarianTokenizer, MBart50Tokenizer, NllbTokenizer

import zoo
from tests.helpers.tokenizer_kinds import load_tokenizer
from zoo.errors import PromptError
from zoo_corpora import phrasebook
from zoo_translation.tokenizers import FAIRSEQ_LANGUAGES

TEXTS = [
    *(
        "I love NLP",
        "Hello world ",
        "  two  spaces ",
        "",
        "你好世界",
        "\nnew\n line",
        "Ünïcödé ½ ﬁ",
        "x" * 30,
    ),
    *("a</s>b <pad> <unk>", ">>fra<< I love NLP", ">>fra<<I love", ">>deu<< Hi", ">>"),
    *("__fr__ love", "fra_Latn love"),
]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A small sentencepiece model, and its pieces without the special ones."""
    path = tmp_path_factory.mktemp("pieces") / "model"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(pair.source for pair in islice(phrasebook.pairs("train"), 1000)),
        model_prefix=str(path),
        vocab_size=200,
        character_coverage=1.0,
        minloglevel=2,
    )
    file = path.with_suffix(".model")
    model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return file, [model.id_to_piece(id) for id in range(3, model.get_piece_size())]


def marian(folder, pieces, languages=("fra", "spa")):
    file, found = pieces
    tokens = ["</s>", "<unk>", *found, *(f">>{code}<<" for code in languages), "<pad>"]
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(file.read_bytes())
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    reference = MarianTokenizer(*files)
    reference.save_pretrained(folder)
    return reference, len(tokens)


def m2m(folder, pieces, **settings):
    file, found = pieces
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *found]
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    (folder / "sentencepiece.bpe.model").write_bytes(file.read_bytes())
    codes = FAIRSEQ_LANGUAGES[settings.get("language_codes", "m2m100")].split()
    files = [str(folder / name) for name in ("vocab.json", "sentencepiece.bpe.model")]
    marks = [f"__{code}__" for code in codes]  # the published folders name them
    reference = M2M100Tokenizer(*files, additional_special_tokens=marks, **settings)
    reference.save_pretrained(folder)
    return reference, len(tokens) + 100


def nllb(folder, pieces, **settings):
    letters = sorted({letter for piece in pieces[1] for letter in piece})
    vocab = {
        token: id for id, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters, "lo", "lov", "▁t"])
    }
    merges = [("l", "o"), ("lo", "v"), ("▁", "t")]
    reference = NllbTokenizer(vocab=vocab, merges=merges, **settings)
    reference.save_pretrained(folder)
    return reference, len(vocab)


def same_ids_and_texts(reference, size, found, texts=TEXTS):
    for text in texts:
        assert found.encode(text) == reference(text)["input_ids"], text
        plain = reference(text, add_special_tokens=False)["input_ids"]
        assert found.encode(text, special_tokens=False) == plain, text
    draw = random.Random(0)
    for _ in range(200):
        ids = [draw.randrange(size) for _ in range(draw.randrange(1, 12))]
        expected = reference.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert found.decode(ids) == expected, ids
        stream = found.detokenizer()
        assert "".join([*map(stream.add, ids), stream.finish()]) == expected, ids


def test_marian(tmp_path, pieces):
    reference, size = marian(tmp_path, pieces)
    found = load_tokenizer(tmp_path)
    same_ids_and_texts(reference, size, found)
    assert found.eos_ids == {reference.eos_token_id}
    assert found.languages.encode("I love", target="fra") == reference(">>fra<< I love")["input_ids"]
    assert found.languages.first("fra") is None


def test_marian_for_one_pair_of_languages_has_none_to_choose(tmp_path, pieces):
    marian(tmp_path, pieces, languages=())
    assert load_tokenizer(tmp_path).languages is None


def test_marians_translations_are_cut_by_a_model_of_their_own(tmp_path, pieces):
    _, found = pieces
    other = tmp_path / "other"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(pair.target for pair in islice(phrasebook.pairs("train"), 1000)),
        model_prefix=str(other),
        vocab_size=700,
        minloglevel=2,
    )
    target = other.with_suffix(".model")
    model = sentencepiece.SentencePieceProcessor(model_file=str(target))
    theirs = [model.id_to_piece(id) for id in range(3, model.get_piece_size())]
    marian(tmp_path, (pieces[0], list(dict.fromkeys([*found, *theirs]))), languages=())
    (tmp_path / "target.spm").write_bytes(target.read_bytes())
    reference, tokenizer = MarianTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path)
    for pair in islice(phrasebook.pairs("validation"), 50):
        ids = tokenizer.encode_target(pair.target)
        assert [*ids, reference.eos_token_id] == reference(text_target=pair.target)["input_ids"]
        assert ids != tokenizer.encode(pair.target, special_tokens=False)


def test_m2m_100(tmp_path, pieces):
    reference, size = m2m(tmp_path, pieces)
    found = load_tokenizer(tmp_path)
    same_ids_and_texts(reference, size, found)
    for code in ("en", "zh", "zu"):
        assert found.languages.first(code) == reference.get_lang_id(code)
        reference.src_lang = code
        assert found.languages.encode("I love NLP", source=code) == reference("I love NLP")["input_ids"]


def test_m2m_100_of_another_source_and_set_of_languages(tmp_path, pieces):
    reference, _ = m2m(tmp_path, pieces, src_lang="de", tgt_lang="is", language_codes="wmt21")
    found = load_tokenizer(tmp_path)
    assert found.encode("I love") == reference("I love")["input_ids"]
    assert found.languages.first() == reference.get_lang_id("is")


@pytest.mark.parametrize("legacy", [False, True])
def test_nllb(tmp_path, pieces, legacy):
    reference, size = nllb(tmp_path, pieces, src_lang="zho_Hans", legacy_behaviour=legacy)
    found = load_tokenizer(tmp_path)
    same_ids_and_texts(reference, size, found)
    assert len(found.languages.codes) == 202
    assert found.languages.first("fra_Latn") == reference.convert_tokens_to_ids("fra_Latn")
    reference.src_lang = "deu_Latn"
    assert found.languages.encode("I love", source="deu_Latn") == reference("I love")["input_ids"]


def mbart50(folder, pieces, **settings):
    letters = sorted({letter for piece in pieces[1] for letter in piece})
    special = ["<unk>", "<s>", "</s>"]  # of sentencepiece, which the class puts in its own order
    vocab = [
        *((token, 0.0) for token in special),
        *((piece, -2.0) for piece in (*letters, "lo", "lov", "▁t")),
    ]
    reference = MBart50Tokenizer(vocab=vocab, **settings)
    reference.save_pretrained(folder)
    return reference, len(vocab)


def test_mbart_50(tmp_path, pieces):
    reference, size = mbart50(tmp_path, pieces, src_lang="de_DE", tgt_lang="fr_XX")
    found = load_tokenizer(tmp_path)
    same_ids_and_texts(reference, size, found)
    assert len(found.languages.codes) == 52
    assert found.languages.first() == reference.convert_tokens_to_ids("fr_XX")
    reference.src_lang = "ro_RO"
    assert found.languages.encode("I love", source="ro_RO") == reference("I love")["input_ids"]


def test_an_unknown_or_missing_language_is_named(tmp_path, pieces):
    nllb(tmp_path, pieces)
    languages = load_tokenizer(tmp_path).languages
    with pytest.raises(PromptError, match=r"`target_language`: .*'fra_Latin'; did you mean fra_Latn"):
        languages.first("fra_Latin")
    with pytest.raises(PromptError, match=r"`source_language`: .*'xx'"):
        languages.encode("I love", source="xx")
    with pytest.raises(PromptError, match="`target_language`: say which of 202, such as fra_Latn"):
        languages.first()


def small(vocab, kind, **changes):
    """A random model of transformers for a vocabulary."""
    sides = {
        f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in dict(layers=1, ffn_dim=24).items()
    }
    heads = dict(encoder_attention_heads=2, decoder_attention_heads=2)
    config = getattr(transformers, f"{kind}Config")(vocab_size=vocab, d_model=16, **sides, **heads, **changes)
    torch.manual_seed(1)
    name = "MarianMTModel" if kind == "Marian" else f"{kind}ForConditionalGeneration"
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_((parameter.ndim == 1) + 0.5 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize(
    ("make", "kind", "source", "target"),
    [
        (mbart50, "MBart", "de_DE", "fr_XX"),
        (nllb, "M2M100", "deu_Latn", "fra_Latn"),
        (m2m, "M2M100", "de", "fr"),
        (marian, "Marian", None, "fra"),
    ],
)
def test_a_text_is_translated_as_the_reference_does(tmp_path, pieces, make, kind, source, target, beams):
    reference, size = make(tmp_path, pieces)
    size = max(size, len(reference))
    ids = dict(pad_token_id=reference.pad_token_id, eos_token_id=reference.eos_token_id)
    model = small(size, kind, **ids, decoder_start_token_id=reference.eos_token_id)
    model.generation_config.bad_words_ids = [[reference.pad_token_id]]
    model.save_pretrained(tmp_path)
    text = "I love NLP"
    if kind == "Marian":
        inputs, forced = reference(f">>{target}<< {text}", return_tensors="pt"), None
    else:
        reference.src_lang = source
        inputs, forced = reference(text, return_tensors="pt"), reference.convert_tokens_to_ids(target)
        forced = reference.get_lang_id(target) if make is m2m else forced
    search = dict(num_beams=beams, do_sample=False, max_new_tokens=12, forced_bos_token_id=forced)
    expected = model.generate(**inputs, **search)[0, 1:]
    languages = dict(source_language=source, target_language=target)
    found = zoo.generate(zoo.load(tmp_path), text, beams=beams, max_tokens=12, **languages)
    assert found.tokens == expected.tolist()
    assert found.text == reference.decode(
        expected, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
