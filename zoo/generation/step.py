"""`Step`, what every strategy yields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One generated token. `text` is what became certain with it: empty while a character is incomplete.

    `logprob` is the model's own log-probability in nats, when asked for. The last step alone has a
    `finish_reason`: "stop" (an end token or stop text) or "length".
    """

    token: int
    text: str
    logprob: float | None = None
    finish_reason: str | None = None
