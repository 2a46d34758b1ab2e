"""Experiments on the embedded checkpoints: bits against loss, and all of them side by side."""

from __future__ import annotations

from functools import cache
from typing import Any

from zoo_lab.plan import Arm, Chart, Claim, Metric, Plan, Result, Scale, Trial, higher, lower, near

BITS = (8, 6, 5, 4, 3, 2)
GROUP = 32  # weights that share a scale and an offset
QUANTIZED = ("llama", "gpt2", "qwen3")


@cache
def pocket_of(name: str) -> Any:
    """An architecture's embedded checkpoint, loaded once."""
    from zoo.loading import load

    return load(name, dtype="float32")


def shape_of(name: str, context: int) -> Any:
    """The recipe of an architecture's pocket, for texts of `context` tokens."""
    from zoo_lab.training import recipe_of

    numbers = {"max_position_embeddings": context} if name == "llama" else {}
    return recipe_of(name, numbers)


def quantization(scale: Scale) -> Plan:
    """Three pockets in fewer and fewer bits: bits a byte, divergence from the whole model, bytes."""
    texts = scale.pick(240, 8)

    def arm(name: str, bits: int | None) -> Arm:
        def run(trial: Trial) -> Result:
            from zoo_lab.experiments.model_metrics import bits_a_byte, divergence, held_out
            from zoo_lab.experiments.quantized import packed, weight_bytes

            whole = pocket_of(name)
            some = held_out()[trial.seed * texts : (trial.seed + 1) * texts]
            loaded, size = (whole, weight_bytes(whole)) if bits is None else packed(name, bits, GROUP)
            kept = 0.0 if bits is None else divergence(whole, loaded, some)
            return Result({"bits": bits_a_byte(loaded, some), "divergence": kept, "size": size / 1e3})

        width = bits or 16
        return Arm(f"{name}, {width} bits", run, {"bits a weight": width}, name)

    def of(bits: int, name: str = "llama") -> str:
        return f"{name}, {bits} bits"

    return Plan(
        arms=tuple(arm(name, bits) for name in QUANTIZED for bits in (None, *BITS)),
        metrics=(
            Metric("bits", "held-out text", "bits a byte", "lower"),
            Metric("divergence", "KL divergence from 16 bits", "nats a token", "lower"),
            Metric("size", "weights", "kB", "lower"),
        ),
        charts=(
            Chart("bits", "points", "bits", "bits a weight"),
            Chart("size", "points", "bits", "size"),
        ),
        claims=(
            *(
                near(
                    f"8 bits change {name}'s bits a byte by at most 0.005",
                    of(8, name),
                    of(16, name),
                    "bits",
                    0.005,
                )
                for name in QUANTIZED
            ),
            *(
                higher(f"{name} loses more in 4 bits than in 8", of(4, name), of(8, name), "bits")
                for name in QUANTIZED
            ),
            *(
                higher(f"{name} loses more in 2 bits than in 3", of(2, name), of(3, name), "bits")
                for name in QUANTIZED
            ),
            Claim(
                "llama loses more between 3 bits and 2 than between 8 and 3",
                "bits",
                {of(2): 1, of(3): -2, of(8): 1},
                "above",
            ),
        ),
        settings={
            "packing": "affine",
            "group_size": GROUP,
            "products": "of the unpacked matrices",
            "documents": texts,
            "corpus": "atlas, held out",
        },
        repeated="part of the held-out text",
        paired=True,
    )


def memory(recipe: Any) -> dict[str, float]:
    """The bytes of the cache a token and the kB of the state, as `zoo show` has them."""
    from zoo.describe.facts.cache_bytes import cache_bytes, kept_of

    kept = kept_of(recipe)
    state = cache_bytes(kept, 0)
    return {"cache": float(cache_bytes(kept, 1) - state), "state": state / 1e3}


def pockets(scale: Scale) -> Plan:
    """Every embedded checkpoint: answers, bits a byte, active parameters, bytes of cache and state."""
    from zoo.host.registry import default_registry

    names = [
        name
        for name, architecture in default_registry().architectures.items()
        if (preset := architecture.preset("pocket")) is not None and preset.embedded
    ]
    texts, questions = scale.pick((240, 140), (4, 2))

    def arm(name: str) -> Arm:
        def run(trial: Trial) -> Result:
            from zoo_lab.experiments.model_metrics import bits_a_byte, held_out
            from zoo_lab.experiments.text_metrics import answered

            loaded = pocket_of(name)
            recipe = loaded.recipe
            numbers = {
                "right": answered(loaded, questions, trial.seed, trial.report),
                "active": recipe.active_parameters(recipe.dim) / 1e6,
            }
            if loaded.architecture.task == "generate":
                numbers |= memory(recipe)
                if loaded.architecture.causality == "causal":
                    some = held_out()[trial.seed * texts : (trial.seed + 1) * texts]
                    numbers["bits"] = bits_a_byte(loaded, some)
            return Result(numbers)

        return Arm(name, run)

    return Plan(
        arms=tuple(map(arm, names)),
        metrics=(
            Metric("right", "right answers", "%", "higher"),
            Metric("bits", "held-out text", "bits a byte", "lower"),
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
            near(
                "Pre-LN and Post-LN GPT-2 differ by at most 0.01 bits a byte",
                "gpt2",
                "gpt2-postln",
                "bits",
                0.01,
            ),
            near("Mamba and LLaMA differ by at most 0.02 bits a byte", "mamba", "llama", "bits", 0.02),
        ),
        settings={
            "documents": texts,
            "questions": questions,
            "about": "all relations of the atlas; translators: the phrasebook",
        },
        repeated="part of the held-out text and the questions",
        paired=True,
    )
