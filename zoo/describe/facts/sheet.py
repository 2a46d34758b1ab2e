"""The fact sheet of a recipe, and the short one of some fifteen rows. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from zoo.architecture import FactSource
from zoo.describe.facts.counts import (
    DECODER,
    by_part,
    decode_flops,
    has_idle_experts,
    is_opaque,
    prefill_flops,
    stacks,
)
from zoo.describe.facts.fact import Fact, FactRow, Sheet, aligned, text_of
from zoo.describe.facts.memory import (
    FORMATS,
    GROUP,
    LENGTHS,
    POLICIES,
    CacheSize,
    Weights,
    cache_bytes,
    cache_sizes,
    format_label,
    format_of,
    largest_context,
    policy_bytes,
    source_numbers,
    weights_of,
)
from zoo.describe.facts.ranks import Cluster, rank_facts, ranked
from zoo.describe.facts.structure import stack_facts
from zoo.describe.language import Message, message
from zoo.errors import ZooError, warn
from zoo.frozen import Frozen, frozen
from zoo.machine import total_memory
from zoo.recipe import Model
from zoo.recipe.policy import CachePolicy

if TYPE_CHECKING:
    from zoo.host.registry import Registry
    from zoo.tokenizer import Tokenizer

CONTEXT = 4096  # tokens, where nobody asks for another number and the model takes them
WEIGHTS = "bfloat16"
FITS = "fits in this memory"


def facts_of(
    recipe: Model,
    *,
    context: int | None = None,
    quantize: str | None = None,
    title: str = "",
    registry: Registry | None = None,
    quantizes: Callable[[str, Any], Any] | None = None,
    policy: CachePolicy | None = None,
    cluster: Cluster | None = None,
    more: Iterable[Fact] = (),
) -> Sheet:
    """The facts of a recipe, with cache and FLOPs at `context` tokens and weights in the format `quantize`.

    `context`: None for 4,096, or as many as the model takes. `quantize`: a dtype, bits ("4") or a mode ("mxfp4"); None
    for bfloat16. `registry` has the plugins that are asked for facts of theirs; None: none are. `quantizes` is its
    architecture's rule for packed weights, where that has one. `policy`: also the bytes of caches that follow it.
    `cluster`: also what each of several ranks has of the model, and how fast they are together. `more`: facts that are
    known from elsewhere. ZooError for an impossible `context` or `quantize`, for a policy that the model cannot follow, and
    where the ranks cannot share it.

    >>> from zoo.describe import facts_of
    >>> recipe = zoo.load("llama").recipe
    >>> sheet = facts_of(recipe, context=128, quantize="4")
    >>> sheet["cache.context"].value, sheet["cache.context"].unit
    (131072, 'bytes')
    """
    if context is not None and (type(context) is not int or context < 1):
        raise ZooError(f"`context` must be a number of tokens, got {context!r:.60}")
    tokens = context or min(CONTEXT, recipe.context or CONTEXT)
    chosen = format_of(quantize or WEIGHTS).name
    weights, kept = weights_of(recipe, quantizes), cache_sizes(recipe)
    facts = [
        *_sums(recipe),
        *_model(recipe),
        *(fact for role, stack in stacks(recipe).items() for fact in stack_facts(role, stack)),
        *_cache(recipe, kept, tokens),
        *_cache_by_policy(recipe, policy, tokens),
        *_weights(recipe, weights, kept, chosen),
        *_flops(recipe, tokens),
        *(rank_facts(ranked(recipe, cluster, tokens, chosen, quantizes, policy), chosen) if cluster else ()),
        *more,
    ]
    if registry is not None:
        facts += plugin_facts(recipe, registry, {fact.name for fact in facts})
    return Sheet(title, tuple(facts), recipe, numbers_of(recipe, kept, weights, tokens, chosen))


def common_context(recipes: Iterable[Any]) -> int:
    """The number of tokens at which several models are compared: 4,096, or as many as all of them take."""
    return min([CONTEXT, *(recipe.context for recipe in recipes if recipe.context)])


def numbers_of(
    recipe: Model, kept: Iterable[CacheSize], weights: Weights | None, context: int, quantize: str
) -> dict[str, Any]:
    """The numbers from which a page can compute cache and weights for another context or format.

    Cache bytes are Σ over `cache` of numbers_per_token × min(tokens, window) × bytes + state_numbers × 4, with `cache_bytes`
    bytes a number. Weights are `whole` × 2 + rows × bits / 8 and 4 bytes a group of 64; rows whose inputs are no
    multiple of the group stay whole; `router_rows` always have 8 bits.
    """
    return {
        "context": context,
        "quantize": quantize,
        "cache": [vars(one) for one in kept],
        "cache_bytes": POLICIES,
        "weights": None if weights is None else weights.to_json(),
        "parameters": recipe.parameters(recipe.dim),
    }


def _sums(recipe: Model) -> Iterator[Fact]:
    total = int(recipe.parameters(recipe.dim))
    yield Fact("parameters.total", "parameters", total, "parameters")
    if not is_opaque(recipe):
        active = int(recipe.active_parameters(recipe.dim))
        note = "those used for a token leave out the embedding table, unless it is the head, too"
        detail = not has_idle_experts(recipe)
        yield Fact("parameters.active", "parameters a token uses", active, "parameters", note, detail=detail)
    for label, number in by_part(recipe).items():
        name = label.replace(" ", "_").replace("-", "_")
        text = message("parameters, {part}", part=label)
        yield Fact(f"parameters.{name}", text, number, "parameters", detail=True)


def _model(recipe: Model) -> Iterator[Fact]:
    yield Fact("model", "model", recipe.title if recipe.title != "model" else recipe.name)
    yield Fact("width", "width", recipe.dim)
    if is_opaque(recipe):
        yield Fact("layers", "layers", len(recipe.layers), "layers")
    yield Fact("context", "context", recipe.context, "tokens")
    yield Fact("vocabulary", "vocabulary", recipe.vocab, "tokens")
    head = recipe.head
    if head is not None and not is_opaque(recipe):
        yield Fact("tied", "head tied to embedding", bool(head.ties_embedding))


def _cache(recipe: Model, kept: tuple[CacheSize, ...], tokens: int) -> Iterator[Fact]:
    growing = sum(one.numbers_per_token for one in kept)
    each = round(growing * POLICIES["16-bit"])
    note = "an upper bound: which layers have windows is not known" if is_opaque(recipe) else ""
    if growing:
        endless = round(sum(one.numbers_per_token for one in kept if one.window is None) * POLICIES["16-bit"])
        beyond = f"{text_of(endless, 'bytes')} a token once all windows are full" if endless < each else ""
        yield Fact("cache.token", "cache a token", each, "bytes", note or beyond)
    if state := sum(one.bytes(0) for one in kept):
        yield Fact("cache.state", "state at any length", state, "bytes", "a state is counted in float32")
    if source := source_numbers(recipe):
        label = "cache a source token"
        yield Fact("cache.source_token", label, round(source * POLICIES["16-bit"]), "bytes", detail=True)
    if not (growing or state):
        return
    number, label = cache_bytes(kept, tokens), message("cache at {n} tokens", n=f"{tokens:,}")
    yield Fact("cache.context", label, number, "bytes", note, detail=not growing)
    for policy in POLICIES:
        for name, length in LENGTHS.items():
            label = message("cache at {length}, {policy}", length=name, policy=policy)
            number = cache_bytes(kept, length, policy)
            yield Fact(f"cache.{name}.{policy}", label, number, "bytes", note, detail=True)
    for one in kept:
        if one.window is not None or len(kept) > 1:
            where = f"window_{one.window}" if one.window is not None else one.kind
            kind = one.kind if one.window is None else message("window {n}", n=one.window)
            template = "cache of {n} layers, {kind}, at {m} tokens"
            label = message(template, n=one.layers, kind=kind, m=f"{tokens:,}")
            yield Fact(f"cache.kind.{where}", label, one.bytes(tokens), "bytes", detail=True)


def _cache_by_policy(recipe: Model, policy: CachePolicy | None, tokens: int) -> Iterator[Fact]:
    if policy is not None and not policy.plain:
        label, number = f"cache at {tokens:,} tokens", policy_bytes(recipe, tokens, policy)
        yield Fact("cache.policy", f"{label}, {policy.describe()}", number, "bytes")


def _weights(
    recipe: Model, weights: Weights | None, kept: tuple[CacheSize, ...], chosen: str
) -> Iterator[Fact]:
    def held(name: str) -> int | None:
        if weights is not None:
            return weights.bytes(name)
        chosen = format_of(name)
        return None if chosen.group else chosen.bytes(int(recipe.parameters(recipe.dim)))

    note = f"groups of {GROUP}, scales of 16 bits" if chosen.isdecimal() else ""
    yield Fact("weights.chosen", weights_label(chosen), held(chosen), "bytes", note)
    for name in FORMATS:
        if (number := held(name)) is not None:
            yield Fact(f"weights.{name}", weights_label(name), number, "bytes", detail=True)
    room, taken = total_memory(), held(chosen)
    if room is not None and taken is not None:
        note = f"{room / 1e9:.1f} GB, weights in {format_label(chosen)}, 16-bit cache"
        if taken > room:
            yield Fact("fits", FITS, 0, "tokens", note, words="the weights do not fit")
        elif DECODER in stacks(recipe) or is_opaque(recipe):
            longest = largest_context(kept, room - taken, recipe.context)
            words = "any length" if longest is None else message("{n} tokens", n=f"{longest:,}")
            yield Fact("fits", FITS, longest, "tokens", note, words=words)


def weights_label(name: str) -> str:
    """The label of the weights' bytes in a format."""
    return message("weights, {format}", format=format_label(name))


def _flops(recipe: Model, tokens: int) -> Iterator[Fact]:
    note = "2 a multiply-add: matrix products, attention's scores and sums"
    if (number := decode_flops(recipe, tokens)) is not None:
        label = message("FLOPs a token, after {n}", n=f"{tokens:,}")
        yield Fact("flops.decode", label, number, "FLOPs", note)
    if (number := prefill_flops(recipe, tokens)) is not None:
        label = message("FLOPs a token, reading {n}", n=f"{tokens:,}")
        yield Fact("flops.prefill", label, number, "FLOPs", note, detail=recipe.task == "generate")


def tokenizer_facts(tokenizer: Tokenizer | None) -> Iterator[Fact]:
    """The kind of a tokenizer and its number of tokens; nothing for None."""
    if tokenizer is None:
        return
    if tokenizer.kind:
        yield Fact("tokenizer.kind", "tokenizer", tokenizer.kind)
    yield Fact("tokenizer.size", "tokenizer's tokens", tokenizer.vocab_size, "tokens")
    yield Fact("tokenizer.bytes", "tokenizer writes any byte", _writes_bytes(tokenizer))


RARE = "\U00013080\u0c9a\U0001fae8"  # a hieroglyph, a letter of Kannada, an emoji of 2022


def _writes_bytes(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer encodes and decodes rare characters without loss, as one with tokens for bytes does."""
    try:
        return RARE in tokenizer.decode(tokenizer.encode(RARE, special_tokens=False))
    except ZooError:
        return False


def plugin_facts(recipe: Model, registry: Registry, taken: set[str]) -> list[Fact]:
    """The facts of the plugins' hooks `zoo_facts`. Warns of a hook that raises or gives no facts, and leaves it out."""
    facts: list[Fact] = []
    for source in registry.table(FactSource).listed().values():
        try:
            given = list(source.load()(recipe))
        except Exception as error:  # of a plugin's code
            warn(f"facts {source.name}: {type(error).__name__}: {error}")
            continue
        for fact in given:
            if not isinstance(fact, Fact):
                warn(f"facts {source.name}: gave {fact!r:.60}, not a zoo.describe.Fact")
            elif fact.name in taken:
                warn(f"facts {source.name}: there is a fact {fact.name!r} already")
            else:
                taken.add(fact.name)
                facts.append(fact)
    return facts


# The label of each row that several facts share, and for each fact how its text stands in the row.
TOGETHER: dict[str, dict[str, str]] = {
    "parameters": {"parameters.total": "{}", "parameters.active": "{} used for a token"},
    "model": {"model": "{}", "causality": "a token sees {}"},
    "layers": {
        "layers": "{}",
        "encoder.layers": "{} in the encoder",
        "decoder.layers": "{} in the decoder",
        "width": "width {}",
    },
    "vocabulary": {"vocabulary": "{}", "tied": ""},
    "heads": {
        "heads": "{}",
        "kv_heads": "{} key/value",
        "head_width": "width {}",
        "head_norm": "{} on each query and key",
        "query_norm": "{} on each query",
        "key_norm": "{} on each key",
    },
    "feed-forward": {"feedforward": "{}", "hidden": "width {}"},
    "experts": {
        "experts": "{}",
        "experts_used": "{} used for a token",
        "expert_width": "width {}",
        "shared_width": "a shared one of width {}",
    },
    "norm": {"norm": "{}", "placement": "{}"},
    "cache": {
        "cache.token": "{} a token",
        "cache.context": "{} at {context} tokens",
        "cache.state": "{} of state at any length",
    },
    "weights": {"weights.chosen": "{} in {quantize}"},
    "FLOPs a token": {
        "flops.decode": "{} after {context} tokens",
        "flops.prefill": "{} reading {context} tokens",
    },
    "tokenizer": {
        "tokenizer.kind": "{}",
        "tokenizer.size": "{} tokens",
        "tokenizer.bytes": "",
    },
}
FLAGS = {  # the texts of yes and no
    "tied": ("head tied to embedding", "head not tied"),
    "tokenizer.bytes": ("any byte has tokens", "unknown characters are lost"),
}
# Implied by "encoder-decoder": the encoder sees all tokens, the decoder those before.
UNDERSTOOD = {"encoder.causality": "all tokens", "decoder.causality": "earlier tokens"}


@frozen()
class SheetLine(Frozen):
    """One row of the short sheet: its label, its text, and the names of the facts in it."""

    label: str
    text: str
    names: tuple[str, ...]


def short(sheet: Sheet) -> list[SheetLine]:
    """The short sheet of a model, in the order of its facts. A fact without a shared row has a row of its own."""
    rows = [row for row in aligned([sheet.facts]) if not (row.detail or row.empty)]
    by_name = {row.name: row for row in rows}
    context, quantize = sheet.numbers["context"], sheet.numbers["quantize"]
    words = {"context": f"{context:,}", "quantize": format_label(quantize)}
    lines: list[SheetLine] = []
    done = {name for name, text in UNDERSTOOD.items() if name in by_name and by_name[name].texts[0] == text}
    for row in rows:
        if row.name in done:
            continue
        label, members = _group(row.name, by_name, done)
        done |= members.keys()
        text = _joined(list(_texts(members, by_name, words))) if label else row.texts[0]
        lines.append(SheetLine(label or row.label, text, tuple(members) or (row.name,)))
    return lines


def _group(name: str, rows: dict[str, FactRow], done: set[str]) -> tuple[str, dict[str, str]]:
    """The label of a fact's shared row, and the names of the facts in it with their texts; ("", {}) for none.

    Where the encoder's facts differ from the decoder's, each stack has a row of its own.
    """
    role, _, key = name.partition(".")
    for label, members in TOGETHER.items():
        if name in members:
            return label, {key: text for key, text in members.items() if key in rows and key not in done}
        if role in ("encoder", "decoder") and key in members:
            own = {f"{role}.{key}": text for key, text in members.items()}
            return f"{role} {label}", {key: text for key, text in own.items() if key in rows}
    return "", {}


def _texts(
    members: dict[str, str], rows: dict[str, FactRow], words: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """The text of each fact, and the layers that it holds for where they are not all."""
    values = {name.rpartition(".")[2]: rows[name].values[0] for name in members}
    for name, text in members.items():
        value, shown = rows[name].values[0], rows[name].texts[0]
        place = ""
        if isinstance(shown, Message) and shown.template.startswith("{value} in "):
            whole, shown = shown, str(shown.values["value"])
            place = whole.removeprefix(f"{shown} ")
        if name in FLAGS:
            yield FLAGS[name][not value], ""
        elif not (name.endswith("kv_heads") and value == values.get("heads")):
            yield text.format(shown, **words), place


def _joined(texts: list[tuple[str, str]]) -> str:
    """Join the texts of a row. Consecutive texts about the same layers name them once."""
    groups = [
        (place, ", ".join(text for text, _ in run)) for place, run in groupby(texts, lambda pair: pair[1])
    ]
    if len(groups) == 1:
        [(place, text)] = groups
        return "; ".join(filter(None, (text, place)))
    return "; ".join(f"{text} {place}".rstrip() for place, text in groups)
