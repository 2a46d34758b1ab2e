"""The tokenizer that a small model is trained with."""

import json
import re
from itertools import islice

import pytest

from zoo.errors import TokenizerError
from zoo.training.vocabulary import SMALLEST, SPECIAL_TOKENS, save_tokenizer, train_tokenizer
from zoo_corpora.atlas import (
    LANGUAGES,
    RELATIONS,
    TEMPLATES,
    countries,
    documents,
    names,
    questions,
    sentence,
)

SAMPLES = [
    "The capital city of China is Beijing.",
    "中国的首都是北京。",
    "mixed 中文 and English，123 + .cn",
    " two  spaces, a tab\tand\n\na line ",
    "emoji 🙂👩‍👩‍👧 flags 🇨🇳, accents é ñ, Русский, العربية, ひらがな, 한국어",
    "\x00 control, \ufeff mark, rare Han 𠮷",
]


@pytest.fixture(scope="module")
def texts():
    return list(islice(documents("train", 0), 3000))


@pytest.fixture(scope="module")
def tokenizer(texts):
    return train_tokenizer(texts)


def test_the_special_tokens_have_the_first_ids(tokenizer):
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert SPECIAL_TOKENS[0] == "<|endoftext|>"
    assert tokenizer.encode("a<|endoftext|>b").ids[1] == 0
    assert tokenizer.decode([0, *tokenizer.encode("a").ids, 1]) == "a"


def test_the_vocabulary_has_the_size_asked_for(tokenizer, texts):
    assert tokenizer.get_vocab_size() == 2048
    assert train_tokenizer(texts, 300).get_vocab_size() == 300


def test_a_short_text_gives_fewer_tokens_but_every_byte():
    small = train_tokenizer(["China"])
    assert 256 + len(SPECIAL_TOKENS) <= small.get_vocab_size() < 300
    assert all(small.decode(small.encode(text).ids) == text for text in SAMPLES)


def test_a_vocabulary_without_room_for_the_bytes_is_refused(texts):
    with pytest.raises(TokenizerError, match="261"):
        train_tokenizer(texts, 260)


def test_two_trainings_are_identical(tokenizer, texts):
    assert train_tokenizer(iter(texts)).to_str() == tokenizer.to_str()


@pytest.mark.parametrize("text", SAMPLES)
def test_any_text_survives(tokenizer, text):
    encoded = tokenizer.encode(text).ids
    assert tokenizer.decode(encoded) == text


def test_nothing_is_added_around_a_text(tokenizer):
    ids = tokenizer.encode("中国的首都是北京。").ids
    assert len(ids) == 9  # one a character
    assert min(ids) >= len(SPECIAL_TOKENS)
    assert tokenizer.encode("").ids == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_name_and_an_answer_have_the_same_tokens_in_every_sentence(tokenizer, language):
    """No merge crosses from a name to its neighbours."""
    space = " " if language == "en" else ""
    for relation in RELATIONS:
        for template in TEMPLATES[relation][language]:
            parts = template.replace("{answer}", "{country}").split("{country}")
            if parts[0] == "":
                continue  # an English sentence's first word follows no space
            for country in countries()[::4]:
                whole = tokenizer.encode(sentence(template, country, relation, language)).ids
                slots = [country.name(language), country.answer(relation, language)]
                if template.find("{answer}") < template.find("{country}"):
                    slots.reverse()
                apart = [parts[0], slots[0], parts[1], slots[1], parts[2]]
                pieces = [apart[0].rstrip(), space + apart[1], apart[2].rstrip(), space + apart[3], apart[4]]
                assert whole == [i for piece in pieces for i in tokenizer.encode(piece).ids]


@pytest.mark.parametrize("language", LANGUAGES)
def test_prompt_and_continuation_are_tokenised_as_their_sentence(tokenizer, language):
    end = {"en": ".", "zh": "。"}[language]
    for question in questions(language=language):
        whole = tokenizer.encode(question.prompt + question.continuation + end).ids
        parts = (question.prompt, question.continuation, end)
        assert whole == [i for part in parts for i in tokenizer.encode(part).ids]


def test_the_saved_folder_holds_both_files_and_nothing_else(tokenizer, tmp_path):
    save_tokenizer(tokenizer, tmp_path / "new" / "folder")
    save_tokenizer(tokenizer, tmp_path / "new" / "folder")  # again, over the first
    saved = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "new" / "folder").iterdir()}
    assert set(saved) == {"tokenizer.json", "tokenizer_config.json"}
    assert json.loads(saved["tokenizer.json"]) == json.loads(tokenizer.to_str())
    settings = json.loads(saved["tokenizer_config.json"])
    assert (settings["eos_token"], settings["pad_token"]) == ("<|endoftext|>", "<|pad|>")


@pytest.fixture(scope="module")
def whole(texts):
    return train_tokenizer(texts, 2304, names())


def shown(tokenizer, text):
    return [tokenizer.decode([id], skip_special_tokens=False) for id in tokenizer.encode(text).ids]


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_name_of_the_atlas_can_be_one_token_in_every_sentence(whole, language):
    for relation in RELATIONS:
        for country in countries()[::4]:
            for template in TEMPLATES[relation][language]:
                tokens = shown(whole, sentence(template, country, relation, language))
                for name in (country.name(language), country.answer(relation, language)):
                    assert re.sub("^(the|an?) ", "", name) in tokens


@pytest.mark.parametrize("text", SAMPLES)
def test_any_text_survives_a_vocabulary_of_names(whole, text):
    assert whole.decode(whole.encode(text).ids) == text


def test_a_name_is_the_same_token_wherever_it_stands_and_its_space_another():
    small = train_tokenizer(["it is"], 300, ["New Delhi", "Niger", "Nigeria", "中国", "+1", "+12"])
    assert shown(small, "Niger is New Delhi.") == ["Niger", " is", " ", "New Delhi", "."]
    assert shown(small, "Nigeria")[0] == "Nigeria" and "Niger" not in shown(small, "Nigeriens")
    assert "Niger" not in shown(small, "Nigerians") and "中国" in shown(small, "Niger中国人")
    assert "+12" in shown(small, "。+12.") and "+12" in shown(small, "(+12)")
    assert [shown(small, text) for text in ("+1", "+12", "+123")] == [["+1"], ["+12"], ["+", "1", "2", "3"]]


def test_a_mask_stands_for_a_name_without_the_space_before_it(whole):
    tokens, hidden = (shown(whole, f"The capital is {name}.") for name in ("Paris", "[MASK]"))
    assert hidden == ["[MASK]" if token == "Paris" else token for token in tokens]


@pytest.mark.slow
def test_names_need_room_and_come_out_the_same_each_time(whole, texts):
    with pytest.raises(TokenizerError, match="263 tokens, 2 names"):
        train_tokenizer(texts, 262, ["Paris", "巴黎"])
    assert train_tokenizer(iter(texts), 2304, sorted(names())).to_str() == whole.to_str()
    assert SMALLEST + len(names()) < whole.get_vocab_size() < 2304  # no more merges
