"""Experiments on what a layer is made of: where its norms stand, which norm, which feed-forward."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

from zoo_lab.experiments.common import LOSS, LOSS_CURVE, SMALL, extent, settings_of, told, trains
from zoo_lab.plan import Arm, Chart, Claim, Metric, Plan, Result, Scale, Trial, lower, near

PLACEMENTS = {"pre": "Pre-LN", "post": "Post-LN"}
ALIKE = 0.05  # nats a token: less is taken as no difference


def norm_placement(scale: Scale) -> Plan:
    """GPT-2's layers, their norms before each branch or after each sum, in three depths."""
    from zoo_lab.training import recipe_of

    depths = scale.pick((2, 6, 12), (2, 4, 6))
    # Long enough that deep Pre-LN models are no worse than shallow ones.
    sizes: dict[str, Any] = dict(length=32, rate=0.002)
    warm = settings_of(scale, 800, **sizes)
    cold = settings_of(scale, 800, **sizes, warmup=1)

    def recipe(depth: int, placement: str) -> Any:
        numbers = dict(n_embd=64, n_layer=depth, n_head=4, n_positions=64)
        base = recipe_of("gpt2", numbers).change_layers(placement=placement)
        # The last norm of a Post-LN layer is the model's last, too.
        return base if placement == "pre" else base.change(norm=None)

    def name(placement: str, warmth: str, depth: int) -> str:
        return f"{PLACEMENTS[placement]}, {warmth}, {depth} layers"

    arms = []
    for depth, placement, (warmth, settings) in product(
        depths, PLACEMENTS, (("warm-up", warm), ("no warm-up", cold))
    ):
        arms.append(
            trains(
                name(placement, warmth, depth),
                scale,
                partial(recipe, depth, placement),
                settings,
                {"layers": depth, "placement": PLACEMENTS[placement], "warm-up": warmth},
                f"{PLACEMENTS[placement]}, {warmth}",
                depth_scaled=False,  # which is a remedy for depth by itself
            )
        )

    def at(depth: int) -> tuple[Claim, ...]:
        """The claims of each depth by itself."""
        pre, pre_cold, post, post_cold = (
            name(placement, warmth, depth) for placement in PLACEMENTS for warmth in ("warm-up", "no warm-up")
        )
        return (
            lower(
                f"Without warm-up, {depth} layers of Pre-LN reach a lower loss than {depth} of Post-LN",
                pre_cold,
                post_cold,
                "loss",
            ),
            lower(f"Warm-up lowers the loss of Post-LN at {depth} layers", post, post_cold, "loss"),
            near(
                f"Warm-up changes the loss of Pre-LN at {depth} layers by at most {ALIKE}",
                pre,
                pre_cold,
                "loss",
                ALIKE,
            ),
        )

    def grows(shallow: int, deep: int) -> Claim:
        excess = {
            name("post", "no warm-up", deep): 1,
            name("pre", "no warm-up", deep): -1,
            name("post", "no warm-up", shallow): -1,
            name("pre", "no warm-up", shallow): 1,
        }
        text = f"Without warm-up, Post-LN's excess over Pre-LN is larger at {deep} layers than at {shallow}"
        return Claim(text, "loss", excess, "above")

    return Plan(
        arms=tuple(arms),
        metrics=(LOSS,),
        curves=(LOSS_CURVE,),
        charts=(
            Chart("depth", "points", "loss", "layers"),
            Chart("curves", "curves", "loss", panel="layers"),
        ),
        claims=(*(claim for depth in depths for claim in at(depth)), *map(grows, depths, depths[1:])),
        settings=told(warm, warmup=f"{warm.warmup} steps, or 1", residual_branches_scaled_by_depth=False),
    )


NORMS = {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}


def norm(scale: Scale) -> Plan:
    """LLaMA's layers with one norm or the other: the loss, and the time of a forward pass and of the norm alone."""
    from zoo_lab.experiments.timing import microseconds_a_token
    from zoo_lab.training import recipe_of, trained

    settings = settings_of(scale, 400)

    def arm(name: str) -> Arm:
        def run(trial: Trial) -> Result:
            from zoo.recipe import LayerNorm, RMSNorm

            spec = LayerNorm() if NORMS[name] == "layernorm" else RMSNorm()
            recipe = recipe_of("llama", SMALL).change_layers(mixer_norm=spec, feedforward_norm=spec)
            done = trained(recipe.change(norm=spec), settings, trial, **extent(scale))
            whole, alone = microseconds_a_token(done.loaded, scale.pick(40, 3))
            return Result({"loss": done.loss, "forward": whole, "alone": alone}, {"loss": done.curve})

        return Arm(name, run, {"norm": name})

    return Plan(
        arms=tuple(arm(name) for name in NORMS),
        metrics=(
            LOSS,
            Metric("forward", "forward pass", "µs a token", "lower"),
            Metric("alone", "one norm alone", "µs a token", "lower"),
        ),
        curves=(LOSS_CURVE,),
        charts=(
            Chart("loss", "dots", "loss"),
            Chart("time", "dots", "alone"),
            Chart("curves", "curves", "loss"),
        ),
        claims=(
            near(f"Their losses differ by at most {ALIKE}", "RMSNorm", "LayerNorm", "loss", ALIKE),
            lower("One RMSNorm takes less time than one LayerNorm", "RMSNorm", "LayerNorm", "alone"),
            lower("A model with RMSNorm is faster as a whole", "RMSNorm", "LayerNorm", "forward"),
        ),
        settings=told(settings, timed="16 rows of 64 tokens, median of 40, one thread for BLAS"),
    )


HIDDEN = (
    176  # of a gated feed-forward; one without a gate has one and a half times as many, and equal parameters
)


def feedforward(scale: Scale) -> Plan:
    """LLaMA's layers with three feed-forwards of equally many parameters."""
    from zoo_lab.training import recipe_of

    settings = settings_of(scale, 400)

    def recipe(name: str) -> Any:
        from zoo.recipe import MLP, GatedMLP

        spec: Any = {
            "GELU": MLP(hidden=HIDDEN * 3 // 2, activation="gelu", bias=False),
            "GEGLU": GatedMLP(hidden=HIDDEN, activation="gelu"),
            "SwiGLU": GatedMLP(hidden=HIDDEN, activation="silu"),
        }[name]
        return recipe_of("llama", SMALL).change_layers(feedforward=spec)

    return Plan(
        arms=tuple(
            trains(name, scale, partial(recipe, name), settings, {"feed-forward": name})
            for name in ("GELU", "GEGLU", "SwiGLU")
        ),
        metrics=(LOSS,),
        curves=(LOSS_CURVE,),
        charts=(Chart("loss", "dots", "loss"), Chart("curves", "curves", "loss")),
        claims=(
            lower("SwiGLU reaches a lower loss than GELU", "SwiGLU", "GELU", "loss"),
            lower("GEGLU reaches a lower loss than GELU", "GEGLU", "GELU", "loss"),
            near(f"SwiGLU and GEGLU differ by at most {ALIKE}", "SwiGLU", "GEGLU", "loss", ALIKE),
        ),
        settings=told(settings, feedforward_parameters=3 * HIDDEN * SMALL["hidden_size"]),
    )
