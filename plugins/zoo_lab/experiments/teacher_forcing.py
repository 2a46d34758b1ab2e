"""The experiment on teacher forcing: errors along a text that a model reads, and along one that it writes.

With training on text that a model draws itself. Axes: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import mlx.core as mx

from zoo.tokenizer import Tokenizer
from zoo.training.corpora import corpus
from zoo.training.loop import Batch
from zoo.training.loss import cross_entropy
from zoo.training.objective import END, TrainingObjective, documents, next_tokens, token
from zoo.training.record import TrainingSettings
from zoo_lab import training
from zoo_lab.experiments.common import LOSS, extent, recorded, settings_of, small_llama
from zoo_lab.plan import Arm, Chart, Claim, Curve, Metric, Plan, Result, Scale, Trial, higher, lower
from zoo_lab.training import Trained

OTHER = 1_000_000  # a seed of documents that no training here begins with
LENGTH, BUCKET = 64, 8  # tokens: of a row, and of one point of the curve
SHARE = 0.5  # of the tokens shown at the end of training, the model's own in the place of the true ones
GRAM = 4  # tokens of a run: its last is wrong where the corpus has the run without it, and not with it
DOCUMENTS = 10_000  # of the corpus, in which runs are looked up


def scheduled_sampling(share: float, steps: int) -> TrainingObjective:
    """Teacher forcing in which a growing share of the tokens shown are the model's own (Bengio et al., 2015).

    The share rises from 0 to `share` over so many steps. Targets stay the true ones; held-out text is measured with the
    true tokens shown.
    """

    def batches(texts: Iterable[str], tokenizer: Tokenizer, settings: TrainingSettings) -> Iterator[Batch]:
        for step, (inputs, targets) in enumerate(next_tokens(texts, tokenizer, settings)):
            yield inputs, targets, mx.array(share * min(step / steps, 1.0))

    def loss(model: Any, inputs: mx.array, targets: mx.array, shown: mx.array | None = None) -> mx.array:
        if shown is None:
            return cross_entropy(model(inputs), targets)
        drawn = mx.random.categorical(mx.stop_gradient(model(inputs)))  # (B, T), each for the next place
        own = mx.concatenate([inputs[:, :1], drawn[:, :-1].astype(inputs.dtype)], axis=1)
        mixed = mx.where(mx.random.uniform(shape=inputs.shape) < shown, own, inputs)
        return cross_entropy(model(mixed), targets)

    return TrainingObjective(batches, documents, loss, running=True)


def errors_by_position(
    loaded: Any, *, rows: int, documents: int, free: bool, seed: int
) -> list[tuple[int, int]]:
    """At each position the number of tokens drawn that the corpus never has after the `GRAM` − 1 before, and of all judged.

    With `free` a row goes on from the end token by what the model draws; else each token is drawn after the true text. A
    token is judged where the corpus has the run before it, so that an error counts once, and not in each run that holds
    it. Nor is one judged after the end of a document within the run, since any document may follow another.
    """
    end = token(loaded.tokenizer, END)
    known = known_runs(loaded.tokenizer, documents)
    if free:
        shown = drawn = free_running(loaded, rows, end, seed)
    else:
        shown, drawn = teacher_forced(loaded, rows, end, seed)
    counts = [(0, 0)] * LENGTH
    for true, own in zip(shown, drawn, strict=True):
        for place in range(GRAM - 1, LENGTH + 1):
            run = (*true[place - GRAM + 1 : place], own[place])
            if end in run[1:-1] or run[:-1] not in known:
                continue
            errors, judged = counts[place - 1]
            counts[place - 1] = errors + (run not in known), judged + 1
    return counts


def free_running(loaded: Any, rows: int, end: int, seed: int) -> list[list[int]]:
    """Rows of the end token and `LENGTH` tokens that the model draws, each after those before it."""
    cache, keys = loaded.model.make_cache(), mx.random.split(mx.random.key(seed), LENGTH)
    tokens = [mx.full((rows, 1), end)]
    for key in keys:
        logits = loaded.model(tokens[-1], cache)[:, -1]  # (B, V)
        tokens.append(mx.random.categorical(logits, key=key)[:, None].astype(tokens[0].dtype))
        mx.eval(tokens[-1])
    return mx.concatenate(tokens, axis=1).tolist()


def teacher_forced(loaded: Any, rows: int, end: int, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """Rows of the end token and `LENGTH` true tokens; and the same with each drawn after the true ones before it."""
    texts = corpus("atlas", "generate").training(OTHER + seed)
    settings = TrainingSettings(batch=rows, length=LENGTH)
    ids = next(next_tokens(texts, loaded.tokenizer, settings))[0]  # (B, T)
    shown = mx.concatenate([mx.full((rows, 1), end), ids], axis=1)  # (B, T + 1)
    drawn = mx.random.categorical(loaded.model(shown[:, :-1]), key=mx.random.key(seed))  # (B, T)
    return shown.tolist(), mx.concatenate([shown[:, :1], drawn.astype(shown.dtype)], axis=1).tolist()


@lru_cache(maxsize=1)
def known_runs(tokenizer: Tokenizer, count: int) -> frozenset[tuple[int, ...]]:
    """Every run of `GRAM` tokens, and of one fewer, in `count` documents of the corpus, between end tokens."""
    end = token(tokenizer, END)
    texts = corpus("atlas", "generate")
    runs: set[tuple[int, ...]] = set()
    for text in (*islice(texts.training(0), count), *texts.validation()):
        ids = [end, *tokenizer.encode(text), end]
        for size in (GRAM - 1, GRAM):
            runs.update(tuple(ids[start : start + size]) for start in range(len(ids) - size + 1))
    return frozenset(runs)


TRAINED = {"teacher forcing": 0.0, "own tokens": SHARE}
READ = ("true text", "own text")


def teacher_forcing(scale: Scale) -> Plan:
    """Two ways to train, each measured on the text of the corpus and on text that the model writes itself."""
    settings = settings_of(scale, 500, length=LENGTH)
    arms = tuple(_arm(how, what, scale, settings) for how in TRAINED for what in READ)
    forced, free, own_forced, own_free = (arm.name for arm in arms)
    more = "A model trained by teacher forcing errs more on its own text than on true text"
    return Plan(
        arms=arms,
        metrics=(
            LOSS,
            Metric("errors", "wrong tokens", "%", "lower"),
            Metric("rise", "errors in the last quarter − in the first", "percentage points"),
        ),
        curves=(Curve("errors", "wrong tokens", "position in the text", "%", "tokens"),),
        charts=(Chart("position", "curves", "errors"), Chart("errors", "dots", "errors")),
        claims=(
            higher(more, free, forced, "errors"),
            Claim("Its errors become more along its own text", "rise", {free: 1}, "above"),
            lower("Training on own tokens lowers the errors on own text", own_free, free, "errors"),
            higher("It costs loss under teacher forcing", own_forced, forced, "loss"),
        ),
        settings=recorded(
            settings,
            own_tokens=f"a share that rises from 0 to {SHARE}",
            temperature=1.0,
            wrong=f"never in the corpus after the {GRAM - 1} tokens before it, which are there in a row",
        ),
    )


def _arm(how: str, what: str, scale: Scale, settings: TrainingSettings) -> Arm:
    """An arm that trains in one way and reads one kind of text."""

    def run(trial: Trial) -> Result:
        trained = _model(TRAINED[how], trial.seed, scale, settings)
        counts = errors_by_position(
            trained.loaded,
            rows=scale.pick(96, 4),
            documents=scale.pick(DOCUMENTS, 200),
            free=what == "own text",
            seed=trial.seed,
        )
        quarter = LENGTH // 4
        whole, first, last = map(_share, (counts, counts[:quarter], counts[-quarter:]))
        numbers = {"loss": trained.loss}
        if whole is not None:
            numbers["errors"] = whole
        if first is not None and last is not None:
            numbers["rise"] = last - first
        points = [
            [start + BUCKET // 2, share]
            for start in range(0, LENGTH, BUCKET)
            if (share := _share(counts[start : start + BUCKET])) is not None
        ]
        return Result(numbers, {"errors": points})

    return Arm(f"{how}, {what}", run, {"trained by": how, "read": what})


@lru_cache(maxsize=1)  # both readings of a training come one after the other
def _model(share: float, seed: int, scale: Scale, settings: TrainingSettings) -> Trained:
    """The model trained with a share of its own tokens."""
    mx.random.seed(seed)  # of the tokens that are drawn in training
    objective = scheduled_sampling(share, settings.steps) if share else None
    return training.trained(small_llama(), settings, Trial(seed), objective=objective, **extent(scale))


def _share(found: Sequence[tuple[int, int]]) -> float | None:
    """The percentage of errors, None where nothing was judged."""
    judged = sum(count for _, count in found)
    return 100 * sum(errors for errors, _ in found) / judged if judged else None
