"""Metrics of a model on examples, by their kind: texts, answers, translations, preferences, pairs of sentences.

Axes: T positions of a row, N targets of it, C candidates, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from zoo.architecture import Architecture
from zoo.checkpoint.open import Report
from zoo.errors import PromptError
from zoo.generation.sampling.logits import logprobs
from zoo.generation.strategies.embedding import embed
from zoo.inspect.perplexity import check_architecture, kl_divergence, perplexity
from zoo.loading import Loaded
from zoo.training.answers import answer_to
from zoo.training.corpora import pieces
from zoo.training.examples import (
    Completion,
    Conversation,
    Example,
    Preference,
    SentencePair,
    TextExample,
    TranslationPair,
    named_errors,
)
from zoo_evaluate.generated import agrees, corpus_score, greedy_answers
from zoo_evaluate.likelihood import TargetRow, likelihoods, target_logits
from zoo_evaluate.rows import Answers, rows_of
from zoo_evaluate.sample import Sample, mean, of_sums, proportion, ratio

Samples = dict[str, Sample]

LOSSES = ("loss", "perplexity", "bits_per_byte")
SCORES = ("chrf", "bleu")  # by sacrebleu
ANSWERS = ("loss", "bits_per_byte", "accuracy", "perplexity", *SCORES, "divergence")
RANKS = ("recall@1", "recall@5", "recall@10", "mrr", "mean_rank")
# The metrics of each kind, and how many of them are measured unless others are asked for.
METRICS: dict[type[Example], tuple[tuple[str, ...], int]] = {
    TextExample: ((*LOSSES, "divergence"), 3),
    Completion: (ANSWERS, 3),
    Conversation: (ANSWERS, 3),
    TranslationPair: ((*SCORES, "accuracy"), 2),
    Preference: (("preference", "preference_per_token"), 2),
    SentencePair: (RANKS, 5),
}
PART = 4096  # characters of a text that are judged as one item
INSTEAD = {
    "translate": "translates",
    "fill-mask": "fills masked tokens",
    "denoise": "fills masked tokens in any order",
}


def metrics_of(kind: type[Example], asked: str | None) -> tuple[str, ...]:
    """The metrics of a kind of example that are asked for, "loss,accuracy"; PromptError for one that it does not have."""
    known, usual = METRICS[kind]
    if asked is None:
        return known[:usual]
    names = tuple(name.strip() for name in asked.split(","))
    if unknown := next((name for name in names if name not in known), None):
        raise PromptError(f"`metrics`: {unknown!r} is not one of {', '.join(known)}, which this data has")
    return names


def check_model(architecture: Architecture, kind: type[Example]) -> None:
    """PromptError, naming the architecture, for a model that cannot do what such examples ask."""
    does = INSTEAD.get(architecture.task, f"does {architecture.task}")
    if kind is TextExample:
        check_architecture(architecture)
    elif kind is TranslationPair and architecture.task != "translate":
        raise PromptError(f"{architecture.name} does not translate, which this data asks for")
    elif kind not in (TranslationPair, SentencePair) and architecture.task != "generate":
        raise PromptError(f"{architecture.name} {does}: it does not answer prompts, which this data asks for")


def items_of(examples: Sequence[Example], limit: int | None = None) -> list[Example]:
    """The items that examples are judged as: a long text in parts of at most `PART` characters, others as they are."""
    items: list[Example] = []
    for example in examples:
        if isinstance(example, TextExample):
            parts = pieces(example.text, lambda text: len(text) <= PART)
            items += [replace(example, text=part) for part in parts]
        else:
            items.append(example)
    return items[:limit]


@dataclass(frozen=True)
class Judge:
    """Measures `metrics` of models on the `items`, all of one kind.

    `max_tokens` bounds a generated answer. `report` gives what reports the progress of a named piece of work.
    """

    items: Sequence[Example]
    metrics: Sequence[str]
    max_tokens: int | None = None
    report: Callable[[str], Report | None] = lambda what: None

    def __call__(self, loaded: Loaded) -> Samples:
        """The metrics of one model, but "divergence". ZooError names the model or the line that cannot be used."""
        check_model(loaded.architecture, type(self.items[0]))
        samples = _JUDGES[type(self.items[0])](self, loaded)
        return {name: samples[name] for name in self.metrics if name in samples}

    def wants(self, *names: str) -> bool:
        """Whether one of these metrics is asked for."""
        return any(name in self.metrics for name in names)

    def texts(self, loaded: Loaded) -> Samples:
        """How well texts are predicted."""
        sums: list[tuple[float, int, int]] = []
        report = self.report("reading")
        for number, item in enumerate(self.items, 1):
            assert isinstance(item, TextExample)
            with named_errors(item):
                scored = perplexity(loaded, item.text)
            sums.append((scored.nats, scored.tokens, scored.bytes))
            if report is not None:
                report(number, len(self.items))
        return _losses(sums)

    def answers(self, loaded: Loaded) -> Samples:
        """How well answers are predicted, and how many are given."""
        asked = [Answers.of(item, loaded) for item in self.items]
        samples: Samples = {}
        if self.wants(*LOSSES):
            rows = [row for answers in asked for row in answers.rows]
            scored = iter(likelihoods(loaded, rows, self.report("reading")))
            sums = []
            for answers in asked:
                scores = [next(scored) for _ in answers.rows]
                nats = -sum(score.total for score in scores)
                tokens = sum(len(score.logprobs) for score in scores)
                sums.append((nats, tokens, sum(len(text.encode()) for text in answers.references)))
            samples = _losses(sums)
        if self.wants("accuracy", *SCORES):
            prompts = [prompt for answers in asked for prompt in answers.prompts]
            references = [text for answers in asked for text in answers.references]
            samples |= self._judge_generated(
                loaded, prompts, references, [len(each.prompts) for each in asked]
            )
        return samples

    def translations(self, loaded: Loaded) -> Samples:
        """How near greedy translations are to the references."""
        pairs = [(item.source, item.target) for item in self.items if isinstance(item, TranslationPair)]
        sources, targets = zip(*pairs, strict=True)
        return self._judge_generated(loaded, sources, targets, [1] * len(pairs))

    def _judge_generated(
        self, loaded: Loaded, prompts: Sequence[Any], references: Sequence[str], counts: Sequence[int]
    ) -> Samples:
        """The metrics of generated texts, of which the first `counts[0]` belong to the first item, and so on."""
        texts = greedy_answers(loaded, prompts, references, self.max_tokens, self.report("answering"))
        right = iter(agrees(*pair) for pair in zip(texts, references, strict=True))
        accuracy = {"accuracy": proportion([sum(next(right) for _ in range(n)) / n for n in counts])}
        return accuracy | {name: corpus_score(name, texts, references) for name in SCORES if self.wants(name)}

    def preferences(self, loaded: Loaded) -> Samples:
        """The share of pairs whose chosen answer is likelier than the rejected, as a whole and a token."""
        rows: list[TargetRow] = []
        for item in self.items:
            assert isinstance(item, Preference)
            for answer in (item.chosen, item.rejected):
                rows += Answers.of(answer_to(item.origin, item.prompt, answer), loaded).rows[-1:]
        scored = likelihoods(loaded, rows, self.report("reading"))
        pairs = list(zip(scored[::2], scored[1::2], strict=True))
        return {
            "preference": proportion([chosen.total > rejected.total for chosen, rejected in pairs]),
            "preference_per_token": proportion([a.per_token > b.per_token for a, b in pairs]),
        }

    def ranks(self, loaded: Loaded) -> Samples:
        """The rank of each anchor's positive among all positives and negatives, by the cosines of their vectors."""
        pairs = [item for item in self.items if isinstance(item, SentencePair)]
        candidates = list(
            dict.fromkeys(text for pair in pairs for text in (pair.positive, pair.negative) if text)
        )
        vectors = embed(loaded, [*(pair.anchor for pair in pairs), *candidates], normalise=True)
        cosines = vectors[: len(pairs)] @ vectors[len(pairs) :].T  # (N, C)
        own = mx.array([[candidates.index(pair.positive)] for pair in pairs])  # (N, 1)
        ahead = (cosines > mx.take_along_axis(cosines, own, axis=1)).sum(axis=1)  # (N,)
        ranks = [rank + 1 for rank in ahead.tolist()]
        recalls = {f"recall@{k}": proportion([rank <= k for rank in ranks]) for k in (1, 5, 10)}
        return recalls | {
            "mrr": mean("higher", [1 / rank for rank in ranks]),
            "mean_rank": mean("lower", ranks),
        }

    def divergence(self, first: Loaded, other: Loaded) -> Sample:
        """KL(first ‖ other) of next-token distributions, a token. PromptError for models of different vocabularies."""
        sums: list[tuple[float, float]] = []
        report = self.report("comparing")
        for number, item in enumerate(self.items, 1):
            rows, others = ([(r.inputs, r.targets) for r in rows_of(item, judge)] for judge in (first, other))
            if rows != others or first.recipe.embedding.vocab != other.recipe.embedding.vocab:
                raise PromptError(
                    f"`metrics`: divergence needs models of one vocabulary, and {other.folder.name or other.architecture.name} "
                    f"encodes {item.origin} otherwise"
                )
            total = count = 0.0
            for row in rows_of(item, first):
                pairs = zip(target_logits(first, [row]), target_logits(other, [row]), strict=True)
                for (_, targets, wanted), (_, _, found) in pairs:
                    total += kl_divergence(logprobs(wanted), logprobs(found)).sum().item()
                    count += targets.size
            sums.append((total, count))
            if report is not None:
                report(number, len(self.items))
        return of_sums("lower", sums, ratio)


_JUDGES: dict[type[Example], Callable[[Judge, Loaded], Samples]] = {
    TextExample: Judge.texts,
    Completion: Judge.answers,
    Conversation: Judge.answers,
    TranslationPair: Judge.translations,
    Preference: Judge.preferences,
    SentencePair: Judge.ranks,
}


def _losses(sums: Sequence[tuple[float, int, int]]) -> Samples:
    """The metrics of nats, tokens and bytes of each item."""
    tokens = [(nats, count) for nats, count, _ in sums]
    return {
        "loss": of_sums("lower", tokens, ratio),
        "perplexity": of_sums("lower", tokens, lambda total: math.exp(min(ratio(total), 700.0))),
        "bits_per_byte": of_sums("lower", [(nats / math.log(2), size) for nats, _, size in sums], ratio),
    }
