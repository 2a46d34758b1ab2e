"""Facts about the parts of a stack: heads, norms, feed-forwards, experts, positions. Imports no mlx.

Nothing here knows a family. A part is read by the names that its fields have in every spec (`heads`, `hidden`, `window`), by
its kind, and by its title.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from zoo.describe.facts.fact import Fact, Scalar
from zoo.describe.language import joined, message
from zoo.recipe import Model, RoPE, Spec
from zoo.recipe.parts import ACTIVATION_TITLES, AddedPositions

DETAILS = ("cross", "activation")


def stack_facts(role: str, stack: Model) -> Iterator[Fact]:
    """The facts of one stack; a value that differs from layer to layer is a tuple, one a layer."""
    yield Fact(f"{role}.layers", "layers", len(stack.layers), "layers", role=role)
    layers = {id(layer): layer for layer in stack.layers}  # equal ones mostly are one object
    known = {key: _layer_facts(layer, stack.dim) for key, layer in layers.items()}
    for facts in zip(*(known[id(layer)] for layer in stack.layers), strict=True):
        name, label, _ = facts[0]
        values = tuple(value for _, _, value in facts)
        if any(value is not None for value in values):
            value = values[0] if len(set(values)) == 1 else values
            yield Fact(f"{role}.{name}", label, value, role=role, detail=name in DETAILS)
    if words := positions(stack):
        yield Fact(f"{role}.positions", "positions", words, role=role)
    sees = {"causal": "earlier tokens", "prefix": "the prompt and earlier tokens", "full": "all tokens"}
    yield Fact(f"{role}.causality", "a token sees", sees[stack.causality], role=role)


def _of_kind(layer: Spec, kind: str) -> list[Any]:
    return [part for _, part in layer.children() if part.kind == kind]


def _layer_facts(layer: Spec, dim: int) -> list[tuple[str, str, Scalar]]:
    """The facts of a layer, each with its name, label and value; None for what it does not have.

    A layer usually has one mixer; of several, the first that has a value gives it. `dense` is the feed-forward that every
    token goes through, `shared` the one that its `mixture` has beside the experts.
    """
    mixers, norms = _of_kind(layer, "mixer"), _of_kind(layer, "norm")
    cross, feedforwards = next(iter(_of_kind(layer, "cross")), None), _of_kind(layer, "feedforward")
    mixture = next((each for each in feedforwards if any(p.kind == "experts" for _, p in each.walk())), None)
    parts = [part for _, part in mixture.walk()] if mixture else []
    experts, router = (
        next((part for part in parts if part.kind == kind), None) for kind in ("experts", "router")
    )
    dense = next((each for each in feedforwards[:1] if each is not mixture), None)
    shared = getattr(mixture, "shared", None)
    names = (getattr(part, "activation", None) for part in (experts, dense, *mixers))
    activation = next((name for name in names if name is not None), None)
    scale: float = vars(layer).get("residual_scale", 1.0)

    def first(read: Callable[[Any], Scalar]) -> Scalar:
        return next((value for value in map(read, mixers) if value is not None), None)

    return [
        ("mixer", "mixer", joined(" and ", (mixer.title for mixer in mixers)) or None),
        ("heads", "heads", first(lambda mixer: vars(mixer).get("heads"))),
        ("kv_heads", "key/value heads", first(_kv_heads)),
        ("head_width", "head width", first(lambda mixer: _head_width(mixer, dim))),
        (
            "head_norm",
            "query and key norm",
            first(lambda mixer: _norm_title(mixer, "query_norm", "key_norm")),
        ),
        ("query_norm", "query norm", first(lambda mixer: _norm_title(mixer, "query_norm"))),
        ("key_norm", "key norm", first(lambda mixer: _norm_title(mixer, "key_norm"))),
        ("latent", "latent width", first(lambda mixer: vars(mixer).get("kv_rank"))),
        ("state", "state numbers a layer", sum(mixer.state_size(dim) for mixer in mixers) or None),
        ("window", "window", first(lambda mixer: mixer.attention_window or None)),
        ("cross", "cross-attention", getattr(cross, "title", None)),
        (
            "feedforward",
            "feed-forward",
            joined(" and ", (part.title for part in (dense, mixture) if part)) or None,
        ),
        ("hidden", "feed-forward width", getattr(dense, "hidden", None)),
        ("experts", "experts", getattr(experts, "count", None)),
        ("experts_used", "experts a token uses", getattr(router, "top_k", None)),
        ("expert_width", "expert width", getattr(experts, "hidden", None)),
        ("shared_width", "shared expert width", getattr(shared, "hidden", None)),
        ("activation", "activation", activation and ACTIVATION_TITLES.get(activation, activation)),
        ("norm", "norm", joined(", ", dict.fromkeys(norm.title for norm in norms)) or None),
        ("placement", "norm placement", layer.norm_placement or (layer.title if norms else None)),
        ("sums", "residual sums", "one for mixer and feed-forward" if vars(layer).get("parallel") else None),
        ("residual_scale", "residual scale", None if scale == 1.0 else scale),
    ]


def _kv_heads(mixer: Spec) -> Scalar:
    fields = vars(mixer)
    return fields["kv_heads"] or fields.get("heads") if "kv_heads" in fields else None


def _head_width(mixer: Spec, dim: int) -> Scalar:
    width = getattr(mixer, "head_width", None)
    return int(width(dim)) if width is not None else vars(mixer).get("head_dim") or None


def _norm_title(mixer: Spec, *names: str) -> Scalar:
    """The title of the norms of these names, where attention has them and no other of its two."""
    fields = vars(mixer)
    if "key_norm" not in fields:
        return None
    there = tuple(name for name in ("query_norm", "key_norm") if fields[name] is not None)
    return fields[names[-1]].title if there == names else None


def positions(stack: Model) -> str | None:
    """The positions of a stack in words; None where no part has positions."""
    parts = [
        part for part in (stack.embedding.positions, getattr(stack, "relative", None)) if part is not None
    ]
    for layer in stack.layers:
        parts += [part for mixer in _of_kind(layer, "mixer") for part in _of_kind(mixer, "position")]
    without = len(layers_without_positions(stack))
    texts = list(dict.fromkeys(position_text(part) for part in parts))
    if without and any(isinstance(part, RoPE) for part in parts):
        texts.append(message("none in {n} of {m} layers", n=without, m=len(stack.layers)))
    return joined("; ", texts) or None


def layers_without_positions(stack: Model) -> list[int]:
    """The indices of the layers with attention that could rotate queries and keys, and does not."""
    return [
        index
        for index, layer in enumerate(stack.layers)
        if any("rope" in vars(mixer) and mixer.rope is None for mixer in _of_kind(layer, "mixer"))
    ]


def position_text(part: Spec) -> str:
    """Positions in words: "rotary, base 500,000, LLaMA-3 scaling ×8"."""
    if not isinstance(part, RoPE):
        title = str(part.title)
        return title.removesuffix(" positions") if isinstance(part, AddedPositions) else title
    words = ["rotary", message("base {n}", n=f"{part.theta:,.12g}")]
    if part.dims is not None:
        words.append(message("{n} of each head", n=part.dims))
    if part.scaling is not None:
        words.append(scaling_text(part.scaling))
    return joined(", ", words)


def scaling_text(scaling: Spec) -> str:
    """A rope scaling in words."""
    names = {"llama3": "LLaMA-3 scaling", "yarn": "YaRN scaling", "linear": "linear scaling"}
    own = scaling.title if "caling" in scaling.title else f"{scaling.name} scaling"
    name = names.get(scaling.name, own)
    factor = getattr(scaling, "factor", None)
    return message("{value} ×{n}", value=name, n=f"{factor:g}") if isinstance(factor, int | float) else name
