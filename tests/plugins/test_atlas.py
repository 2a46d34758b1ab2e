"""The atlas: its facts, its sentences, what is held out, and the streams made of them."""

import os
import re
import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest

from zoo.errors import ZooError
from zoo_corpora.atlas import (
    KEPT,
    LANGUAGES,
    LONGEST,
    RELATIONS,
    TEMPLATES,
    answers,
    countries,
    documents,
    held_out,
    names,
    questions,
    sentence,
)

ROUND = 2 * 194  # documents: each country once in each language
COMBINATIONS = [(c, r, lang) for c in countries() for r in RELATIONS for lang in LANGUAGES]
FIELDS = tuple(countries()[0].__dataclass_fields__)


def column(name):
    return [getattr(country, name) for country in countries()]


def pieces(document):
    """The sentences of a document: a domain's dot is no end of a sentence."""
    return [piece for piece in re.split(r"(?<=。)|(?<=\.) (?=[A-Z.+])", document) if piece]


@pytest.fixture(scope="module")
def meaning():
    """Sentence -> (country, relation, language), over every template."""
    return {
        sentence(template, country, relation, language): (country, relation, language)
        for country, relation, language in COMBINATIONS
        for template in TEMPLATES[relation][language]
    }


# Facts


def test_the_table_is_complete_and_clean():
    assert len(countries()) == 194
    for name in FIELDS:
        for value in column(name):
            assert value and value == value.strip(), name
            pattern = r"[\u4e00-\u9fff]+" if name.endswith("_zh") else r"[ -~]+"
            assert re.fullmatch(pattern, value), (name, value)
    assert all(re.fullmatch(r"\.[a-z]{2}", value) for value in column("domain"))
    assert all(re.fullmatch(r"\+[1-9][0-9]{0,2}", value) for value in column("calling_code"))


@pytest.mark.parametrize("name", ["name_en", "name_zh", "capital_en", "domain"])
def test_no_two_countries_share_it(name):
    assert len(set(column(name))) == 194


def test_shared_values_are_the_ones_the_world_shares():
    def shared(name):
        return {value: n for value, n in Counter(column(name)).items() if n > 1}

    assert shared("capital_zh") == {"金斯敦": 2}  # Kingston and Kingstown
    # North America; Russia and Kazakhstan; Italy and Vatican City
    assert shared("calling_code") == {"+1": 13, "+7": 2, "+39": 2}


def test_the_classes_have_their_known_sizes():
    assert Counter(column("continent_en")) == {
        "Africa": 54,
        "Asia": 47,
        "Europe": 44,
        "North America": 23,
        "Oceania": 14,
        "South America": 12,
    }
    assert Counter(column("geography_en"))["a landlocked country"] == 44
    assert Counter(column("currency_en"))["the euro"] == 26  # 21 members, 4 microstates, Montenegro


@pytest.mark.parametrize("relation", ["continent", "geography", "language", "currency"])
def test_the_two_languages_tell_the_same_fact(relation):
    """An English answer has one Chinese answer; the names that Chinese splits or merges are listed."""
    one_english_two_chinese = {"Korean", "the won"}
    chinese = {}
    for country in countries():
        chinese.setdefault(country.answer(relation, "en"), set()).add(country.answer(relation, "zh"))
    assert {english for english, values in chinese.items() if len(values) > 1} <= one_english_two_chinese


@pytest.mark.parametrize(
    "name, relation, english, chinese",
    [
        ("China", "capital", "Beijing", "北京"),
        ("Kazakhstan", "capital", "Astana", "阿斯塔纳"),
        ("Burundi", "capital", "Gitega", "基特加"),
        ("Equatorial Guinea", "capital", "Ciudad de la Paz", "和平城"),
        ("Bolivia", "capital", "Sucre", "苏克雷"),
        ("Sri Lanka", "capital", "Sri Jayawardenepura Kotte", "斯里贾亚瓦德纳普拉科特"),
        ("Bulgaria", "currency", "the euro", "欧元"),
        ("Croatia", "currency", "the euro", "欧元"),
        ("Niger", "language", "Hausa", "豪萨语"),
        ("the United Kingdom", "domain", ".uk", ".uk"),
        ("Vatican City", "calling_code", "+39", "+39"),
    ],
)
def test_facts_that_lists_get_wrong(name, relation, english, chinese):
    (country,) = (each for each in countries() if each.name_en == name)
    assert (country.answer(relation, "en"), country.answer(relation, "zh")) == (english, chinese)


# Sentences


def test_the_templates_have_both_slots_once_and_an_end():
    for relation in RELATIONS:
        for language in LANGUAGES:
            templates = TEMPLATES[relation][language]
            assert 4 <= len(templates) <= 8
            assert len(set(templates)) == len(templates)
            for template in templates:
                assert sorted(re.findall(r"\{\w*\}", template)) == ["{answer}", "{country}"]
                assert template.endswith({"en": ".", "zh": "。"}[language])
            answer_first = sum(each.index("{answer}") < each.index("{country}") for each in templates)
            assert answer_first <= len(templates) / 4


def test_a_sentence_starts_with_a_capital_and_keeps_the_article():
    dutch = next(each for each in countries() if each.name_en == "the Netherlands")
    text = sentence("{country} lies in {answer}.", dutch, "continent", "en")
    assert text == "The Netherlands lies in Europe."
    text = sentence("{answer} is the capital of {country}.", dutch, "capital", "en")
    assert text == "Amsterdam is the capital of the Netherlands."
    text = sentence("{answer} is the currency of {country}.", dutch, "currency", "en")
    assert text == "The euro is the currency of the Netherlands."


def test_every_sentence_tells_one_fact(meaning):
    assert len(meaning) == sum(len(TEMPLATES[r][lang]) for _, r, lang in COMBINATIONS)
    assert not [text for text in meaning if text[0].islower() or "{" in text]


# What is held out


def test_about_a_tenth_is_held_out_and_every_fact_keeps_its_training_sentences():
    unseen = [held_out(*combination) for combination in COMBINATIONS]
    whole = sum(len(TEMPLATES[r][lang]) for _, r, lang in COMBINATIONS)
    assert 0.085 < sum(map(len, unseen)) / whole < 0.105
    for (_, relation, language), templates in zip(COMBINATIONS, unseen, strict=True):
        assert templates <= set(TEMPLATES[relation][language])
        assert len(TEMPLATES[relation][language]) - len(templates) >= KEPT


def test_the_split_spreads_over_every_template():
    """A split that held out whole templates would leave their form unlearned."""
    for relation in RELATIONS:
        for language in LANGUAGES:
            for template in TEMPLATES[relation][language]:
                n = sum(template in held_out(country, relation, language) for country in countries())
                assert 3 <= n <= 45, template


def test_training_and_validation_share_no_sentence_and_together_tell_all(meaning):
    trained = {text for document in islice(documents("train", 0), 60 * ROUND) for text in pieces(document)}
    validation = list(documents("validation", 0))
    assert trained.isdisjoint(validation)
    assert len(trained | set(validation)) > 0.97 * len(meaning)
    assert sorted(validation) == sorted(
        sentence(template, *combination)
        for combination in COMBINATIONS
        for template in held_out(*combination)
    )


# Streams


def test_a_round_has_every_country_once_in_each_language(meaning):
    for start in (0, ROUND):
        documents_of_round = list(islice(documents("train", 7), start, start + ROUND))
        subjects = [meaning[pieces(document)[0]] for document in documents_of_round]
        assert len({(country, language) for country, _, language in subjects}) == ROUND


def test_a_document_is_a_few_different_facts_about_one_country(meaning):
    lengths = Counter()
    for document in islice(documents("train", 0), 3 * ROUND):
        told = [meaning[text] for text in pieces(document)]
        assert len({(country, language) for country, _, language in told}) == 1
        assert len({relation for _, relation, _ in told}) == len(told)
        lengths[len(told)] += 1
    assert set(lengths) == set(range(1, LONGEST + 1))


def test_capitals_are_told_two_to_three_times_as_often(meaning):
    told = Counter(
        meaning[text][1]
        for document in islice(documents("train", 0), 10 * ROUND)
        for text in pieces(document)
    )
    others = [told[relation] for relation in RELATIONS if relation != "capital"]
    assert 2 < told["capital"] / (sum(others) / len(others)) < 3
    assert max(others) < 1.2 * min(others)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_seed_alone_decides_the_order(split):
    first, again, other = (list(islice(documents(split, seed), 500)) for seed in (3, 3, 4))
    assert first == again != other


def test_another_process_gives_the_same_streams_and_loads_no_tensors():
    code = (
        "import sys; from itertools import islice; from zoo_corpora.atlas import documents;"
        "print(*islice(documents('train', 3), 50), *islice(documents('validation', 3), 50), sep='\\n');"
        "sys.exit(any(name in sys.modules for name in ('mlx', 'numpy', 'tokenizers')))"
    )
    environment = dict(os.environ, PYTHONHASHSEED="12345", PYTHONIOENCODING="utf-8")
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    here = [*islice(documents("train", 3), 50), *islice(documents("validation", 3), 50)]
    assert run.stdout.decode().split() == "\n".join(here).split()


def test_an_unknown_split_is_refused():
    with pytest.raises(ZooError, match="'test'"):
        documents("test")


# Questions


def test_the_default_question_asks_for_the_capital():
    asked = {q.country.name_en: q for q in questions()}
    assert len(asked) == 194
    assert asked["China"].prompt == "The capital city of China is"
    assert (asked["China"].answer, asked["China"].continuation) == ("Beijing", " Beijing")
    assert asked["the Gambia"].prompt == "The capital city of the Gambia is"
    chinese = next(q for q in questions(language="zh") if q.country.name_en == "China")
    assert (chinese.prompt, chinese.answer, chinese.continuation) == ("中国的首都是", "北京", "北京")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("relation", RELATIONS)
def test_every_question_is_the_start_of_its_sentence(relation, language, meaning):
    for template in (None, *TEMPLATES[relation][language][:3]):
        for question in questions(relation, language, template):
            assert question.prompt == question.prompt.strip()
            starts = question.prompt + question.continuation
            if template is None:
                whole = starts + {"en": ".", "zh": "。"}[language]
                assert meaning[whole] == (question.country, relation, language)
            else:
                assert sentence(template, question.country, relation, language).startswith(starts)


def test_a_question_says_whether_training_shows_its_sentence():
    validation = set(documents("validation"))
    flags = [(q.held_out, f"{q.prompt}{q.continuation}." in validation) for q in questions()]
    assert all(flag == found for flag, found in flags)
    assert 5 < sum(flag for flag, _ in flags) < 40


@pytest.mark.parametrize(
    "arguments, named",
    [
        (("anthem",), "anthem"),
        (("capital", "fr"), "fr"),
        (("capital", "en", "Where is {country}?"), "Where is"),
        (("capital", "en", "{answer} is the capital of {country}."), "before it names"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(arguments, named):
    with pytest.raises(ZooError, match=named):
        questions(*arguments)


def test_single_sentences_are_those_of_the_documents():
    known = {
        sentence(template, country, relation, language)
        for country in countries()
        for relation in RELATIONS
        for language in LANGUAGES
        for template in TEMPLATES[relation][language]
        if template not in held_out(country, relation, language)
    }
    alone = list(islice(documents("train", 0, longest=1), 2000))
    assert set(alone) <= known and len(set(alone)) > 1000
    assert not set(islice(documents("train", 0), 2000)) <= known


def test_the_names_are_those_of_sentences_without_an_article():
    assert {
        "France",
        "法国",
        "Paris",
        "巴黎",
        "Netherlands",
        "euro",
        "landlocked country",
        ".fr",
        "+33",
    } <= names()
    assert not any(name.startswith(("the ", "a ", "an ")) for name in names())
    assert "Paris" in answers() and "France" not in answers() and answers() < names()
