"""Beam search, and greedy search or sampling under the same constraints: for translating, or continuing a text.

Axes: H hypotheses (rows), T length, S source length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mlx.core as mx
import numpy as np

from zoo.blocks.model import protocol_of
from zoo.cache import CachePolicy
from zoo.errors import PromptError
from zoo.generation.constraints import REMOVED, Constraints, constraints_of, whole
from zoo.generation.prompt import (
    encode_prompt,
    end_ids,
    first_token,
    learned_context,
    sampling_of,
    settings_of,
)
from zoo.generation.sampling import check_numbers, logprobs, sampler
from zoo.generation.step import Step
from zoo.loading import Loaded

MAX_TOKENS = 256
MOST_RESERVED = 4096  # tokens to make room for at once
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
            raise PromptError(f"beams must lie in 1..{MOST_BEAMS}, got {self.count!r}")
        if not isinstance(self.length_penalty, int | float) or not abs(self.length_penalty) <= MOST_PENALTY:
            raise PromptError(f"length-penalty must lie in ±{MOST_PENALTY}, got {self.length_penalty!r}")
        if self.early_stopping not in (True, False, "never"):
            raise PromptError(f"early-stopping must be true, false or 'never', got {self.early_stopping!r}")

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
        return self.score(best, favourable) <= min(one.score for one in finished)


@dataclass(frozen=True)
class Hypothesis:
    """The new tokens of one row and their score: while it runs, the sum of their log-probabilities in nats."""

    tokens: tuple[int, ...]
    score: float


class Reader:
    """A model with its caches, asked for the logits of the next token of each row."""

    def __init__(self, loaded: Loaded, ids: Sequence[int], limit: int) -> None:
        self.model = loaded.model
        self.prefix = loaded.architecture.causality == "prefix"  # whether the prompt sees itself both ways
        self.protocol = protocol_of(self.model)
        self.translates = self.protocol.translates
        self.given: tuple[int, ...] = (self._start(loaded),) if self.translates else tuple(ids)
        self.cache = self.model.make_cache(CachePolicy(reserve=len(self.given) + min(limit, MOST_RESERVED)))
        self.memory = self.model.encode(mx.array([ids])) if self.translates else None  # (1, S, D)

    def _start(self, loaded: Loaded) -> int:
        start = settings_of(loaded).get("decoder_start_token_id")
        if isinstance(start, int) and not 0 <= start < loaded.recipe.decoder.embedding.vocab:
            raise PromptError(
                f"generation_config.json: decoder_start_token_id {start} lies outside the vocabulary"
            )
        return start if isinstance(start, int) else loaded.recipe.start

    def first(self) -> mx.array:
        """The logits of the first new token, (1, V)."""
        given = mx.array([self.given])
        if not self.translates and self.prefix:
            return self.model.head(self.model.backbone(given, self.cache, prefix=len(self.given))[:, -1:])[
                :, -1
            ]
        return self.next(given)

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after these tokens, (H, T) -> (H, V)."""
        if self.translates:
            return self.model.decode(tokens, self.memory, self.cache)[:, -1]
        return self.model.head(self.model.backbone(tokens, self.cache)[:, -1:])[:, -1]

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""
        self.protocol.select(self.cache, mx.array(list(rows)))


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
        raise PromptError("beams: several are searched, not sampled; give a temperature of 0, or one beam")
    ids = encode_prompt(loaded, prompt, special_tokens, source_language, target_language)
    named = target_language is not None or isinstance(prompt, str)
    limit = _limit(loaded, values, ids, max_tokens)
    least = _setting(min_tokens, None, 0)
    if least < 0 or least > limit:
        raise PromptError(f"min-tokens must lie in 0..{limit}, the most tokens to come, got {least}")
    reader = Reader(loaded, ids, limit)
    constraints = constraints_of(
        values,
        loaded.recipe.head.vocab or loaded.recipe.embedding.vocab,
        ends=end_ids(loaded),
        given=reader.given,
        last=limit,
        first_token=first_token(loaded, target_language) if named else None,
        least=min_tokens,
    )
    if search.count == 1:
        return _told(loaded, one_by_one(reader, constraints, sampler(sampling, seed)), constraints)
    return _searched(loaded, reader, constraints, search)


def _setting(given: Any, default: Any, otherwise: Any) -> Any:
    return given if given is not None else default if default is not None else otherwise


def _limit(loaded: Loaded, values: Mapping[str, Any], ids: Sequence[int], max_tokens: int | None) -> int:
    """The most new tokens: those asked for, else those the checkpoint's settings allow, as positions permit."""
    translates = protocol_of(loaded.model).translates
    given = 1 if translates else len(ids)
    limit = max_tokens
    if limit is None:
        total = whole(values, "max_length")
        limit = whole(values, "max_new_tokens") or (total - given if total else MAX_TOKENS)
    if limit < 1:
        raise PromptError(f"max-tokens must be at least 1, got {limit}")
    context = learned_context(loaded.recipe.decoder if translates else loaded.recipe)
    return limit if context is None else min(limit, context - given + 1)


def one_by_one(
    reader: Reader, constraints: Constraints, choose: Callable[[mx.array], mx.array]
) -> Iterator[tuple[int, ...]]:
    """Yield the tokens so far after each new one, up to the limit or an end token."""
    logits, tokens = reader.first(), list[int]()
    while len(tokens) < constraints.last:
        token, highest = choose(constraints(logits, [tokens])), logits.max()  # (1,), ()
        if not constraints.look_back and len(tokens) + 1 < constraints.last:
            logits = reader.next(
                token[:, None]
            )  # dispatched before the token is read, so that none is waited for
            mx.async_eval(token, highest, logits)
        check_numbers(highest.item(), f"token {len(tokens) + 1}")
        tokens.append(int(token.item()))
        yield tuple(tokens)
        if tokens[-1] in constraints.ends:
            return
        if constraints.look_back and len(tokens) < constraints.last:
            logits = reader.next(token[:, None])


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
        scores = constraints(logprobs(logits), [one.tokens for one in running])  # (H, V)
        scores = scores + mx.array([[one.score] for one in running])
        mx.async_eval(scores, highest)
        check_numbers(highest.item(), f"token {length}")
        going: list[tuple[int, Hypothesis]] = []
        for rank, (row, token, score) in enumerate(likeliest(scores, kept)):
            tokens = (*running[row].tokens, token)
            if token not in constraints.ends and length < constraints.last:
                going.append((row, Hypothesis(tokens, score)))
            elif rank < beams.count:
                finished.append(Hypothesis(tokens, beams.score(score, length)))
        finished = sorted(finished, key=lambda one: -one.score)[: beams.count]
        going = going[: beams.count]
        if not going or beams.hopeless(going[0][1].score, finished, length, constraints.last):
            break
        rows = [row for row, _ in going]
        if rows != list(range(len(running))):
            reader.select(rows)
        running = [one for _, one in going]
        logits = reader.next(mx.array([[one.tokens[-1]] for one in running]))
        mx.async_eval(logits)
        yield running[0]
    yield finished[0] if finished else running[0]


def likeliest(scores: mx.array, count: int) -> list[tuple[int, int, float]]:
    """The `count` largest of (H, V), as row, token and score, the largest first; those removed are left out."""
    # By numpy: on the CPU its partition takes a tenth of the time that MLX's does.
    flat = np.array(scores).reshape(-1)
    count = min(count, flat.size)
    places = np.argpartition(-flat, count - 1)[:count]
    found = zip(places.tolist(), flat[places].tolist(), strict=True)
    ranked = sorted(found, key=lambda pair: (-pair[1], pair[0]))
    return [(*divmod(place, scores.shape[-1]), score) for place, score in ranked if score > REMOVED]


def _searched(loaded: Loaded, reader: Reader, constraints: Constraints, beams: Beams) -> Iterator[Step]:
    """Drafts while the search goes on, then the tokens of what it found."""
    found = None
    for hypothesis in beam_search(reader, constraints, beams):
        if found is not None:
            yield Step(None, "", draft=loaded.tokenizer.decode(found.tokens) if loaded.tokenizer else "")
        found = hypothesis
    assert found is not None
    yield from _told(loaded, (found.tokens[: i + 1] for i in range(len(found.tokens))), constraints)


def _told(loaded: Loaded, texts: Iterator[tuple[int, ...]], constraints: Constraints) -> Iterator[Step]:
    """A step for the last token of each of `texts`, which grow by one."""
    detokenizer = loaded.tokenizer.detokenizer() if loaded.tokenizer else None
    for tokens in texts:
        ended = tokens[-1] in constraints.ends
        last = ended or len(tokens) == constraints.last
        piece = ""
        if detokenizer is not None:
            piece = "" if ended else detokenizer.add(tokens[-1])
            piece += detokenizer.finish() if last else ""
        yield Step(tokens[-1], piece, finish_reason=("stop" if ended else "length") if last else None)
