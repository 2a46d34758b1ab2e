"""Experiments on what a layer is made of.

Where its norms stand, which norm, which feed-forward, how many experts; how positions enter attention, and what its keys
and values cost in the cache.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from typing import Any

from zoo.loading import Loaded
from zoo.recipe import (
    MLP,
    Experts,
    GatedMLP,
    LayerNorm,
    LearnedPositions,
    MoE,
    RMSNorm,
    RoPE,
    Router,
    SinusoidalPositions,
)
from zoo.training.record import TrainingSettings
from zoo_deepseek.spec import LatentAttention
from zoo_lab import training
from zoo_lab.experiments.common import (
    LOSS,
    LOSS_CURVE,
    LOSS_CURVES,
    LOSS_DOTS,
    SMALL,
    expert_loads,
    extent,
    loss_by_position,
    loss_of,
    microseconds_a_token,
    recorded,
    settings_of,
    small_llama,
    trains,
)
from zoo_lab.plan import Arm, Chart, Claim, Curve, Metric, Plan, Result, Scale, Trial, higher, lower, near
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
    claims = []
    for depth in depths:
        pre, pre_cold, post, post_cold = (
            _placed(placement, warmth, depth) for placement, warmth in product(PLACEMENTS, settings)
        )
        cold = f"Without warm-up, {depth} layers of Pre-LN reach a lower loss than {depth} of Post-LN"
        same = f"Warm-up changes the loss of Pre-LN at {depth} layers by at most {ALIKE}"
        claims += [
            lower(cold, pre_cold, post_cold, "loss"),
            lower(f"Warm-up lowers the loss of Post-LN at {depth} layers", post, post_cold, "loss"),
            near(same, pre, pre_cold, "loss", ALIKE),
        ]
    for shallow, deep in pairwise(depths):
        excess = {
            _placed("post", "no warm-up", deep): 1,
            _placed("pre", "no warm-up", deep): -1,
            _placed("post", "no warm-up", shallow): -1,
            _placed("pre", "no warm-up", shallow): 1,
        }
        text = f"Without warm-up, Post-LN's excess over Pre-LN is larger at {deep} layers than at {shallow}"
        claims.append(Claim(text, "loss", excess, "above"))
    return Plan(
        arms=arms,
        metrics=(LOSS,),
        curves=(LOSS_CURVE,),
        charts=(
            Chart("depth", "points", "loss", "layers"),
            Chart("curves", "curves", "loss", panel="layers"),
        ),
        claims=tuple(claims),
        settings=recorded(warm, warmup=f"{warm.warmup} steps, or 1", residual_branches_scaled_by_depth=False),
    )


def _placed(placement: str, warmth: str, depth: int) -> str:
    """The name of the arm of the experiment with this placement, warm-up and depth."""
    return f"{PLACEMENTS[placement]}, {warmth}, {depth} layers"


def _with_placement(depth: int, placement: str) -> Any:
    numbers = dict(n_embd=64, n_layer=depth, n_head=4, n_positions=64)
    base = recipe_of("gpt2", numbers).change_layers(placement=placement)
    # The last norm of a Post-LN layer is the model's last, too.
    return base if placement == "pre" else base.change(norm=None)


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


CHOSEN = 2  # experts that a token uses, of HIDDEN / CHOSEN each
LOADED = 64  # held-out documents on which the experts' use is counted
EVEN = 1.5  # times its even share: an expert that is used more often makes the load uneven
DENSE, WIDE, FOUR, EIGHT = "dense", "dense, 4 times as wide", "2 of 4 experts", "2 of 8 experts"


def experts(scale: Scale) -> Plan:
    """A dense feed-forward, a wide one, and mixtures of 4 and 8 experts without a loss that balances them."""
    settings = settings_of(scale, 400)
    busiest = "busiest expert's load"
    better = (
        "8 experts, 2 of them used, reach a lower loss than a dense feed-forward of equal active parameters"
    )
    worse = "8 experts do not reach the loss of a dense feed-forward of as many parameters in all"
    uneven = f"Without a balancing loss, the busiest of 8 experts does more than {EVEN} times its even share"
    return Plan(
        arms=(
            _arm(DENSE, scale, settings, 1),
            _arm(WIDE, scale, settings, 1, 4 * HIDDEN),
            _arm(FOUR, scale, settings, 4),
            _arm(EIGHT, scale, settings, 8),
        ),
        metrics=(
            LOSS,
            Metric("active", "active parameters"),
            Metric("parameters", "parameters"),
            Metric("busiest", busiest, "times its even share", "lower"),
        ),
        curves=(LOSS_CURVE, Curve("busiest", busiest, "step", "times its even share")),
        charts=(
            Chart("loss", "points", "loss", "active", labels=True),
            Chart("balance", "curves", "busiest"),
            LOSS_CURVES,
        ),
        claims=(
            lower(better, EIGHT, DENSE, "loss"),
            lower("8 experts reach a lower loss than 4", EIGHT, FOUR, "loss"),
            higher(worse, EIGHT, WIDE, "loss"),
            Claim(uneven, "busiest", {EIGHT: 1}, "above", EVEN),
        ),
        settings=recorded(settings, balancing="none"),
    )


def _arm(name: str, scale: Scale, settings: TrainingSettings, count: int, hidden: int = HIDDEN) -> Arm:
    """An arm that trains a model with `count` experts, and counts in training how they are used.

    1: with a feed-forward of width `hidden`.
    """

    def run(trial: Trial) -> Result:
        busiest: list[list[float]] = []

        def observe(loaded: Loaded, step: int) -> None:
            if count > 1:
                loads = expert_loads(loaded, scale.pick(LOADED, 4))
                busiest.append([step, sum(map(max, loads)) / len(loads)])

        spec: Any = dict(hidden=hidden)
        if count > 1:
            spec = MoE(router=Router(count, CHOSEN), experts=Experts(count, HIDDEN // CHOSEN))
        recipe = small_llama(feedforward=spec)
        done = training.trained(recipe, settings, trial, observe=observe, **extent(scale))
        built = done.loaded.recipe
        numbers = {
            "loss": done.loss,
            "active": float(built.active_parameters(built.dim)),
            "parameters": float(built.parameters(built.dim)),
        }
        if not busiest:
            return Result(numbers, {"loss": done.curve})
        return Result(numbers | {"busiest": busiest[-1][1]}, {"loss": done.curve, "busiest": busiest})

    return Arm(name, run, {"experts": count})


# Tokens: of a row in training, of one measured, of one point of the curve.
TRAINED, MEASURED, BUCKET = 64, 256, 16
POSITIONS = ("learned", "sinusoidal", "rotary", "none")


def positions(scale: Scale) -> Plan:
    """LLaMA's layers with four kinds of positions, trained on rows of one length and measured on longer ones."""
    settings = settings_of(scale, 500, length=TRAINED)
    measure = partial(_by_position, replace(settings, length=MEASURED, batch=4), scale.pick(30, 1))
    unit = "nats a token"
    farther = "Beyond the trained length, learned positions lose more than rotary ones"
    within = "Within the trained length, rotary positions reach a lower loss than learned ones"
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
        claims=(
            higher(farther, "learned", "rotary", "rise"),
            higher("Sinusoidal positions lose more there than rotary ones", "sinusoidal", "rotary", "rise"),
            higher("Rotary positions lose more there than no positions", "rotary", "none", "rise"),
            lower(within, "rotary", "learned", "within"),
            lower("Within it, learned positions reach a lower loss than none", "learned", "none", "within"),
        ),
        settings=recorded(settings, measured_length=MEASURED, embedding_scale_with_sinusoids="√width"),
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
    many, two, single = KV_HEADS
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
            higher("One key/value head has a higher loss than multi-head attention", single, many, "loss"),
            near("Two key/value heads are within 0.05 of multi-head attention", two, many, "loss", 0.05),
            lower("Latent attention has a lower loss than one key/value head", LATENT, single, "loss"),
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
    recipe, whole = _with_attention(name), _with_attention("multi-head")
    missing = whole.layers[0].parameters(recipe.dim) - recipe.layers[0].parameters(recipe.dim)
    hidden = recipe.layers[0].feedforward.hidden + round(missing / (3 * recipe.dim))
    return recipe.change_layers(feedforward=dict(hidden=hidden))


def _with_cache(trained: Trained) -> Result:
    """The loss, with the bytes of the cache and the parameters."""
    recipe = trained.loaded.recipe
    cache = 2.0 * recipe.kv_cache_size(recipe.dim)
    return loss_of(trained, cache=cache, parameters=float(recipe.parameters(recipe.dim)))
