"""Beam search for translating or continuing a text; with one beam, greedy search or sampling.

`BeamSearch` is the search for one prompt. A pass of the model gives one token to all hypotheses of all prompts. Axes: B
prompts, H hypotheses (rows), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.architecture.settings import BEAM_SEARCH, CACHE, PROMPT, BeamSettings
from zoo.errors import PromptError
from zoo.frozen import frozen
from zoo.generation.loop.batch_decoder import BatchDecoder
from zoo.generation.loop.engine import Engine, run_prompts
from zoo.generation.loop.prompt import BATCH, Report, each_prompt, in_batches, tokenize_prompt
from zoo.generation.loop.step import Step, candidate
from zoo.generation.loop.text_stream import TextStream
from zoo.generation.sampling import LogitsProcessors, processors_of
from zoo.generation.sampling.custom import filters_from
from zoo.generation.sampling.logits import NEG_INF, check_numbers, logprobs
from zoo.generation.settings import Settings, check_key, check_prefill, generation_config_of, settings_for
from zoo.generation.strategies import best_of
from zoo.loading import Loaded

# What several beams have a use for: limits, penalties that look at a text alone, the prompt and the caches.
SEARCHED = (
    *("max_tokens", "min_tokens", "stop", "stop_tokens", "repetition_penalty", "no_repeat_ngram_size"),
    *("exponential_decay_length_penalty", "logits_processors"),
    *(setting.name for setting in (*PROMPT, *CACHE)),
)


def stream(loaded: Loaded, prompt: str | Sequence[int], **settings: Any) -> Iterator[Step]:
    """Translate or continue `prompt`, text or token ids, yielding a `Step` a token.

    Several `beams` are searched to the end first: until then steps have no token but the best text so far as a
    `draft`. Then, where more than one of `return_sequences` is asked for, come steps without a token whose
    `candidate` is one of these texts, best first, with its `text`, `tokens`, `score` (Σ log p / length **
    `length_penalty`, in nats) and `finish_reason`; and at last the tokens of the best. `beam_groups` search one after
    the other, `diversity_penalty` keeping them apart. With one beam tokens come as they are chosen, greedily or by
    sampling; where texts are sampled, so many as `return_sequences` are, as by `best_of`, with all as candidates.

    Settings left None are those of `generation_config.json`, whose constraints hold in any case, else transformers'
    defaults: one beam, a length penalty of 1, no early stopping. `max_tokens` (256) and `min_tokens` count new tokens,
    an end token included. PromptError, before anything runs, for a prompt or setting that cannot be.
    """
    return (step for _, step in batch(loaded, [prompt], **settings))


def batch(
    loaded: Loaded, prompts: Sequence[str | Sequence[int]], *, batch_size: int = BATCH, **given: Any
) -> Iterator[tuple[int, Step]]:
    """What `stream` gives for each of the prompts, `batch_size` of them in the same passes: its index and a step.

    PromptError, before anything runs, for a setting or a prompt that cannot be, with the prompt's index.
    """
    report: Report | None = given.pop("report", None)
    own = {setting.name: given.pop(setting.name, None) for setting in BEAM_SEARCH}
    settings = settings_for(loaded, given)
    samples: int = (settings.temperature and own.pop("return_sequences")) or 1
    config = beam_config(generation_config_of(loaded), own)
    check_prefill(loaded, settings)
    if config.beams == 1 and samples > 1:
        streams = [best_of.stream(loaded, p, best_of=samples, report=report, **given) for p in prompts]
        return ((index, step) for index, steps in enumerate(streams) for step in steps)
    if config.beams == 1:
        return run_prompts(Engine(loaded, rows=batch_size), prompts, settings, report=report)
    if settings.temperature:
        raise PromptError("`beams`: beam search does not sample; give a `temperature` of 0, or one beam")
    processors = not filters_from(loaded.registry, settings)  # all samplers are logits processors
    for name in (*given, "guidance_scale"):
        searched = name in SEARCHED or (name == "samplers" and processors)
        if not searched and getattr(settings, name) != getattr(Settings(), name):
            raise PromptError(f"`{name}` cannot be given with several `beams`")
    tokenized = each_prompt(prompts, lambda prompt: tokenize_prompt(loaded, prompt, settings))

    def run() -> Iterator[tuple[int, Step]]:
        """Drafts while a search goes on, then its candidates, and the tokens of the best."""
        for indices in in_batches(loaded, [len(ids) for ids, _ in tokenized], batch_size):
            group = [tokenized[index] for index in indices]
            most = max(constraints.max_tokens for _, constraints in group)
            decoder = BatchDecoder(loaded, [ids for ids, _ in group], most, settings, report=report)
            searches = [
                BeamSearch(processors_of(loaded, settings, constraints), config) for _, constraints in group
            ]
            for place in run_searches(decoder, searches):
                search = searches[place]
                if search.done:
                    steps = _found(loaded, search, settings)
                else:
                    draft = loaded.tokenizer.decode(search.best.tokens) if loaded.tokenizer else ""
                    steps = iter([Step(None, "", draft=draft)])
                yield from ((indices[place], step) for step in steps)

    return run()


# The keys of generation_config.json for the settings that it calls otherwise.
KEYS = {"beams": "num_beams", "beam_groups": "num_beam_groups", "return_sequences": "num_return_sequences"}


def beam_config(values: Mapping[str, Any], given: Mapping[str, Any]) -> BeamConfig:
    """The configuration of a search: the settings that are `given`, else what the generation config `values` say.

    PromptError for settings that do not go together; with one beam, for any that a search alone has a use for.
    """
    given = {name: value for name, value in given.items() if value is not None}
    asked = dict(given)
    for setting in BEAM_SEARCH:
        key = KEYS.get(setting.name, setting.name)
        if setting.name not in given and values.get(key) is not None:
            asked[setting.name] = check_key(key, setting, values[key])
    if asked.get("beams", 1) == 1:
        neutral = BeamConfig()
        if other := next((name for name, value in given.items() if value != getattr(neutral, name)), None):
            or_sampled = ", or a `temperature` above 0" if other == "return_sequences" else ""
            raise PromptError(f"`{other}` needs several `beams`{or_sampled}")
        return neutral
    if "return_sequences" not in given and "return_sequences" in asked:
        # Those of fewer beams than the file has.
        asked["return_sequences"] = min(asked["return_sequences"], asked["beams"])
    if "diversity_penalty" not in given and asked.get("beam_groups", 1) == 1:
        asked.pop("diversity_penalty", None)
    return BeamConfig(**asked)


def _found(loaded: Loaded, search: BeamSearch, settings: Settings) -> Iterator[Step]:
    """The candidates of a search that is over, and the tokens of the best."""
    hypotheses = search.found()
    limit = search.constraints.max_tokens
    answers = [
        list(TextStream(loaded, limit, settings.stop, settings.stop_tokens).steps(text.tokens))
        for text in hypotheses
    ]
    if search.config.return_sequences > 1:
        for text, steps in zip(hypotheses, answers, strict=True):
            yield Step(None, "", candidate=candidate(steps, text.score))
    yield from answers[0]


@frozen()
class BeamConfig(BeamSettings):
    """How a beam search scores and stops. The score of a finished hypothesis is Σ log p / length ** `length_penalty`.

    `early_stopping` True ends the search once there are as many finished ones as `beams`; False, once the best running one
    would not beat the worst of them at its present length; "never", at the length that favours it most.

    Of several `beam_groups` each searches with its share of the beams, one after the other at every step;
    `diversity_penalty` is taken from a token's log-probability for each hypothesis of the groups before that has just
    chosen it (Vijayakumar et al., 2016, equation 5, with the Hamming diversity). `return_sequences` texts are found, the
    best of all groups. PromptError for values that do not go together.
    """

    def __post_init__(self) -> None:
        if self.beams % self.beam_groups:
            raise PromptError(f"`beam_groups` must divide the {self.beams} `beams`, got {self.beam_groups}")
        if self.beam_groups > 1 and not self.diversity_penalty:
            raise PromptError(
                "`beam_groups` needs a `diversity_penalty` above 0: without it all groups find the same texts"
            )
        if self.beam_groups == 1 and self.diversity_penalty:
            raise PromptError("`diversity_penalty` needs several `beam_groups`")
        if self.return_sequences > self.beams:
            raise PromptError(
                f"`return_sequences` must be from 1 to {self.beams}, the number of `beams`, got {self.return_sequences}"
            )

    @property
    def width(self) -> int:
        """How many hypotheses run in a group."""
        return self.beams // self.beam_groups

    def score(self, total: float, length: int) -> float:
        """The score of a hypothesis of `length` tokens whose log-probabilities sum to `total`."""
        return total / length**self.length_penalty

    def cannot_improve(self, best: float, finished: Sequence[Hypothesis], length: int, limit: int) -> bool:
        """Whether no running hypothesis can beat the finished ones; the best running one sums to `best`."""
        if len(finished) < self.width:
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

    def __init__(self, processors: LogitsProcessors, config: BeamConfig) -> None:
        self.processors, self.constraints, self.config = processors, processors.constraints, config
        self.groups = [BeamGroup() for _ in range(config.beam_groups)]
        self.length = 0  # tokens of each running hypothesis
        self.width = 1  # rows that the next step has
        self._candidates = max(2, 1 + len(self.constraints.eos_ids)) * config.width

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
        return sorted(finished or unfinished, key=lambda h: -h.score)[: self.config.return_sequences]

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
        config, constraints = self.config, self.constraints
        last = self.length == constraints.max_tokens
        continued: list[tuple[int, Hypothesis]] = []
        for rank, (row, token, score) in enumerate(ranked):
            tokens = (*group.running[row].tokens, token)
            if token not in constraints.eos_ids:
                continued.append((group.rows[row], Hypothesis(tokens, score)))
            if (last or token in constraints.eos_ids) and rank < config.width:
                group.finished.append(Hypothesis(tokens, config.score(score, self.length)))
        group.finished = sorted(group.finished, key=lambda hypothesis: -hypothesis.score)[: config.width]
        continued = continued[: config.width]
        if last or not continued:
            group.done = True
        else:
            # With several groups transformers takes the best candidate, even one that has just ended.
            best = ranked[0][2] if config.beam_groups > 1 else continued[0][1].score
            group.done = config.cannot_improve(best, group.finished, self.length, constraints.max_tokens)
        return continued

    def _scores(self, group: BeamGroup, logprobs: mx.array, chosen: Sequence[int]) -> np.ndarray:
        """The scores of the group's hypotheses with each token, (H, V)."""
        scores = logprobs if len(group.rows) == self.width else logprobs[mx.array(group.rows)]
        if chosen:
            counts = np.bincount(chosen, minlength=scores.shape[-1]).astype(np.float32)
            scores = scores - self.config.diversity_penalty * mx.array(counts)
        if self.processors.looks_back:
            processed = [
                self.processors.after(hypothesis.tokens)(scores[row : row + 1])
                for row, hypothesis in enumerate(group.running)
            ]
            scores = mx.concatenate(processed)
        elif self.processors.chain:  # all hypotheses have tokens of the same number
            scores = self.processors.after(group.running[0].tokens)(scores)
        totals = [[hypothesis.score] for hypothesis in group.running]
        return np.array(scores) + np.array(totals, np.float32)


def likeliest(scores: mx.array | np.ndarray, count: int) -> list[tuple[int, int, float]]:
    """The `count` largest of (H, V), as row, token and score, the largest first; tokens at minus infinity are left out."""
    # By numpy: on the CPU its partition takes a tenth of the time that MLX's does.
    flat = np.array(scores).reshape(-1)
    count = min(count, flat.size)
    indices = np.argpartition(-flat, count - 1)[:count]
    pairs = zip(indices.tolist(), flat[indices].tolist(), strict=True)
    ranked = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    return [(*divmod(index, scores.shape[-1]), score) for index, score in ranked if score > NEG_INF]


def run_searches(decoder: BatchDecoder, searches: Sequence[BeamSearch]) -> Iterator[int]:
    """Run the searches to their ends; yield the index of each search after each of its steps.

    The decoder's rows are the prompts, one for each search; those of a search that is done leave.
    """
    active = list(range(len(searches)))
    logits = decoder.first()  # (B, V)
    step = 0
    while True:
        step += 1
        highest = logits.max()  # NaN when any of them is
        scores = logprobs(logits)  # (H, V)
        mx.eval(scores, highest)
        check_numbers(highest.item(), f"token {step}")
        rows, start, stepping = list[int](), 0, active
        for index in stepping:
            end = start + searches[index].width
            rows += [start + row for row in searches[index].advance(scores[start:end])]
            start = end
        active = [index for index in stepping if not searches[index].done]
        if not active:
            yield from stepping
            return
        if rows != list(range(start)):
            decoder.select(rows)
        last = [hypothesis.tokens[-1] for index in active for hypothesis in searches[index].running]
        logits = decoder.next(mx.array(last)[:, None])  # (H, 1) -> (H, V)
        mx.async_eval(logits)
        yield from stepping
