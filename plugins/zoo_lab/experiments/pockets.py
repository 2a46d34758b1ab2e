"""Experiments on the embedded checkpoints and on decoding.

Bits against loss, all checkpoints side by side, the time of a token as the text grows, and what temperature does to it.
"""

from __future__ import annotations

import functools

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo.checkpoint.parameters import choose, parse_quantization
from zoo.describe.facts.memory import cache_bytes, cache_sizes
from zoo.host.registry import default_registry
from zoo.loading import Loaded, load
from zoo.recipe import Model
from zoo_lab.experiments.common import (
    answered,
    bits_a_byte,
    distinct,
    divergence,
    held_out,
    right,
    step_times,
)
from zoo_lab.plan import Arm, Chart, Claim, Curve, Metric, Plan, Result, Scale, Trial, higher, lower, near
from zoo_lab.training import recipe_of

WIDTH = 2  # bytes of a number that is not packed, as the checkpoint stores it


@functools.lru_cache(maxsize=1)
def packed(name: str, bits: int, group: int) -> tuple[Loaded, int]:
    """An embedded checkpoint rounded to `bits` by groups of `group` weights, and the bytes of its packed weights.

    Which matrices are packed, and how, is what `zoo convert` would choose. Each is unpacked again, so that its products
    are those of a dense one: the same up to the order of sums, and on a CPU much faster.
    """
    loaded = load(name, dtype="float32")
    asked, size = parse_quantization(str(bits), group), weight_bytes(loaded)
    for path, module in loaded.model.named_modules():
        packing = choose(path, module, asked)
        if packing is None:
            continue
        how = {"group_size": packing.group_size, "bits": packing.bits, "mode": packing.mode}
        parts = mx.quantize(module.weight, **how)
        size += sum(part.size * (4 if part.dtype == mx.uint32 else WIDTH) for part in parts)
        size -= WIDTH * module.weight.size
        module.weight = mx.dequantize(*parts, **how)
    mx.eval(loaded.model.parameters())
    return loaded, size


def weight_bytes(loaded: Loaded) -> int:
    """The bytes of a model's weights in 16 bits."""
    arrays = {id(array): array for _, array in tree_flatten(loaded.model.parameters())}.values()
    return sum(WIDTH * array.size for array in arrays)


BITS = (8, 6, 5, 4, 3, 2)
GROUP = 32  # weights that share a scale and an offset
QUANTIZED = ("llama", "gpt2", "qwen3")
HELD_OUT_BITS = Metric("bits", "held-out text", "bits a byte", "lower")


@functools.cache
def pocket_of(name: str) -> Loaded:
    """An architecture's embedded checkpoint, loaded once."""
    return load(name, dtype="float32")


def part_of_text(trial: Trial, documents: int) -> list[str]:
    """The held-out documents of one run: others for each seed."""
    return held_out()[trial.seed * documents : (trial.seed + 1) * documents]


def quantization(scale: Scale) -> Plan:
    """Three pockets in fewer and fewer bits: bits a byte, divergence from the whole model, bytes."""
    documents = scale.pick(240, 8)
    alike, worse = "8 bits change {}'s bits a byte by at most 0.005", "{} loses more in {} bits than in {}"
    faster = "llama loses more between 3 bits and 2 than between 8 and 3"
    return Plan(
        arms=tuple(_pocket_arm(name, bits, documents) for name in QUANTIZED for bits in (None, *BITS)),
        metrics=(
            HELD_OUT_BITS,
            Metric("divergence", "KL divergence from 16 bits", "nats a token", "lower"),
            Metric("size", "weights", "kB", "lower"),
        ),
        charts=(
            Chart("bits", "points", "bits", "bits a weight"),
            Chart("size", "points", "bits", "size"),
        ),
        claims=(
            *(
                near(alike.format(name), f"{name}, 8 bits", f"{name}, 16 bits", "bits", 0.005)
                for name in QUANTIZED
            ),
            *(
                higher(worse.format(name, few, many), f"{name}, {few} bits", f"{name}, {many} bits", "bits")
                for few, many in ((4, 8), (2, 3))
                for name in QUANTIZED
            ),
            Claim(faster, "bits", {"llama, 2 bits": 1, "llama, 3 bits": -2, "llama, 8 bits": 1}, "above"),
        ),
        settings={
            "packing": "affine",
            "group_size": GROUP,
            "products": "of the unpacked matrices",
            "documents": documents,
            "corpus": "atlas, held out",
        },
        repeated="part of the held-out text",
        paired=True,
    )


def _pocket_arm(name: str, bits: int | None, documents: int) -> Arm:
    """An arm that measures a pocket rounded to `bits`, or not rounded if None."""

    def run(trial: Trial) -> Result:
        whole, texts = pocket_of(name), part_of_text(trial, documents)
        loaded, size = (whole, weight_bytes(whole)) if bits is None else packed(name, bits, GROUP)
        away = 0.0 if bits is None else divergence(whole, loaded, texts)
        return Result({"bits": bits_a_byte(loaded, texts), "divergence": away, "size": size / 1e3})

    width = bits or 16
    return Arm(f"{name}, {width} bits", run, {"bits a weight": width}, name)


def memory(recipe: Model) -> dict[str, float]:
    """The bytes of the cache a token and the kB of the state, as `zoo show` has them."""
    kept = cache_sizes(recipe)
    state = cache_bytes(kept, 0)
    return {"cache": float(cache_bytes(kept, 1) - state), "state": state / 1e3}


def pockets(scale: Scale) -> Plan:
    """Every embedded checkpoint: answers, bits a byte, active parameters, bytes of cache and state."""
    documents, questions = scale.pick((240, 140), (4, 2))
    alike = "Pre-LN and Post-LN GPT-2 differ by at most 0.01 bits a byte"
    return Plan(
        arms=tuple(
            _pocket(name, documents, questions)
            for name, architecture in default_registry().architectures.items()
            if (preset := architecture.preset("pocket")) is not None and preset.embedded
        ),
        metrics=(
            Metric("right", "right answers", "%", "higher"),
            HELD_OUT_BITS,
            Metric("active", "active parameters", "millions", "lower"),
            Metric("cache", "cache", "bytes a token at 16 bits", "lower"),
            Metric("state", "state, whatever the length", "kB in float32", "lower"),
        ),
        charts=(
            Chart("right", "dots", "right"),
            Chart("bits", "dots", "bits"),
            Chart("active", "points", "bits", "active", labels=True),
            Chart("cache", "points", "bits", "cache", labels=True),
        ),
        claims=(
            lower("LLaMA's pocket has fewer bits a byte than the LSTM's", "llama", "lstm", "bits"),
            lower("LLaMA's pocket has fewer bits a byte than GPT-2's", "llama", "gpt2", "bits"),
            near(alike, "gpt2", "gpt2-postln", "bits", 0.01),
            near("Mamba and LLaMA differ by at most 0.02 bits a byte", "mamba", "llama", "bits", 0.02),
        ),
        settings={
            "documents": documents,
            "questions": questions,
            "about": "all relations of the atlas; translators: the phrasebook",
        },
        repeated="part of the held-out text and the questions",
        paired=True,
    )


def _pocket(name: str, documents: int, questions: int) -> Arm:
    """An arm that measures one embedded checkpoint."""

    def run(trial: Trial) -> Result:
        loaded = pocket_of(name)
        recipe, architecture = loaded.recipe, loaded.architecture
        numbers = {
            "right": answered(loaded, questions, trial.seed, trial.report),
            "active": recipe.active_parameters(recipe.dim) / 1e6,
        }
        if architecture.task == "generate":
            numbers |= memory(recipe)
            if architecture.causality == "causal":
                numbers["bits"] = bits_a_byte(loaded, part_of_text(trial, documents))
        return Result(numbers)

    return Arm(name, run)


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
            context = {"max_position_embeddings": 2 * LENGTHS[-1]} if architecture == "llama" else {}
            recipe = recipe_of(architecture, context)
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
