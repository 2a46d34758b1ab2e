"""The checks of the conformance suite for models: each a function whose docstring is its reason.

Axes: B batch, S source length, T length, D width, V vocabulary.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from zoo.blocks.decoder import Decoder
from zoo.blocks.encoder_decoder import Encoder, EncoderDecoder
from zoo.blocks.model import modules_of
from zoo.checkpoint.parameters import parameters_of
from zoo.generation import generate
from zoo.host.plugins import FIRST_PARTY
from zoo.inspect.tracing.probe import set_class
from zoo.testing.cache_checks import logits_in_pieces
from zoo.testing.subjects import (
    Subject,
    answer,
    check_greedy,
    load_model,
    loaded_of,
    packed_model,
    same,
    same_on_average,
    save_model,
    translates,
    weights_in,
)

# Packages that no plugin may import before a model is built.
HEAVY = ("mlx", "mlx_lm", "torch", "transformers")
# By their full names, which no other plugin can take.
AUTOREGRESSIVE, BEAM = f"{FIRST_PARTY}::autoregressive", f"{FIRST_PARTY}::beam"
# The kinds of specs whose modules give an array of the shape of their input.
KEEPING = ("layer", "mixer", "cross", "feedforward", "norm")


def model_runs(subject: Subject) -> None:
    """Every other check needs a model that runs."""
    with checked_outputs(subject):
        mx.eval(answer(subject))


def parameters_equal_the_recipes(subject: Subject) -> None:
    """`zoo show` and `compare` count from the recipe; the model must hold just that many."""
    # A packed matrix counts as the numbers that it stands for.
    size = sum(math.prod(array.shape) for array in parameters_of(subject.model).values())
    counted = subject.recipe.parameters(subject.recipe.dim)
    assert size == counted, f"the model holds {size:,} parameters, the recipe counts {counted:,}"


def base_is_an_architecture(subject: Subject) -> None:
    """A variant is described by its difference from its base."""
    base = str(subject.architecture.base)
    assert base in subject.registry, f"base {base!r} is unknown{subject.registry.suggestion(base)}"


def cached_decode_equals_full_forward(subject: Subject) -> None:
    """Decoding from the cache must equal reading the longer prompt."""
    source, texts, logits = written(subject)
    length = texts.shape[1]
    found = logits_in_pieces(subject, texts, range(length // 2, length), source=source)
    same(found, logits(texts), "logits")


def chunked_prefill_equals_whole(subject: Subject) -> None:
    """A long prompt is read in chunks to bound memory."""
    found = logits_in_pieces(subject, subject.tokens, (1, 8, 13))
    same(found, subject.model(subject.tokens), "logits")


def padded_row_equals_the_row_alone(subject: Subject) -> None:
    """Rows of different lengths share a batch, padded on the left, then decode together."""
    length, padding = subject.tokens.shape[1] - 2, 5
    mask = mx.array([[1] * length, [0] * padding + [1] * (length - padding)])  # (2, T)
    prefixes = [length, length - padding] if subject.architecture.causality == "prefix" else [None, None]
    prefix = {} if prefixes[0] is None else {"prefix": mx.array(prefixes)}
    plain = subject.model(subject.tokens[:, :length], mask=mask, **prefix)
    together = logits_in_pieces(subject, subject.tokens, (length, length + 1), mask=mask, **prefix)
    for row, start in ((0, 0), (1, padding)):
        text, cuts = subject.tokens[row : row + 1, start:], (length - start, length - start + 1)
        alone = logits_in_pieces(subject, text, cuts, prefix=prefixes[row])
        same(plain[row : row + 1, start:], alone[:, : length - start], f"logits of row {row}, uncached")
        same(together[row : row + 1, start:], alone, f"logits of row {row}, cached")


def padded_text_equals_the_text_alone(subject: Subject) -> None:
    """Texts of different lengths share a batch, padded on the right."""
    length = subject.tokens.shape[1]
    short = length // 2
    mask = mx.array([[1] * length, [1] * short + [0] * (length - short)])  # (2, S)
    batch = subject.model(subject.tokens, mask=mask)
    same(batch[:1], subject.model(subject.tokens[:1]), "the longer text")
    same(batch[1:, :short], subject.model(subject.tokens[1:, :short]), "the shorter text")


def later_token_changes_no_earlier_logit(subject: Subject) -> None:
    """A model trained to predict the next token must not see it."""
    _, texts, logits = written(subject)
    position = texts.shape[1] // 2
    before, after = logits(texts), logits(replaced(texts, position, subject.vocab))
    same(after[:, :position], before[:, :position], f"logits before the changed token {position}", 1e-6)
    moved = mx.abs(after[:, position:] - before[:, position:]).max().item()
    assert moved > 0, f"changing token {position} changed no logit at or after it"


def later_token_changes_earlier_logits(subject: Subject) -> None:
    """Without a causal mask every token sees every other."""
    position = subject.tokens.shape[1] // 2
    before = subject.model(subject.tokens)
    after = subject.model(replaced(subject.tokens, position, subject.vocab))
    assert mx.abs(after[:, 0] - before[:, 0]).max().item() > 0, f"token {position} does not reach position 0"


def prefix_is_free_within_and_causal_after(subject: Subject) -> None:
    """The prompt sees itself in both directions, the answer only earlier tokens."""
    length = subject.tokens.shape[1]
    prefix = length // 2
    before = subject.model(subject.tokens, prefix=prefix)
    within = subject.model(replaced(subject.tokens, prefix - 1, subject.vocab), prefix=prefix)
    assert mx.abs(within[:, 0] - before[:, 0]).max().item() > 0, (
        "the prompt's last token does not reach its first"
    )
    later = subject.model(replaced(subject.tokens, length - 2, subject.vocab), prefix=prefix)
    same(later[:, : length - 2], before[:, : length - 2], "logits before a changed token of the answer", 1e-6)
    found = logits_in_pieces(subject, subject.tokens, range(prefix, length), prefix=prefix)
    same(found, before, "logits with a cache")


def pairs_of(subject: Subject) -> tuple[mx.array, mx.array]:
    """A batch of sources (B, S) and one of targets (B, T)."""
    return subject.tokens, subject.tokens[:, ::-1][:, : subject.tokens.shape[1] - 5]


def written(subject: Subject) -> tuple[mx.array | None, mx.array, Callable[[mx.array], mx.array]]:
    """Texts (B, T) such as the model writes, the function to their logits (B, T, V), and, first, what they translate (B, S)."""
    if not translates(subject):
        return None, subject.tokens, subject.model
    source, target = pairs_of(subject)
    return source, target, partial(subject.model, source)


def replaced(texts: mx.array, position: int, vocab: int) -> mx.array:
    """The texts with the token at `position` replaced by the next id."""
    return mx.where(mx.arange(texts.shape[1]) == position, (texts + 1) % vocab, texts)


def saved_and_loaded_is_identical(subject: Subject) -> None:
    """A model that is saved and loaded must be the same."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_model(subject, subject.model, folder)
        loaded = load_model(subject, folder).model
    check_same_parameters(loaded, subject.model)


def quantized_and_loaded_is_identical(subject: Subject) -> None:
    """A quantized model must run, and be the same after it is saved and loaded."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "packed")
        model = packed_model(subject, Path(place, "plain"))
        save_model(subject, model, folder)
        loaded = load_model(subject, folder).model
    expected, read = (dict(tree_flatten(kind.parameters())) for kind in (model, loaded))
    lost = sorted(expected.keys() ^ read.keys())
    assert not lost, (
        f"{lost[0]}: `mlx_weights` must name its matrix …weight, stored (out, in), to keep it packed"
    )
    rules = subject.architecture.layouts["mlx"]
    check_same_parameters(loaded, model, exact=all(rule.exact for rule in rules))
    same(answer(subject, loaded), answer(subject, model), "logits of the quantized model, loaded")


ROUNDED = 2.0**-22  # what is lost of a number of about one that had one added


def check_same_parameters(found: nn.Module, expected: nn.Module, exact: bool = True) -> None:
    """AssertionError for a parameter of `expected` that `found` lacks or has with other numbers.

    Where a weight rule is not `exact`, vectors may be rounded.
    """
    parameters = dict(tree_flatten(found.parameters()))
    for path, array in tree_flatten(expected.parameters()):
        assert path in parameters, f"{path} was not loaded"
        close = (
            not exact
            and array.ndim == 1
            and mx.allclose(parameters[path], array, rtol=0, atol=ROUNDED).item()
        )
        assert close or mx.array_equal(parameters[path], array).item(), (
            f"{path} changed between saving and loading"
        )


def greedy_stream_follows_the_full_forward(subject: Subject) -> None:
    """Greedy generation must choose the model's largest logits, up to near ties."""
    prompt = subject.tokens[0, : subject.tokens.shape[1] // 2].tolist()
    new = generate(loaded_of(subject), prompt, strategy=AUTOREGRESSIVE, max_tokens=8, temperature=0.0).tokens
    prefix = {"prefix": len(prompt)} if subject.architecture.causality == "prefix" else {}
    logits = subject.model(mx.array([prompt + new]), **prefix)[0]  # (T, V)
    check_greedy(new, logits[len(prompt) - 1 :], logits)


def half_precision_runs(subject: Subject) -> None:
    """16-bit weights are what most checkpoints hold."""
    expected = subject.model(subject.tokens)
    for dtype in (mx.float16, mx.bfloat16):
        with weights_in(subject, dtype):
            same_on_average(subject.model(subject.tokens), expected, f"{dtype} logits")


def blocks_keep_16_bits(subject: Subject) -> None:
    """A block that widens floats makes all that follow slower and larger."""
    with weights_in(subject, mx.bfloat16), checked_outputs(subject, keeps_16_bits=True):
        mx.eval(answer(subject))


def importing_the_plugin_imports_nothing_heavy(subject: Subject) -> None:
    """Every command imports every plugin; heavy imports belong in the modules that run blocks."""
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
    heavy = done.stdout.split()
    assert not heavy, f"importing {module} imports {', '.join(sorted(heavy))}"


@contextmanager
def checked_outputs(subject: Subject, *, keeps_16_bits: bool = False) -> Iterator[None]:
    """Within the `with` block, raise AssertionError with the path of the first block whose output does not fit.

    With `keeps_16_bits` no block may give wider floats than it got, unless its spec says that it `widens`. Watched are
    the layers, mixers, feed-forwards, norms and embeddings of models that the zoo's own modules assemble.
    """
    assembled = isinstance(subject.model, Decoder | Encoder | EncoderDecoder)
    modules = modules_of(subject.model) if assembled else {}
    specs = {path: spec for path, spec in subject.recipe.walk() if spec.kind in (*KEEPING, "embedding")}
    watched = [(path, modules[path], type(modules[path])) for path in specs if path in modules]
    try:
        for path, module, kind in watched:
            width = specs[path].dim if specs[path].kind == "embedding" else None
            set_class(module, _checking_class(path, kind, width, not keeps_16_bits or specs[path].widens))
        yield
    finally:
        for _, module, kind in watched:
            set_class(module, kind)


def _checking_class(path: str, kind: type, width: int | None, widens: bool) -> type:
    """The class of the module at `path` while its outputs are checked.

    `width` (D) is that of an embedding's vectors, None for other modules; `widens`: 16-bit floats may become float32.
    """
    own: Callable[..., Any] = kind.__call__

    def call(self: Any, x: Any = None, *inputs: Any, **options: Any) -> Any:
        y = own(self, x, *inputs, **options)
        name = f"{path} ({kind.__name__})"
        assert isinstance(y, mx.array), f"{name} gives {type(y).__name__}, expected an array"
        if isinstance(x, mx.array):
            shape = x.shape if width is None else (*x.shape, width)
            assert y.shape == shape, f"{name} gives shape {y.shape}, expected {shape}"
            assert mx.issubdtype(y.dtype, mx.floating), f"{name} gives {y.dtype}, expected floats"
            assert width or widens or y.dtype.size <= x.dtype.size, f"{name} widens {x.dtype} to {y.dtype}"
        return y

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def padded_source_equals_the_source_alone(subject: Subject) -> None:
    """Sources of different lengths share a batch."""
    source, target = pairs_of(subject)
    length, padding = source.shape[1], 5
    expected = subject.model(source[1:, : length - padding], target[1:])
    left = mx.concatenate([source[1:, :padding], source[1:, : length - padding]], axis=1)
    for side, row, mask in (
        ("right", source[1:], [1] * (length - padding) + [0] * padding),
        ("left", left, [0] * padding + [1] * (length - padding)),
    ):
        batch, seen = mx.concatenate([source[:1], row]), mx.array([[1] * length, mask])
        same(subject.model(batch, target, seen)[1:], expected, f"logits of the row padded on the {side}")
        found = logits_in_pieces(subject, target, range(1, target.shape[1]), source=batch, mask=seen)
        same(found[1:], expected, f"logits of the row padded on the {side}, cached")


def every_source_token_reaches_every_logit(subject: Subject) -> None:
    """An encoder sees both ways, and a decoder all of its memory."""
    source, target = pairs_of(subject)
    before = subject.model(source, target)
    for position in (0, source.shape[1] - 1):
        other = replaced(source, position, subject.vocab)
        moved = mx.abs(subject.model(other, target) - before).max(axis=(0, 2))  # (T,)
        assert mx.all(moved > 0).item(), f"source token {position} does not reach every logit of the target"


def selected_rows_go_on_as_they_were(subject: Subject) -> None:
    """A beam search keeps some rows of the caches and repeats them."""
    source, target = pairs_of(subject)
    rows = mx.array([1, 0, 1])
    memory, cache = subject.model.encode(source), subject.model.make_cache()
    subject.model.decode(target[:, :6], memory, cache)
    for layer in cache:
        layer.select(rows)
    logits = subject.model.decode(target[rows, 6:], None, cache)
    same(logits, subject.model(source[rows], target[rows])[:, 6:], "logits after the choice of rows")


def greedy_translation_follows_the_full_forward(subject: Subject) -> None:
    """What is streamed must be what the model says."""
    source = subject.tokens[:1]
    new = generate(loaded_of(subject), source[0].tolist(), strategy=BEAM, max_tokens=8).tokens
    logits = subject.model(source, mx.array([[subject.recipe.start, *new]]))[0]  # (T, V)
    check_greedy(new, logits, logits)


def half_precision_translates(subject: Subject) -> None:
    """16-bit weights are what most checkpoints hold."""
    source, target = pairs_of(subject)
    expected = subject.model(source, target)
    # MXFP4 and its like are unpacked to a float of their own, whatever the other weights are.
    layers = subject.model.named_modules()
    floats = any("scales" in layer and layer.mode != "affine" for _, layer in layers)
    for dtype in (mx.float16, mx.bfloat16):
        with weights_in(subject, dtype):
            logits = subject.model(source, target)
            assert logits.dtype == dtype or floats, f"weights of {dtype} give logits of {logits.dtype}"
            same_on_average(logits, expected, f"{dtype} logits")
