"""The tensor names of transformers' encoder-decoders. Imports no mlx."""

from zoo.frozen import frozen
from zoo.recipe import GatedMLP
from zoo.weights import Ignore, OutputHead, Rename, Rule, matches

SOURCE, TARGET = "encoder.embedding.tokens.weight", "decoder.embedding.tokens.weight"


@frozen()
class Tables(Rule):
    """The embedding tables. A shared one stands under one or more of its names, all of them copies."""

    shared: str
    encoder: str
    decoder: str
    head: str

    def forward(self, source, target, recipe, join):
        if recipe.decoder.embedding.shared:
            self._first(source, target, SOURCE, (self.shared, self.encoder, self.decoder, self.head))
            rest = [self.shared, self.encoder, self.decoder]
        else:
            self._first(source, target, SOURCE, (self.encoder, self.shared))
            head = [self.head] if recipe.head.tied else []
            self._first(source, target, TARGET, (self.decoder, *head, self.shared))
            rest = [self.shared]
        for pattern in rest:
            Ignore(pattern).forward(source, target, recipe, join)

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


@frozen()
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

# Sinusoids are computed, so the table that some checkpoints have is not needed.
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


def gguf_side(name, short):
    """The rules of a T5 stack in a GGUF file, which calls an encoder's and a decoder's layers by `short` names."""
    source, target = f"{short}.blk.{{i}}", f"{name}.layers.{{i}}"
    names = ("attn_q", "attn_k", "attn_v", "attn_o")
    return (
        Rename(f"{short}.blk.0.attn_rel_b.*", f"{name}.relative.*"),
        *attention(source, f"{target}.mixer", names),
        Rename(f"{source}.attn_norm.*", f"{target}.mixer_norm.*"),
        Rename(f"{source}.ffn_gate.*", f"{target}.feedforward.gate.*"),
        Rename(f"{source}.ffn_up.*", f"{target}.feedforward.up.*"),
        Rename(f"{source}.ffn_down.*", f"{target}.feedforward.down.*"),
        Rename(f"{source}.ffn_norm.*", f"{target}.feedforward_norm.*"),
        Rename(f"{short}.output_norm.*", f"{name}.norm.*"),
    )


T5_GGUF = (
    Rename("token_embd.weight", SOURCE),
    *gguf_side("encoder", "enc"),
    *attention(
        "dec.blk.{i}",
        "decoder.layers.{i}.cross",
        ("cross_attn_q", "cross_attn_k", "cross_attn_v", "cross_attn_o"),
    ),
    Rename("dec.blk.{i}.cross_attn_norm.*", "decoder.layers.{i}.cross_norm.*"),
    Ignore("dec.blk.{i}.cross_attn_rel_b.*"),
    *gguf_side("decoder", "dec"),
    OutputHead("output.*", "decoder.head.output.*"),
)


def t5_of_gguf(config, tensors):
    """The settings that only a file's tensors show: feed-forwards with gates, as in T5 1.1, and an untied head."""
    gated = any(name.endswith(".ffn_gate.weight") for name in tensors)
    return dict(
        feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=not gated or config["tie_word_embeddings"],
    )


T5_KEYS = {
    "embedding_length": "d_model",
    "feed_forward_length": "d_ff",
    "block_count": "num_layers",
    "decoder_block_count": "num_decoder_layers",
    "decoder_start_token_id": "decoder_start_token_id",
    "attention.head_count": "num_heads",
    "attention.key_length": "d_kv",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
    "attention.relative_buckets_count": "relative_attention_num_buckets",
    "context_length": None,  # there is no table of positions
}


def t5_side(name, feedforward):
    """The rules of a T5 stack; `feedforward` is the number of that block in a layer: 2 after cross-attention, else 1."""
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
    # The first release has a relative bias for cross-attention too, which no implementation uses.
    Ignore("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"),
    *t5_side("encoder", 1),
    *attention("decoder.block.{i}.layer.1.EncDecAttention", "decoder.layers.{i}.cross", ("q", "k", "v", "o")),
    Rename("decoder.block.{i}.layer.1.layer_norm.*", "decoder.layers.{i}.cross_norm.*"),
    *t5_side("decoder", 2),
    OutputHead("lm_head.*", "decoder.head.output.*"),
)
# A bias in each layer.
UMT5 = (
    *(
        Rename(
            f"{name}.block.{{i}}.layer.0.SelfAttention.relative_attention_bias.*",
            f"{name}.layers.{{i}}.mixer.relative.*",
        )
        for name in ("encoder", "decoder")
    ),
    *T5,
)
