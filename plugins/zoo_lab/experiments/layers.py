"""Experiments on what a layer is made of: where its norms stand, which norm, which feed-forward."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

from zoo.recipe import MLP, GatedMLP, LayerNorm, RMSNorm
from zoo_lab.experiments.common import (
    LOSS,
    LOSS_CURVE,
    LOSS_CURVES,
    LOSS_DOTS,
    SMALL,
    loss_of,
    recorded,
    settings_of,
    small_llama,
    trains,
)
from zoo_lab.experiments.measurements import microseconds_a_token
from zoo_lab.plan import Chart, Claim, Metric, Plan, Result, Scale, lower, near
from zoo_lab.training import Trained, recipe_of

PLACEMENTS = {"pre": "Pre-LN", "post": "Post-LN"}
ALIKE = 0.05  # nats a token: less is taken as no difference


def norm_placement(scale: Scale) -> Plan:
    """GPT-2's layers, their norms before each branch or after each sum, in three depths."""
    depths = scale.pick((2, 6, 12), (2, 4, 6))
    # Long enough that deep Pre-LN models are no worse than shallow ones.
    sizes: dict[str, Any] = dict(length=32, rate=0.002)
    warm = settings_of(scale, 800, **sizes)
    settings = {"warm-up": warm, "no warm-up": settings_of(scale, 800, **sizes, warmup=1)}
    arms = tuple(
        trains(
            _placed(placement, warmth, depth),
            scale,
            partial(_with_placement, depth, placement),
            settings[warmth],
            {"layers": depth, "placement": PLACEMENTS[placement], "warm-up": warmth},
            series=f"{PLACEMENTS[placement]}, {warmth}",
            depth_scaled=False,  # which is a remedy for depth by itself
        )
        for depth, placement, warmth in product(depths, PLACEMENTS, settings)
    )
    claims = [claim for depth in depths for claim in _claims_at(depth)]
    return Plan(
        arms=arms,
        metrics=(LOSS,),
        curves=(LOSS_CURVE,),
        charts=(
            Chart("depth", "points", "loss", "layers"),
            Chart("curves", "curves", "loss", panel="layers"),
        ),
        claims=(*claims, *map(_grows, depths, depths[1:])),
        settings=recorded(warm, warmup=f"{warm.warmup} steps, or 1", residual_branches_scaled_by_depth=False),
    )


def _placed(placement: str, warmth: str, depth: int) -> str:
    """The name of an arm."""
    return f"{PLACEMENTS[placement]}, {warmth}, {depth} layers"


def _with_placement(depth: int, placement: str) -> Any:
    numbers = dict(n_embd=64, n_layer=depth, n_head=4, n_positions=64)
    base = recipe_of("gpt2", numbers).change_layers(placement=placement)
    # The last norm of a Post-LN layer is the model's last, too.
    return base if placement == "pre" else base.change(norm=None)


def _claims_at(depth: int) -> tuple[Claim, ...]:
    """The claims of one depth by itself."""
    pre, pre_cold, post, post_cold = (
        _placed(placement, warmth, depth) for placement in PLACEMENTS for warmth in ("warm-up", "no warm-up")
    )
    cold = f"Without warm-up, {depth} layers of Pre-LN reach a lower loss than {depth} of Post-LN"
    same = f"Warm-up changes the loss of Pre-LN at {depth} layers by at most {ALIKE}"
    return (
        lower(cold, pre_cold, post_cold, "loss"),
        lower(f"Warm-up lowers the loss of Post-LN at {depth} layers", post, post_cold, "loss"),
        near(same, pre, pre_cold, "loss", ALIKE),
    )


def _grows(shallow: int, deep: int) -> Claim:
    """The claim that Post-LN's excess grows with depth."""
    excess = {
        _placed("post", "no warm-up", deep): 1,
        _placed("pre", "no warm-up", deep): -1,
        _placed("post", "no warm-up", shallow): -1,
        _placed("pre", "no warm-up", shallow): 1,
    }
    text = f"Without warm-up, Post-LN's excess over Pre-LN is larger at {deep} layers than at {shallow}"
    return Claim(text, "loss", excess, "above")


NORMS = {"LayerNorm": LayerNorm(), "RMSNorm": RMSNorm()}


def norm(scale: Scale) -> Plan:
    """LLaMA's layers with one norm or the other: the loss, and the time of a forward pass and of the norm alone."""
    settings = settings_of(scale, 400)

    def measure(trained: Trained) -> Result:
        whole, alone = microseconds_a_token(trained.loaded, scale.pick(40, 3))
        return loss_of(trained, forward=whole, alone=alone)

    return Plan(
        arms=tuple(
            trains(name, scale, partial(_with_norm, name), settings, {"norm": name}, measure=measure)
            for name in NORMS
        ),
        metrics=(
            LOSS,
            Metric("forward", "forward pass", "µs a token", "lower"),
            Metric("alone", "one norm alone", "µs a token", "lower"),
        ),
        curves=(LOSS_CURVE,),
        charts=(LOSS_DOTS, Chart("time", "dots", "alone"), LOSS_CURVES),
        claims=(
            near(f"Their losses differ by at most {ALIKE}", "RMSNorm", "LayerNorm", "loss", ALIKE),
            lower("One RMSNorm takes less time than one LayerNorm", "RMSNorm", "LayerNorm", "alone"),
            lower("A model with RMSNorm is faster as a whole", "RMSNorm", "LayerNorm", "forward"),
        ),
        settings=recorded(settings, timed="16 rows of 64 tokens, median of 40, one thread for BLAS"),
    )


def _with_norm(name: str) -> Any:
    spec = NORMS[name]
    return small_llama(mixer_norm=spec, feedforward_norm=spec).change(norm=spec)


# Of a gated feed-forward; one without a gate has one and a half times as many, and equal parameters.
HIDDEN = 176
FEEDFORWARDS = {
    "GELU": MLP(hidden=HIDDEN * 3 // 2, activation="gelu", bias=False),
    "GEGLU": GatedMLP(hidden=HIDDEN, activation="gelu"),
    "SwiGLU": GatedMLP(hidden=HIDDEN, activation="silu"),
}


def feedforward(scale: Scale) -> Plan:
    """LLaMA's layers with three feed-forwards of equally many parameters."""
    settings = settings_of(scale, 400)
    return Plan(
        arms=tuple(
            trains(name, scale, partial(small_llama, feedforward=spec), settings, {"feed-forward": name})
            for name, spec in FEEDFORWARDS.items()
        ),
        metrics=(LOSS,),
        curves=(LOSS_CURVE,),
        charts=(LOSS_DOTS, LOSS_CURVES),
        claims=(
            lower("SwiGLU reaches a lower loss than GELU", "SwiGLU", "GELU", "loss"),
            lower("GEGLU reaches a lower loss than GELU", "GEGLU", "GELU", "loss"),
            near(f"SwiGLU and GEGLU differ by at most {ALIKE}", "SwiGLU", "GEGLU", "loss", ALIKE),
        ),
        settings=recorded(settings, feedforward_parameters=3 * HIDDEN * SMALL["hidden_size"]),
    )
