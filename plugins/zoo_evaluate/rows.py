"""The rows that an example is read as, and the prompts and answers in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zoo.generation.loop.prompt import eos_ids_of
from zoo.inspect.perplexity import MOST_CONTEXT
from zoo.loading import Loaded
from zoo.training.answers import encode
from zoo.training.examples import Example, named_errors
from zoo.training.loss import IGNORED
from zoo_evaluate.likelihood import TargetRow


@dataclass(frozen=True)
class Answers:
    """The rows of an example, and of each answer in them the prompt's ids and the text."""

    rows: list[TargetRow]
    prompts: list[list[int]]
    references: list[str]

    @classmethod
    def of(cls, item: Example, loaded: Loaded) -> Answers:
        """The answers of an example."""
        assert loaded.tokenizer is not None
        rows, ends = rows_of(item, loaded), eos_ids_of(loaded)
        prompts: list[list[int]] = []
        references: list[str] = []
        for row in rows:
            for start, stop in _spans(row.targets):
                prompts.append(list(row.inputs[: start + 1]))
                said = [id for id in row.targets[start:stop] if id not in ends]
                references.append(loaded.tokenizer.decode(said))
        return cls(rows, prompts, references)


def rows_of(item: Example, loaded: Loaded) -> list[TargetRow]:
    """The rows of a text, a completion or a conversation."""
    length = loaded.recipe.context or MOST_CONTEXT
    with named_errors(item):
        return [TargetRow(row.ids, row.targets) for row in encode(item, loaded, length)]


def _spans(targets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first position of each run of targets, and the one after its last."""
    start: int | None = None
    for place, target in enumerate([*targets, IGNORED]):
        if target != IGNORED and start is None:
            start = place
        elif target == IGNORED and start is not None:
            yield start, place
            start = None
