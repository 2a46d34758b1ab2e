"""The atlas: true facts about the world's countries, in English and Chinese sentences.

A corpus small enough for a language model of a million parameters to learn from scratch, and whose answers
can be checked: `documents` gives the text, `questions` what the model should be able to answer afterwards.
The sentences are in `atlas.toml`, and the facts in `atlas.tsv`, one row a country: the 193 members of the
United Nations and Vatican City, as of 2026. Where a fact has several answers the table holds one that is right:
the constitutional or executive capital, one official language (the national or de facto one where the law names
none), the first currency, the United Nations' continent.

About a tenth of the (template, country) pairs are held out of training. Every fact is seen in training in
other words, so the held-out sentences measure whether a fact was learned or only its sentences.
"""

from __future__ import annotations

import csv
import random
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Literal

from zoo.errors import ZooError
from zoo_corpora.question import Question, uniform

Language = Literal["en", "zh"]
Split = Literal["train", "validation"]

LANGUAGES: tuple[Language, ...] = ("en", "zh")

HELD_OUT = 0.1  # share of the (template, country) pairs that training never sees, before the floor below
KEPT = 3  # templates that every (country, relation, language) keeps for training
LONGEST = 4  # sentences in a training document
CAPITAL_WEIGHT = 4  # against 1 for another relation; drawn without replacement that makes 2.4 times as many

# Relation -> language -> sentences.
TEMPLATES: dict[str, dict[Language, list[str]]] = tomllib.loads(
    files("zoo_corpora").joinpath("atlas.toml").read_text(encoding="utf-8")
)
RELATIONS: tuple[str, ...] = tuple(TEMPLATES)


@dataclass(frozen=True)
class Country:
    """One row of `atlas.tsv`. An English name has the article it takes in a sentence ("the Netherlands")."""

    name_en: str
    name_zh: str
    capital_en: str
    capital_zh: str
    continent_en: str
    continent_zh: str
    language_en: str
    language_zh: str
    currency_en: str
    currency_zh: str
    geography_en: str
    geography_zh: str
    domain: str
    calling_code: str

    def name(self, language: Language) -> str:
        """The country's name as it stands inside a sentence."""
        return getattr(self, f"name_{language}")

    def answer(self, relation: str, language: Language) -> str:
        """The answer in `relation` to the country; a domain or calling code is the same in each language."""
        column = relation if relation in ("domain", "calling_code") else f"{relation}_{language}"
        return getattr(self, column)


@dataclass(frozen=True)
class AtlasQuestion(Question):
    """A sentence about a country, cut before its bare `answer`."""

    answer: str
    country: Country


@cache
def countries() -> tuple[Country, ...]:
    """Every country of the atlas, in the order of the English names."""
    lines = files("zoo_corpora").joinpath("atlas.tsv").read_text(encoding="utf-8").splitlines()
    return tuple(Country(**row) for row in csv.DictReader(lines, delimiter="\t"))


@cache
def names() -> frozenset[str]:
    """The countries and the answers, in each language, without the article that an English sentence needs."""
    return answers() | _bare(country.name(language) for country in countries() for language in LANGUAGES)


@cache
def answers() -> frozenset[str]:
    """The answers to all questions, in each language, without an article."""
    every = product(countries(), RELATIONS, LANGUAGES)
    return _bare(country.answer(relation, language) for country, relation, language in every)


def _bare(names: Iterable[str]) -> frozenset[str]:
    return frozenset(re.sub(r"^(the|an|a) ", "", name) for name in names)


def sentence(template: str, country: Country, relation: str, language: Language) -> str:
    """`template` filled in for `country`, its first letter a capital."""
    text = template.format(country=country.name(language), answer=country.answer(relation, language))
    return text[:1].upper() + text[1:]


@cache
def held_out(country: Country, relation: str, language: Language) -> frozenset[str]:
    """The templates of `relation` that training never fills in for `country`; at least `KEPT` are left.

    The choice depends on the pair (template, country) alone, so it is the same in every process, and a
    template that is added or removed moves no other, the floor aside.
    """
    templates = TEMPLATES[relation][language]
    draws = sorted((uniform(template, country.name_en), template) for template in templates)
    drawn = [template for value, template in draws if value < HELD_OUT]
    return frozenset(drawn[: len(templates) - KEPT])


def documents(split: Split, seed: int = 0, longest: int = LONGEST) -> Iterator[str]:
    """The corpus as a stream of short texts, the same for the same `split` and `seed`.

    "train" never ends; take what is needed with `itertools.islice`. It goes round by round, and a round has
    one document on every country in each language, in a new order: 1 to `longest` sentences on different
    relations, joined by a space in English and by nothing in Chinese. "validation" ends: it gives every
    held-out sentence once, each as a document, in an order that `seed` decides.

    Raises ZooError for another split.
    """
    if split == "train":
        return _training(random.Random(seed), longest)
    if split == "validation":
        sentences = [
            sentence(template, country, relation, language)
            for country, relation, language in product(countries(), RELATIONS, LANGUAGES)
            for template in sorted(held_out(country, relation, language))
        ]
        random.Random(seed).shuffle(sentences)
        return iter(sentences)
    raise ZooError(f"atlas: no split {split!r}; there are train, validation")


def sentences(split: Split, seed: int = 0) -> Iterator[str]:
    """The corpus as `documents` has it, one sentence a document."""
    return documents(split, seed, longest=1)


def questions(
    relation: str = "capital", language: Language = "en", template: str | None = None
) -> Iterator[AtlasQuestion]:
    """One question a country, in the order of `countries`.

    `template` is one of `TEMPLATES[relation][language]` in which the answer follows the country's name; the
    first whose answer ends the sentence if None ("The capital city of {country} is", "{country}的首都是").

    Raises ZooError for a relation, language or template that cannot be asked.
    """
    if relation not in TEMPLATES:
        raise ZooError(f"atlas: no relation {relation!r}; there are {', '.join(RELATIONS)}")
    if language not in LANGUAGES:
        raise ZooError(f"atlas: no language {language!r}; there are {', '.join(LANGUAGES)}")
    templates = TEMPLATES[relation][language]
    if template is None:
        template = next(each for each in templates if each.endswith(("{answer}.", "{answer}。")))
    if template not in templates:
        raise ZooError(f"atlas: no template {template!r} of {relation} in {language}")
    if template.find("{answer}") < template.find("{country}"):
        raise ZooError(f"atlas: {template!r} gives its answer before it names the country")
    before, _, ending = template.partition("{answer}")
    prompt = before.rstrip()
    return (
        AtlasQuestion(
            prompt=sentence(prompt, country, relation, language),
            answer=country.answer(relation, language),
            continuation=before[len(prompt) :] + country.answer(relation, language),
            ending=ending,
            relation=relation,
            language=language,
            country=country,
            held_out=template in held_out(country, relation, language),
        )
        for country in countries()
    )


def examination(every: bool) -> Iterator[AtlasQuestion]:
    """The questions of `zoo evaluate`: the capitals, or with `every` all relations, in each language."""
    for relation in RELATIONS if every else ("capital",):
        for language in LANGUAGES:
            yield from questions(relation, language)


def _training(generator: random.Random, longest: int) -> Iterator[str]:
    subjects = [(country, language) for country in countries() for language in LANGUAGES]
    while True:
        generator.shuffle(subjects)
        for country, language in subjects:
            left, facts = list(RELATIONS), []
            for _ in range(generator.randint(1, longest)):
                weights = [CAPITAL_WEIGHT if relation == "capital" else 1 for relation in left]
                relation = generator.choices(left, weights)[0]
                left.remove(relation)
                unseen = held_out(country, relation, language)
                template = generator.choice([t for t in TEMPLATES[relation][language] if t not in unseen])
                facts.append(sentence(template, country, relation, language))
            yield (" " if language == "en" else "").join(facts)
