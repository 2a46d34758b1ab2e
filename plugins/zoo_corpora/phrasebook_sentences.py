"""The kinds of sentence in the phrasebook, and how often each comes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from zoo_corpora.phrasebook_grammar import (
    PRONOUNS,
    SILENT,
    TABLES,
    WHO,
    NounPhrase,
    SentenceDraft,
    Word,
    finite,
    fitting,
    spaced,
    standing,
    words,
)
from zoo_corpora.phrasebook_parts import DEFINITE, GENERIC, INDEFINITE, Parts, both, usual_verbs

KINDS: dict[str, int] = TABLES["kinds"]
HUMAN = ("person", "job", "relation", "kin")
WHERE = {"city", "country", "place"}
MOVABLE = ("pet", "small", "print")
CONTENT = (*MOVABLE, "text", "song", "film", "device", "clothes", "vehicle", "art", "model", "idea")
# Verbs of what people do to things in general.
LISTED = ("like", "love", "hate", "buy", "sell", "eat", "drink", "study", "learn", "teach", "speak", "draw")
ASKING, TELLING = ("?",), (".", "")

FORMS = ("plain", "plain", "not", "asking")  # of a sentence with "be"


class Author(Parts):
    """Draws sentences."""

    def sentence(self) -> SentenceDraft:
        """A sentence of any kind."""
        (kind,) = self.generator.choices(tuple(KINDS), tuple(KINDS.values()))
        return getattr(self, kind)()

    def stated(self) -> SentenceDraft:
        """Somebody does something, or does not."""
        clause = self.clause(negative=self.chance(0.25))
        early = clause.time.extra in ("habit", "past", "future") and self.chance(0.2)
        return clause.draft(contracted=self.chance(0.4), early=early)

    def listed(self) -> SentenceDraft:
        """Somebody likes, or regularly does, two things."""
        verbs = tuple(verb for verb in words("verb") if verb.english in LISTED)
        clause = self.clause(verbs, modes=("present",), timed=False)
        things = tuple(noun for noun in fitting(clause.verb.objects) if set(noun.classes).isdisjoint(HUMAN))
        noun = other = self.pick(things)
        while noun == other or noun.classes[0] != other.classes[0]:
            noun, other = self.pick(things), self.pick(things)
        first, second = (self.noun_phrase(chosen, GENERIC, bare=True) for chosen in (noun, other))
        return replace(clause, thing=both(first, second)).draft()

    def asked(self) -> SentenceDraft:
        """Does somebody do something?"""
        return self.clause(question=True).draft(question=True)

    def asked_who(self) -> SentenceDraft:
        """Who does something?"""
        verbs = tuple(verb for verb in usual_verbs() if "person" in verb.classes)
        return self.clause(verbs, subject=WHO, question=True).draft()

    def asked_what(self) -> SentenceDraft:
        """What, which, how many, whom or where does somebody do something?"""
        clause = self.clause(
            tuple(v for v in usual_verbs() if v.objects and v.english != "visit"), question=True
        )
        verb, classes = clause.verb, clause.verb.objects
        nouns = tuple(noun for noun in fitting(classes) if noun.forms and set(noun.classes).isdisjoint(HUMAN))
        whom = not set(classes).isdisjoint(HUMAN)
        if set(classes) <= WHERE:
            verb = replace(verb, english=verb.english.removesuffix(" in").removesuffix(" to"))
            thing = NounPhrase("where", "哪里")
        elif whom and (not nouns or self.chance(0.3)):
            thing = WHO
        elif (
            nouns and (clause.mode in ("past", "future", "want") or verb.extra == "have") and self.chance(0.5)
        ):
            thing = self.noun_phrase(self.pick(nouns), ("which", "how many"))
        else:
            thing = NounPhrase("what", "什么")
        silent = thing._replace(english="", objective="")
        return replace(clause, verb=verb, thing=silent, front=thing.english).draft(question=True)

    def asked_why(self) -> SentenceDraft:
        """Why does somebody do something, or not?"""
        negative = self.chance(0.3)
        modes = ("present", "progressive", "want", "need", *(("past", "can") if negative else ()))
        clause = self.clause(modes=modes, negative=negative, question=True, timed=False)
        return replace(clause, time=Word("", "", "", "为什么"), front="why").draft(question=True)

    def asked_when(self) -> SentenceDraft:
        """When, or where, will somebody do something?"""
        verbs = tuple(verb for verb in words("verb") if verb.extra.startswith("activity"))
        modes = ("present", "future", "want", "should")
        clause = self.clause(verbs, modes=modes, question=True, timed=False)
        if self.chance(0.5):
            return replace(clause, place=Word("", "", "", "哪里"), front="where").draft(question=True)
        return replace(clause, time=Word("", "", "", "什么时候"), front="when").draft(question=True)

    def _bearer(self, adjective: Word) -> NounPhrase:
        """Somebody or something that `adjective` can describe."""
        if not {"person", "job"}.isdisjoint(adjective.classes) and self.chance(0.5):
            return self.person()
        return self.noun_phrase(self.pick(fitting(adjective.classes)), lasting(adjective), bare=True)

    def _being(
        self,
        subject: NounPhrase,
        english: str,
        chinese: str,
        form: str = "plain",
        words: tuple[str, ...] = (),
        links: tuple[tuple[str, str], ...] = (),
    ) -> SentenceDraft:
        """A sentence with "be" of one of `FORMS`: "he is tall", "he isn't tall" or "is he tall"."""
        if form == "asking":
            english = spaced(subject.be, subject.english, english)
            return SentenceDraft(english, f"{subject.chinese}{chinese}吗", words, links, ASKING)
        english = spaced(finite(subject.english, subject.be, form == "not", self.chance(0.4)), english)
        return SentenceDraft(english, subject.chinese + chinese, words, links)

    def described(self) -> SentenceDraft:
        """Something is, or is not, as an adjective says; or is it?"""
        adjective = self.pick(words("adjective"))
        bearer = self._bearer(adjective)
        degree, pattern, form = self.pick(TABLES["degrees"]["graded" if adjective.forms else "plain"])
        chinese = pattern.format(adjective.chinese if adjective.forms else adjective.extra)
        return self._being(
            bearer,
            spaced(degree, adjective.english),
            chinese.replace("不有", "没有"),  # 有用, 有意思
            form,
            (adjective.english, *bearer.words),
            bearer.linked(adjective.english),
        )

    def judged(self) -> SentenceDraft:
        """Somebody thinks that something is as an adjective says."""
        adjective = self.pick(graded())
        thinker, bearer = self.person(), self._bearer(adjective)
        think = "thinks" if thinker.be == "is" else "think"
        that = "that" if self.chance(0.5) else ""
        return SentenceDraft(
            spaced(thinker.english, think, that, bearer.english, bearer.be, adjective.english),
            f"{thinker.chinese}觉得{bearer.chinese}很{adjective.chinese}",
            (adjective.english, *bearer.words),
            bearer.linked(adjective.english),
        )

    def reasoned(self) -> SentenceDraft:
        """Somebody likes something because it is as an adjective says."""
        adjective = self.pick(tuple(each for each in graded() if set(each.classes).isdisjoint(HUMAN)))
        liker = self.person()
        things = tuple(noun for noun in fitting(adjective.classes) if "person" not in noun.classes)
        thing = self.noun_phrase(self.pick(things), lasting(adjective), bare=True)
        like = "likes" if liker.be == "is" else "like"
        it, chinese = ("it is", "它") if thing.be == "is" else ("they are", "它们")
        return SentenceDraft(
            spaced(liker.english, like, thing.english, "because", it, adjective.english),
            f"{liker.chinese}喜欢{thing.chinese}，因为{chinese}很{adjective.chinese}",
            ("like", adjective.english, *thing.words),
            (*thing.linked("like"), *thing.linked(adjective.english)),
        )

    def compared(self) -> SentenceDraft:
        """Something is more, as much, or less so than something else."""
        adjective = self.pick(graded())
        subject = other = self._bearer(adjective)
        while subject.chinese == other.chinese or sort(subject) != sort(other):
            subject, other = self._bearer(adjective), self._bearer(adjective)
        form = self.pick(("more", "more", "as", "less"))
        english = f"{adjective.forms} than" if form == "more" else f"as {adjective.english} as"
        chinese = {"more": "比{}{}", "as": "和{}一样{}", "less": "没有{}{}"}[form]
        return self._being(
            subject,
            spaced(english, other.object),
            chinese.format(other.chinese, adjective.chinese),
            "not" if form == "less" else "plain",
            (adjective.english, *subject.words, *other.words),
            (*subject.linked(adjective.english), *other.linked(adjective.english)),
        )

    def identified(self) -> SentenceDraft:
        """Somebody is a teacher or a friend, or this is a book."""
        form = self.pick(FORMS)
        negative = form == "not"
        if self.chance(0.4):
            plural = self.chance(0.3)
            this, chinese = self.pick(
                (("these", "这些"), ("those", "那些")) if plural else (("this", "这"), ("that", "那"))
            )
            subject = NounPhrase(this, chinese, "are" if plural else "is")
            styles = ("owner",) if plural or self.chance(0.4) else ("a",)
            noun = self.pick(fitting(CONTENT))
            what = self.noun_phrase(noun, styles, negative=negative, plural=plural)
        else:
            subject = self.person()
            plural = subject.english in ("we", "they")
            related = self.chance(0.3)
            noun = self.pick(fitting(("relation",) if related else ("job",)))
            styles = ("owner",) if related else GENERIC if plural else ("a",)
            what = self.noun_phrase(noun, styles, negative=negative, predicate=True, plural=plural)
        chinese = f"{'不是' if negative else '是'}{what.chinese}"
        return self._being(subject, what.english, chinese, form, what.words, what.links)

    def owned(self) -> SentenceDraft:
        """Something is mine, or is it yours; whose is this?"""
        noun = self.pick(fitting(CONTENT))
        if self.chance(0.2):
            this, chinese = self.pick((("this", "这"), ("that", "那")))
            english, chinese = f"whose {noun.english} is {this}", f"{chinese}是谁的{noun.chinese}"
            return SentenceDraft(english, chinese, (noun.english,), (), ASKING)
        thing = self.noun_phrase(noun, ("the", "this", "that"))
        form = self.pick(FORMS)
        _, _, possessive, owner, _ = PRONOUNS[self.pick(tuple(PRONOUNS))]
        if self.chance(0.3):
            name = self.named()
            possessive, owner = name.english + "'s", name.chinese
        chinese = f"{'不是' if form == 'not' else '是'}{owner}的"
        return self._being(thing, possessive, chinese, form, thing.words, thing.links)

    def placed(self) -> SentenceDraft:
        """Where somebody or something is."""
        person = self.chance(0.5)
        place = self.pick(standing("place", "area" if person else "spot"))
        subject = self.subject(("person",)) if person else None
        while subject is None or place.forms in subject.nouns:
            subject = self.noun_phrase(self.pick(fitting(MOVABLE)), DEFINITE)
        form = self.pick((*FORMS, "where"))
        if form == "where":
            english = spaced("where", subject.be, subject.english)
            return SentenceDraft(english, subject.chinese + "在哪里", subject.words, subject.links, ASKING)
        chinese = f"{'不' if form == 'not' else ''}在{place.chinese}"
        words = (*subject.words, place.forms)
        return self._being(subject, place.english, chinese, form, words, subject.links)

    def existing(self) -> SentenceDraft:
        """There is something somewhere, or there is not."""
        place = self.pick(standing("place", "spot"))
        noun = self.pick(tuple(noun for noun in fitting((*MOVABLE, "food")) if noun.english != place.forms))
        forms = ("plain", "plain", "plain", "no", "asking", "how many")
        form = self.pick(forms if noun.forms else forms[:-1])
        if form == "no":
            thing = self.noun_phrase(noun, GENERIC)
            english, chinese = spaced("there", thing.be, "no", thing.english), "没有"
        elif form == "how many":
            thing = self.noun_phrase(noun, ("how many",))
            english, chinese = spaced(thing.english, "are there"), "有"
        else:
            thing = self.noun_phrase(noun, INDEFINITE if form == "plain" else ("a", "number"))
            there = f"{thing.be} there" if form == "asking" else f"there {thing.be}"
            english, chinese = spaced(there, thing.english), "有"
        english = spaced(english, place.english)
        chinese = f"{place.chinese}{chinese}{thing.chinese}{'吗' if form == 'asking' else ''}"
        marks = ASKING if form in ("asking", "how many") else TELLING
        return SentenceDraft(english, chinese, (*thing.words, place.forms), thing.links, marks)

    def aged(self) -> SentenceDraft:
        """How old somebody is, and what I am called."""
        if self.chance(0.2):
            name = self.named()
            return SentenceDraft(f"my name is {name.english}", f"我叫{name.chinese}")
        noun = self.pick(fitting(("offspring", "youth", "pet")))
        who = self.person() if self.chance(0.5) else self.noun_phrase(noun, DEFINITE, bare=True, plural=False)
        if self.chance(0.3):
            return SentenceDraft(
                spaced("how old", who.be, who.english), f"{who.chinese}多大", who.words, (), ASKING
            )
        number = self.pick(words("number"))
        return self._being(who, f"{number.english} years old", f"{number.chinese}岁", words=who.words)

    def bidden(self) -> SentenceDraft:
        """Please do something, let's, or do not."""
        verbs = tuple(
            verb for verb in words("verb") if verb.extra.split()[0] in ("action", "activity", "trip")
        )
        form = self.pick(("please", "let's", "do not", "don't"))
        negative = form in ("do not", "don't")
        hearer = NounPhrase(form, {"please": "请", "let's": "我们"}.get(form, "不要"), "are")
        clause = self.clause(verbs, subject=hearer, modes=("present",), timed=False)
        if clause.verb.objects:
            told = NounPhrase("we" if form == "let's" else "you", "")
            thing = self.object(clause.verb.objects, ("a", "number", *DEFINITE), told, negative)
            clause = replace(clause, thing=thing)
        time = self.pick(standing("time", "future")) if not negative and self.chance(0.25) else SILENT
        draft = replace(clause, time=time).draft()
        return draft._replace(chinese=draft.chinese + "吧") if form == "let's" else draft

    def contrasted(self) -> SentenceDraft:
        """Somebody likes something, but somebody else does not, or likes something else."""
        verbs = tuple(verb for verb in words("verb") if verb.extra in ("feeling", "mental", "have"))
        clause = other = self.clause(verbs, modes=("present",), timed=False)
        while other.subject.chinese == clause.subject.chinese:
            other = self.clause((clause.verb,), modes=("present",), negative=self.chance(0.6), timed=False)
        first, second = clause.draft(), other.draft(contracted=self.chance(0.4))
        return SentenceDraft(
            f"{first.english}, but {second.english}",
            f"{first.chinese}，但是{second.chinese}",
            first.words + second.words,
            first.links + second.links,
        )

    def phrased(self) -> SentenceDraft:
        """A fixed phrase."""
        phrase = self.pick(words("phrase"))
        marks = ("",) if phrase.english.endswith("?") else ("", ".", "!")
        return SentenceDraft(phrase.english, phrase.chinese, marks=marks)


def lasting(adjective: Word) -> tuple[str, ...]:
    """The determiners of what it describes: "children are kind", but not "children are hungry"."""
    return DEFINITE + GENERIC if "general" in adjective.objects else DEFINITE


def sort(thing: NounPhrase) -> tuple[str, bool]:
    """The kind that it may be compared with: somebody with somebody, all cats with all dogs."""
    noun = next((noun for noun in words("noun") if noun.english in thing.nouns[:1]), None)
    if not noun or "kin" in noun.classes:
        return "person", False
    return noun.classes[0], bool(noun.extra) and thing.english in (noun.english, noun.forms)


@cache
def graded() -> tuple[Word, ...]:
    """The adjectives that compare."""
    return tuple(adjective for adjective in words("adjective") if adjective.forms)
