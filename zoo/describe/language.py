"""Texts that the library makes, such as labels of facts and differences in words, in another language. Imports no mlx.

A catalogue (`languages/zh/*.toml`) has pairs of texts. A text may have places, `{norm}`, each for a part that is itself
looked up: a number where the place is called `n`, `m`, `k` or `i`; anything where it is one of `ANYTHING`; else words
without a comma or a colon. The longest pattern is tried first, of equally long ones that with the most numbers, those of
tables `frames` before all others; these alone are used where a part is not known, which then stays English. Words of the
table `names` (RMSNorm, GELU) are the same in every language.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files

from zoo.errors import ZooError
from zoo.frozen import Frozen, frozen

LANGUAGES = ("en", "zh")
PLACE = re.compile(r"\{(\w+)(?::(\w+))?\}")
NUMBERS = ("n", "m", "k", "i")  # places that take a number alone
ANYTHING = ("rest", "text", "new", "old", "experts", "block", "explanation", "kinds")
WORDS = r"(?:(?! instead of |[,;:](?!\d)).)+?"
NUMBER = r"[-−]?\d[\d,.]*(?:e[+-]?\d+)?"
WORD = re.compile(r"[A-Za-z][A-Za-z']+(?:-[A-Za-z]+)*")
SENTENCES = re.compile(r"(?<=\.) (?=\S)")
LISTS = {"; ": "；", ", ": "，", " and ": "和", " · ": " · "}
SIZES = {"trillion": 1e12, "billion": 1e9, "million": 1e6}
HAN = r"[\u3400-\u9fff]"
FULL = r"[，。；：、（）？！《》“”]"


def in_language(text: str, language: str) -> str:
    """A text of the library in a language, "en" or "zh"; what the catalogue does not have stays as it is.

    ZooError for another language.
    """
    return text if check_language(language) == "en" else _looked_up(text, language)[0]


def is_known(text: str, language: str) -> bool:
    """Whether all of a text is in the language's catalogue: nothing of it stays English but names."""
    return check_language(language) == "en" or _looked_up(text, language)[1]


def check_language(language: str) -> str:
    """The language itself; ZooError for one that has no catalogue."""
    if language not in LANGUAGES:
        raise ZooError(f"`language` {language!r:.40}: not one of {', '.join(LANGUAGES)}")
    return language


@frozen()
class Pattern(Frozen):
    """A text with places, as an expression that finds them, and the other language's text.

    `words` is how many of its places are no numbers. A `frame` is also used where some of its parts are not known.
    """

    regex: re.Pattern[str]
    target: str
    words: int
    frame: bool


@frozen()
class Catalogue(Frozen):
    """The texts of one language: whole ones by `key_of`, those with places in the order in which they are tried, and names."""

    whole: dict[str, str]
    patterns: tuple[Pattern, ...]
    names: frozenset[str]


def key_of(text: str) -> str:
    """A text without what depends on where it stands: a capital at its beginning, a full stop at its end."""
    text = _unstopped(text)
    return text[:1].lower() + text[1:]


def _unstopped(text: str) -> str:
    return text[:-1] if text.endswith(".") else text


@cache
def catalogue(language: str) -> Catalogue:
    """The catalogue of a language, read once."""
    whole: dict[str, str] = {}
    found: list[tuple[int, Pattern]] = []
    names: set[str] = set()
    folder = files("zoo.describe.languages") / language
    for file in sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name):
        for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
            if name == "names":
                names.update(table["words"])
                continue
            for source, target in table.items():
                if PLACE.search(source):
                    words = sum(place[1] not in NUMBERS for place in PLACE.finditer(source))
                    pattern = Pattern(_expression(source), target, words, name == "frames")
                    found.append((len(PLACE.sub("", source)), pattern))
                else:
                    whole[key_of(source)] = target
    found.sort(key=lambda one: (not one[1].frame, -one[0], one[1].words))
    return Catalogue(whole, tuple(pattern for _, pattern in found), frozenset(names))


def _expression(source: str) -> re.Pattern[str]:
    """What finds the places of a text, which may begin with a capital."""
    text, parts, at = _unstopped(source), list[str](), 0
    for place in PLACE.finditer(text):
        parts.append(re.escape(text[at : place.start()]))
        inside = NUMBER if place[1] in NUMBERS else ".+?" if place[1] in ANYTHING else WORDS
        parts.append(f"(?P<{place[1]}>{inside})")
        at = place.end()
    parts.append(re.escape(text[at:]))
    first, whole = text[:1], "".join(parts)
    return re.compile(f"[{first.upper()}{first.lower()}]{whole[1:]}" if first.isalpha() else whole)


@lru_cache(maxsize=20_000)
def _looked_up(text: str, language: str) -> tuple[str, bool]:
    """A text in the language, and whether all of it is known."""
    known = catalogue(language)
    stop = "。" if text.endswith(".") and " " in text else ""
    if (target := known.whole.get(key_of(text))) is not None:
        return _set(target + stop), True
    if not any(word not in known.names for word in WORD.findall(text)):
        return text, True
    partly = None
    for found, whole, frame in _readings(_unstopped(text), known, language):
        if whole:
            return _set(found + stop), True
        partly = partly or (_set(found) + (stop and ".") if frame else None)
    several = _several(text, language)
    if several is None or (partly and not several[1]):
        return partly or text, False
    return several


def _readings(text: str, known: Catalogue, language: str) -> Iterator[tuple[str, bool, bool]]:
    """The text by each pattern that it has the form of, whether all of it is known, and whether the pattern is a frame."""
    for pattern in known.patterns:
        if (match := pattern.regex.fullmatch(text)) is None:
            continue
        parts = {name: _looked_up(part, language) for name, part in match.groupdict().items()}

        def put(place: re.Match[str], parts: dict[str, tuple[str, bool]] = parts) -> str:
            part = parts[place[1]][0]
            return _counted(part, place[2]) if place[2] else part

        whole = all(known for _, known in parts.values())
        yield PLACE.sub(put, pattern.target), whole, pattern.frame


def _several(text: str, language: str) -> tuple[str, bool] | None:
    """Sentences one by one, or the items of a list where all are known; None for a text that is neither."""
    sentences = SENTENCES.split(text)
    if len(sentences) > 1:
        found = [_looked_up(sentence, language) for sentence in sentences]
        return _set(" ".join(part for part, _ in found)), all(whole for _, whole in found)
    for separator, other in LISTS.items():
        items = text.split(separator)
        found = [_looked_up(item, language) for item in items] if len(items) > 1 else []
        if found and all(whole for _, whole in found):
            return _set(other.join(part for part, _ in found)), True
    return None


def _counted(number: str, size: str) -> str:
    """So many billions as Chinese counts them: 46.7 billion are 467 亿."""
    digits = number.replace(",", "")
    value = float(digits) * SIZES[size]
    for word, unit in (("万亿", 1e12), ("亿", 1e8), ("万", 1e4)):
        if value >= unit:
            return f"{value / unit:,.4g} {word}" if value / unit < 1e4 else f"{value / unit:,.0f} {word}"
    return f"{value:,.0f}"


def _set(text: str) -> str:
    """Chinese with a space between it and Latin letters or digits, and none within it."""
    text = re.sub(rf"(?<={HAN})(?=[A-Za-z0-9√Δσ])|(?<=[A-Za-z0-9²%])(?={HAN})", " ", text)
    text = re.sub(rf"(?<={HAN}) +(?={HAN})", "", text)
    return re.sub(rf" +(?={FULL})|(?<={FULL}) +", "", text)
