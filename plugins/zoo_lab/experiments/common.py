"""Shared parts of the experiments: settings, metrics, a base recipe, an arm that trains one, and measurements.

Measured are losses by position, bits a byte, the load of experts; a text's diversity, and right answers to questions;
times on this machine. Axes: B rows, T tokens, V vocabulary, D width, E experts, k of them used by a token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, pairwise
from statistics import median
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.assemble import assemble
from zoo.generation import generate
from zoo.generation.sampling.logits import logprobs
from zoo.host.registry import default_registry
from zoo.inspect.perplexity import kl_divergence
from zoo.inspect.timing import evaluation_seconds
from zoo.inspect.tracing.probe import Recorder, hooked
from zoo.loading import Loaded
from zoo.recipe import Model
from zoo.training.corpora import corpus
from zoo.training.loss import IGNORED, token_losses
from zoo.training.objective import END, next_tokens, padded, token
from zoo.training.record import TrainingSettings
from zoo_corpora.accuracy import completes, is_right, questions_of
from zoo_lab import training
from zoo_lab.plan import Arm, Chart, Curve, Metric, Result, Scale, Trial
from zoo_lab.training import Trained

LOSS = Metric("loss", "held-out loss", "nats a token", "lower")
LOSS_CURVE = Curve("loss", "held-out loss", "step", "nats a token")
LOSS_DOTS = Chart("loss", "dots", "loss")
LOSS_CURVES = Chart("curves", "curves", "loss")

# Width 64 and three layers: about 0.2 million parameters with a vocabulary of 512.
SMALL = dict(
    hidden_size=64,
    intermediate_size=176,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=512,
    tie_word_embeddings=True,
)


def small_llama(**layers: Any) -> Model:
    """The recipe of a small LLaMA, with the parts of its layers changed as `change_layers` does."""
    return training.recipe_of("llama", SMALL).change_layers(**layers)


def settings_of(scale: Scale, steps: int, **changes: Any) -> TrainingSettings:
    """The settings of a small training, with a warm-up of a tenth of its steps."""
    steps = scale.training(steps)
    given: dict[str, Any] = {"steps": steps, "warmup": max(steps // 10, 1), "corpus": "atlas"} | changes
    return TrainingSettings(**given)


def recorded(settings: TrainingSettings, **more: Any) -> dict[str, Any]:
    """The settings of a training, as a record has them."""
    names = ("steps", "batch", "length", "rate", "warmup", "decay", "clip", "corpus")
    initialised = {
        "vocabulary": 512,
        "initial_spread": "0.02 · √(768 / width)",
        "residual_branches_scaled_by_depth": True,
    }
    return {name: getattr(settings, name) for name in names} | initialised | more


def extent(scale: Scale) -> dict[str, Any]:
    """The size of a training's measurements: the points of its curve, and the held-out documents at the end."""
    return scale.pick(dict(points=10, documents=800), dict(points=2, documents=32))


def loss_of(trained: Trained, **numbers: float) -> Result:
    """The held-out loss of a training and its curve, with other numbers of it."""
    return Result({"loss": trained.loss} | numbers, {"loss": trained.curve})


def trains(
    name: str,
    scale: Scale,
    recipe: Callable[[], Model],
    settings: TrainingSettings,
    values: Mapping[str, float | str],
    *,
    series: str = "",
    measure: Callable[[Trained], Result] = loss_of,
    depth_scaled: bool = True,
) -> Arm:
    """An arm that trains a recipe and measures it; `depth_scaled` as in `zoo_lab.training.trained`."""

    def run(trial: Trial) -> Result:
        options = extent(scale)
        return measure(training.trained(recipe(), settings, trial, depth_scaled=depth_scaled, **options))

    return Arm(name, run, values, series)


def held_out(name: str = "atlas") -> list[str]:
    """The held-out documents of a corpus."""
    return list(corpus(name, "generate").validation())


def loss_by_position(loaded: Any, settings: TrainingSettings, batches: int) -> list[float]:
    """The held-out loss at each position of rows of `settings.length` tokens, in nats, over `batches` batches."""
    total, rows = mx.zeros((settings.length,)), 0
    for inputs, targets in islice(next_tokens(held_out(), loaded.tokenizer, settings), batches):
        total = total + token_losses(loaded.model(inputs), targets).sum(axis=0)  # (T,)
        rows += inputs.shape[0]
        mx.eval(total)
    return [value / rows for value in total.tolist()]


def bits_a_byte(loaded: Loaded, texts: Sequence[str]) -> float:
    """−log2 p(text) over the texts, each with the token that ends it, a byte of their UTF-8."""
    nats = 0.0
    for inputs, targets in text_batches(loaded, texts):
        nats += token_losses(loaded.model(inputs), targets).sum().item()
    return nats / math.log(2) / sum(len(text.encode()) for text in texts)


def text_batches(loaded: Any, texts: Sequence[str]) -> Iterator[tuple[mx.array, mx.array]]:
    """Inputs (B, T) and targets (B, T) of whole texts, one a row; padding is ignored."""
    end = token(loaded.tokenizer, END)
    return padded(texts, loaded.tokenizer.encode, batch=64, end=end)


def divergence(loaded: Loaded, other: Loaded, texts: Sequence[str]) -> float:
    """Mean over the texts' tokens of KL(loaded ‖ other) of the next one, in nats."""
    total = count = 0.0
    for inputs, targets in text_batches(loaded, texts):
        wanted, found = (logprobs(model(inputs)) for model in (loaded.model, other.model))  # (B, T, V)
        each = kl_divergence(wanted, found) * (targets != IGNORED)  # (B, T)
        total += each.sum().item()
        count += (targets != IGNORED).sum().item()
    return total / count


def expert_loads(loaded: Loaded, documents: int) -> list[list[float]]:
    """By layer, each expert's share of the choices on held-out text, times the number of experts: 1 is even."""
    recorder = Recorder(["layers.*.router.indices"])
    with hooked(loaded.model, recorder, loaded.registry):
        for inputs, _ in text_batches(loaded, held_out()[:documents]):
            loaded.model(inputs)
            recorder.evaluate()
    loads = []
    for index, layer in enumerate(loaded.recipe.layers):
        experts, address = layer.feedforward.router.experts, f"layers.{index}.feedforward.router.indices"
        chosen = [np.array(each.values[address]).flatten() for each in recorder.passes]  # (B · T · k,)
        counts = np.bincount(np.concatenate(chosen), minlength=experts)
        loads.append((experts * counts / counts.sum()).tolist())
    return loads


TOKENS = 40  # of a text at most
STRIDE = 7919  # a prime: questions of one seed are spread over all of them


def distinct(loaded: Any, texts: int, seed: int, **settings: Any) -> float:
    """The share of distinct ones among all pairs of neighbouring tokens, in percent (Li et al., 2016, distinct-2).

    Each text goes on from the first two tokens of a held-out one.
    """
    pairs: list[tuple[int, int]] = []
    for number, text in enumerate(held_out()[:texts]):
        prompt = loaded.tokenizer.encode(text)[:2]
        answer = generate(loaded, prompt, max_tokens=TOKENS, seed=seed * texts + number, **settings)
        pairs += pairwise([*prompt, *answer.tokens])
    return 100 * len(set(pairs)) / max(len(pairs), 1)


def right(loaded: Loaded, count: int, seed: int, **settings: Any) -> float:
    """The percentage of right answers to `count` questions about capitals, sampled with `settings`."""
    asked = chosen(questions_of(loaded.architecture, registry=loaded.registry), count, seed)
    answers = [completes(loaded, each, seed=seed * count + n, **settings) for n, each in enumerate(asked)]
    return 100 * sum(answers) / len(asked)


def answered(
    loaded: Loaded, count: int, seed: int, report: Callable[[int, int], None] = lambda done, total: None
) -> float:
    """The percentage of right answers to `count` of all questions, as `zoo evaluate` counts them."""
    asked = chosen(questions_of(loaded.architecture, every=True, registry=loaded.registry), count, seed)
    right_answers = 0
    for number, question in enumerate(asked):
        right_answers += is_right(loaded, question)
        report(number + 1, len(asked))
    return 100 * right_answers / len(asked)


def chosen(questions: list[Any], count: int, seed: int) -> list[Any]:
    """So many questions, others for each seed as long as there are."""
    first = seed * count
    return [questions[(first + number) * STRIDE % len(questions)] for number in range(count)]


ROWS, LENGTH = 16, 64


def microseconds_a_token(loaded: Loaded, runs: int) -> tuple[float, float]:
    """The time of a forward pass over (B, T) tokens, and that of the first layer's norm alone, in µs a token."""
    model = loaded.model
    tokens = mx.random.randint(0, loaded.recipe.vocab, (ROWS, LENGTH), key=mx.random.key(0))  # (B, T)
    hidden = mx.random.normal((ROWS, LENGTH, loaded.recipe.dim), key=mx.random.key(1))  # (B, T, D)
    norm = model.layers[0].mixer_norm
    whole = median(evaluation_seconds(lambda: model(tokens), runs))
    alone = median(evaluation_seconds(lambda: norm(hidden), 10 * runs))
    return 1e6 * whole / tokens.size, 1e6 * alone / tokens.size


def step_times(
    recipe: Model,
    lengths: Sequence[int],
    cached: bool,
    runs: int,
    report: Callable[[int, int], None],
) -> list[float]:
    """The median seconds of the logits of one more token after each of `lengths` tokens, on random weights.

    `cached`: the text before it has been read; the steps are the first few after it. Without, it is read again for each
    token. One step is not counted.
    """
    model = assemble(recipe, default_registry(), copies=1)
    mx.eval(model.parameters())
    tokens = mx.random.randint(0, recipe.vocab, (1, max(lengths) + 1), key=mx.random.key(0))  # (1, T)
    times = []
    for number, length in enumerate(lengths):
        if cached:
            cache = model.make_cache()
            mx.eval(model(tokens[:, :length], cache)[:, -1])
            step = partial(model, tokens[:, :1], cache)
        else:
            step = partial(model, tokens[:, : length + 1])
        times.append(median(evaluation_seconds(step, runs)))
        report(number + 1, len(lengths))
    return times
