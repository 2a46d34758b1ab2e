"""Experiments on decoding: the time of a token as the text grows, and what temperature does to the text."""

from __future__ import annotations

from zoo_lab.experiments.measurements import distinct, right, step_times
from zoo_lab.experiments.pockets import pocket_of, shape_of
from zoo_lab.plan import Arm, Chart, Claim, Curve, Metric, Plan, Result, Scale, Trial, higher, lower

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
FLAT = 1.5  # times as long at the longest text as at the shortest: less is taken as constant


def cache(scale: Scale) -> Plan:
    """One more token after texts of growing length: attention with and without a cache, LSTM and Mamba."""
    lengths = scale.pick(LENGTHS, LENGTHS[:3])
    kinds = {
        "attention, cached": ("llama", True),
        "attention, no cache": ("llama", False),
        "LSTM": ("lstm", True),
        "Mamba": ("mamba", True),
    }

    def arm(name: str) -> Arm:
        def run(trial: Trial) -> Result:
            architecture, cached = kinds[name]
            recipe = shape_of(architecture, 2 * LENGTHS[-1])
            times = step_times(recipe, lengths, cached, runs=scale.pick(15, 2), report=trial.report)
            short, long = times[0] * 1e3, times[-1] * 1e3
            numbers = {"short": short, "long": long, "growth": long / short}
            return Result(numbers, {"time": [[n, 1e3 * t] for n, t in zip(lengths, times, strict=True)]})

        return Arm(name, run)

    cached, uncached, lstm, mamba = kinds
    first, last = lengths[0], lengths[-1]
    return Plan(
        arms=tuple(map(arm, kinds)),
        metrics=(
            Metric("short", f"a token after {first}", "ms", "lower"),
            Metric("long", f"a token after {last}", "ms", "lower"),
            Metric("growth", f"time after {last} / after {first}", "times", "lower"),
        ),
        curves=(Curve("time", "time of one more token", "tokens before it", "ms"),),
        charts=(Chart("time", "curves", "time", log_x=True, log_y=True),),
        claims=(
            lower(f"After {last} tokens, a cache makes attention faster", cached, uncached, "long"),
            higher("Without a cache the time grows more than with one", uncached, cached, "growth"),
            Claim(f"LSTM's time grows to less than {FLAT} times", "growth", {lstm: 1}, "below", FLAT),
            Claim(f"Mamba's time grows to less than {FLAT} times", "growth", {mamba: 1}, "below", FLAT),
            higher("Cached attention's time grows more than LSTM's", cached, lstm, "growth"),
        ),
        settings={
            "shapes": "of the pockets, 4 layers, random weights",
            "timed": "median of 15 steps a length",
        },
        repeated="repetition",
    )


TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


def temperature(scale: Scale) -> Plan:
    """The pocket of LLaMA at eight temperatures: how diverse its texts are, how many answers right."""
    texts, questions = scale.pick((32, 64), (2, 2))

    def arm(value: float) -> Arm:
        def run(trial: Trial) -> Result:
            loaded = pocket_of("llama")
            numbers = {
                "distinct": distinct(loaded, texts, trial.seed, temperature=value),
                "right": right(loaded, questions, trial.seed, temperature=value),
            }
            return Result(numbers)

        return Arm(f"{value:g}", run, {"temperature": value}, "LLaMA's pocket")

    return Plan(
        arms=tuple(map(arm, TEMPERATURES)),
        metrics=(
            Metric("distinct", "distinct pairs of tokens, of all", "%", "higher"),
            Metric("right", "right answers", "%", "higher"),
        ),
        charts=(
            Chart("right", "points", "right", "temperature"),
            Chart("distinct", "points", "distinct", "temperature"),
        ),
        claims=(
            higher("Texts are more diverse at 1 than at 0.25", "1", "0.25", "distinct"),
            higher("Texts are more diverse at 2 than at 1", "2", "1", "distinct"),
            lower("Fewer answers are right at 2 than at 0", "2", "0", "right"),
            lower("Fewer answers are right at 1 than at 0", "1", "0", "right"),
        ),
        settings={
            "texts": texts,
            "tokens": 40,
            "questions": questions,
            "about": "capitals, English and Chinese",
        },
    )
