"""The beam search for one prompt. Axes: H hypotheses (rows), V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from zoo.generation.sampling import LogitsProcessors
from zoo.generation.sampling.logits import NEG_INF
from zoo.generation.strategies.beam_search.config import BeamConfig, Hypothesis


class BeamGroup:
    """The hypotheses of one group: those that run, in the rows `rows` of the search, and those that finished."""

    def __init__(self) -> None:
        self.running = [Hypothesis((), 0.0)]
        self.rows = [0]
        self.finished: list[Hypothesis] = []
        self.done = False


class BeamSearch:
    """The beam search for one prompt. Each step it takes log-probabilities and says which rows continue.

    As in transformers: of the 2 · n likeliest continuations of a group of n (more with several end tokens), those that
    end among the first n are finished, and the first n of the others run on.
    """

    def __init__(self, processors: LogitsProcessors, beams: BeamConfig) -> None:
        self.processors, self.constraints, self.beams = processors, processors.constraints, beams
        self.groups = [BeamGroup() for _ in range(beams.groups)]
        self.length = 0  # tokens of each running hypothesis
        self.width = 1  # rows that the next step has
        self._candidates = max(2, 1 + len(self.constraints.eos_ids)) * beams.width

    @property
    def done(self) -> bool:
        """Whether no hypothesis continues."""
        return all(group.done for group in self.groups)

    @property
    def running(self) -> list[Hypothesis]:
        """The hypotheses in the rows of the next step."""
        return [hypothesis for group in self.groups if not group.done for hypothesis in group.running]

    @property
    def best(self) -> Hypothesis:
        """The running hypothesis with the highest score."""
        return max(self.running, key=lambda hypothesis: hypothesis.score)

    def found(self) -> list[Hypothesis]:
        """The hypotheses to return, best first; unfinished ones only where none finished."""
        finished = [hypothesis for group in self.groups for hypothesis in group.finished]
        unfinished = [hypothesis for group in self.groups for hypothesis in group.running]
        return sorted(finished or unfinished, key=lambda h: -h.score)[: self.beams.returned]

    def advance(self, logprobs: mx.array) -> list[int]:  # (H, V) of the rows
        """Take the log-probabilities of the next token in each row; return the rows that continue, in order."""
        self.length += 1
        chosen: list[int] = []  # the tokens that earlier groups chose at this step
        rows: list[int] = []
        for group in self.groups:
            if group.done:
                continue
            continued = self._continued(
                group, likeliest(self._scores(group, logprobs, chosen), self._candidates)
            )
            chosen += [hypothesis.tokens[-1] for _, hypothesis in continued]
            if not group.done:
                group.running = [hypothesis for _, hypothesis in continued]
                group.rows = list(range(len(rows), len(rows) + len(continued)))
                rows += [row for row, _ in continued]
        self.width = len(rows)
        return rows

    def _continued(
        self, group: BeamGroup, ranked: Sequence[tuple[int, int, float]]
    ) -> list[tuple[int, Hypothesis]]:
        """The likeliest continuations of a group that do not end, each with its row. The group may be done with them."""
        beams, constraints = self.beams, self.constraints
        last = self.length == constraints.max_tokens
        continued: list[tuple[int, Hypothesis]] = []
        for rank, (row, token, score) in enumerate(ranked):
            tokens = (*group.running[row].tokens, token)
            if token not in constraints.eos_ids:
                continued.append((group.rows[row], Hypothesis(tokens, score)))
            if (last or token in constraints.eos_ids) and rank < beams.width:
                group.finished.append(Hypothesis(tokens, beams.score(score, self.length)))
        group.finished = sorted(group.finished, key=lambda hypothesis: -hypothesis.score)[: beams.width]
        continued = continued[: beams.width]
        if last or not continued:
            group.done = True
        else:
            # With several groups transformers takes the best candidate, even one that has just ended.
            best = ranked[0][2] if beams.groups > 1 else continued[0][1].score
            group.done = beams.cannot_improve(best, group.finished, self.length, constraints.max_tokens)
        return continued

    def _scores(self, group: BeamGroup, logprobs: mx.array, chosen: Sequence[int]) -> np.ndarray:
        """The scores of the group's hypotheses with each token, (H, V)."""
        scores = logprobs if len(group.rows) == self.width else logprobs[mx.array(group.rows)]
        if chosen:
            counts = np.bincount(chosen, minlength=scores.shape[-1]).astype(np.float32)
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
    """The `count` largest of (H, V), as row, token and score, the largest first; tokens at minus infinity are left out."""
    # By numpy: on the CPU its partition takes a tenth of the time that MLX's does.
    flat = np.array(scores).reshape(-1)
    count = min(count, flat.size)
    indices = np.argpartition(-flat, count - 1)[:count]
    found = zip(indices.tolist(), flat[indices].tolist(), strict=True)
    ranked = sorted(found, key=lambda pair: (-pair[1], pair[0]))
    return [(*divmod(index, scores.shape[-1]), score) for index, score in ranked if score > NEG_INF]
