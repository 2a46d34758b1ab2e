"""Experiments on attention: how positions enter it, and what its keys and values cost in the cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zoo_lab.experiments.common import LOSS, LOSS_CURVE, SMALL, extent, settings_of, told
from zoo_lab.plan import Arm, Chart, Claim, Curve, Metric, Plan, Result, Scale, Trial, higher, lower

TRAINED, MEASURED, BUCKET = (
    64,
    256,
    16,
)  # tokens: of a row in training, of one measured, of one point of the curve
POSITIONS = ("learned", "sinusoidal", "rotary", "none")


def positions(scale: Scale) -> Plan:
    """LLaMA's layers with four kinds of positions, trained on rows of one length and measured on longer ones."""
    from zoo_lab.training import recipe_of, trained

    settings = settings_of(scale, 500, length=TRAINED)

    def recipe(name: str) -> Any:
        from zoo.recipe import LearnedPositions, SinusoidalPositions

        base = recipe_of("llama", SMALL)
        if name == "rotary":
            return base
        added: Any = {
            "learned": LearnedPositions(context=base.context),
            "sinusoidal": SinusoidalPositions(),
        }.get(name)
        # Waves of amplitude 1 go with embeddings of that size (Vaswani et al., 2017, section 3.4).
        size = base.dim**0.5 if name == "sinusoidal" else 1.0
        return base.change(embedding=dict(positions=added, scale=size)).change_layers(mixer=dict(rope=None))

    def arm(name: str) -> Arm:
        def run(trial: Trial) -> Result:
            from zoo_lab.experiments.model_metrics import loss_by_position

            done = trained(recipe(name), settings, trial, **extent(scale))
            losses = loss_by_position(
                done.loaded, replace(settings, length=MEASURED, batch=4), scale.pick(30, 1)
            )
            points = [
                [start + BUCKET // 2, sum(losses[start : start + BUCKET]) / BUCKET]
                for start in range(0, MEASURED, BUCKET)
            ]
            within, beyond = (sum(part) / len(part) for part in (losses[:TRAINED], losses[TRAINED:]))
            return Result({"within": within, "beyond": beyond, "rise": beyond - within}, {"position": points})

        return Arm(name, run, {"positions": name})

    unit = "nats a token"
    return Plan(
        arms=tuple(map(arm, POSITIONS)),
        metrics=(
            Metric("within", f"loss at positions 1–{TRAINED}", unit, "lower"),
            Metric("beyond", f"loss at positions {TRAINED + 1}–{MEASURED}", unit, "lower"),
            Metric("rise", "loss beyond the trained length − loss within", unit, "lower"),
        ),
        curves=(Curve("position", "held-out loss", "position in the text", unit, "tokens"),),
        charts=(
            Chart("position", "curves", "position", mark=(TRAINED, "trained length")),
            Chart("within", "dots", "within"),
        ),
        claims=(
            higher(
                "Beyond the trained length, learned positions lose more than rotary ones",
                "learned",
                "rotary",
                "rise",
            ),
            higher("Sinusoidal positions lose more there than rotary ones", "sinusoidal", "rotary", "rise"),
            higher("Rotary positions lose more there than no positions", "rotary", "none", "rise"),
            lower(
                "Within the trained length, rotary positions reach a lower loss than learned ones",
                "rotary",
                "learned",
                "within",
            ),
            lower("Within it, learned positions reach a lower loss than none", "learned", "none", "within"),
        ),
        settings=told(settings, measured_length=MEASURED, embedding_scale_with_sinusoids="√width"),
    )


def heads(scale: Scale) -> Plan:
    """LLaMA's layers with four ways to keep keys and values, the feed-forward widened to equal parameters."""
    from zoo_lab.training import recipe_of, trained

    settings = settings_of(scale, 400)
    grouped = {"multi-head": 4, "grouped, 2 key/value heads": 2, "one key/value head": 1}

    def with_attention(name: str) -> Any:
        base = recipe_of("llama", SMALL)
        if name in grouped:
            return base.change_layers(mixer=dict(kv_heads=grouped[name]))
        from zoo.recipe import RMSNorm, RoPE
        from zoo_deepseek.spec import LatentAttention

        rope = RoPE(theta=base.layers[0].mixer.rope.theta)
        latent = LatentAttention(
            heads=4, kv_rank=16, nope_dim=16, rope_dim=8, value_dim=16, kv_norm=RMSNorm(), rope=rope
        )
        return base.change_layers(mixer=latent)

    def recipe(name: str) -> Any:
        """With the feed-forward width at which the layer has as many parameters as with multi-head attention."""
        found, whole = with_attention(name), with_attention("multi-head")
        dim = found.dim
        missing = whole.layers[0].parameters(dim) - found.layers[0].parameters(dim)
        hidden = found.layers[0].feedforward.hidden + round(missing / (3 * dim))
        return found.change_layers(feedforward=dict(hidden=hidden))

    def arm(name: str) -> Arm:
        def run(trial: Trial) -> Result:
            found = recipe(name)
            done = trained(found, settings, trial, **extent(scale))
            numbers = {
                "loss": done.loss,
                "cache": 2.0 * found.kv_cache_size(found.dim),
                "parameters": float(done.loaded.recipe.parameters(found.dim)),
            }
            return Result(numbers, {"loss": done.curve})

        return Arm(name, run, {"attention": name})

    names = (*grouped, "latent, rank 16")
    many, two, one, latent = names
    return Plan(
        arms=tuple(map(arm, names)),
        metrics=(
            LOSS,
            Metric("cache", "cache", "bytes a token at 16 bits", "lower"),
            Metric("parameters", "parameters"),
        ),
        curves=(LOSS_CURVE,),
        charts=(
            Chart("cache", "points", "loss", "cache", labels=True),
            Chart("curves", "curves", "loss"),
        ),
        claims=(
            higher("One key/value head has a higher loss than multi-head attention", one, many, "loss"),
            Claim(
                "Two key/value heads are within 0.05 of multi-head attention",
                "loss",
                {two: 1, many: -1},
                "near",
                0.05,
            ),
            lower("Latent attention has a lower loss than one key/value head", latent, one, "loss"),
        ),
        settings=told(settings, width=SMALL["hidden_size"], layers=SMALL["num_hidden_layers"]),
    )
