"""The beam search for one prompt. Axes: H hypotheses (rows), V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from zoo.generation.sampling import LogitsProcessors
from zoo.generation.sampling.logits import NEG_INF
from zoo.generation.strategies.beam_search.scoring import Beams, Hypothesis


class Group:
    """The hypotheses of one group: those that run, in the rows `rows` of the search, and those that finished."""

    def __init__(self) -> None:
        self.running = [Hypothesis((), 0.0)]
        self.rows = [0]
        self.finished: list[Hypothesis] = []
        self.over = False


class Search:
    """The beam search for one prompt: it is given each step's log-probabilities and says which rows go on.

    As in transformers: of the 2 · n likeliest continuations of a group of n (more with several end tokens), those that
    end among the first n are finished, and the first n of the others run on.
    """

    def __init__(self, processors: LogitsProcessors, beams: Beams) -> None:
        self.processors, self.constraints, self.beams = processors, processors.constraints, beams
        self.groups = [Group() for _ in range(beams.groups)]
        self.length = 0  # tokens of each running hypothesis
        self.width = 1  # rows that the next step has
        self._kept = max(2, 1 + len(self.constraints.eos_ids)) * beams.width

    @property
    def over(self) -> bool:
        """Whether no hypothesis runs on."""
        return all(group.over for group in self.groups)

    @property
    def running(self) -> list[Hypothesis]:
        """What the rows of the next step hold."""
        return [hypothesis for group in self.groups if not group.over for hypothesis in group.running]

    @property
    def best(self) -> Hypothesis:
        """The running hypothesis with the highest score."""
        return max(self.running, key=lambda hypothesis: hypothesis.score)

    def found(self) -> list[Hypothesis]:
        """The texts to return, best first; unfinished ones only where nothing finished."""
        finished = [hypothesis for group in self.groups for hypothesis in group.finished]
        unfinished = [hypothesis for group in self.groups for hypothesis in group.running]
        return sorted(finished or unfinished, key=lambda h: -h.score)[: self.beams.returned]

    def advance(self, logprobs: mx.array) -> list[int]:  # (H, V) of the rows
        """Take in the log-probabilities of the next token in each row, and give the rows that go on, in order."""
        self.length += 1
        taken: list[int] = []  # the tokens that the groups before have just chosen
        rows: list[int] = []
        for group in self.groups:
            if group.over:
                continue
            going = self._continued(group, likeliest(self._scores(group, logprobs, taken), self._kept))
            taken += [hypothesis.tokens[-1] for _, hypothesis in going]
            if not group.over:
                group.running = [hypothesis for _, hypothesis in going]
                group.rows = list(range(len(rows), len(rows) + len(going)))
                rows += [row for row, _ in going]
        self.width = len(rows)
        return rows

    def _continued(
        self, group: Group, ranked: Sequence[tuple[int, int, float]]
    ) -> list[tuple[int, Hypothesis]]:
        """The likeliest continuations of a group that do not end, each with its row; the group may be over with them."""
        beams, constraints = self.beams, self.constraints
        last = self.length == constraints.max_tokens
        going: list[tuple[int, Hypothesis]] = []
        for rank, (row, token, score) in enumerate(ranked):
            tokens = (*group.running[row].tokens, token)
            if token not in constraints.eos_ids:
                going.append((group.rows[row], Hypothesis(tokens, score)))
            if (last or token in constraints.eos_ids) and rank < beams.width:
                group.finished.append(Hypothesis(tokens, beams.score(score, self.length)))
        group.finished = sorted(group.finished, key=lambda hypothesis: -hypothesis.score)[: beams.width]
        going = going[: beams.width]
        if last or not going:
            group.over = True
        else:
            # Where there are groups, transformers measures their hope by what has just ended, too.
            best = ranked[0][2] if beams.groups > 1 else going[0][1].score
            group.over = beams.hopeless(best, group.finished, self.length, constraints.max_tokens)
        return going

    def _scores(self, group: Group, logprobs: mx.array, taken: Sequence[int]) -> np.ndarray:
        """The scores of the group's hypotheses with each token, (H, V)."""
        scores = logprobs if len(group.rows) == self.width else logprobs[mx.array(group.rows)]
        if taken:
            counts = np.bincount(taken, minlength=scores.shape[-1]).astype(np.float32)
            scores = scores - self.beams.diversity * mx.array(counts)
        if self.processors.chain:
            scores = self._processed(scores, group.running)
        totals = [[hypothesis.score] for hypothesis in group.running]
        return np.array(scores) + np.array(totals, np.float32)

    def _processed(self, scores: mx.array, running: Sequence[Hypothesis]) -> mx.array:
        """The scores (H, V) after the logits processors; the hypotheses have tokens of the same number."""
        if not self.processors.looks_back:
            return self.processors.after(running[0].tokens)(scores)
        rows = [
            self.processors.after(hypothesis.tokens)(scores[row : row + 1])
            for row, hypothesis in enumerate(running)
        ]
        return mx.concatenate(rows)


def likeliest(scores: mx.array | np.ndarray, count: int) -> list[tuple[int, int, float]]:
    """The `count` largest of (H, V), as row, token and score, the largest first; those removed are left out."""
    # By numpy: on the CPU its partition takes a tenth of the time that MLX's does.
    flat = np.array(scores).reshape(-1)
    count = min(count, flat.size)
    indices = np.argpartition(-flat, count - 1)[:count]
    found = zip(indices.tolist(), flat[indices].tolist(), strict=True)
    ranked = sorted(found, key=lambda pair: (-pair[1], pair[0]))
    return [(*divmod(index, scores.shape[-1]), score) for index, score in ranked if score > NEG_INF]
