"""What the value of a setting must be, in words, for messages and help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST = 2**31 - 1  # MLX counts in 32 bits
HUGE = 1e30
KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "a JSON object",
    Callable: "a function",
}


def expected_value(setting: Any, given: Any = None) -> str:
    """What a value of a `Setting` must be: "a whole number of at least 1, or true".

    A bound of arithmetic, such as the largest number of 32 bits, is left out unless the `given` value breaks it.
    """
    kind, also = KINDS.get(setting.kind, "a value"), setting.also
    if setting.kind is tuple:
        kind = f"a list of {' and '.join(f'{item.name} ({item.expected})' for item in setting.items)}"
    if setting.choices:
        what = f"one of {', '.join(map(str, setting.choices))}"
    else:
        number, least, most = given if isinstance(given, int | float) else 0, setting.minimum, setting.maximum
        if least is not None and 0 < least <= 1 / HUGE and 0 in also and number <= 0:
            least, also = 0, ()
        if most is not None and number <= most >= MOST:
            most = None
        limits = (("at least", least), ("more than", setting.above), ("at most", most))
        bounds = [
            f"{words} {bound if isinstance(bound, int) else f'{bound:g}'}"
            for words, bound in limits
            if bound is not None
        ]
        what = f"{kind}{' of ' if bounds else ''}{' and '.join(bounds)}"
    more = f"{what}{' or a list of them' if setting.several else ''}"
    return f"{more}{''.join(f', or {str(extra).lower()}' for extra in also)}"
