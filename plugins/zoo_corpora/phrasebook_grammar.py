"""The grammar of the phrasebook: sentences in English and Chinese at once, from the words of `phrasebook.tsv`.

Its pronouns, contractions, tenses and modals are in `phrasebook.toml`.

Conventions that give an English sentence one translation: "you" is one person; "the" and "that" are both 那,
"these" 这些; "a" is 一 with the measure word, and nothing after a negation or in "is a teacher"; "can" is 会
for a skill, 能 for the rest; an English present that is no "be ... -ing" is a habit. Chinese puts time before
place before the verb, and a time that English puts first stays first. The final mark is translated too: a
statement without one has none in Chinese.
"""

from __future__ import annotations

import random
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

TABLES: dict[str, Any] = tomllib.loads(
    files("zoo_corpora").joinpath("phrasebook.toml").read_text(encoding="utf-8")
)
PRONOUNS: dict[str, list[str]] = TABLES["pronouns"]
NOT: dict[str, str] = TABLES["not"]
SHORT: dict[str, str] = TABLES["short"]


class Mode(NamedTuple):
    """A tense or modal: the English modal, and what precedes the Chinese verb without and with "not"."""

    english: str
    chinese: str
    negative: str


MODES = {name: Mode(*texts) for name, texts in TABLES["modes"].items()}


@dataclass(frozen=True)
class Word:
    """One row of `phrasebook.tsv`.

    `forms` are a noun's plural (none for a mass or a proper noun), a verb's past and present participle, an
    adjective's comparative, or the noun in a place. `extra` is a noun's measure word or containers, the Chinese
    of an adjective before a noun, a verb's aspect, or where an adverb, time or place may stand. `classes` say
    what a noun is, and what an adjective's noun and a verb's subject can be; `objects`, a verb's object.
    """

    kind: str
    english: str
    forms: str
    chinese: str
    extra: str = ""
    classes: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()


@cache
def words(kind: str) -> tuple[Word, ...]:
    """The words of a kind (name, noun, adjective, verb, adverb, time, place, number, phrase), in the table's order."""
    text = files("zoo_corpora").joinpath("phrasebook.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    return tuple(
        Word(kind, english, forms, chinese, extra, tuple(classes.split()), tuple(objects.split()))
        for of, english, forms, chinese, extra, classes, objects in rows
        if of == kind
    )


@cache
def fitting(classes: tuple[str, ...], kind: str = "noun") -> tuple[Word, ...]:
    """The words of a kind that have one of `classes`."""
    return tuple(word for word in words(kind) if not set(word.classes).isdisjoint(classes))


@cache
def standing(kind: str, where: str) -> tuple[Word, ...]:
    """The adverbs, times or places that may stand `where`, which is in their `extra`."""
    return tuple(word for word in words(kind) if where in word.extra.split())


class NounPhrase(NamedTuple):
    """A noun phrase, as subject and as object, with the form of "be" that it takes."""

    english: str
    chinese: str
    be: str = "is"
    objective: str = ""  # if it differs
    nouns: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # the content words, nouns among them
    links: tuple[tuple[str, str], ...] = ()  # (adjective, noun)

    @property
    def object(self) -> str:
        """Its English after a verb."""
        return self.objective or self.english

    def linked(self, word: str) -> tuple[tuple[str, str], ...]:
        """The links of a sentence that relates it to a verb or adjective."""
        return (*((word, noun) for noun in self.nouns), *self.links)


class SentenceDraft(NamedTuple):
    """A sentence before its capital letter and final mark; `links` are its related (word, noun) pairs."""

    english: str
    chinese: str
    words: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    marks: tuple[str, ...] = (".", "")

    def finished(self, generator: random.Random) -> tuple[str, str]:
        """The English sentence and the Chinese."""
        mark = generator.choice(self.marks)
        chinese = {".": "。", "?": "？", "!": "！"}.get(mark, "")
        return self.english[:1].upper() + self.english[1:] + mark, self.chinese + chinese


SILENT = Word("", "", "", "")
NOTHING = NounPhrase("", "")
WHO = NounPhrase("who", "谁")


@dataclass(frozen=True)
class Clause:
    """A subject, a verb and what goes with them; `front` is the English question word or phrase put first."""

    subject: NounPhrase
    verb: Word
    mode: str
    negative: bool = False
    recipient: NounPhrase = NOTHING
    thing: NounPhrase = NOTHING
    place: Word = SILENT
    time: Word = SILENT
    adverb: Word = SILENT
    front: str = ""

    def draft(self, question: bool = False, contracted: bool = False, early: bool = False) -> SentenceDraft:
        """Both languages. `early` puts the time first, `contracted` writes "don't" and "I'll"."""
        parts = (self.subject, self.recipient, self.thing)
        held = (*(word for part in parts for word in part.words), self.place.forms)
        links = (*self.subject.linked(self.verb.english), *self.thing.linked(self.verb.english))
        asking = question or self.subject is WHO
        return SentenceDraft(
            self._english(question, contracted, early),
            self._chinese(question, early),
            (self.verb.english, MODES[self.mode].english.removesuffix(" to"), *held),
            (*links, *self.recipient.links),
            ("?",) if asking else (".", ""),
        )

    def _english(self, question: bool, contracted: bool, early: bool) -> str:
        subject, be, modal = self.subject.english, self.subject.be, MODES[self.mode].english
        base, past, participle = conjugated(self.verb)
        if self.mode == "progressive":
            auxiliary, plain, whole = be, participle, ""
        elif self.mode == "past":
            auxiliary, plain, whole = "did", base, past
        elif modal and not modal.endswith(" to"):
            auxiliary, plain, whole = modal, base, ""
        else:
            plain = spaced(modal, base)
            auxiliary, whole = ("does", third_person(plain)) if be == "is" else ("do", plain)
        time = self.time.english
        tail = (self.recipient.object, self.thing.object, self.place.english, "" if early else time)
        if question:
            first = NOT.get(auxiliary, auxiliary) if self.negative else auxiliary
            rest = "not" if self.negative and auxiliary not in NOT else ""
            return spaced(self.front, first, subject, rest, plain, *tail)
        if whole and not self.negative:
            start = spaced(subject, self.adverb.english, whole)
        else:
            start = spaced(finite(subject, auxiliary, self.negative, contracted), self.adverb.english, plain)
        return spaced(time if early else "", start, *tail)

    def _chinese(self, question: bool, early: bool) -> str:
        mode = MODES[self.mode]
        prefix = mode.negative if self.negative else mode.chinese
        if self.mode == "can" and "skill" in self.verb.extra:
            prefix = prefix.replace("能", "会")
        elif self.verb.chinese == "有" and self.negative:
            prefix = "没"
        where = self.place.chinese
        if where and not prefix.endswith("在"):  # 正在 and 在 with a place are one word
            where = "在" + where
        start = (
            (self.time.chinese, self.subject.chinese) if early else (self.subject.chinese, self.time.chinese)
        )
        perfect = "了" if self.mode == "past" and not self.negative else ""
        action = (prefix, where, self.verb.chinese, perfect, self.recipient.chinese, self.thing.chinese)
        return "".join([*start, self.adverb.chinese, *action, "吗" if question and not self.front else ""])


def spaced(*parts: str) -> str:
    """The parts that are not empty, with spaces between them."""
    return " ".join(filter(None, parts))


def finite(subject: str, auxiliary: str, negative: bool, contracted: bool) -> str:
    """A subject and its auxiliary: "he is", "he's", "he is not", "he isn't"."""
    if negative and contracted and auxiliary in NOT:
        return spaced(subject, NOT[auxiliary])
    if contracted and subject in PRONOUNS and auxiliary in SHORT:
        return spaced(subject + SHORT[auxiliary], "not" if negative else "")
    if negative and auxiliary == "can":
        return spaced(subject, "cannot")
    return spaced(subject, auxiliary, "not" if negative else "")


def conjugated(verb: Word) -> tuple[str, str, str]:
    """The base, past and present participle of a verb, which keeps its particle or noun."""
    _, space, rest = verb.english.partition(" ")
    past, participle = verb.forms.split()
    return verb.english, past + space + rest, participle + space + rest


def third_person(verb: str) -> str:
    """The form that "she" takes: "has", "goes to", "studies"."""
    head, space, rest = verb.partition(" ")
    if head == "have":
        head = "has"
    elif head.endswith(("s", "sh", "ch", "x", "o")):
        head += "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        head = head[:-1] + "ies"
    else:
        head += "s"
    return head + space + rest


def article(following: str) -> str:
    """The article "a" or "an", which the sound of the next word decides."""
    vowel = following[0] in "aeiou" or following.startswith("honest")
    return "an" if vowel and not following.startswith("use") else "a"
