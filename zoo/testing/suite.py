"""The checks of the conformance suite for decoders and encoders, and the functions that run them all.

Axes: B batch, T length, V vocabulary.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo.checkpoint.parameters import parameters_of
from zoo.checkpoint.quantize import quantize
from zoo.checkpoint.save import save
from zoo.errors import ZooError
from zoo.generation import generate
from zoo.host.discovery import FIRST_PARTY
from zoo.host.faults import described
from zoo.host.registry import Registry, default_registry
from zoo.loading import load
from zoo.testing import batches as testing_batches
from zoo.testing import caches as testing_caches
from zoo.testing import compiled_step
from zoo.testing import drafts as testing_drafts
from zoo.testing import strategies as testing_strategies
from zoo.testing import traces as testing_traces
from zoo.testing import translation as testing_translation
from zoo.testing.outputs import checked_outputs
from zoo.testing.subjects import (
    PACKING,
    TOLERANCE,
    Check,
    Subject,
    answer,
    can_be_quantized,
    decodes,
    is_causal,
    is_encoder,
    is_saved,
    is_third_party,
    loaded_of,
    quantizes,
    same,
    same_on_average,
    streams,
    subject,
    translates,
)

# Packages that no plugin may import before a model is built.
HEAVY = ("mlx", "mlx_lm", "torch", "transformers")
AUTOREGRESSIVE = f"{FIRST_PARTY}::autoregressive"  # by its full name, which no other plugin can take
CHECKS: list[Check] = []


def _always(subject: Subject) -> bool:
    return True


def check(reason: str, applies: Callable[[Subject], bool] = _always) -> Callable[..., Any]:
    """Add a function to the suite, under its own name."""

    def add(function: Callable[[Subject], None]) -> Callable[[Subject], None]:
        CHECKS.append(Check(function.__name__, reason, function, applies))
        return function

    return add


@check("every other check needs a model that runs")
def model_runs(subject: Subject) -> None:
    with checked_outputs(subject):
        mx.eval(answer(subject))


@check("`zoo show` and `compare` count from the recipe; the model must hold just that many")
def parameters_equal_the_recipes(subject: Subject) -> None:
    # A packed matrix counts as the numbers that it stands for.
    size = sum(math.prod(array.shape) for array in parameters_of(subject.model).values())
    counted = subject.recipe.parameters(subject.recipe.dim)
    assert size == counted, f"the model holds {size:,} parameters, the recipe counts {counted:,}"


@check("what it is described as a variant of", lambda s: s.architecture.base is not None)
def base_is_an_architecture(subject: Subject) -> None:
    base = str(subject.architecture.base)
    assert base in subject.registry, f"base {base!r} is unknown{subject.registry.suggestion(base)}"


@check("decoding from the cache is the same mathematics as the longer prompt", is_causal)
def cached_decode_equals_full_forward(subject: Subject) -> None:
    cache, prompt = subject.model.make_cache(), subject.tokens.shape[1] // 2
    pieces = [subject.model(subject.tokens[:, :prompt], cache)]
    for position in range(prompt, subject.tokens.shape[1]):
        pieces.append(subject.model(subject.tokens[:, position : position + 1], cache))
    same(mx.concatenate(pieces, axis=1), subject.model(subject.tokens), "logits")


@check("a long prompt is read in chunks to bound memory", is_causal)
def chunked_prefill_equals_whole(subject: Subject) -> None:
    cache, pieces = subject.model.make_cache(), []
    for start, end in ((0, 1), (1, 8), (8, 13), (13, subject.tokens.shape[1])):
        pieces.append(subject.model(subject.tokens[:, start:end], cache))
    same(mx.concatenate(pieces, axis=1), subject.model(subject.tokens), "logits")


@check(
    "rows of different lengths share a batch, padded on the left, then decode together",
    lambda s: decodes(s) and "left" in s.model.padding,
)
def padded_row_equals_the_row_alone(subject: Subject) -> None:
    length, padding = subject.tokens.shape[1] - 2, 5
    mask = mx.array([[1] * length, [0] * padding + [1] * (length - padding)])  # (2, T)
    prefix = (
        {"prefix": mx.array([length, length - padding])} if subject.architecture.causality == "prefix" else {}
    )
    cache = subject.model.make_cache()
    batch = [subject.model(subject.tokens[:, :length], cache, mask=mask, **prefix)]
    plain = subject.model(subject.tokens[:, :length], mask=mask, **prefix)
    for position in (length, length + 1):
        batch.append(subject.model(subject.tokens[:, position : position + 1], cache))
    for row, start in ((0, 0), (1, padding)):
        text = subject.tokens[row : row + 1, start:]
        alone_prefix = {"prefix": length - start} if prefix else {}
        alone_cache = subject.model.make_cache()
        alone = [subject.model(text[:, : length - start], alone_cache, **alone_prefix)]
        for position in (length - start, length - start + 1):
            alone.append(subject.model(text[:, position : position + 1], alone_cache))
        same(plain[row : row + 1, start:], alone[0], f"logits of row {row}, uncached")
        together = mx.concatenate(batch, axis=1)[row : row + 1, start:]
        same(together, mx.concatenate(alone, axis=1), f"logits of row {row}, cached")


@check("texts of different lengths share a batch, padded on the right", is_encoder)
def padded_text_equals_the_text_alone(subject: Subject) -> None:
    length = subject.tokens.shape[1]
    short = length // 2
    mask = mx.array([[1] * length, [1] * short + [0] * (length - short)])  # (2, S)
    batch = subject.model(subject.tokens, mask=mask)
    same(batch[:1], subject.model(subject.tokens[:1]), "the longer text")
    same(batch[1:, :short], subject.model(subject.tokens[1:, :short]), "the shorter text")


@check("a model trained to predict the next token must not see it", is_causal)
def later_token_changes_no_earlier_logit(subject: Subject) -> None:
    position = subject.tokens.shape[1] // 2
    before, after = subject.model(subject.tokens), subject.model(_changed(subject, position))
    same(after[:, :position], before[:, :position], f"logits before the changed token {position}", 1e-6)
    moved = mx.abs(after[:, position:] - before[:, position:]).max().item()
    assert moved > 0, f"changing token {position} changed no logit at or after it"


@check("without a causal mask every token sees every other", lambda s: s.architecture.causality == "full")
def later_token_changes_earlier_logits(subject: Subject) -> None:
    position = subject.tokens.shape[1] // 2
    before, after = subject.model(subject.tokens), subject.model(_changed(subject, position))
    assert mx.abs(after[:, 0] - before[:, 0]).max().item() > 0, f"token {position} does not reach position 0"


@check(
    "a prompt sees itself both ways, the answer only what came before",
    lambda s: decodes(s) and s.architecture.causality == "prefix",
)
def prefix_is_free_within_and_causal_after(subject: Subject) -> None:
    length = subject.tokens.shape[1]
    prefix = length // 2
    before = subject.model(subject.tokens, prefix=prefix)
    within = subject.model(_changed(subject, prefix - 1), prefix=prefix)
    assert mx.abs(within[:, 0] - before[:, 0]).max().item() > 0, (
        "the prompt's last token does not reach its first"
    )
    later = subject.model(_changed(subject, length - 2), prefix=prefix)
    same(later[:, : length - 2], before[:, : length - 2], "logits before a changed token of the answer", 1e-6)
    cache = subject.model.make_cache()
    pieces = [subject.model(subject.tokens[:, :prefix], cache, prefix=prefix)]
    pieces += [subject.model(subject.tokens[:, i : i + 1], cache) for i in range(prefix, length)]
    same(mx.concatenate(pieces, axis=1), before, "logits with a cache")


def _changed(subject: Subject, position: int) -> mx.array:
    """The texts with the token at `position` replaced by the next id."""
    columns = mx.arange(subject.tokens.shape[1]) == position
    return mx.where(columns, (subject.tokens + 1) % subject.vocab, subject.tokens)


@check("what was trained or converted must come back from its folder", is_saved)
def saved_and_loaded_is_identical(subject: Subject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(
            folder,
            subject.model,
            subject.architecture,
            subject.recipe,
            subject.numbers,
            registry=subject.registry,
        )
        loaded = load(folder, architecture=subject.architecture, dtype="float32", registry=subject.registry)
    found = dict(tree_flatten(loaded.model.parameters()))
    for path, array in tree_flatten(subject.model.parameters()):
        assert path in found, f"{path} was not loaded"
        assert mx.array_equal(found[path], array).item(), f"{path} changed between saving and loading"


@check("a quantized model must run, and come back from its folder as it went in", can_be_quantized)
def quantized_and_loaded_is_identical(subject: Subject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder, "plain"), Path(folder, "packed")
        save(
            plain,
            subject.model,
            subject.architecture,
            subject.recipe,
            subject.numbers,
            registry=subject.registry,
        )
        model = load(
            plain, architecture=subject.architecture, dtype="float32", registry=subject.registry
        ).model
        quantize(model, PACKING, quantizes(subject))
        save(packed, model, subject.architecture, subject.recipe, subject.numbers, registry=subject.registry)
        loaded = load(
            packed, architecture=subject.architecture, dtype="float32", registry=subject.registry
        ).model
    expected, found = (dict(tree_flatten(kind.parameters())) for kind in (model, loaded))
    lost = sorted(expected.keys() ^ found.keys())
    assert not lost, (
        f"{lost[0]}: `mlx_weights` must name its matrix …weight, stored (out, in), to keep it packed"
    )
    for path, array in expected.items():
        assert mx.array_equal(found[path], array).item(), f"{path} changed between saving and loading"
    same(answer(subject, loaded), answer(subject, model), "logits of the quantized model, loaded", 1e-6)


@check("what is streamed must be what the model says, up to near ties", streams)
def greedy_stream_follows_the_full_forward(subject: Subject) -> None:
    prompt = subject.tokens[0, : subject.tokens.shape[1] // 2].tolist()
    new = generate(loaded_of(subject), prompt, strategy=AUTOREGRESSIVE, max_tokens=8, temperature=0.0).tokens
    prefix = {"prefix": len(prompt)} if subject.architecture.causality == "prefix" else {}
    logits = subject.model(mx.array([prompt + new]), **prefix)[0]  # (T, V)
    margin = TOLERANCE * (logits.max() - logits.min()).item()
    for step, token in enumerate(new):
        row = logits[len(prompt) + step - 1]
        lost = (row.max() - row[token]).item()
        assert lost <= margin, f"token {step} is {token}, whose logit is {lost:.3g} below the largest"


check(
    "many texts share each pass, and none must depend on the others", lambda s: streams(s) or translates(s)
)(testing_batches.text_beside_others_equals_the_text_alone)
check(
    "drafts that are rejected must leave nothing behind in any cache",
    lambda s: streams(s) and testing_drafts.takes_drafts(s),
)(testing_drafts.drafted_text_equals_the_text_alone)


@check("16-bit weights are what most checkpoints hold", lambda s: decodes(s) and not s.trained)
def half_precision_runs(subject: Subject) -> None:
    expected = subject.model(subject.tokens)
    parameters = subject.model.parameters()
    try:
        for dtype in (mx.float16, mx.bfloat16):
            subject.model.set_dtype(dtype)
            same_on_average(subject.model(subject.tokens), expected, f"{dtype} logits")
    finally:
        subject.model.update(parameters)


@check("a block that widens floats makes all that follow slower and larger", lambda s: not s.trained)
def blocks_keep_16_bits(subject: Subject) -> None:
    parameters = subject.model.parameters()
    try:
        subject.model.set_dtype(mx.bfloat16)
        with checked_outputs(subject, keeps_16_bits=True):
            mx.eval(answer(subject))
    finally:
        subject.model.update(parameters)


@check(
    "every command imports every plugin: what is heavy belongs in the modules that run blocks", is_third_party
)
def importing_the_plugin_imports_nothing_heavy(subject: Subject) -> None:
    imports_nothing_heavy(subject.registry.plugin_of(subject.architecture).module)


def imports_nothing_heavy(module: str) -> None:
    """Raise AssertionError when importing `module` in a new process imports mlx or another package of `HEAVY`."""
    code = (
        f"import sys, {module}\nprint(*{{name.partition('.')[0] for name in sys.modules}} & set({HEAVY!r}))"
    )
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, f"{module} cannot be imported: {done.stderr.strip().splitlines()[-1]}"
    found = done.stdout.split()
    assert not found, f"importing {module} imports {', '.join(sorted(found))}"


@dataclass(frozen=True)
class Result:
    """The result of one check: `message` says what differed when it failed, `traceback` where code raised."""

    name: str
    reason: str
    passed: bool
    message: str = ""
    traceback: str = ""


def checks_of(subject: Subject) -> list[Check]:
    """The checks that apply to a subject. The others need the first to pass: that the model runs."""
    parts = (testing_caches, compiled_step, testing_strategies, testing_translation, testing_traces)
    every = (*CHECKS, *(check for part in parts for check in part.CHECKS))
    return [check for check in every if check.applies(subject)]


def outcome(check: Check, subject: Subject) -> Result:
    """Run one check; an error in the model's code fails it, too."""
    try:
        check.run(subject)
    except (AssertionError, ZooError) as error:
        # The first line: pytest adds others to an assertion of a module that it has rewritten.
        return Result(check.name, check.reason, False, str(error).partition("\n")[0])
    except Exception as error:
        message = described(error, subject.registry.plugins)
        return Result(check.name, check.reason, False, message, traceback.format_exc())
    return Result(check.name, check.reason, True)


def results_of(subject: Subject) -> Iterator[Result]:
    """The result of each check that applies; of the first alone where the model does not run."""
    first, *others = checks_of(subject)
    result = outcome(first, subject)
    yield result
    if result.passed:
        yield from (outcome(check, subject) for check in others)


def run_checks(name: str, preset: str | None = None, registry: Registry | None = None) -> list[Result]:
    """Run every check that applies to the architecture `name`, on a small model of random weights."""
    return list(results_of(subject(name, preset, registry)))


def check_card(readme: Path | str, name: str, registry: Registry | None = None) -> None:
    """Raise AssertionError, with the command that rewrites it, unless a README has the present card of the plugin `name`."""
    from zoo.describe.plugin_card import card

    registry, path = registry or default_registry(), Path(readme)
    text = card(registry.plugin(name), registry)
    assert text in path.read_text(encoding="utf-8"), (
        f"{path.name}: its card is not what the plugin gives; zoo plugins --card {name} --into {path.name}"
    )


def check_architecture(
    name: str, preset: str | None = None, registry: Registry | None = None
) -> list[Result]:
    """Run the suite on the architecture `name`; AssertionError names each check that failed and what differed.

    The model is a small one of random weights, of the numbers of `preset`. PluginError where there is no such architecture.

    >>> from zoo.testing import check_architecture
    >>> all(result.passed for result in check_architecture("llama"))
    True
    """
    results = run_checks(name, preset, registry)
    failed = [f"{r.name}: {r.message} ({r.reason})" for r in results if not r.passed]
    assert not failed, f"{name}: " + "; ".join(failed)
    return results
