"""The tensor names of transformers' encoder-decoders. Imports no mlx."""

from dataclasses import dataclass

from zoo.recipe import GatedMLP
from zoo.weights import Ignore, OutputHead, Rename, Rule, matches

SOURCE, TARGET = "encoder.embedding.tokens.weight", "decoder.embedding.tokens.weight"


@dataclass(frozen=True)
class Tables(Rule):
    """The embedding tables. A shared one stands under one or more of its names, all of them copies."""

    shared: str
    encoder: str
    decoder: str
    head: str

    def forward(self, source, target, recipe, join):
        if recipe.decoder.embedding.shared:
            self._first(source, target, SOURCE, (self.shared, self.encoder, self.decoder, self.head))
            names = (self.shared, self.encoder, self.decoder)
        else:
            self._first(source, target, SOURCE, (self.encoder, self.shared))
            self._first(source, target, TARGET, (self.decoder, *([self.head] if recipe.head.tied else [])))
            names = (self.shared,)
        for name in names:
            Ignore(name).forward(source, target, recipe, join)

    def backward(self, source, target, recipe, join):
        Rename(self.shared if recipe.decoder.embedding.shared else self.encoder, SOURCE).backward(
            source, target, recipe, join
        )
        Rename(self.decoder, TARGET).backward(source, target, recipe, join)

    @staticmethod
    def _first(source, target, path, patterns):
        """Move the first tensor that is there to `path`."""
        for pattern in patterns:
            for name, _ in matches(pattern, source):
                target[path] = source.pop(name)
                return


@dataclass(frozen=True)
class LogitsBias(Rule):
    """The head's bias, which the checkpoint stores as a matrix of one row."""

    source: str

    def forward(self, source, target, recipe, join):
        for name, _ in matches(self.source, source):
            target[self._path(recipe)] = source.pop(name).reshape(-1)

    def backward(self, source, target, recipe, join):
        for name, _ in matches(self._path(recipe), source):
            target[self.source] = source.pop(name)[None]

    @staticmethod
    def _path(recipe):
        return "decoder.head.bias" if recipe.head.tied else "decoder.head.output.bias"


class Ungated(Rename):
    """The first matrix of a feed-forward without a gate; with one it has another name."""

    def backward(self, source, target, recipe, join):
        if not isinstance(recipe.layers[0].feedforward, GatedMLP):
            super().backward(source, target, recipe, join)


def attention(source, target, names=("q_proj", "k_proj", "v_proj", "out_proj")):
    """The rules of the four projections of an attention."""
    parts = ("query", "key", "value", "output")
    return tuple(Rename(f"{source}.{n}.*", f"{target}.{p}.*") for n, p in zip(names, parts, strict=True))


def side(name):
    """The rules of an encoder or decoder, by fairseq's names."""
    source, target = f"[model.]{name}.layers.{{i}}", f"{name}.layers.{{i}}"
    return (
        *attention(f"{source}.self_attn", f"{target}.mixer"),
        Rename(f"{source}.self_attn_layer_norm.*", f"{target}.mixer_norm.*"),
        *attention(f"{source}.encoder_attn", f"{target}.cross"),
        Rename(f"{source}.encoder_attn_layer_norm.*", f"{target}.cross_norm.*"),
        Rename(f"{source}.fc1.*", f"{target}.feedforward.up.*"),
        Rename(f"{source}.fc2.*", f"{target}.feedforward.down.*"),
        Rename(f"{source}.final_layer_norm.*", f"{target}.feedforward_norm.*"),
        Rename(f"[model.]{name}.layernorm_embedding.*", f"{name}.embedding.norm.*"),
        Rename(f"[model.]{name}.layer_norm.*", f"{name}.norm.*"),
    )


TABLES = Tables(
    "[model.]shared.weight",
    "[model.]encoder.embed_tokens.weight",
    "[model.]decoder.embed_tokens.weight",
    "lm_head.weight",
)

FAIRSEQ = (
    TABLES,
    *side("encoder"),
    *side("decoder"),
    LogitsBias("final_logits_bias"),
    OutputHead("lm_head.weight", "decoder.head.output.weight"),
)

# Sinusoids are computed; some checkpoints carry their table all the same.
WITHOUT_POSITIONS = (
    *FAIRSEQ,
    Ignore("[model.]encoder.embed_positions.*"),
    Ignore("[model.]decoder.embed_positions.*"),
)

WITH_POSITIONS = (
    *FAIRSEQ,
    Rename("[model.]encoder.embed_positions.*", "encoder.embedding.positions.*"),
    Rename("[model.]decoder.embed_positions.*", "decoder.embedding.positions.*"),
)


def t5_side(name, feedforward):
    """The rules of a T5 stack; `feedforward` is the number of its third block, after attention and look."""
    source, target = f"{name}.block.{{i}}.layer", f"{name}.layers.{{i}}"
    names = ("q", "k", "v", "o")
    dense = f"{source}.{feedforward}.DenseReluDense"
    return (
        Rename(f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.*", f"{name}.relative.*"),
        *attention(f"{source}.0.SelfAttention", f"{target}.mixer", names),
        Rename(f"{source}.0.layer_norm.*", f"{target}.mixer_norm.*"),
        Ungated(f"{dense}.wi.*", f"{target}.feedforward.up.*"),
        Rename(f"{dense}.wi_0.*", f"{target}.feedforward.gate.*"),
        Rename(f"{dense}.wi_1.*", f"{target}.feedforward.up.*"),
        Rename(f"{dense}.wo.*", f"{target}.feedforward.down.*"),
        Rename(f"{source}.{feedforward}.layer_norm.*", f"{target}.feedforward_norm.*"),
        Rename(f"{name}.final_layer_norm.*", f"{name}.norm.*"),
    )


T5 = (
    Tables("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
    # The first release has a second bias, for the look at the source, that nothing ever read.
    Ignore("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"),
    *t5_side("encoder", 1),
    *attention("decoder.block.{i}.layer.1.EncDecAttention", "decoder.layers.{i}.cross", ("q", "k", "v", "o")),
    Rename("decoder.block.{i}.layer.1.layer_norm.*", "decoder.layers.{i}.cross_norm.*"),
    *t5_side("decoder", 2),
    OutputHead("lm_head.*", "decoder.head.output.*"),
)
