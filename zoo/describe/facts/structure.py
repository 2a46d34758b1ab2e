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


def stack_facts(role: str, stack: Model) -> Iterator[Fact]:
    """The facts of one stack; a value that differs from layer to layer is a tuple, one a layer."""
    dim = stack.dim
    yield Fact(f"{role}.layers", "layers", len(stack.layers), "layers", role=role)
    for name, label, read, detail in LAYER_FACTS:
        known: dict[int, Scalar] = {}
        for layer in stack.layers:
            if id(layer) not in known:
                known[id(layer)] = read(layer, dim)
        values = tuple(known[id(layer)] for layer in stack.layers)
        if any(value is not None for value in values):
            value = values[0] if len(set(values)) == 1 else values
            yield Fact(f"{role}.{name}", label, value, role=role, detail=detail)
    if found := positions(stack):
        yield Fact(f"{role}.positions", "positions", found, role=role)
    sees = {"causal": "earlier tokens", "prefix": "the prompt and earlier tokens", "full": "all tokens"}
    yield Fact(f"{role}.causality", "a token sees", sees[stack.causality], role=role)


def mixers(layer: Spec) -> list[Spec]:
    """The mixers of a layer: usually one."""
    return [part for _, part in layer.children() if part.kind == "mixer"]


def cross(layer: Spec) -> Spec | None:
    """The cross-attention of a layer, None where it has none."""
    return next((part for _, part in layer.children() if part.kind == "cross"), None)


def feedforward(layer: Spec) -> Spec | None:
    """The feed-forward of a layer, None where it has none."""
    return next((part for _, part in layer.children() if part.kind == "feedforward"), None)


def dense(layer: Spec) -> Spec | None:
    """The feed-forward that every token goes through: that of a layer without experts."""
    found = feedforward(layer)
    return None if found is None or experts(layer) is not None else found


def experts(layer: Spec) -> Any:
    """The stacked experts of a layer, None where it has none."""
    return _below(layer, "experts")


def router(layer: Spec) -> Any:
    """The router of a layer's experts, None where it has none."""
    return _below(layer, "router")


def shared(layer: Spec) -> Any:
    """The feed-forward beside the experts, which every token uses."""
    return getattr(feedforward(layer), "shared", None) if experts(layer) is not None else None


def _below(layer: Spec, kind: str) -> Any:
    found = feedforward(layer)
    return None if found is None else next((part for _, part in found.walk() if part.kind == kind), None)


def _of_mixers(read: Callable[[Spec, int], Scalar]) -> Callable[[Spec, int], Scalar]:
    """The first value that is read of one of a layer's mixers."""

    def first(layer: Spec, dim: int) -> Scalar:
        values = (read(mixer, dim) for mixer in mixers(layer))
        return next((value for value in values if value is not None), None)

    return first


def _field(name: str) -> Callable[[Spec, int], Scalar]:
    return _of_mixers(lambda mixer, dim: vars(mixer).get(name))


def _mixer(layer: Spec, dim: int) -> Scalar:
    return joined(" and ", (mixer.title for mixer in mixers(layer))) or None


def _kv_heads(mixer: Spec, dim: int) -> Scalar:
    fields = vars(mixer)
    return fields["kv_heads"] or fields.get("heads") if "kv_heads" in fields else None


def _head_width(mixer: Spec, dim: int) -> Scalar:
    width = getattr(mixer, "head_width", None)
    return int(width(dim)) if width is not None else vars(mixer).get("head_dim") or None


def _head_norm(mixer: Spec, dim: int) -> Scalar:
    query, key = (vars(mixer).get(name) for name in ("query_norm", "key_norm"))
    return key.title if query is not None and key is not None else None


def _state(layer: Spec, dim: int) -> Scalar:
    return sum(mixer.state_size(dim) for mixer in mixers(layer)) or None


def _activation(layer: Spec, dim: int) -> Scalar:
    for part in (experts(layer), dense(layer), *mixers(layer)):
        name = getattr(part, "activation", None)
        if name is not None:
            return ACTIVATION_TITLES.get(name, name)
    return None


def _of(part: Callable[[Spec], Any], field: str) -> Callable[[Spec, int], Scalar]:
    return lambda layer, dim: getattr(part(layer), field, None)


def norms(layer: Spec) -> list[Spec]:
    """The norms of the layer itself."""
    return [part for _, part in layer.children() if part.kind == "norm"]


def _norm(layer: Spec, dim: int) -> Scalar:
    return joined(", ", dict.fromkeys(norm.title for norm in norms(layer))) or None


def _placement(layer: Spec, dim: int) -> Scalar:
    if layer.norm_placement or not norms(layer):
        return layer.norm_placement or None
    return layer.title


def _sums(layer: Spec, dim: int) -> Scalar:
    return "one for mixer and feed-forward" if vars(layer).get("parallel") else None


def _residual_scale(layer: Spec, dim: int) -> Scalar:
    scale: float = vars(layer).get("residual_scale", 1.0)
    return None if scale == 1.0 else scale


LAYER_FACTS: tuple[tuple[str, str, Callable[[Spec, int], Scalar], bool], ...] = (
    ("mixer", "mixer", _mixer, False),
    ("heads", "heads", _field("heads"), False),
    ("kv_heads", "key/value heads", _of_mixers(_kv_heads), False),
    ("head_width", "head width", _of_mixers(_head_width), False),
    ("head_norm", "query and key norm", _of_mixers(_head_norm), False),
    ("latent", "latent width", _field("kv_rank"), False),
    ("state", "state numbers a layer", _state, False),
    ("window", "window", _of_mixers(lambda mixer, dim: mixer.attention_window or None), False),
    ("cross", "cross-attention", _of(cross, "title"), True),
    ("feedforward", "feed-forward", _of(feedforward, "title"), False),
    ("hidden", "feed-forward width", _of(dense, "hidden"), False),
    ("experts", "experts", _of(experts, "count"), False),
    ("experts_used", "experts a token uses", _of(router, "top_k"), False),
    ("expert_width", "expert width", _of(experts, "hidden"), False),
    ("shared_width", "shared expert width", _of(shared, "hidden"), False),
    ("activation", "activation", _activation, True),
    ("norm", "norm", _norm, False),
    ("placement", "norm placement", _placement, False),
    ("sums", "residual sums", _sums, False),
    ("residual_scale", "residual scale", _residual_scale, False),
)


def positions(stack: Model) -> str | None:
    """The positions of a stack in words; None where no part has positions."""
    found = [
        part for part in (stack.embedding.positions, getattr(stack, "relative", None)) if part is not None
    ]
    for layer in {id(layer): layer for layer in stack.layers}.values():
        for mixer in mixers(layer):
            found += [part for _, part in mixer.children() if part.kind == "position"]
    texts = list(dict.fromkeys(position_text(part) for part in found))
    without = sum(any(_lacks_rope(mixer) for mixer in mixers(layer)) for layer in stack.layers)
    if without and any(isinstance(part, RoPE) for part in found):
        texts.append(message("none in {n} of {m} layers", n=without, m=len(stack.layers)))
    return joined("; ", texts) or None


def _lacks_rope(mixer: Spec) -> bool:
    return "rope" in vars(mixer) and vars(mixer)["rope"] is None


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
