"""Verdicts on the claims of an experiment, computed from its numbers, and its conclusion. Imports no mlx."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from zoo_lab.intervals import LEVEL, Interval, contrast
from zoo_lab.plan import Claim
from zoo_lab.record import ExperimentRecord, rounded

SEEN, CONTRARY, NOT_SHOWN, NOT_MEASURED = "seen", "contrary", "not shown", "not measured"


@dataclass(frozen=True)
class Finding:
    """A claim with its verdict, the interval of its contrast (None: not measured), and all of it in words."""

    claim: Claim
    verdict: str
    value: Interval | None
    words: str

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON values."""
        value = None if self.value is None else {k: rounded(v) for k, v in asdict(self.value).items()}
        return {"claim": self.claim.text, "verdict": self.verdict, "contrast": value, "words": self.words}


def findings(record: ExperimentRecord) -> list[Finding]:
    """The verdict on each claim, in their order."""
    return [_finding(record, claim) for claim in record.claims]


def _finding(record: ExperimentRecord, claim: Claim) -> Finding:
    arms = [(weight, record.values(arm, claim.metric)) for arm, weight in claim.contrast.items()]
    unequal = record.paired and len({len(values) for _, values in arms}) > 1
    if unequal or not all(values for _, values in arms):
        failed = ", ".join(
            f"{count} of {record.seeds} runs of {arm} failed"
            for arm in claim.contrast
            if (count := record.failures(arm))
        )
        return Finding(claim, NOT_MEASURED, None, failed or "runs of some arms gave no such number")
    value = contrast(arms, record.paired)
    return Finding(claim, _verdict(claim, value), value, _words(record, claim, value))


def _verdict(claim: Claim, value: Interval) -> str:
    """Whether the whole interval lies where the claim says, or where it says it does not."""
    if value.low is None or value.high is None:
        return NOT_SHOWN
    margin = claim.margin
    if claim.expect == "near":
        if -margin <= value.low and value.high <= margin:
            return SEEN
        return CONTRARY if value.low > margin or value.high < -margin else NOT_SHOWN
    low, high = (value.low, value.high) if claim.expect == "above" else (-value.high, -value.low)
    bound = margin if claim.expect == "above" else -margin
    return SEEN if low > bound else CONTRARY if high < bound else NOT_SHOWN


def _words(record: ExperimentRecord, claim: Claim, value: Interval) -> str:
    unit = record.metric(claim.metric).unit
    signed = sum(claim.contrast.values()) == 0
    what = "difference" if signed else record.metric(claim.metric).label
    text = f"{what} {number(value.mean, signed)}{f' {unit}' if unit else ''}"
    if value.low is None or value.high is None:
        return f"{text}; one run gives no interval"
    return f"{text}, interval {number(value.low, signed)} to {number(value.high, signed)}, {value.runs} runs"


def number(value: float, signed: bool = False) -> str:
    """A number in three digits, with a true minus; `signed` writes a plus, too."""
    size = abs(value)
    text = f"{size:,.0f}" if size >= 1000 else f"{size:.3g}" if size >= 0.001 or size == 0 else f"{size:.1e}"
    return ("−" if value < 0 else "+" if signed and value > 0 else "") + text


def conclusion(record: ExperimentRecord) -> str:
    """In a sentence or two, how many of the claims the numbers bear out, and which they do not."""
    if record.settings.get("quick"):
        return "A quick run: it shows that everything runs, and nothing about the question."
    found = findings(record)
    if not found:
        return "Nothing was claimed beforehand: the numbers are shown as they are."
    if not record.complete:
        return f"Not finished: {len(record.runs)} of {record.seeds * len(record.arms)} runs."
    by_verdict = {
        verdict: [f.claim.text for f in found if f.verdict == verdict]
        for verdict in (SEEN, CONTRARY, NOT_SHOWN, NOT_MEASURED)
    }
    if len(by_verdict[NOT_SHOWN]) + len(by_verdict[NOT_MEASURED]) == len(found):
        return (
            "It showed nothing: no claim's interval lies wholly on the side that it expects, or on the other."
        )
    parts = [f"{len(by_verdict[SEEN])} of {len(found)} claims were seen."]
    for verdict, said in (
        (CONTRARY, "The opposite was seen of"),
        (NOT_SHOWN, "Not shown, one way or the other"),
        (NOT_MEASURED, "Not measured"),
    ):
        if by_verdict[verdict]:
            parts.append(f"{said}: {'; '.join(by_verdict[verdict])}.")
    return " ".join(parts)


def method(record: ExperimentRecord) -> str:
    """A paragraph on how means, intervals and verdicts were made."""
    compared = (
        f"Arms are compared run by run, since runs of one {record.repeated} saw the same data."
        if record.paired
        else "Differences of arms have the degrees of freedom of Welch and Satterthwaite."
    )
    return (
        f"Each arm has {record.seeds} runs, which differ by {record.repeated}. Means, with Student's {100 * LEVEL:.0f} % "
        f"intervals. {compared} A claim is seen when the whole interval lies where it says, contradicted when none of it "
        "does, and otherwise not shown. Each claim is judged by itself: no correction is made for their number."
    )
