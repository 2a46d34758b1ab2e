"""The checks of traces: what a traced model computes, and what an intervention changes.

Axes: B batch, T length, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.blocks.decoder import Decoder
from zoo.blocks.encoder_decoder import Encoder, EncoderDecoder
from zoo.blocks.model import modules_of
from zoo.errors import ZooError
from zoo.generation import stream
from zoo.inspect.tracing import Trace, intervene, trace
from zoo.inspect.tracing.block_probes import AttentionProbe
from zoo.inspect.tracing.probe import RecordedPass, Recorder, Value, hooked, probe_of
from zoo.testing.cache_checks import logits_in_pieces
from zoo.testing.generation_checks import LENGTH, PROMPT, loaded_with_mask
from zoo.testing.model_checks import pairs_of
from zoo.testing.subjects import Subject, loaded_of, same, sees_no_later_token, translates

LAYER = re.compile(r"(?:.*\.)?layers\.(\d+)")
SHORT = 8  # tokens of a text that is read once for each value
PIECES = (1, 8, 13)  # where a text is cut that is read in pieces, and then token by token


def traced_equals_untraced(subject: Subject) -> None:
    """Tracing a model must not change a bit of what it computes, and must leave nothing behind."""
    before = {path: type(module) for path, module in modules_of(subject.model).items()}
    plain = [run(subject), *in_pieces(subject)]
    with hooked(subject.model, Recorder(), subject.registry):
        seen = [run(subject), *in_pieces(subject)]
    check_released(subject, before)
    for what, expected, found in zip(("logits", "logits in pieces"), plain, seen, strict=False):
        assert mx.array_equal(found, expected).item(), f"{what} of the traced model differ"
    loaded = loaded_with_mask(subject)
    try:
        steps = list(stream(loaded, PROMPT, **settings_of(subject)))
    except ZooError:  # a strategy that needs settings of its own, or one whose own check tells what is wrong
        steps = []
    if steps:
        traced_steps = trace(loaded, PROMPT, **settings_of(subject)).steps
        assert [(s.token, s.text, s.draft) for s in traced_steps] == [
            (s.token, s.text, s.draft) for s in steps
        ], "the steps of a traced run differ"
        check_released(subject, before)


def check_released(subject: Subject, before: Mapping[str, type]) -> None:
    """Every module has the class that it had before it was traced."""
    left = [path for path, module in modules_of(subject.model).items() if type(module) is not before[path]]
    assert not left, f"{left[0] or 'the model'}: its class is not its own again"


def traced_values_fit_together(subject: Subject) -> None:
    """A value has its declared axes; a value that is the product of others equals that product."""
    record, about = recorded(subject)
    known = {"B": {1}, "T": {subject.tokens.shape[1]}}
    if translates(subject):
        known["T"].add(target_of(subject).shape[1])
    for address, value in record.values.items():
        axes = about[address].axes.split()
        if not axes:
            continue
        assert len(axes) == value.ndim, (
            f"{address}: axes {' '.join(axes)!r} of a value of shape {value.shape}"
        )
        for axis, size in zip(axes, value.shape, strict=True):
            expected = known.get(axis, {size})
            assert size in expected, f"{address}: {size} along {axis}, expected {min(expected)}"
    for path, module in modules_of(subject.model).items():
        if issubclass(probe_of(type(module), subject.registry), AttentionProbe):
            check_heads(path, record.values)
    check_last_stream(subject, record.values)


def check_heads(path: str, values: Mapping[str, mx.array]) -> None:
    """The heads of the attention at `path` are its pattern times its values."""
    if f"{path}.pattern" not in values:
        return  # it was not called
    pattern, each = values[f"{path}.pattern"], values[f"{path}.values"]
    expected = pattern @ mx.repeat(each, pattern.shape[1] // each.shape[1], axis=1)
    what = (
        f"{path}.heads, beside its pattern times its values (a `mix` that is no such product needs a probe of its own: "
        "docs/plugins/tracing.md)"
    )
    same(values[f"{path}.heads"], expected, what)


def check_last_stream(subject: Subject, values: Mapping[str, mx.array]) -> None:
    """The residual stream after the last layer, read by norm and head, is the logits."""
    owner: Any = subject.model
    if not isinstance(owner, Decoder | Encoder | EncoderDecoder):
        return
    prefix, owner = ("decoder.", owner.decoder) if isinstance(owner, EncoderDecoder) else ("", owner)
    last = f"{prefix}layers.{len(owner.layers) - 1}"
    if "head" in owner and last in values and f"{prefix}head" in values:
        x = values[last]
        logits = owner.head(owner.norm(x) if "norm" in owner else x)
        same(values[f"{prefix}head"], logits, f"{prefix}head, beside {last} read by norm and head")


def intervention_changes_what_follows_and_nothing_before(subject: Subject) -> None:
    """Setting a value to zero changes what is computed from it; replacing it by itself changes nothing."""
    plain, record = run(subject), recorded(subject)
    address = middle_of(record[1])
    if address is not None:
        check_ablation(subject, address, *record)
    free = [address for address, about in record[1].items() if not about.derived]
    with intervene(loaded_of(subject), dict.fromkeys(free, lambda value: value)):
        unchanged = run(subject)
    assert mx.array_equal(unchanged, plain).item(), "an intervention that changes no value changes the logits"
    with intervene(loaded_of(subject), dict.fromkeys(free, lambda value: value + 0)):
        same(run(subject), plain, "logits with every value replaced by its equal")
    assert mx.array_equal(run(subject), plain).item(), "the logits differ after the intervention has ended"


def check_ablation(subject: Subject, address: str, record: RecordedPass, about: Mapping[str, Value]) -> None:
    """Zeros at an address change no earlier value, and change every later residual stream."""
    with intervene(loaded_of(subject), {address: 0}):
        changed, _ = recorded(subject)
    order = list(record.values)
    place = order.index(address)
    for before in order[:place]:
        assert mx.array_equal(changed.values[before], record.values[before], equal_nan=True).item(), (
            f"{address} set to zero changed {before}, which is computed before it"
        )
    assert not mx.any(changed.values[address]).item(), f"{address} was set to zero, and is not"
    layer = LAYER.match(address)
    stem = (layer[0] if layer else address).rpartition(".")[0]
    for after in order[place + 1 :]:
        match = LAYER.fullmatch(after)
        if match and after.rpartition(".")[0] == stem and after != address:
            assert not mx.array_equal(changed.values[after], record.values[after]).item(), (
                f"{address} set to zero did not change {after}"
            )
    heads = f"{address}.heads"
    if heads in record.values and about[heads].item:
        check_head(subject, heads, about[heads], record)


def check_head(subject: Subject, address: str, about: Value, record: RecordedPass) -> None:
    """Zeros in one of several heads leave the others unchanged."""
    axis = about.axes.split().index(about.item_axis)
    last = record.values[address].shape[axis] - 1
    with intervene(loaded_of(subject), {f"{address.rpartition('.')[0]}.{about.item}.{last}": 0}):
        changed, _ = recorded(subject)
    expected, rest = mx.split(record.values[address], [last], axis=axis)
    other_parts, zeroed = mx.split(changed.values[address], [last], axis=axis)
    assert mx.array_equal(other_parts, expected).item(), f"{address}: zeros in part {last} changed another"
    assert not mx.any(zeroed).item() and mx.any(rest).item(), f"{address}: part {last} was not set to zero"


def every_value_takes_part(subject: Subject) -> None:
    """The model uses every value; one that it does not use must be declared `derived`."""
    subject = replace(subject, tokens=subject.tokens[:1, :SHORT])
    plain, (_, about) = run(subject), recorded(subject)
    for address, value in about.items():
        match = LAYER.match(address)
        if value.derived or not value.axes or (match and match[1] != "0"):
            continue  # one layer shows it, and what has no axes is noted without a probe of its own
        with intervene(loaded_of(subject), {address: 0}):
            changed = run(subject)
        assert not mx.array_equal(changed, plain).item(), (
            f"{address} set to zero changes no logit: its probe must use what `note` returns, or declare it `derived`"
        )


def cached_values_equal_the_full_forwards(subject: Subject) -> None:
    """A text has the same values whether it is read whole, in pieces or token by token."""
    recorder = Recorder()
    with hooked(subject.model, recorder, subject.registry):
        run(subject)
        count = len(recorder.passes)
        mx.eval(list(in_pieces(subject)))
    loaded = loaded_of(subject)
    whole, pieces = (
        Trace(loaded, [], passes, recorder.about, [])
        for passes in (recorder.passes[:count], recorder.passes[count:])
    )
    for address, about in recorder.about.items():
        axes = about.axes.split()
        if not {"T", "S"} & set(axes) or "k" in axes:
            continue  # the order of a token's experts is the router's own affair: their gates have it
        found, expected = (seen_of(values[address], axes[1:]) for values in (pieces, whole))
        same(found, expected, f"{address} of a text read in pieces")


def seen_of(value: np.ndarray, axes: Sequence[str]) -> mx.array:
    """A value with zeros in the columns of later tokens, which do not exist yet in pieces."""
    if {"T", "S"} <= set(axes):
        rows, columns = (np.arange(value.shape[axes.index(axis)]) for axis in "TS")
        later = columns[None] > rows[:, None]  # (T, S)
        value = np.moveaxis(value, (axes.index("T"), axes.index("S")), (-2, -1))
        value = np.where(later, 0, value)
    return mx.array(np.nan_to_num(value))


def settings_of(subject: Subject) -> dict[str, Any]:
    """Settings for a short run of the architecture's own strategy."""
    strategy = subject.registry.strategy(subject.architecture.task, {}, architecture=subject.architecture)
    few = {"max_tokens": LENGTH, "beams": 1}
    return {name: value for name, value in few.items() if name in strategy.setting_names}


def target_of(subject: Subject) -> mx.array:
    """A target (1, T) that is shorter than its source."""
    return pairs_of(subject)[1][:1]


def run(subject: Subject) -> mx.array:
    """The logits (1, T, V) of one text, read whole."""
    tokens = subject.tokens[:1]
    return subject.model(tokens, target_of(subject)) if translates(subject) else subject.model(tokens)


def in_pieces(subject: Subject) -> Iterator[mx.array]:
    """The logits of one text that is read in pieces with a cache, where the model can."""
    if not sees_no_later_token(subject):
        return
    text = target_of(subject) if translates(subject) else subject.tokens[:1]
    cuts = [*(cut for cut in PIECES if cut < text.shape[1]), *range(PIECES[-1] + 1, text.shape[1])]
    yield logits_in_pieces(subject, text, cuts)


def recorded(subject: Subject) -> tuple[RecordedPass, Mapping[str, Value]]:
    """The values of one text, read whole, in the order of their computation, and their declarations."""
    recorder = Recorder()
    with hooked(subject.model, recorder, subject.registry):
        mx.eval(run(subject))
    recorder.evaluate()
    return recorder.passes[0], recorder.about


def middle_of(about: Mapping[str, Value]) -> str | None:
    """The mixer of a middle layer, else the layer; a decoder's where there is also an encoder."""
    layers = [address for address in about if LAYER.fullmatch(address)]
    last = [address for address in layers if address.startswith("decoder.")] or layers
    if not last:
        return None
    layer = last[(len(last) - 1) // 2]
    return f"{layer}.mixer" if f"{layer}.mixer" in about else layer
