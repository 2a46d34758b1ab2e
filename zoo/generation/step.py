"""`Step`, what every strategy yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """One generated token. `text` is what became certain with it: empty while a character is incomplete.

    `logprob` is the model's own log-probability in nats, when asked for; `alternatives` are the likeliest tokens in its
    place, the chosen one among them if it is one, with theirs, the likeliest first, when a number of them is. The last step alone has a
    `finish_reason`: "stop" (an end token or stop text) or "length".

    A step without a token is progress only: its `draft` is how the text not yet certain stands now, in place of
    the draft before. `candidate`, of a task with several answers, says in words and numbers which one this is.
    """

    token: int | None
    text: str
    logprob: float | None = None
    finish_reason: str | None = None
    draft: str | None = None
    candidate: Mapping[str, Any] | None = None
    alternatives: Mapping[int, float] | None = None
