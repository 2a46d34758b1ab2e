"""How caches are made: what they keep, in how many bits, and for how long a text they make room at once."""

from __future__ import annotations

from zoo.frozen import Frozen, frozen


@frozen()
class CachePolicy(Frozen):
    """How caches are made. `reserve`: tokens to make room for at once, when the end is known."""

    reserve: int = 0
