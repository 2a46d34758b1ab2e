"""The objective of masked diffusion (Nie et al., 2025). Axes: B rows, T tokens a row, D width, P positions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import mlx.core as mx

from zoo.generation.loop.prompt import eos_ids_of, mask_id
from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer
from zoo.training import answers
from zoo.training.answers import target_messages, without_targets
from zoo.training.example_objective import ExampleObjective
from zoo.training.examples import Completion, Conversation, Example, TextExample
from zoo.training.loop import Batch
from zoo.training.loss import IGNORED, token_losses, true_positions
from zoo.training.masked_lm import Span, Spans
from zoo.training.objective import END, TrainingObjective, alike, mask_of, split_end, token
from zoo.training.record import TrainingSettings

WHOLE = 0.25  # share of the rows that have no prompt
ROOM = 64  # end tokens at most after a text, as many as it is asked for by default


def masked_diffusion(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    settings: TrainingSettings,
    names: Collection[str] = (),
    answers: Collection[str] = (),
) -> Iterator[Batch]:
    """Masked-diffusion batches: l of the L words after a prompt are masked, l uniform in 1 … L, with weights L/l.

    A quarter of the rows have no prompt, so that their whole text is noised (Nie et al., 2025, equation 3); of the
    others only the answer is (section 2.3, equation 5), which ends a sentence as the prompt begins it. The number of
    masks is drawn, not whether each is one: the same on average, and less noisy (equation 6). Whole words and names
    are masked. Rows go on with end tokens, a part of the answer, so that a short one ends in a long text of masks.
    Targets (B, T) are ignored in the prompt; weights (B, T) are 0 where nothing is masked.
    """
    end, mask, draw = token(tokenizer, END), mask_of(tokenizer), Random(settings.seed)
    blank, spans = set(tokenizer.encode(" ", False)), Spans(tokenizer, names, answers)
    for rows in alike(texts, tokenizer, settings, room=ROOM):
        inputs, targets, weights = [], [], []
        offset = draw.random()
        for row, ids in enumerate(rows.tolist()):
            ids, padding = split_end(ids, end)
            found = spans(ids)
            start = 0 if draw.random() < WHOLE else prompt_length(ids, found, blank, draw)
            found = [span for span in found if span.start >= start]
            found += [Span(position, position + 1) for position in range(len(ids), rows.shape[1])]
            ids += padding
            shown, weight = noised(ids, found, spread(offset, row, rows.shape[0]), mask, draw)
            inputs.append(shown)
            targets.append([IGNORED] * start + ids[start:])
            weights.append(weight)
        yield mx.array(inputs), mx.array(targets), mx.array(weights)


def spread(offset: float, row: int, rows: int) -> float:
    """The share of a row that is masked: spread evenly over a batch, which makes its loss less noisy (Kingma et al., 2021, I.1)."""
    return (offset + row / rows) % 1


def noised(
    ids: list[int], spans: Sequence[Span], share: float, mask: int, draw: Random
) -> tuple[list[int], list[float]]:
    """A row with a share of its `spans` masked, at least one, and the weight of each token."""
    count = 1 + int(share * len(spans))
    positions = {position for span in draw.sample(spans, count) for position in range(span.start, span.stop)}
    shown = [mask if position in positions else id for position, id in enumerate(ids)]
    return shown, [len(spans) / count if position in positions else 0.0 for position in range(len(ids))]


def prompt_length(ids: Sequence[int], spans: Sequence[Span], blank: Collection[int], draw: Random) -> int:
    """The length of the prompt: it ends at the text's first answer or, without one, at a word drawn at random.

    A prompt is never empty, and ends before the space that comes before its answer: `blank` are the tokens that are
    nothing else.
    """
    later = spans[1:]
    if not later:
        return 0
    start = next((span.start for span in later if span.answer), None) or draw.choice(later).start
    return start - 1 if start > 1 and ids[start - 1] in blank else start


def masked_diffusion_loss(model: Any, inputs: mx.array, targets: mx.array, weights: mx.array) -> mx.array:
    """Mean over the targets of weight · −log p(target): a bound of −log p(answer) a token (Nie et al., 2025)."""
    positions = true_positions(weights > 0)
    hidden_states = model.backbone(inputs).reshape(targets.size, -1)[positions]  # (B, T, D) -> (P, D)
    losses = token_losses(model.head(hidden_states[None]), targets.reshape(-1)[positions][None])  # (1, P)
    return (losses[0] * weights.reshape(-1)[positions]).sum() / (targets != IGNORED).sum()


@dataclass(frozen=True)
class DiffusionRow:
    """The ids of a text, of which those before `start` are its prompt; `cut` tokens were left out."""

    ids: list[int]
    start: int
    cut: int

    @property
    def length(self) -> int:
        """The number of ids."""
        return len(self.ids)


def encode(example: Example, loaded: Loaded, length: int) -> list[DiffusionRow]:
    """The rows of a text, of a completion, and of each answer of a conversation, with all before it as the prompt."""
    asked = [example]
    if isinstance(example, Conversation):
        asked = [
            replace(example, messages=(*without_targets(example.messages[:place]), example.messages[place]))
            for place in target_messages(example.messages)
        ]
    return [
        DiffusionRow(
            [*row.ids, row.targets[-1]], 0 if isinstance(one, TextExample) else row.prompt_length, row.cut
        )
        for one in asked
        for row in answers.encode(one, loaded, max(length - 1, 1))
    ]


def collate(rows: Sequence[DiffusionRow], loaded: Loaded, order: Random) -> Batch:
    """Inputs, targets and weights, (B, T), as `masked_diffusion` gives them, each token by itself.

    A text that has ended goes on with end tokens, which are targets (section 2.3); one that is cut goes on with none.
    """
    assert loaded.tokenizer is not None
    end, mask, width = token(loaded.tokenizer, END), mask_id(loaded), max(row.length for row in rows)
    inputs, targets, weights = [], [], []
    offset = order.random()
    for number, row in enumerate(rows):
        padding = [end] * (width - row.length)
        stop = width if row.ids[-1] in eos_ids_of(loaded) else row.length
        tokens = [Span(place, place + 1) for place in range(row.start, stop)]
        shown, weight = noised(row.ids + padding, tokens, spread(offset, number, len(rows)), mask, order)
        inputs.append(shown)
        targets.append(
            [IGNORED] * row.start + (row.ids + padding)[row.start : stop] + [IGNORED] * (width - stop)
        )
        weights.append(weight)
    return mx.array(inputs), mx.array(targets), mx.array(weights)


DIFFUSION = TrainingObjective(
    masked_diffusion,
    masked_diffusion,
    masked_diffusion_loss,
    steps=14_000,
    batch=8,
    rate=2e-3,
    sentences=True,
    names=True,
    vocab=2304,
    examples=ExampleObjective(
        (TextExample, Completion, Conversation), encode, collate, masked_diffusion_loss
    ),
)
