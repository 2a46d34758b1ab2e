"""Builds a `TraceView` from a trace. Axes: T tokens, S attended tokens, M tokens of a source, H heads, D width, k experts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from zoo.architecture.settings import CONSTRAINTS, GUIDANCE, PENALTIES, SAMPLING
from zoo.blocks.attention import MultiHeadAttention
from zoo.describe.language import message
from zoo.errors import NothingToPredict
from zoo.generation.loop.prompt import mask_id
from zoo.generation.sampling.custom import name_of
from zoo.generation.settings import Settings
from zoo.inspect.tokenization import pieces_of
from zoo.inspect.trace_view.explanations import explanations
from zoo.inspect.trace_view.summaries import (
    BINS,
    FEWER,
    MOST_ROWS,
    attention_operands,
    head_attention,
    mask_predictions,
    mean_norm,
    rounded,
    strip,
    unmasking_passes,
)
from zoo.inspect.trace_view.view import (
    AttentionOperands,
    AttentionPattern,
    ExpertRouting,
    LayerView,
    Pass,
    TraceToken,
    TraceView,
    Track,
    ValueSummary,
)
from zoo.inspect.tracing.choices import Choice
from zoo.inspect.tracing.probe import modules_of
from zoo.inspect.tracing.traced_run import Trace

LAYER = re.compile(r"^(.*?\blayers\.\d+)(?:\.(.+))?$")
ALL = 4096  # tokens of a vocabulary whose logits are all shown; of a larger one the most likely are
LIKELIEST = 512
PATTERN_NUMBERS = 400_000  # of all patterns together; a longer text has its last rows only
OPERANDS = ("queries", "keys", "values")
OPERAND_NUMBERS = 200_000  # of all patterns together; a longer text has none
LENS = 5  # tokens read at each layer
SHOWN = 50  # of the model's most likely tokens, the ones with a probability after each stage
SHOWN_LAST = 12  # of the most likely tokens of the last stage
SLIDERS = ("temperature", "top_k", "top_p", "min_p")


def build_view(trace: Trace, candidates: int | None = None) -> TraceView:
    """The view of a trace, with `candidates` logits for each generated token (default: up to 4,096 all, else 512)."""
    loaded = trace.loaded
    viewer = ViewBuilder(trace)
    layers = viewer.layers()
    # A model's own address is "": what it gives are the logits, which its head has noted.
    order = list(trace)
    outside = [address for address in order if address and not LAYER.match(address)]
    first = min((order.index(layer.address) for layer in layers if layer.address in trace), default=0)
    before = [a for a in outside if order.index(a) < first or "embedding" in a]
    lens = tuple(
        replace(
            prediction,
            probabilities=tuple(rounded(np.array(row)) for row in prediction.probabilities),
            entropy_bits=rounded(np.abs(np.array(prediction.entropy_bits))),
        )
        for prediction in trace.lens(LENS)
    )
    vocabulary = loaded.recipe.embedding.vocab
    count = candidates or (vocabulary if vocabulary <= ALL else LIKELIEST)
    decisions = tuple(_rounded(choice) for choice in trace.choices(count))
    view = TraceView(
        architecture=loaded.architecture.name,
        task=loaded.architecture.task,
        prompt="".join(p.text for p in viewer.tracks[0].pieces if p.origin != "generated" and not p.special),
        text=trace.text,
        finish_reason=trace.steps[-1].finish_reason if trace.steps else None,
        settings=_settings(trace.settings),
        tracks=viewer.tracks,
        before=tuple(viewer.summary(a, a) for a in before),
        layers=layers,
        after=tuple(viewer.summary(a, a) for a in outside if a not in before),
        lens=lens,
        decisions=decisions,
        passes=tuple(viewer.passes()),
        masks=mask_predictions(trace),
        unmasking=viewer.unmasking,
        vocabulary={},
        words=explanations(loaded),
        notes=tuple(viewer.notes(bool(lens))),
    )
    return replace(view, vocabulary={p.id: p.name for p in viewer.pieces(sorted(view.named_ids()))})


def _settings(settings: Settings | None) -> dict[str, Any]:
    """The settings by which tokens were chosen."""
    if settings is None:
        return {}
    neutral = Settings()
    names = (setting.name for setting in (*SAMPLING, *PENALTIES, *GUIDANCE, *CONSTRAINTS))
    values = {name: _as_json(getattr(settings, name)) for name in (*names, "samplers", "min_tokens")}
    return {n: value for n, value in values.items() if n in SLIDERS or value != getattr(neutral, n)}


def _as_json(value: object) -> Any:
    """The value of a setting as JSON holds it: a function by its name, token ids as a list."""
    if isinstance(value, tuple):
        return tuple(map(_as_json, value))
    return name_of(value) if callable(value) else value.tolist() if hasattr(value, "tolist") else value


def _rounded(choice: Choice) -> Choice:
    """The choice with rounded numbers, and the probabilities of its most likely candidates only."""
    last = choice.stages[-1].probabilities
    best = sorted(range(len(last)), key=lambda at: -last[at])[:SHOWN_LAST]
    chosen = choice.candidates.index(choice.token)
    shown = list(dict.fromkeys((*range(min(SHOWN, len(last))), *(at for at in best if last[at]), chosen)))
    return replace(
        choice,
        entropy_bits=round(choice.entropy_bits, 4),
        logits=rounded(np.array(choice.logits), 7),
        rest_logits=rounded(np.array(choice.rest_logits), 6),
        shown=tuple(choice.candidates[at] for at in shown),
        stages=tuple(
            replace(stage, probabilities=rounded(np.array([stage.probabilities[at] for at in shown])))
            for stage in choice.stages
        ),
    )


class ViewBuilder:
    """Builds the parts of one trace's view."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.modules = modules_of(trace.loaded.model)
        self.unmasking = unmasking_passes(trace)
        self.tracks = tuple(self._tracks())
        self.read = {track.name: track.read for track in self.tracks}
        self.shapes = {address: trace[address].shape for address in trace}
        patterns = [self.shapes[a] for a in trace.patterns]
        each = sum(shape[0] * shape[-1] for shape in patterns)
        self.rows = max(PATTERN_NUMBERS // each, 1) if each else 1
        operands = (a for a in self.shapes if a.rpartition(".")[2] in OPERANDS)
        self.has_operands = sum(math.prod(self.shapes[a]) for a in operands) <= OPERAND_NUMBERS

    def _tracks(self) -> Iterable[Track]:
        passes, steps = self.trace.passes, self.trace.tokens
        encoded = [p for p in passes if p.kind == "encode"]
        if encoded and self.trace.loaded.model.translates:
            yield self._track("source", encoded[-1].tokens, (), len(encoded[-1].tokens))
            target = [id for p in passes if p.kind == "decode" for id in p.tokens]
            start = next((len(p.tokens) for p in passes if p.kind == "decode"), 0)
            unread = steps[_read_of(target, steps) :]
            yield self._track("target", target[:start], (*target[start:], *unread), len(target))
        elif self.trace.grows:
            ids = [id for p in passes if p.cached for id in p.tokens]
            generated = _read_of(ids, steps)
            prompt = len(ids) - generated
            yield self._track("text", ids[:prompt], (*ids[prompt:], *steps[generated:]), len(ids))
        else:
            whole = list(passes[-1].tokens) if passes else []
            before = passes[0].tokens if passes else []
            first = next((i for i, id in enumerate(before) if id != whole[i]), len(whole))
            # The masks of the last pass hold what it predicts.
            last = self.unmasking[-1].predictions if self.unmasking else ()
            chosen = {hidden.position: hidden.chosen for hidden in last}
            written = [chosen.get(position, id) for position, id in enumerate(whole)]
            yield self._track("text", whole[:first], written[first:], len(whole))

    def _track(self, name: str, prompt: Sequence[int], generated: Sequence[int], read: int) -> Track:
        return Track(name, (*self.pieces(prompt), *self.pieces(generated, "generated")), read)

    def pieces(self, ids: Sequence[int], origin: str = "prompt") -> list[TraceToken]:
        """The pieces of ids; without a tokenizer, their numbers."""
        tokenizer = self.trace.loaded.tokenizer
        if tokenizer is None:
            return [TraceToken(id, str(id), f"[{id}]", "", False, origin) for id in ids]
        known = pieces_of(tokenizer, [id for id in ids if 0 <= id < tokenizer.vocab_size])
        by_id = {p.id: TraceToken(p.id, p.token, p.text, p.bytes.hex(), p.special, origin) for p in known}
        # Other ids are of rows that only fill the embedding table.
        return [by_id.get(id) or TraceToken(id, f"[{id}]", f"[{id}]", "", True, origin) for id in ids]

    def track_of(self, address: str) -> str:
        """The row of tokens that a value's axis T counts."""
        if len(self.tracks) == 1:
            return "text"
        return "source" if address.startswith("encoder.") else "target"

    def axes(self, address: str) -> list[str]:
        """The axes of `trace[address]`, found by their length where they are not declared."""
        axes = self.trace.about(address).axes.split()
        axes = axes[1:] if axes[:1] == ["B"] else axes
        shape = self.shapes[address]
        if len(axes) == len(shape):
            return axes
        read = self.read[self.track_of(address)]
        return ["T" if n == read and read not in shape[:i] else "·" for i, n in enumerate(shape)]

    def summary(self, address: str, name: str) -> ValueSummary:
        """One value, reduced to a picture."""
        value, axes, about = self.trace[address], self.axes(address), self.trace.about(address)
        rows = next((axis for axis in ("T", "S", "M") if axis in axes), "")
        of = "source" if rows == "M" else self.track_of(address)
        whole = bool(rows) and value.shape[axes.index(rows)] == self.read[of]
        stream = address in self.trace.streams
        by_token = ["T" if axis == "M" else axis for axis in axes]
        return ValueSummary(
            address,
            name,
            of if whole else "",
            tuple(value.shape),
            self.trace.dtype(address),
            " ".join(axes),
            about.unit,
            about.summary,
            address not in self.modules,
            mean_norm(value, by_token),
            strip(value, by_token, BINS if stream else FEWER),
        )

    def layers(self) -> tuple[LayerView, ...]:
        """The layers in order, the encoder's first, each with what lies below its address."""
        layers: dict[str, dict[str, str]] = {}
        for address in self.trace:
            if parts := LAYER.match(address):
                layers.setdefault(parts[1], {})[address] = parts[2] or "output"
        return tuple(self._layer(address, stages) for address, stages in layers.items())

    def _layer(self, address: str, stages: dict[str, str]) -> LayerView:
        patterns = [a for a in stages if a.endswith(".pattern") and len(self.shapes[a]) == 3]
        chosen = [a for a in stages if self.trace.about(a).unit == "expert" and len(self.shapes[a]) == 2]
        inner = [a for a in stages if a not in patterns and a != address]
        return LayerView(
            address,
            self.track_of(address),
            tuple(self.summary(a, stages[a]) for a in (*inner, *(a for a in [address] if a in stages))),
            tuple(self.pattern(a) for a in patterns),
            tuple(e for a in chosen if (e := self._experts(a)) is not None),
        )

    def pattern(self, address: str) -> AttentionPattern:
        """The attention at an address, with the tokens that its rows and columns are."""
        value = self.trace[address]  # (H, T, S)
        track = self.track_of(address)
        across = self._across(address)
        first = max(value.shape[1] - self.rows, 0)
        heads = tuple(head_attention(weights, first, across) for weights in value.astype(np.float64))
        operands = self._operands(address) if self.has_operands else None
        return AttentionPattern(address, track, "source" if across else track, first, heads, operands)

    def _operands(self, address: str) -> AttentionOperands | None:
        """The operands of a pattern; None if the block overrides `MultiHeadAttention.mix`."""
        owner = address.rpartition(".")[0]
        block, names = self.modules.get(owner), [f"{owner}.{name}" for name in OPERANDS]
        if not isinstance(block, MultiHeadAttention) or type(block).mix is not MultiHeadAttention.mix:
            return None
        if not all(name in self.shapes for name in names):  # a trace of some values
            return None
        queries, keys, values = (self.trace[name].astype(np.float64) for name in names)
        pattern = self.trace[address]
        if (queries.shape[1], keys.shape[1]) != pattern.shape[1:]:
            return None
        return attention_operands(pattern, queries, keys, values, block.scale)

    def _across(self, address: str) -> bool:
        """Whether the columns of a pattern are the source's tokens, and its rows the target's."""
        if self.track_of(address) != "target":
            return False
        axes = self.trace.about(address).axes.split()
        if axes[-1:] == ["M"]:
            return True
        seen = [p.values[address].shape[-1] for p in self.trace.passes if address in p.values]
        source = self.tracks[0].read
        return all(count == source for count in seen) and (len(seen) > 1 or ".cross" in address)

    def _experts(self, address: str) -> ExpertRouting | None:
        owner = address.rpartition(".")[0]
        beside = f"{owner}.weights"
        if beside not in self.shapes or self.shapes[beside] != self.shapes[address]:
            return None
        chosen, weights = self.trace[address].astype(int), self.trace[beside]
        order = np.argsort(-weights, axis=1, kind="stable")
        chosen, weights = np.take_along_axis(chosen, order, 1), np.take_along_axis(weights, order, 1)
        over_all = [self.shapes[a][-1] for a in (f"{owner}.gates", f"{owner}.scores") if a in self.shapes]
        count = over_all[0] if over_all else int(chosen.max()) + 1
        return ExpertRouting(
            owner,
            self.track_of(address),
            count,
            tuple(tuple(row) for row in chosen.tolist()),
            tuple(rounded(row) for row in weights),
        )

    def passes(self) -> Iterable[Pass]:
        """The passes in order."""
        for p in self.trace.passes:
            name = self.tracks[0 if p.kind == "encode" else -1].name
            yield Pass(p.kind, name, p.start, len(p.tokens), p.cached_numbers)

    def notes(self, read: bool) -> Iterable[str]:
        """Sentences about what cannot be shown, and what the numbers omit."""
        loaded = self.trace.loaded
        layers = getattr(loaded.recipe, "layers", ())
        for scale in dict.fromkeys(vars(layer).get("residual_scale", 1.0) for layer in layers):
            if scale != 1.0:
                template = "What a part adds is multiplied by {n}; its norm is shown without that."
                yield message(template, n=f"{scale:g}")
        if loaded.architecture.bridged:
            template = (
                "{architecture} is run by another library's code: what its modules give is shown; "
                "attention patterns are computed inside that code."
            )
            yield message(template, architecture=loaded.architecture.name)
        if not read:
            yield "No head reads the residual stream of this model layer by layer, so there is no logit lens."
        if not self.trace.steps and loaded.recipe.head is not None:
            yield self._unpredicted()
        if self.unmasking[1:]:
            yield "Each pass reads the whole text anew: the values shown are those of the last one."
        if max(self.read.values(), default=0) > MOST_ROWS:
            yield message("The text is long: pictures of values have their last {n} rows.", n=MOST_ROWS)
        if self.rows < max((self.shapes[a][1] for a in self.trace.patterns), default=0):
            template = "The text is long: attention is shown for its last {n} tokens."
            yield message(template, n=f"{self.rows:,}")
        if not self.shapes:
            yield "The run has no values."

    def _unpredicted(self) -> str:
        """The reason why an encoder predicts no token."""
        try:
            mask = mask_id(self.trace.loaded)
        except NothingToPredict:
            return "No token is predicted: the checkpoint names no mask token."
        (piece,) = self.pieces([mask])
        template = "No token is predicted: the prompt has no {text}; add one for predictions."
        return message(template, text=piece.token)


def _read_of(ids: Sequence[int], generated: Sequence[int]) -> int:
    """How many of the generated tokens are the last of the ids that were read: all but the last, or all."""
    counts = (len(generated) - 1, len(generated))
    return next((n for n in counts if n > 0 and list(ids[-n:]) == list(generated[:n])), 0)
