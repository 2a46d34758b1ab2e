"""Several texts in the same passes, each token of each row chosen by itself: greedily or by a draw.

Axes: B texts the reader begins with, R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx

from zoo.generation.constraints import Constraints
from zoo.generation.reader import Reader
from zoo.generation.sampling import check_numbers
from zoo.generation.sampling import logprobs as log_probabilities
from zoo.generation.step import Step
from zoo.generation.text import TextStream


class Row:
    """One text: how its tokens are chosen, by `choose` from logits (1, V) to an id (1,), and its steps."""

    def __init__(
        self,
        text: TextStream,
        choose: Callable[[mx.array], mx.array],
        constraints: Constraints,
        greedy: bool = False,
    ) -> None:
        self.text, self.constraints = text, constraints
        self.plain = greedy and not constraints.active  # its token is the largest logit's
        self.waits = constraints.look_back  # the next choice needs the last token
        self._choose = choose
        self._tokens: list[int] = []
        self._chosen = 0

    def choose(self, logits: mx.array) -> mx.array:  # (1, V) -> (1,)
        """The next token; nothing is evaluated."""
        # Where no token is looked back on only their number matters: the last may not be known yet.
        before: Sequence[int] = self._tokens if self.waits else range(self._chosen)
        self._chosen += 1
        return self._choose(self.constraints(logits, [before]) if self.constraints.active else logits)

    def took(self, token: int) -> None:
        """Note the token that was chosen."""
        if self.waits:
            self._tokens.append(token)


def run_rows(
    reader: Reader, rows: Sequence[Row], *, copies: int = 1, logprobs: bool | int = False
) -> Iterator[tuple[int, Step]]:
    """Yield the steps of all rows as they come, each with the index of its row; a row that ends leaves the passes.

    `copies` rows begin with each of the reader's texts. `logprobs` gives the tokens' log-probabilities, a number of
    them besides so many of the likeliest alternatives. The next pass is dispatched before the last tokens are read, as
    long as no row has to know them; a row that ends then wastes its part of that pass. ZooError when the logits are no
    numbers.
    """
    passes = _Passes(reader, rows, logprobs)
    going = list(range(len(rows)))
    logits = reader.first()  # (B, V)
    if copies > 1:
        begun = [text for text in range(logits.shape[0]) for _ in range(copies)]
        reader.select(begun)
        logits = logits[mx.array(begun)]  # (R, V)
    found = passes.chosen(logits, going)
    step = 0
    while going:
        step += 1
        ahead = not any(rows[index].waits for index in going)
        # A row at its limit may have no position for one more token.
        more = [
            place for place, index in enumerate(going) if rows[index].text.count + 1 < rows[index].text.limit
        ]
        upcoming = passes.next(found, going, more) if ahead and more else None
        check_numbers(found[1].item(), f"token {step}")
        steps = passes.steps(found, going)
        ended = {index for index, each in steps if each.finish_reason is not None}
        if ahead:
            staying = [place for place, origin in enumerate(more) if going[origin] not in ended]
            going = [going[place] for place in more]
            if upcoming is not None and len(staying) < len(going) and staying:
                reader.select(staying)
                upcoming = _narrowed(upcoming, staying)
            going = [going[place] for place in staying]
        else:
            more = [place for place, index in enumerate(going) if index not in ended]
            upcoming = passes.next(found, going, more) if more else None
            going = [going[place] for place in more]
        yield from steps
        if upcoming is not None:
            found = upcoming


class _Passes:
    """The model's passes for some rows, and what is chosen after each.

    What was chosen is a list of arrays: the tokens (R,), the largest logit (), and where asked for the log-probabilities
    (R,), the likeliest tokens (R, n) and theirs (R, n).
    """

    def __init__(self, reader: Reader, rows: Sequence[Row], logprobs: bool | int) -> None:
        self.reader, self.rows = reader, rows
        self.logprobs = bool(logprobs)
        self.wanted = 0 if isinstance(logprobs, bool) else logprobs

    def chosen(self, logits: mx.array, going: Sequence[int]) -> list[mx.array]:  # (R, V)
        """The next tokens of the rows `going`; nothing is waited for."""
        if all(self.rows[index].plain for index in going):
            tokens = mx.argmax(logits, axis=-1)
        else:
            each = [self.rows[index].choose(logits[place : place + 1]) for place, index in enumerate(going)]
            tokens = mx.concatenate(each)
        found = [tokens, logits.max()]  # NaN when any of them is
        if self.logprobs:
            shown = log_probabilities(logits)
            found.append(mx.take_along_axis(shown, tokens[:, None], axis=-1)[:, 0])
            if self.wanted:
                best = mx.argsort(-shown, axis=-1)[:, : self.wanted]
                found += [best, mx.take_along_axis(shown, best, axis=-1)]
        mx.async_eval(*found)
        return found

    def next(self, found: list[mx.array], going: Sequence[int], more: Sequence[int]) -> list[mx.array]:
        """What is chosen after one more pass over the rows at the places `more` of `going`."""
        tokens = found[0]
        if len(more) < len(going):
            self.reader.select(more)
            tokens = tokens[mx.array(more)]
        return self.chosen(self.reader.next(tokens[:, None]), [going[place] for place in more])

    def steps(self, found: list[mx.array], going: Sequence[int]) -> list[tuple[int, Step]]:
        """The steps of what was chosen, each with the index of its row."""
        tokens, _, *more = found
        ids, numbers = tokens.tolist(), [array.tolist() for array in more]
        steps = []
        for place, index in enumerate(going):
            self.rows[index].took(ids[place])
            logprob = numbers[0][place] if numbers else None
            likely = dict(zip(numbers[1][place], numbers[2][place], strict=True)) if self.wanted else None
            steps.append((index, self.rows[index].text.add(ids[place], logprob, likely)))
        return steps


def _narrowed(found: list[mx.array], staying: Sequence[int]) -> list[mx.array]:
    """What was chosen, for these rows only."""
    kept = mx.array(list(staying))
    return [array[kept] if array.ndim else array for array in found]
