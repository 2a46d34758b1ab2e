"""What the ranks of a divided model send each other, read off their divisions. Imports no mlx.

A ring of N ranks, as MLX's `ring` backend is, sums n bytes in 2 (N − 1) steps, in each of which a rank sends n / N bytes,
and gathers n bytes of each rank in N − 1 steps of n bytes (Patarasu and Yuan, 2009, "Bandwidth optimal all-reduce
algorithms for clusters of workstations"). A step ends when what the neighbour sent has arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from zoo.describe.facts.counts import DECODER, ENCODER, stacks, with_widths
from zoo.frozen import Frozen, frozen
from zoo.recipe import EmbeddingPart, HeadPart
from zoo.recipe.division import Division

SUM, GATHER, SEND = "sum", "gather", "send"
WIDENED = 4  # bytes of a number that is handed on in float32


@frozen()
class Transfer(Frozen):
    """A sum or a gather of all ranks, or a message from one to the next.

    `numbers`: how many a token, of `width` bytes each; in a gather those of one rank. `sender`: the rank that sends, None
    for all. `last`: only the last token of a prompt has one.
    """

    kind: str
    numbers: int
    width: int
    sender: int | None = None
    last: bool = False

    def steps(self, ranks: int) -> int:
        """The number of messages that follow one another."""
        return {SUM: 2 * (ranks - 1), GATHER: ranks - 1, SEND: 1}[self.kind]

    def sent(self, ranks: int, tokens: int) -> float:
        """The bytes that a rank which sends does send in a pass over so many tokens."""
        share = self.steps(ranks) / ranks if self.kind == SUM else self.steps(ranks)
        return share * self.numbers * self.width * (1 if self.last else tokens)


def transfers(divisions: Sequence[Division], width: int, reading: bool = False) -> list[Transfer]:
    """The transfers of a pass through a model with these `divisions`, by rank, whose vectors have numbers of `width` bytes.

    The pass writes a token, or is `reading` a text: an encoder-decoder writes by its decoder and reads by its encoder.
    """
    if len(divisions) == 1:
        return []
    towers = stacks(divisions[0].spec)  # type: ignore[arg-type]  # of a model
    role = ENCODER if (reading and ENCODER in towers) or DECODER not in towers else DECODER
    prefix = "" if towers[role] is divisions[0].spec else f"{role}."
    sent = [*_at_ends(towers, role, width, reading), *_summed(divisions[0], prefix, width)]
    dim = towers[role].dim
    for path in divisions[0].broadcasts:
        if path.startswith(prefix):
            sent.append(Transfer(SUM, dim, width))
    for division in divisions:
        for path, source in division.receives.items():
            if path.startswith(prefix):
                sent.append(Transfer(SEND, dim, WIDENED if source.widened else width, source.rank))
    return sent


def _at_ends(towers: dict[str, Any], role: str, width: int, reading: bool) -> Iterator[Transfer]:
    """The sum of vectors that each rank has some of, and the gather of logits."""
    tower = towers[role]
    embedding = towers[ENCODER].embedding if tower.embedding.shared else tower.embedding
    if isinstance(embedding, EmbeddingPart):
        yield Transfer(SUM, tower.dim, width)
    tied = tower.head is not None and tower.head.ties_embedding
    table = embedding if tied else tower.head  # whose rows the logits are of
    if isinstance(table, EmbeddingPart | HeadPart):
        yield Transfer(GATHER, table.rows, width, last=reading and tower.causality != "full")


def _summed(division: Division, prefix: str, width: int) -> Iterator[Transfer]:
    """The sums of what modules give: a part of the model's width, or a linear layer of its own."""
    specs = {path: (spec, dim) for path, spec, dim in with_widths(division.spec, division.spec.dim)}  # type: ignore[attr-defined]
    for path in division.sums:
        if not path.startswith(prefix):
            continue
        if path in specs:
            yield Transfer(SUM, specs[path][1], width)
        else:
            parent, _, name = path.rpartition(".")
            spec, dim = specs[parent]
            yield from (Transfer(SUM, m.outputs, width) for m in spec.matrices(dim) if m.name == name)
