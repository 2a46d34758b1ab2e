"""One set of cards for all languages of the site: their texts stand in a table of each language.

A text "#12 32 40" in a packed card is text 12 of the table with the numbers 32 and 40 in its places {0} and {1};
`card_texts.js` unpacks it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

NUMBER = re.compile(r"\d[\d,.]*\d|\d")
SHORT = 8  # characters, below which the table does not make a text shorter

Texts = tuple[str, ...]  # one text in each language


def pack(values: Sequence[Any]) -> tuple[Any, list[Texts]]:
    """Packs values that differ in language alone, and returns the one for all, and the table."""
    found: Counter[Texts] = Counter()
    _map_texts(values, lambda texts: found.update([without_numbers(texts)[0]]))
    table = [
        texts
        for texts, count in found.most_common()
        if len(set(texts)) > 1 or (count > 1 and len(texts[0]) >= SHORT) or texts[0].startswith("#")
    ]
    index_of = {texts: index for index, texts in enumerate(table)}

    def packed(texts: Texts) -> str:
        templates, numbers = without_numbers(texts)
        return " ".join((f"#{index_of[templates]}", *numbers)) if templates in index_of else texts[0]

    return _map_texts(values, packed), table


def without_numbers(texts: Texts) -> tuple[Texts, list[str]]:
    """The texts with places for the numbers of the first, and these; as they are where another has other numbers."""
    numbers = NUMBER.findall(texts[0])
    templates = []
    for text in texts:
        free = list(range(len(numbers)))
        pieces, end = [], 0
        for match in NUMBER.finditer(text):
            place = next((one for one in free if numbers[one] == match[0]), None)
            if place is None:
                return texts, []
            free.remove(place)
            pieces += [text[end : match.start()], f"{{{place}}}"]
            end = match.end()
        templates.append("".join(pieces) + text[end:])
    return tuple(templates), numbers


def _map_texts(values: Sequence[Any], change: Callable[[Texts], Any]) -> Any:
    first = values[0]
    if isinstance(first, str):
        return change(tuple(value if isinstance(value, str) else first for value in values))
    if isinstance(first, dict):
        return {key: _map_texts([value[key] for value in values], change) for key in first}
    if isinstance(first, list):
        return [_map_texts(column, change) for column in zip(*values, strict=True)]
    return first
