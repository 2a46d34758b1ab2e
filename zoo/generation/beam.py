"""Beam search for translating or continuing a text; with one beam, greedy search or sampling.

Axes: H hypotheses (rows), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mlx.core as mx
import numpy as np

from zoo.blocks.model import protocol_of
from zoo.errors import PromptError
from zoo.generation.checkpoint_settings import token_limit
from zoo.generation.choosing.forced import Constraints, constraints_of
from zoo.generation.choosing.logits import REMOVED, check_numbers, logprobs
from zoo.generation.choosing.sampling import sampler
from zoo.generation.decoding import decode
from zoo.generation.prompt import encode_prompt, end_ids, first_token, sampling_of, settings_of, start_token
from zoo.generation.reader import Reader, Report, TextReader, TranslationReader
from zoo.generation.step import Step
from zoo.generation.text import TextStream
from zoo.loading import Loaded

MOST_BEAMS = 256
MOST_PENALTY = 100


@dataclass(frozen=True)
class Beams:
    """How hypotheses compete. The score of a finished one is Σ log p / length ** `length_penalty`.

    `early_stopping` True ends the search once there are `count` finished ones; False, once the best running one
    would not beat the worst of them at its present length; "never", at the length that favours it most.
    """

    count: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    def __post_init__(self) -> None:
        if type(self.count) is not int or not 1 <= self.count <= MOST_BEAMS:
            raise PromptError(f"`beams` must lie in 1..{MOST_BEAMS}, got {self.count!r}")
        if not isinstance(self.length_penalty, int | float) or not abs(self.length_penalty) <= MOST_PENALTY:
            raise PromptError(f"`length_penalty` must lie in ±{MOST_PENALTY}, got {self.length_penalty!r}")
        if self.early_stopping not in (True, False, "never"):
            raise PromptError(f"`early_stopping` must be true, false or 'never', got {self.early_stopping!r}")

    def score(self, total: float, length: int) -> float:
        """The score of a hypothesis of `length` tokens whose log-probabilities sum to `total`."""
        return total / length**self.length_penalty

    def hopeless(self, best: float, finished: Sequence[Hypothesis], length: int, limit: int) -> bool:
        """Whether no running hypothesis, the best of which sums to `best`, is expected among the finished ones."""
        if len(finished) < self.count:
            return False
        if self.early_stopping is True:
            return True
        favourable = limit if self.early_stopping == "never" and self.length_penalty > 0 else length
        return self.score(best, favourable) <= min(hypothesis.score for hypothesis in finished)


@dataclass(frozen=True)
class Hypothesis:
    """The new tokens of one row and their score: while it runs, the sum of their log-probabilities in nats."""

    tokens: tuple[int, ...]
    score: float


def stream(
    loaded: Loaded,
    prompt: str | Sequence[int],
    *,
    beams: int | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    length_penalty: float | None = None,
    early_stopping: bool | Literal["never"] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    special_tokens: bool = True,
    prefill_chunk: int | None = None,
    report: Report | None = None,
) -> Iterator[Step]:
    """Translate or continue `prompt`, text or token ids, yielding a `Step` a token.

    Several `beams` are searched to the end first: until then steps have no token but the best text so far as a
    `draft`. With one beam tokens come as they are chosen, greedily or by sampling. Settings left None are those of
    `generation_config.json`, whose constraints hold in any case, else transformers' defaults: one beam, a length
    penalty of 1, no early stopping. `max_tokens` (256) and `min_tokens` count new tokens, an end token included.
    PromptError, before anything runs, for a prompt or setting that cannot be.
    """
    values = settings_of(loaded)
    sampling = sampling_of(loaded, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    search = Beams(
        count=_setting(beams, values.get("num_beams"), 1),
        length_penalty=_setting(length_penalty, values.get("length_penalty"), 1.0),
        early_stopping=_setting(early_stopping, values.get("early_stopping"), False),
    )
    if search.count > 1 and sampling.temperature:
        raise PromptError(
            "`beams`: several are searched, not sampled; give a `temperature` of 0, or one beam"
        )
    ids = encode_prompt(loaded, prompt, special_tokens, source_language, target_language)
    named = target_language is not None or isinstance(prompt, str)
    limit = token_limit(loaded, len(ids), max_tokens, min_tokens)
    reader = _reader(loaded, ids, limit, prefill_chunk, report)
    constraints = constraints_of(
        values,
        loaded.recipe.head.vocab or loaded.recipe.embedding.vocab,
        ends=end_ids(loaded),
        given=(reader.start,) if isinstance(reader, TranslationReader) else ids,
        last=limit,
        first_token=first_token(loaded, target_language) if named else None,
        least=min_tokens,
    )
    text = TextStream(loaded, limit)
    if search.count == 1:
        return text.steps(decode(reader, limit, sampler(sampling, seed), constraints=constraints))
    return _searched(loaded, reader, constraints, search, text)


def _setting(given: Any, default: Any, otherwise: Any) -> Any:
    return given if given is not None else default if default is not None else otherwise


def _reader(
    loaded: Loaded, ids: Sequence[int], limit: int, chunk: int | None, report: Report | None
) -> TextReader | TranslationReader:
    if protocol_of(loaded.model).translates:
        return TranslationReader(loaded.model, ids, limit, start=start_token(loaded))
    prefix = loaded.architecture.causality == "prefix"
    return TextReader(loaded.model, ids, limit, prefix=prefix, chunk=chunk, report=report)


def beam_search(reader: Reader, constraints: Constraints, beams: Beams) -> Iterator[Hypothesis]:
    """Yield the best running hypothesis after each step, and at last the best of those that finished.

    As in transformers: of the 2 · `count` likeliest continuations (more with several end tokens), those that end
    among the first `count` are finished, and the first `count` of the others run on.
    """
    running, finished = [Hypothesis((), 0.0)], list[Hypothesis]()
    kept = max(2, 1 + len(constraints.ends)) * beams.count
    logits = reader.first()  # (1, V)
    for length in range(1, constraints.last + 1):
        highest = logits.max()  # NaN when any of them is
        scores = constraints(logprobs(logits), [hypothesis.tokens for hypothesis in running])  # (H, V)
        scores = scores + mx.array([[hypothesis.score] for hypothesis in running])
        mx.async_eval(scores, highest)
        check_numbers(highest.item(), f"token {length}")
        going: list[tuple[int, Hypothesis]] = []
        for rank, (row, token, score) in enumerate(likeliest(scores, kept)):
            tokens = (*running[row].tokens, token)
            if token not in constraints.ends and length < constraints.last:
                going.append((row, Hypothesis(tokens, score)))
            elif rank < beams.count:
                finished.append(Hypothesis(tokens, beams.score(score, length)))
        finished = sorted(finished, key=lambda hypothesis: -hypothesis.score)[: beams.count]
        going = going[: beams.count]
        if not going or beams.hopeless(going[0][1].score, finished, length, constraints.last):
            break
        rows = [row for row, _ in going]
        if rows != list(range(len(running))):
            reader.select(rows)
        running = [hypothesis for _, hypothesis in going]
        logits = reader.next(mx.array([[hypothesis.tokens[-1]] for hypothesis in running]))
        mx.async_eval(logits)
        yield running[0]
    yield finished[0] if finished else running[0]


def likeliest(scores: mx.array, count: int) -> list[tuple[int, int, float]]:
    """The `count` largest of (H, V), as row, token and score, the largest first; those removed are left out."""
    # By numpy: on the CPU its partition takes a tenth of the time that MLX's does.
    flat = np.array(scores).reshape(-1)
    count = min(count, flat.size)
    indices = np.argpartition(-flat, count - 1)[:count]
    found = zip(indices.tolist(), flat[indices].tolist(), strict=True)
    ranked = sorted(found, key=lambda pair: (-pair[1], pair[0]))
    return [(*divmod(index, scores.shape[-1]), score) for index, score in ranked if score > REMOVED]


def _searched(
    loaded: Loaded, reader: Reader, constraints: Constraints, beams: Beams, text: TextStream
) -> Iterator[Step]:
    """Drafts while the search goes on, then the tokens of what it found."""
    found = None
    for hypothesis in beam_search(reader, constraints, beams):
        if found is not None:
            yield Step(None, "", draft=loaded.tokenizer.decode(found.tokens) if loaded.tokenizer else "")
        found = hypothesis
    assert found is not None
    yield from text.steps(found.tokens)
