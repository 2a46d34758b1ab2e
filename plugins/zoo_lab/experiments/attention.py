"""Experiments on attention: how positions enter it, and what its keys and values cost in the cache."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from zoo.recipe import LearnedPositions, RMSNorm, RoPE, SinusoidalPositions
from zoo.training.record import TrainingSettings
from zoo_deepseek.spec import LatentAttention
from zoo_lab.experiments.common import (
    LOSS,
    LOSS_CURVE,
    LOSS_CURVES,
    SMALL,
    loss_of,
    recorded,
    settings_of,
    small_llama,
    trains,
)
from zoo_lab.experiments.measurements import loss_by_position
from zoo_lab.plan import Chart, Claim, Curve, Metric, Plan, Result, Scale, higher, lower, near
from zoo_lab.training import Trained

# Tokens: of a row in training, of one measured, of one point of the curve.
TRAINED, MEASURED, BUCKET = 64, 256, 16
POSITIONS = ("learned", "sinusoidal", "rotary", "none")


def positions(scale: Scale) -> Plan:
    """LLaMA's layers with four kinds of positions, trained on rows of one length and measured on longer ones."""
    settings = settings_of(scale, 500, length=TRAINED)
    measure = partial(_by_position, replace(settings, length=MEASURED, batch=4), scale.pick(30, 1))
    unit = "nats a token"
    return Plan(
        arms=tuple(
            trains(
                name, scale, partial(_with_positions, name), settings, {"positions": name}, measure=measure
            )
            for name in POSITIONS
        ),
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
        claims=_claims_on_positions(),
        settings=recorded(settings, measured_length=MEASURED, embedding_scale_with_sinusoids="√width"),
    )


def _claims_on_positions() -> tuple[Claim, ...]:
    farther = "Beyond the trained length, learned positions lose more than rotary ones"
    within = "Within the trained length, rotary positions reach a lower loss than learned ones"
    return (
        higher(farther, "learned", "rotary", "rise"),
        higher("Sinusoidal positions lose more there than rotary ones", "sinusoidal", "rotary", "rise"),
        higher("Rotary positions lose more there than no positions", "rotary", "none", "rise"),
        lower(within, "rotary", "learned", "within"),
        lower("Within it, learned positions reach a lower loss than none", "learned", "none", "within"),
    )


def _with_positions(name: str) -> Any:
    """The recipe with one kind of positions."""
    if name == "rotary":
        return small_llama()
    base = small_llama(mixer=dict(rope=None))
    if name == "none":
        return base.change(embedding=dict(positions=None, scale=1.0))
    if name == "learned":
        return base.change(embedding=dict(positions=LearnedPositions(context=base.context), scale=1.0))
    # Waves of amplitude 1 go with embeddings of that size (Vaswani et al., 2017, section 3.4).
    return base.change(embedding=dict(positions=SinusoidalPositions(), scale=base.dim**0.5))


def _by_position(settings: TrainingSettings, batches: int, trained: Trained) -> Result:
    """The losses within the trained length and beyond it, and along the text."""
    losses = loss_by_position(trained.loaded, settings, batches)
    points = [
        [start + BUCKET // 2, sum(losses[start : start + BUCKET]) / BUCKET]
        for start in range(0, MEASURED, BUCKET)
    ]
    within, beyond = (sum(part) / len(part) for part in (losses[:TRAINED], losses[TRAINED:]))
    return Result({"within": within, "beyond": beyond, "rise": beyond - within}, {"position": points})


KV_HEADS = {"multi-head": 4, "grouped, 2 key/value heads": 2, "one key/value head": 1}
LATENT = "latent, rank 16"


def heads(scale: Scale) -> Plan:
    """LLaMA's layers with four ways to keep keys and values, the feed-forward widened to equal parameters."""
    settings = settings_of(scale, 400)
    many, two, one = KV_HEADS
    return Plan(
        arms=tuple(
            trains(
                name, scale, partial(_of_equal_size, name), settings, {"attention": name}, measure=_with_cache
            )
            for name in (*KV_HEADS, LATENT)
        ),
        metrics=(
            LOSS,
            Metric("cache", "cache", "bytes a token at 16 bits", "lower"),
            Metric("parameters", "parameters"),
        ),
        curves=(LOSS_CURVE,),
        charts=(Chart("cache", "points", "loss", "cache", labels=True), LOSS_CURVES),
        claims=(
            higher("One key/value head has a higher loss than multi-head attention", one, many, "loss"),
            near("Two key/value heads are within 0.05 of multi-head attention", two, many, "loss", 0.05),
            lower("Latent attention has a lower loss than one key/value head", LATENT, one, "loss"),
        ),
        settings=recorded(settings, width=SMALL["hidden_size"], layers=SMALL["num_hidden_layers"]),
    )


def _with_attention(name: str) -> Any:
    """The recipe with one kind of attention."""
    if name in KV_HEADS:
        return small_llama(mixer=dict(kv_heads=KV_HEADS[name]))
    rope = RoPE(theta=small_llama().layers[0].mixer.rope.theta)
    latent = LatentAttention(
        heads=4, kv_rank=16, nope_dim=16, rope_dim=8, value_dim=16, kv_norm=RMSNorm(), rope=rope
    )
    return small_llama(mixer=latent)


def _of_equal_size(name: str) -> Any:
    """The recipe with the feed-forward width at which a layer has the parameters of one of multi-head attention."""
    found, whole = _with_attention(name), _with_attention("multi-head")
    missing = whole.layers[0].parameters(found.dim) - found.layers[0].parameters(found.dim)
    hidden = found.layers[0].feedforward.hidden + round(missing / (3 * found.dim))
    return found.change_layers(feedforward=dict(hidden=hidden))


def _with_cache(trained: Trained) -> Result:
    """The loss, with the bytes of the cache and the parameters."""
    recipe = trained.loaded.recipe
    cache = 2.0 * recipe.kv_cache_size(recipe.dim)
    return loss_of(trained, cache=cache, parameters=float(recipe.parameters(recipe.dim)))
