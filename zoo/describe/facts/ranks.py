"""A model on several ranks, on paper: bytes of each, bytes on the link, and the tokens a second that these allow. Imports no mlx.

A pass takes the time of its work and that of its transfers, which wait for each other. The work of a rank takes the longer of
two times (the roofline of Williams et al., 2009): that of reading its weights and its cache once, and that of its operations.
Ranks that share each layer work at once, and have equally much of it; stages work one after the other. A transfer takes the
latency of the link for each of its steps, and its bytes over the link's bandwidth. Python and the calls of kernels take an
overhead in each pass, where it is known: without it a measured rate is lower. Ranks that have whole experts are taken to be chosen
equally often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import inf
from typing import Any

from zoo.describe.facts.counts import decode_flops, is_opaque, prefill_flops
from zoo.describe.facts.fact import Fact, text_of
from zoo.describe.facts.memory import (
    FLOATS,
    WHOLE,
    cache_bytes,
    cache_sizes,
    format_label,
    format_of,
    policy_bytes,
    weights_of,
)
from zoo.describe.facts.transfers import GATHER, SEND, SUM, Transfer, transfers
from zoo.describe.language import joined, message
from zoo.errors import RecipeError, ZooError
from zoo.frozen import Frozen, frozen
from zoo.recipe import Model
from zoo.recipe.division import Division, Share
from zoo.recipe.pipeline import Elsewhere, division_of
from zoo.recipe.policy import CachePolicy

CHUNK = 2048  # tokens of a prompt that a GPU reads in one pass
BOUNDS = {  # the words for what the time of a pass is spent on, by the field of `Seconds`
    "memory": "memory bandwidth",
    "arithmetic": "arithmetic",
    "latency": "link latency",
    "bandwidth": "link bandwidth",
    "overhead": "overhead",
}


@frozen()
class Link(Frozen):
    """What connects neighbouring ranks: the bytes a second that a rank sends, and the seconds that an empty message takes."""

    bandwidth: float
    latency: float


@frozen()
class Cluster(Frozen):
    """Machines of one kind, a rank on each, that run a model together in one of the ways of `zoo.recipe.pipeline.WAYS`.

    `memory`: bytes that one reads from its memory a second. `compute`: operations a second of its matrix products. Decode is
    predicted where `memory` is known, prefill where `compute` is, and of several ranks where `link` is known, too. `chunk`:
    tokens of a prompt that are read in one pass. `overhead`: seconds that a pass through all layers takes beside reading and
    matrix products, for Python and the calls of kernels; ranks that share each layer have all of it at once, and stages a part
    each. ZooError for numbers that are not above 0, and for a negative `overhead`.
    """

    ranks: int
    parallel: str = "auto"
    link: Link | None = None
    memory: float | None = None
    compute: float | None = None
    chunk: int = CHUNK
    overhead: float = 0.0

    def __post_init__(self) -> None:
        if type(self.ranks) is not int or self.ranks < 1:
            raise ZooError(f"`ranks` must be a number of at least 1, got {self.ranks!r:.60}")
        if self.link is not None and not (0 < self.link.bandwidth < inf and 0 <= self.link.latency < inf):
            raise ZooError("`link` must be a bandwidth above 0 and a latency of at least 0")
        if not 0 <= self.overhead < inf:
            raise ZooError(f"`overhead` must be at least 0, got {self.overhead!r:.60} s")
        given = {"memory": self.memory, "compute": self.compute}
        for name, value in given.items():
            if value is not None and not 0 < value < inf:
                raise ZooError(f"`{name}` must be above 0, got {value!r:.60}")
            if value is not None and self.link is None and self.ranks > 1:
                raise ZooError(f"`{name}`: the speed of {self.ranks} ranks depends on their `link`, too")


@frozen()
class Seconds(Frozen):
    """The time of a pass, by what it is spent on."""

    memory: float = 0.0
    arithmetic: float = 0.0
    latency: float = 0.0
    bandwidth: float = 0.0
    overhead: float = 0.0

    @property
    def total(self) -> float:
        """The seconds of the whole pass."""
        return sum(vars(self).values())

    @property
    def by_bound(self) -> dict[str, float]:
        """The seconds by their causes, in words."""
        return {words: getattr(self, name) for name, words in BOUNDS.items()}

    @property
    def bound(self) -> str:
        """The cause that takes the most seconds."""
        return max(self.by_bound, key=self.by_bound.__getitem__)

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(*(getattr(self, name) + getattr(other, name) for name in BOUNDS))


@frozen()
class Held(Frozen):
    """What a rank has: the recipe of its part, and the bytes of its weights and of its cache."""

    recipe: Model
    weights: int
    cache: int


@frozen()
class Ranked(Frozen):
    """A model on the ranks of a cluster, with its weights in a format and caches of `context` tokens.

    `divisions` and `held` are by rank. `counted` has the work whose times are added: every stage, or the first rank where the
    ranks work at once.
    """

    cluster: Cluster
    divisions: tuple[Division, ...]
    held: tuple[Held, ...]
    counted: tuple[Held, ...]
    context: int
    width: int

    @property
    def recipes(self) -> tuple[Model, ...]:
        """The recipe of each rank."""
        return tuple(one.recipe for one in self.held)

    @property
    def staged(self) -> bool:
        """Whether the ranks work one after the other, each with layers of its own."""
        return len(self.counted) > 1

    def transfers(self, reading: bool = False) -> list[Transfer]:
        """What the ranks send each other for a token that is written, or while `reading`."""
        return transfers(self.divisions, self.width, reading)

    def sent(self, reading: bool = False) -> tuple[float, ...]:
        """The bytes that each rank sends for a token that is written, or on average for one of a prompt of `context` tokens."""
        tokens, transfers = self.context if reading else 1, self.transfers(reading)
        return tuple(
            sum(each.sent(len(self.divisions), tokens) for each in transfers if each.sender in (None, rank))
            / tokens
            for rank in range(len(self.divisions))
        )

    def decode(self) -> Seconds | None:
        """Of one token after `context`; None where no text is written token by token, or `memory` is not known."""
        if self.cluster.memory is None or decode_flops(self.recipes[0], self.context) is None:
            return None
        work = []
        for one in self.counted:
            recipe = one.recipe
            used = one.weights * recipe.active_parameters(recipe.dim) / recipe.parameters(recipe.dim)
            work.append(self._work(used + one.cache, decode_flops(recipe, self.context) or 0))
        return self._pass(work, 1)

    def prefill(self) -> Seconds | None:
        """Of a prompt of `context` tokens; None where `compute` is not known."""
        if self.cluster.compute is None:
            return None
        passes = -(-self.context // self.cluster.chunk)
        work = [
            self._work(passes * one.weights, self.context * (prefill_flops(one.recipe, self.context) or 0))
            for one in self.counted
        ]
        return self._pass(work, self.context, passes, reading=True)

    def _work(self, nbytes: float, flops: float) -> Seconds:
        """The longer of the times for reading so many bytes and for so many operations."""
        memory = nbytes / self.cluster.memory if self.cluster.memory else 0.0
        arithmetic = flops / self.cluster.compute if self.cluster.compute else 0.0
        return Seconds(memory=memory) if memory >= arithmetic else Seconds(arithmetic=arithmetic)

    def _pass(self, work: Sequence[Seconds], tokens: int, passes: int = 1, reading: bool = False) -> Seconds:
        """The sum of the work, the transfers for `tokens`, and the overhead of so many `passes`."""
        total = sum(work, Seconds()) + Seconds(overhead=passes * self.cluster.overhead)
        if self.cluster.link is None:
            return total
        ranks, link = len(self.divisions), self.cluster.link
        for each in self.transfers(reading):
            steps = each.steps(ranks) * (1 if each.last else passes)
            bandwidth = each.sent(ranks, tokens) / link.bandwidth
            total += Seconds(latency=steps * link.latency, bandwidth=bandwidth)
        return total


def ranked(
    recipe: Model,
    cluster: Cluster,
    context: int,
    quantize: str,
    quantizes: Callable[[str, Any], Any] | None = None,
    policy: CachePolicy | None = None,
) -> Ranked:
    """A recipe on the ranks of a cluster; the other arguments are those of `zoo.describe.facts_of`.

    RecipeError, naming the field, where it cannot be divided among so many, and for a model of another library.

    >>> from zoo.describe.facts.ranks import Cluster, ranked
    >>> found = ranked(zoo.load("llama").recipe, Cluster(ranks=2), 128, "bfloat16")
    >>> [one.cache for one in found.held], len(found.transfers())
    ([65536, 65536], 10)
    """
    if is_opaque(recipe):
        raise RecipeError("`ranks`: another library's model is not divided")
    group = format_of(quantize).group or 1
    divisions = tuple(
        division_of(recipe, cluster.parallel, Share(rank, cluster.ranks, group))
        for rank in range(cluster.ranks)
    )

    def held(recipe: Model) -> Held:
        weights = weights_of(recipe, quantizes)
        assert weights is not None  # only of another library's model
        if policy is None or policy.plain:
            cache = cache_bytes(cache_sizes(recipe), context)
        else:
            cache = policy_bytes(recipe, context, policy)
        return Held(recipe, weights.bytes(quantize), cache)

    parts = tuple(held(division.spec) for division in divisions)
    staged = any(division.absent for division in divisions)
    counted = parts if staged else parts[:1]  # of which the first has the most rows of the vocabulary
    return Ranked(cluster, divisions, parts, counted, context, FLOATS.get(quantize, WHOLE))


def rank_facts(model: Ranked, quantize: str) -> Iterator[Fact]:
    """The facts of a model on several ranks; values by rank are tuples."""
    yield Fact("ranks.count", "ranks", len(model.divisions))
    by_experts = model.cluster.parallel == "experts"
    way = "pipeline" if model.staged else "experts" if by_experts else "tensor"
    yield Fact("ranks.parallel", "divided by", way)
    if model.staged:
        layers = tuple(sum(not isinstance(one, Elsewhere) for one in own.layers) for own in model.recipes)
        yield _by_rank("ranks.layers", "layers a rank", layers, "layers")
    parameters = tuple(int(own.parameters(own.dim)) for own in model.recipes)
    yield _by_rank("ranks.parameters", "parameters a rank", parameters, "parameters", detail=True)
    label = message("weights a rank, {format}", format=format_label(quantize))
    yield _by_rank("ranks.weights", label, tuple(one.weights for one in model.held), "bytes")
    cache = tuple(one.cache for one in model.held)
    if any(cache):
        label = message("cache a rank at {n} tokens", n=f"{model.context:,}")
        yield _by_rank("ranks.cache", label, cache, "bytes")
    writes = decode_flops(model.recipes[0], model.context) is not None
    if writes:
        sums = model.transfers()
        yield Fact("ranks.transfers", "transfers a token", len(sums), words=_kinds(sums))
        yield _by_rank("ranks.sent.decode", "sent for a token written", _whole(model.sent()), "bytes")
    yield _by_rank("ranks.sent.prefill", "sent for a token read", _whole(model.sent(True)), "bytes")
    for name, seconds, tokens in (("decode", model.decode(), 1), ("prefill", model.prefill(), model.context)):
        if seconds is not None:
            yield from _speed(name, seconds, tokens)


def _speed(name: str, seconds: Seconds, tokens: int) -> Iterator[Fact]:
    rate = tokens / seconds.total
    words = message("{value}, bound by {bound}", value=text_of(rate, "tokens/s"), bound=seconds.bound)
    yield Fact(f"ranks.{name}", f"{name} predicted", rate, "tokens/s", words=words)
    yield Fact(f"ranks.{name}.bound", f"{name} bound by", seconds.bound, detail=True)
    for bound, spent in seconds.by_bound.items():
        label = message(f"{name} a token, {{bound}}", bound=bound)
        yield Fact(f"ranks.{name}.{bound.replace(' ', '_')}", label, spent / tokens, "s", detail=True)


def _kinds(sent: Sequence[Transfer]) -> str:
    """How many transfers there are of each kind: "65 sums, 1 gather"."""
    counts = {kind: sum(each.kind == kind for each in sent) for kind in (SUM, GATHER, SEND)}
    words = (message(f"{{n}} {kind}{'s' * (n > 1)}", n=n) for kind, n in counts.items() if n)
    return joined(", ", words) or "0"


def _whole(values: Sequence[float]) -> tuple[int, ...]:
    return tuple(map(round, values))


def _by_rank(name: str, label: str, values: tuple[int, ...], unit: str, detail: bool = False) -> Fact:
    """The values of the ranks in words. Ranks with equal values are written together."""
    texts = [text_of(value, unit) for value in values]
    runs = [list(run) for _, run in groupby(range(len(values)), key=texts.__getitem__)]
    words = texts[0]
    if len(runs) > 1:
        words = joined(", ", (_of_ranks(texts[run[0]], run) for run in runs))
    elif len(values) > 1:
        words = message("{value} on each", value=words)
    return Fact(name, label, values, unit, detail=detail, words=words)


def _of_ranks(text: str, run: Sequence[int]) -> str:
    if len(run) == 1:
        return message("{value} on rank {n}", value=text, n=run[0])
    return message("{value} on ranks {n} to {m}", value=text, n=run[0], m=run[-1])
