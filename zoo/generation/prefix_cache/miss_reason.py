"""Why a prompt cache reuses no more of a prompt than it does."""

from __future__ import annotations

from enum import Enum

from zoo.frozen import Frozen, frozen


class Reason(Enum):
    """What kept a prompt cache from reusing more of a prompt."""

    WHOLE = "whole"
    FIRST = "first"
    DROPPED = "dropped"
    POLICY = "policy"
    DIFFERS = "differs"
    LONGER = "longer"
    SNAPSHOT = "snapshot"
    UNSUPPORTED = "unsupported"


TEXTS = {
    Reason.WHOLE: "the whole prompt is held; its last token is computed for the logits",
    Reason.FIRST: "first request",
    Reason.DROPPED: "all texts before were dropped to stay within the budget",
    Reason.POLICY: "another cache policy: what is held was kept with other settings",
    Reason.DIFFERS: "differs from token {agreed} on from all that is held",
    Reason.LONGER: "new from token {agreed} on, where what is held of it ends",
    Reason.SNAPSHOT: "no snapshot at token {agreed}, up to which it is held: the last one is at {length}",
    Reason.UNSUPPORTED: "{why}",
}


@frozen()
class Why(Frozen):
    """A reason and its text for people: of `agreed` tokens that are held, `length` are used.

    >>> from zoo.generation.prefix_cache import Reason, Why
    >>> str(Why(Reason.SNAPSHOT, agreed=812, length=640))
    'no snapshot at token 812, up to which it is held: the last one is at 640'
    """

    reason: Reason
    agreed: int = 0
    length: int = 0
    why: str = ""

    def __str__(self) -> str:
        return TEXTS[self.reason].format(agreed=self.agreed, length=self.length, why=self.why)
