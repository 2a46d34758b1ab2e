"""The spec of a model that mlx-lm runs: its config, its sizes and its drawing. Imports no mlx."""

import json
from dataclasses import field

from zoo.frozen import frozen
from zoo.recipe import Embedding, Head, LearnedPositions, Spec

LONGEST = 60  # characters of a list that a table of facts shows


@frozen()
class Bridged(Spec):
    """A whole decoder of `mlx_lm.models`. `settings` is the JSON of the config's keys that its ModelArgs takes.

    `vocab`, `depth` (layers), `parameter_count`, `token_numbers` (cached for each token) and `state_numbers` (cached
    whatever the length) are read off the model that mlx-lm makes of them. `positions`: how many of them are learned.
    """

    kind, name = "model", "mlx-lm"
    title = "decoder, run by mlx-lm"  # whatever its layers
    causality = "causal"
    module: str
    settings: str
    vocab: int
    dim: int
    depth: int
    parameter_count: float  # whole, and more than any one array may hold
    token_numbers: int = field(default=0, metadata={"least": 0})
    state_numbers: float = field(default=0, metadata={"least": 0})  # the same
    context: int | None = None
    positions: int | None = None

    @property
    def config(self):
        """The settings as mlx-lm takes them, a new copy."""
        return json.loads(self.settings)

    @property
    def embedding(self):
        """The vocabulary, width and learned positions."""
        learned = None if self.positions is None else LearnedPositions(self.positions)
        return Embedding(self.vocab, self.dim, positions=learned)

    @property
    def layers(self):
        """One empty spec a layer: mlx-lm's code does not say what a layer contains."""
        return (Spec(),) * self.depth

    @property
    def head(self):
        """The head; whether it is tied is not known."""
        return Head(vocab=self.vocab)

    def shown_fields(self):
        """The module and its settings, one by one: nested ones as "rope_scaling.factor"."""
        yield "module", self.module
        yield "layers", self.depth
        yield from _flat(self.config)

    def own_parameters(self, dim):
        return self.parameter_count

    def kv_cache_size(self, dim):
        return self.token_numbers

    def state_size(self, dim):
        return int(self.state_numbers)


def _flat(settings, path=""):
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{key}.")
        else:
            text = json.dumps(value, ensure_ascii=False)
            long = isinstance(value, list) and len(text) > LONGEST
            yield path + key, f"{text[: LONGEST - 1]}…" if long else value


def bridged(subject):
    """Draws the embedding, the layers as closed boxes, since only mlx-lm's code knows their parts, and the head."""
    from zoo.describe.diagram import Box, Frame, LayerStack, Note, note

    spec = subject.spec
    layer = Box("layer", "Layer run by mlx-lm", "layers.*", (Note(f"module {spec.module}", "module"),))
    embedding = (note("vocab", "vocabulary {n}", n=spec.vocab), note("dim", "width {n}", n=spec.dim))
    context = () if spec.context is None else (note("context", "context {n}", n=spec.context),)
    items = (
        Box("embedding", "Embedding", "", embedding),
        Frame((layer,), spec.depth, "layers.*"),
        Box("head", "Output head", ""),
    )
    return LayerStack(
        "decoder", "", items, Box("input", "Tokens", "context", context), Box("output", "Logits")
    )
