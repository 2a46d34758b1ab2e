"""The probes of the zoo's own blocks.

Axes: B batch, T new tokens, S cached and new, M tokens of a source, D width, H heads, G key/value heads, K width of a head,
F hidden, E experts (channels of a state space), k experts of a token, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from zoo.describe.language import message
from zoo.inspect.tracing.probe import Probe, Traces, Value

ADDED = "what attention adds to the residual stream"
HEADS = Value("B H T K", "what each head takes from the values of all tokens", item="head", item_axis="H")
PATTERN = Value(
    "B H T S", "the share of each token's value in what a head gives", "probability", item_axis="H"
)
QUERIES = Value("B H T K", "queries, normalised and rotated", item_axis="H")
KEYS = Value("B G S K", "keys, normalised and rotated, the cached ones included")
VALUES = Value("B G S K", "values, the cached ones included")


class PatternProbe(Probe):
    """The pattern of attention of any kind, from what it does to values."""

    def apply_pattern(self, attend: Callable[[mx.array], mx.array], values: mx.array) -> mx.array:
        """What `attend` gives for these values, (B, H, T, K) of (B, G, S, K), or what a replaced pattern gives."""
        pattern = attention_pattern(attend, values)
        wanted = self.note_pattern(pattern)
        if wanted is pattern:
            return attend(values)
        return wanted @ mx.repeat(values, wanted.shape[1] // values.shape[1], axis=1)

    def note_pattern(self, pattern: mx.array) -> mx.array:  # (B, H, T, S)
        """Note the pattern; gives it back, or what is to be in its place."""
        return self.note("pattern", pattern)


class AttentionProbe(PatternProbe):
    """Attention: queries, keys, values, the pattern of each head, and what each head gives."""

    traces = Traces(
        Value("B T D", ADDED),
        {"queries": QUERIES, "keys": KEYS, "values": VALUES, "pattern": PATTERN, "heads": HEADS},
        parts={
            "query": Value("B T H·K", "the queries of all heads side by side"),
            "key": Value("B T G·K", "the keys of all heads side by side"),
            "value": Value("B T G·K", "the values of all heads side by side"),
            "query_norm": Value("B H T K", "the normalised queries"),
            "key_norm": Value("B G T K", "the normalised keys"),
            "output": None,  # the whole block's
        },
    )

    def mix(
        self, queries: mx.array, keys: mx.array, values: mx.array, mask: mx.array | str | None
    ) -> mx.array:
        """Note the operands, the pattern and the result; a replaced pattern weighs the values in the block's place."""
        queries, keys = self.note("queries", queries), self.note("keys", keys)
        own, values = super().mix, self.note("values", values)  # type: ignore[misc]
        return self.note("heads", self.apply_pattern(lambda given: own(queries, keys, given, mask), values))


def attention_pattern(attend: Callable[[mx.array], mx.array], values: mx.array) -> mx.array:
    """The attention pattern (B, H, T, S) of a function that attends to any values, (B, G, S, K) -> (B, H, T, K).

    Its result is linear in the values: with the rows of the identity matrix in their place it is the pattern itself,
    whatever is done to the scores (caps, biases, sinks, windows).
    """
    seen, width = values.shape[2:]
    blocks = -(-seen // width)  # of the identity matrix, each as wide as values are
    identity = mx.split(mx.eye(seen, blocks * width, dtype=values.dtype), blocks, axis=1)
    columns = [attend(mx.broadcast_to(block, values.shape)) for block in identity]
    return mx.concatenate(columns, axis=-1)[..., :seen]


class CrossAttentionProbe(AttentionProbe):
    """Cross-attention: the same over the tokens of the source."""

    traces = Traces(
        Value("B T D", "what cross-attention adds to the residual stream"),
        {
            "queries": Value("B H T K", "queries, of the target", item_axis="H"),
            "keys": Value("B G M K", "keys, of the source"),
            "values": Value("B G M K", "values, of the source"),
            "pattern": PATTERN._replace(
                axes="B H T M", summary="the share of each source token's value in what a head gives"
            ),
            "heads": HEADS._replace(summary="what each head takes from the values of the source"),
        },
        parts={
            **AttentionProbe.traces.parts,
            "key": Value("B M G·K", "the keys of all heads side by side"),
            "value": Value("B M G·K", "the values of all heads side by side"),
        },
    )


class FeedForwardProbe(Probe):
    """A feed-forward: its hidden activations, which the down projection is called with."""

    traces = Traces(
        Value("B T D", "what the feed-forward adds to the residual stream"),
        {"hidden": Value("B T F", "the hidden activations", item="neuron", item_axis="F")},
        {"down": "hidden"},
        {
            "up": Value("B T F", "the up projection"),
            "gate": Value("B T F", "the gate's projection, before the activation"),
            "down": None,  # the whole block's
        },
    )


CHOSEN = {
    "indices": Value("B T k", "the experts chosen for each token", "expert"),
    "weights": Value("B T k", "what each chosen expert's output is multiplied by"),
    "gates": Value(
        "B T E",
        "what each expert's output is multiplied by: zero for those that are not chosen",
        item="expert",
        item_axis="E",
    ),
}


class ExpertChoiceProbe(Probe):
    """A router: the experts chosen for each token, in the router's own order, and what each is multiplied by.

    A changed gate of a chosen expert is its new weight; the other weights stay, and no other expert is chosen.
    """

    traces = Traces(values=CHOSEN)

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Note both, and the weights by expert."""
        indices, weights = super().__call__(x)
        indices, weights = self.note("indices", indices), self.note("weights", weights)
        none = mx.zeros((*x.shape[:-1], self.spec.experts), dtype=weights.dtype)  # type: ignore[attr-defined]
        gates = mx.put_along_axis(none, indices, weights, axis=-1)
        wanted = self.note("gates", gates)
        return indices, weights if wanted is gates else mx.take_along_axis(wanted, indices, axis=-1)


class RouterProbe(ExpertChoiceProbe):
    """A router by softmax: the probability of every expert, too."""

    traces = Traces(
        values={
            **CHOSEN,
            "probabilities": Value(
                "B T E", "the softmax of the scores of all experts", "probability", derived="scores"
            ),
        },
        parts={"scores": Value("B T E", "the score of each expert", "logit", item_axis="E")},
    )

    def weigh(self, logits: mx.array, indices: mx.array) -> mx.array:
        """Note the probabilities of all experts."""
        self.note("probabilities", mx.softmax(logits, axis=-1, precise=True))
        return super().weigh(logits, indices)  # type: ignore[misc]


class ExpertsProbe(Probe):
    """Experts: what each chosen one gives. Their products have rows in an order that depends on how many there are."""

    traces = Traces(
        Value("B T k D", "what each chosen expert gives, in the router's order"),
        parts={"gate": None, "up": None, "down": None},
    )


class MoEProbe(Probe):
    """A mixture of experts."""

    traces = Traces(
        Value("B T D", "what the mixture of experts adds to the residual stream"),
        parts={
            "shared_gate": Value("B T 1", "how far the shared expert is open, before the sigmoid", "logit")
        },
    )


class LayerProbe(Probe):
    """A layer: the residual stream after it."""

    traces = Traces(Value("B T D", "the residual stream after the layer"))


class ResidualProbe(Probe):
    """A layer that adds its parts by a method `add`: the residual stream after each of them.

    A parallel layer has one sum, and no stream between its parts.
    """

    traces = Traces(
        Value("B T D", "the residual stream after the layer"),
        {"resid_mid": Value("B T D", "the residual stream between mixer and feed-forward")},
    )
    sums: ClassVar[Mapping[str, str]] = {"mixer": "resid_mid"}

    @classmethod
    def traces_of(cls, module: nn.Module) -> Traces:
        """Without the stream between parallel parts; a residual scale is named with what it multiplies."""
        traces, scale = cls.traces, getattr(module, "residual_scale", 1.0)
        if getattr(module, "parallel", False):
            traces = traces._replace(values={})
        if scale != 1.0:
            summary = "what is added to the residual stream, before it is multiplied by {n}"
            added = Value("B T D", message(summary, n=f"{scale:g}"))
            traces = traces._replace(parts=dict.fromkeys((*cls.sums, "feedforward"), added))
        return traces

    def add(self, name: str, x: mx.array, *inputs: mx.array) -> mx.array:
        """Note the sum after each part but the last."""
        x = super().add(name, x, *inputs)  # type: ignore[misc]
        return self.note(self.sums[name], x) if name in self.sums else x


class CrossLayerProbe(ResidualProbe):
    """A layer with cross-attention between mixer and feed-forward."""

    traces = Traces(
        Value("B T D", "the residual stream after the layer"),
        {
            "resid_mid": Value("B T D", "the residual stream between mixer and cross-attention"),
            "resid_cross": Value("B T D", "the residual stream between cross-attention and feed-forward"),
        },
    )
    sums: ClassVar[Mapping[str, str]] = {"mixer": "resid_mid", "cross": "resid_cross"}


class NormProbe(Probe):
    """A norm."""

    traces = Traces(Value("B T D", "the normalised vectors"))

    def note_output(self, value: mx.array) -> mx.array:
        """Report the vectors; the axes are unknown of a norm over something else, such as the heads of a plugin's mixer."""
        about = self._output
        if about is not None and len(about.axes.split()) != value.ndim:
            return self._report(self._address, value, about._replace(axes=""))
        return super().note_output(value)


class EmbeddingProbe(Probe):
    """An embedding: the rows of its table, what positions add, the sum."""

    traces = Traces(
        Value("B T D", "the vectors that enter the first layer"),
        {
            "vectors": Value(
                "B T D", "the rows of the table, scaled where the recipe says so, without positions"
            )
        },
        parts={"tokens": None},  # several embeddings may share the table
    )

    def vectors(self, tokens: mx.array) -> mx.array:
        """Note the scaled rows."""
        return self.note("vectors", super().vectors(tokens))  # type: ignore[misc]


class PositionsProbe(Probe):
    """Positions that are added to the tokens' vectors."""

    traces = Traces(Value("B T D", "the vectors of the positions"))

    def __call__(self, *args: Any, **options: Any) -> mx.array:
        """Note them with a batch, which those of a row without padding have not."""
        given = super(Probe, self).__call__(*args, **options)  # type: ignore[misc]
        return self.note_output(given) if given.ndim == 3 else self.note_output(given[None])[0]


class ConvolutionProbe(Probe):
    """The convolution before a state space, which also gives what its next call needs."""

    traces = Traces(Value("B T E", "the convolution over the last tokens"))

    def __call__(self, *args: Any, **options: Any) -> tuple[mx.array, mx.array]:
        """Note the first of the two."""
        given, kept = super().__call__(*args, **options)
        return self.note_output(given), kept


class HeadProbe(Probe):
    """A head."""

    traces = Traces(Value("B T V", "the logits", "logit"), parts={"output": None})


class LoRAProbe(Probe):
    """A layer with LoRA's change: not the layer inside it, which gives what it would give without."""

    traces = Traces(Value("", "the product with the changed matrix"), parts={"layer": None})


class SilentProbe(Probe):
    """A module that notes nothing: its parts note all there is."""

    traces = Traces(None)
