"""The times and counts of one generation, as `zoo run` shows them."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.generation.loop.step import Drafted, Step


@dataclass
class Statistics:
    """Counts of one generation and its times in seconds, measured outside the model."""

    prompt_tokens: int
    load_seconds: float
    began: float
    first: float | None = None
    ended: float = 0.0
    tokens: int = 0
    cached_tokens: int = 0
    miss_reason: str | None = None  # why the prompt cache had no more, where there is one
    drafted: Drafted | None = None
    unpacked: bool = False

    def count(self, step: Step) -> None:
        """Add a `zoo.Step`: a token, a draft, or one of several answers."""
        self.ended = time.perf_counter()
        self.first = self.first or self.ended
        self.tokens += step.token is not None and step.candidate is None
        if step.prompt is not None:
            self.cached_tokens, self.miss_reason = step.prompt.cached_tokens, step.prompt.miss_reason
        self.drafted = step.drafted or self.drafted

    def as_json(self) -> dict[str, Any]:
        """Counts, tokens a second, seconds and bytes."""
        from zoo.runtime import peak_memory

        prefill = (self.first or self.began) - self.began
        decode = self.ended - (self.first or self.ended)
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "generated_tokens": self.tokens,
            "prompt_tokens_per_second": _rate(self.prompt_tokens - self.cached_tokens, prefill),
            # The first token is the prefill's: the time after it belongs to the others.
            "generated_tokens_per_second": _rate(self.tokens - 1, decode) if self.tokens else None,
            "load_seconds": round(self.load_seconds, 3),
            "first_token_seconds": round(prefill, 4),
            "peak_memory_bytes": peak_memory(),
            "unpacked": self.unpacked,
            **({"drafted": asdict(self.drafted)} if self.drafted else {}),
        }

    def lines(self) -> list[str]:
        """The statistics as short texts, without those that were not measured."""
        values = self.as_json()

        def counted(what: str) -> str:
            number, rate = values[f"{what}_tokens"], values[f"{what}_tokens_per_second"]
            return f"{what} {number} token{'s' * (number != 1)}{f', {rate} tokens/s' if rate else ''}"

        lines = [counted("prompt")]
        if self.miss_reason:
            lines.append(f"{self.cached_tokens} of them from the prompt cache ({self.miss_reason})")
        if self.tokens:  # filling masks generates none
            lines.append(counted("generated"))
        if self.drafted:
            lines.append(f"{self.drafted.accepted} of {self.drafted.proposed} drafts accepted")
        if self.first:
            lines.append(f"first token after {values['first_token_seconds']:.3f} s")
        lines.append(f"loading {values['load_seconds']:.2f} s")
        lines.append(f"peak memory {values['peak_memory_bytes'] / 1e6:.1f} MB")
        if self.unpacked:
            lines.append("packed matrices kept as floats")
        return lines


def _rate(tokens: int, seconds: float) -> float | None:
    return round(tokens / seconds, 1) if seconds else None
