"""`{family-tree}`: which architecture is a variant of which, by time, as boxes within the box of their base."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes

from building.architecture_words import WORDS, month
from building.directive import ZooDirective, html
from building.family import Member, members, roots, variants
from zoo.architecture.architecture import TASKS
from zoo.describe.language import in_language

OWN = (
    "prefix-lm",
    "gpt2-postln",
)  # variants that the zoo made to compare with: no model of this form was published
ASIDE = re.compile(r" ?[(\uff08][^()\uff08\uff09]*[)\uff09]")  # what a sentence says in brackets


def label(one: Member, language: str) -> str:
    """What a box says: the first difference from the base, and how many more there are; of a root its summary."""
    plain = one.sentences[0] if one.sentences else one.found.architecture.summary
    said = without_asides(in_language(plain, language)).rstrip(".。")
    more = len(one.sentences) - 1
    return WORDS[language]["and more"].format(said=said, count=more) if more > 0 else said


def without_asides(sentence: str) -> str:
    """A sentence without what it says in brackets, and in brackets within these."""
    while (shorter := ASIDE.sub("", sentence)) != sentence:
        sentence = shorter
    return sentence


def box(one: Member, among: dict[str, Member], language: str, address: str) -> str:
    """A member, and within its box those of its variants, as an item of a list."""
    words, stop = WORDS[language], "。" if language == "zh" else "."
    about = [month(one.published, language, short=True)] if one.published else []
    about += [words[f"task {one.task}"]] if one.task != TASKS[0] else []
    about += [words["own"]] if one.name in OWN else []
    whole = " ".join(f"{in_language(text, language).rstrip('.。')}{stop}" for text in one.sentences)
    inside = "".join(box(variant, among, language, address) for variant in variants(one.name, among))
    count = inside.count("<li")
    about += [words["variants below"].format(count=count)] if count else []
    return (
        f'<li><p><a href="{address}{one.name}.html">{one.name}</a> <small>{" · ".join(about)}</small></p>'
        f'<div title="{escape(whole)}">{escape(label(one, language))}</div>{f"<ul>{inside}</ul>" if inside else ""}</li>'
    )


class FamilyTree(ZooDirective):
    """The boxes of all families."""

    def made(self) -> list[nodes.Node]:
        among = members()
        boxes = "".join(box(one, among, self.language, "architectures/") for one in roots(among))
        return [html(f'<ul class="zoo-tree">{boxes}</ul>')]


def setup(app: Any) -> None:
    """Add the directive."""
    app.add_directive("family-tree", FamilyTree)
