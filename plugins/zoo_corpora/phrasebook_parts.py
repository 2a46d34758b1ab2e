"""The parts of the phrasebook's sentences, drawn so that the words go together."""

from __future__ import annotations

import random
from functools import cache

from zoo_corpora.phrasebook_grammar import (
    NOTHING,
    PRONOUNS,
    SILENT,
    Clause,
    NounPhrase,
    Word,
    article,
    fitting,
    spaced,
    standing,
    words,
)

# The ways to determine a noun. One is drawn, here and below, so what is repeated is likelier.
GENERIC = ("generic",)
DEFINITE = ("the", "the", "this", "that", "owner", "owner")
INDEFINITE = ("a", "a", "a", "number", "number", "some", "many")

POINTERS = {"the": ("the", "那"), "this": ("these", "这"), "that": ("those", "那")}  # plural, Chinese
CONTAINERS = {"cup": "杯", "bottle": "瓶", "bowl": "碗", "piece": "块"}

MODALS = ("can", "should", "must", "want", "need", "like")
USUAL_MODES = ("present", "past", "progressive", "future")
EVERY_MODE = (*USUAL_MODES, *USUAL_MODES, "present", "present", "past", *MODALS)
MODES_OF = {  # the modes that a verb's aspect allows
    "state": ("present",),
    "feeling": ("present",),
    "have": ("present",),
    "mental": ("present", "present", "can", "want", "future"),
    "event": ("past", "past", "future"),
    "transfer": ("past", "past", "future", "want", "should"),
    "trip": tuple(mode for mode in EVERY_MODE if mode != "progressive"),
    "moving": tuple(mode for mode in EVERY_MODE if mode != "can"),  # 会 or 能, as its object has it
    "action": EVERY_MODE,
    "activity": EVERY_MODE,
}
STATES = ("state", "feeling", "have", "mental")
DOUBLED = (*STATES, "trip")
REFLEXIVE = {"I": ("I", "we"), "you": ("you",), "we": ("I", "we"), "they": ("they",)}


class Parts:
    """Draws noun phrases and clauses; every choice comes from `generator`."""

    def __init__(self, generator: random.Random):
        self.generator = generator
        self.pick = generator.choice

    def chance(self, probability: float) -> bool:
        """True that often."""
        return self.generator.random() < probability

    def named(self) -> NounPhrase:
        """A name."""
        name = self.pick(words("name"))
        return NounPhrase(name.english, name.chinese)

    def person(self) -> NounPhrase:
        """A pronoun or a name."""
        if self.chance(0.35):
            return self.named()
        subject = self.pick(tuple(PRONOUNS))
        objective, _, _, chinese, be = PRONOUNS[subject]
        return NounPhrase(subject, chinese, be, objective)

    def noun_phrase(
        self,
        noun: Word,
        styles: tuple[str, ...],
        *,
        negative: bool = False,
        predicate: bool = False,
        bare: bool = False,
        plural: bool | None = None,
    ) -> NounPhrase:
        """`noun` with a determiner, one of `styles` or the nearest it can take, and perhaps an adjective.

        `bare` is without adjective, `predicate` what someone is, `negative` what follows "not". `plural`
        decides the number where the style leaves it open; None draws it.
        """
        style = self._style(noun, styles, negative)
        several = style in ("generic", "number", "some", "many", "how many")
        if style in POINTERS or style == "owner":
            several = self.chance(0.3) if plural is None else plural
        several = several and bool(noun.forms) and ("kin" not in noun.classes or style == "number")
        adjective = None if bare or self.chance(0.65) else self._attribute(noun, style)
        said, written = "", ""
        described: tuple[str, ...] = ()
        if adjective:
            said, written, described = adjective.english, adjective.extra, (adjective.english,)
            if adjective.forms and style in ("a", "number", *POINTERS) and self.chance(0.12):
                said = "very " + said
                plain = written.endswith("的") and not written.startswith("很")
                written = "非常" + (written if plain else adjective.chinese + "的")
        said = spaced(said, noun.forms if several else noun.english)
        written += noun.chinese
        determiner, measured, count = self._determined(noun, style, said, several)
        if style == "a" and (negative or (predicate and not adjective)):
            measured = ""
        elif style == "owner" and several and "person" in noun.classes and not predicate:
            written += "们"
        return NounPhrase(
            spaced(determiner, said),
            measured + written,
            "are" if count else "is",
            nouns=(noun.english,),
            words=(noun.english, *described, *(each for each in CONTAINERS if each in determiner)),
            links=tuple((word, noun.english) for word in described),
        )

    def _style(self, noun: Word, styles: tuple[str, ...], negative: bool) -> str:
        style = self.pick(styles)
        if "kin" in noun.classes:  # someone's, but for "I have a son"
            counted = style in INDEFINITE and "owner" not in styles
            return ("a" if negative or style == "a" else "number") if counted else "owner"
        if style == "owner" and "free" in noun.classes:
            style = "the"
        if noun.forms:
            return "a" if negative and style in INDEFINITE else style
        if not noun.extra or style in POINTERS or (negative and style in INDEFINITE):
            return "generic"
        return {"a": "container", "number": "container", "many": "some"}.get(style, style)

    def _attribute(self, noun: Word, style: str) -> Word | None:
        """An adjective to put before `noun`, if one can stand there."""
        if "kin" in noun.classes or not noun.extra:
            return None
        options = fitting(noun.classes, "adjective")
        if style == "owner":  # no second 的 after a possessive's
            options = tuple(adjective for adjective in options if not adjective.extra.endswith("的"))
        return self.pick(options) if options else None

    def _determined(self, noun: Word, style: str, said: str, several: bool) -> tuple[str, str, bool]:
        """The words before `said` in English and in Chinese, and whether it is a plural."""
        measure = noun.extra
        if style == "container":
            container = self.pick(measure.split())
            if self.chance(0.6):
                return f"a {container} of", "一" + CONTAINERS[container], False
            number = self.pick(words("number"))
            return f"{number.english} {container}s of", number.chinese + CONTAINERS[container], True
        if style == "number":
            number = self.pick(words("number"))
            return number.english, number.chinese + measure, True
        if style in POINTERS:
            many, chinese = POINTERS[style]
            return (many, chinese + "些", True) if several else (style, chinese + measure, False)
        if style == "owner":
            if self.chance(0.25):
                name = self.named()
                return name.english + "'s", name.chinese + "的", several
            _, determiner, _, chinese, _ = PRONOUNS[self.pick(tuple(PRONOUNS))]
            return determiner, chinese + "的", several
        if style == "a":
            return article(said), "一" + measure, False
        if style == "generic":
            return "", "", several
        fixed = {"some": "一些", "many": "很多", "which": "哪" + measure, "how many": "几" + measure}
        return style, fixed[style], several

    def subject(self, classes: tuple[str, ...], styles: tuple[str, ...] = DEFINITE) -> NounPhrase:
        """A subject: a person, an animal or a model, as `classes` allow."""
        if classes[0] != "person" or (len(classes) > 1 and self.chance(0.5)):
            return self.noun_phrase(
                self.pick(fitting(tuple(each for each in classes if each != "person"))), styles
            )
        if self.chance(0.5):
            return self.person()
        if self.chance(0.1):
            first, second = self.generator.sample(words("name"), 2)
            return both(NounPhrase(first.english, first.chinese), NounPhrase(second.english, second.chinese))
        return self.noun_phrase(self.pick(fitting(("person", "kin"))), styles)

    def object(
        self, classes: tuple[str, ...], styles: tuple[str, ...], subject: NounPhrase, negative: bool = False
    ) -> NounPhrase:
        """An object of what `subject` does: somebody or something else."""
        while True:
            if "person" in classes and self.chance(0.5):
                thing = self.person()
            else:
                thing = self.noun_phrase(self.pick(fitting(classes)), styles, negative=negative)
            if not _same(subject, thing):
                return thing

    def clause(
        self,
        verbs: tuple[Word, ...] = (),
        *,
        subject: NounPhrase | None = None,
        modes: tuple[str, ...] = EVERY_MODE,
        negative: bool = False,
        question: bool = False,
        timed: bool = True,
    ) -> Clause:
        """One of `verbs` (any if empty) in one of `modes`, with all that the two allow."""
        chosen = None
        while not chosen:
            verb = self.pick(verbs or usual_verbs())
            if negative and "positive" in verb.extra:
                continue
            aspect = verb.extra.split()[0]
            chosen = [
                m for m in MODES_OF[aspect] if m in modes and not (m == "must" and (negative or question))
            ]
        mode, plain = self.pick(chosen), not negative and not question
        time, adverb = self._when(verb, mode, negative, question) if timed else (SILENT, SILENT)
        if subject is None:
            styles: tuple[str, ...] = DEFINITE + GENERIC * 2 if mode == "present" else DEFINITE
            if plain and mode in ("past", "progressive", "future"):
                styles += ("a", "number")
            subject = self.subject(verb.classes, styles)
        recipient = self.object(("person",), DEFINITE, subject) if aspect == "transfer" else NOTHING
        thing = NOTHING
        if verb.objects:
            habitual = "habit" in (time.extra, adverb.extra)
            styles = _styles(aspect, mode, habitual, plain)
            thing = self.object(verb.objects, styles, subject, negative)
        place = SILENT
        if aspect in ("activity", "event") and mode != "can" and timed and self.chance(0.25):
            place = self.pick(standing("place", "area"))
        return Clause(subject, verb, mode, negative, recipient, thing, place, time, adverb)

    def _when(self, verb: Word, mode: str, negative: bool, question: bool) -> tuple[Word, Word]:
        """A time and an adverb, at most one of them."""
        aspect, plain = verb.extra.split()[0], not negative and not question
        when = ""
        if mode == "past":
            alike = verb.forms.startswith(verb.english + " ")  # "I read" needs a time to be past
            when = "past" if alike or self.chance(0.6) else ""
        elif mode == "progressive":
            when = "now" if self.chance(0.2) else ""
        elif mode in ("future", "want", "should", "must", "need"):
            when = "future" if self.chance(0.6 if mode == "future" else 0.25) else ""
        elif aspect == "feeling":
            when = "feeling" if plain and self.chance(0.15) else ""
        elif mode == "present" and aspect not in STATES and not negative:
            when = "habit" if self.chance(0.4) else ""
            if plain and not when and self.chance(0.7):
                return SILENT, self.pick(standing("adverb", "habit"))
        if when:
            return self.pick(standing("time", when)), SILENT
        if plain and self.chance(0.08):
            lasting = aspect in ("feeling", "have") and self.chance(0.5)
            return SILENT, self.pick(standing("adverb", "state" if lasting else "any"))
        return SILENT, SILENT


def both(first: NounPhrase, second: NounPhrase) -> NounPhrase:
    """Two noun phrases as one: "tea and coffee"."""
    return NounPhrase(
        f"{first.english} and {second.english}",
        f"{first.chinese}和{second.chinese}",
        "are",
        nouns=first.nouns + second.nouns,
        words=first.words + second.words,
        links=first.links + second.links,
    )


@cache
def usual_verbs() -> tuple[Word, ...]:
    """The verbs, twice those with the most objects or with objects of their own."""
    return tuple(verb for verb in words("verb") for _ in range(2 if verb.extra.split()[0] in DOUBLED else 1))


def _styles(aspect: str, mode: str, habitual: bool, plain: bool) -> tuple[str, ...]:
    """The determiners that an object may have."""
    if aspect in ("state", "feeling", "mental"):
        return GENERIC * 5 + DEFINITE
    if aspect == "have":
        return INDEFINITE
    if aspect == "transfer" and not plain:
        return DEFINITE
    if mode == "like" or (mode == "present" and not habitual):
        return GENERIC
    return INDEFINITE + DEFINITE + GENERIC * 2


def _same(subject: NounPhrase, thing: NounPhrase) -> bool:
    """Whether they are the same person or noun, or the thing belongs to a subject that is named."""
    same = bool(subject.nouns) and subject.nouns == thing.nouns
    names = tuple(name for name in subject.english.split(" and ") if name[:1].isupper())
    return same or thing.english in REFLEXIVE.get(subject.english, ()) or thing.english.startswith(names)
