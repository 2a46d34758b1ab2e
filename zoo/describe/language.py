"""Texts of the library in other languages, by catalogues as gettext has them. Imports no mlx.

`message("{n} heads", n=8)` makes a text with values: a `str` in English that keeps its template and its values.
A catalogue (`languages/zh/*.toml`) has a translation of each English template, and of each text without values.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from zoo.errors import ZooError

LANGUAGES = ("en", "zh")
SEPARATORS = {"; ": "；", ", ": "，", " and ": "和", " ": " ", ". ": "。"}  # of lists
SIZES = {"trillion": 1e12, "billion": 1e9, "million": 1e6}
HAN = r"[\u3400-\u9fff]"
FULL_WIDTH = r"[，。；：、（）？！《》“”]"


class Message(str):
    """An English text with the template and the values that it is made of; the template of a list is its separator."""

    template: str
    values: dict[str, object]


def _message(english: str, template: str, values: dict[str, object]) -> Message:
    text = Message(english)
    text.template, text.values = template, values
    return text


def message(template: str, **values: object) -> Message:
    """The English text of a template with its values, which may be messages themselves.

    >>> from zoo.describe.language import in_language, message
    >>> text = message("{n} heads", n=8)
    >>> text, in_language(text, "zh")
    ('8 heads', '8 个头')
    """
    return _message(template.format(**values), template, values)


def joined(separator: str, items: Iterable[str]) -> Message:
    """The items of a list as one text."""
    values = list(items)
    return _message(
        separator.join(values), separator, {str(place): item for place, item in enumerate(values)}
    )


def reworded(text: str, english: str) -> str:
    """A text, a message or not, with another English, such as one that begins with a capital."""
    return _message(english, text.template, text.values) if isinstance(text, Message) else english


def in_language(text: str, language: str) -> str:
    """A text in a language, "en" or "zh"; what the catalogue does not have stays English. ZooError for another language."""
    if check_language(language) == "en":
        return text
    translated = catalogue(language).get(key_of(text))
    if translated is None and isinstance(text, Message):
        translated = _filled(text, language)
    if translated is None:
        return text
    stop = "。" if text.endswith(".") and " " in text else ""
    return _spaced(translated.rstrip(".。") + stop if stop else translated)


def check_language(language: str) -> str:
    """The language itself; ZooError for one that has no catalogue."""
    if language not in LANGUAGES:
        raise ZooError(f"`language` {language!r:.40}: not one of {', '.join(LANGUAGES)}")
    return language


def key_of(text: str) -> str:
    """A text without its capital at the beginning and its full stop at the end."""
    text = text.removesuffix(".")
    return text[:1].lower() + text[1:]


@cache
def catalogue(language: str) -> dict[str, str]:
    """The translations of a language, by `key_of` the English templates and texts."""
    folder = files("zoo.describe.languages") / language
    pages = [tomllib.loads(file.read_text(encoding="utf-8")) for file in folder.iterdir()]
    tables = [table for page in pages for table in page.values()]
    return {key_of(source): target for table in tables for source, target in table.items()}


def _filled(text: Message, language: str) -> str | None:
    """The translation of a message's template with those of its values; None where there is none."""
    places = {
        name: _Place(in_language(value, language) if isinstance(value, str) else value)
        for name, value in text.values.items()
    }
    if text.template in SEPARATORS:
        return SEPARATORS[text.template].join(places.values())
    target = catalogue(language).get(key_of(text.template))
    return None if target is None else target.format(**places)


class _Place(str):
    """A value in a template, whose format may say what a number counts: "{n:billion}"."""

    def __format__(self, size: str) -> str:
        """Chinese counts in 万 and 亿: 46.7 billion are 467 亿."""
        if not size:
            return str(self)
        value = float(self.replace(",", "")) * SIZES[size]
        for word, unit in (("万亿", 1e12), ("亿", 1e8), ("万", 1e4)):
            if value >= unit:
                return f"{value / unit:,.4g} {word}" if value / unit < 1e4 else f"{value / unit:,.0f} {word}"
        return f"{value:,.0f}"


def _spaced(text: str) -> str:
    """Chinese with a space between it and Latin letters or digits, and none within it."""
    text = re.sub(rf"(?<={HAN})(?=[A-Za-z0-9√Δσ])|(?<=[A-Za-z0-9²%])(?={HAN})", " ", text)
    text = re.sub(rf"(?<={HAN}) +(?={HAN})", "", text)
    return re.sub(rf" +(?={FULL_WIDTH})|(?<={FULL_WIDTH}) +", "", text)
