"""The recipes of the encoder-decoders, each as a difference from the 2017 Transformer, and the spec of T5's positions. Imports no mlx."""

from dataclasses import field, replace

from zoo.config import ACTIVATION_NAMES
from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe import (
    MLP,
    Attention,
    CrossAttention,
    CrossLayer,
    Cut,
    Decoder,
    Division,
    Embedding,
    Encoder,
    EncoderDecoder,
    GatedMLP,
    Head,
    Layer,
    LayerNorm,
    LearnedPositions,
    RMSNorm,
    SinusoidalPositions,
    Spec,
    repeat,
)


@frozen()
class RelativeBias(Spec):
    """One number a head for each bucket of distances, added to the scores of every layer (Raffel et al., 2019, 2.1).

    Half of the `buckets` of a direction hold one distance each, the others ever more, up to `max_distance`; all beyond
    share the last. `bidirectional`: half of all buckets are for keys after the query, as an encoder needs.
    """

    kind, name = "position", "relative-bias"
    heads: int
    buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buckets < (4 if self.bidirectional else 2):
            raise RecipeError(f"buckets: {self.buckets} are too few")
        if self.max_distance <= self.max_exact:
            raise RecipeError(
                f"max_distance: {self.max_distance} must exceed the {self.max_exact} distances with a bucket each"
            )

    @property
    def title(self) -> str:
        """The paper's name."""
        return "relative position bias"

    @property
    def one_direction(self) -> int:
        """The buckets of one direction."""
        return self.buckets // 2 if self.bidirectional else self.buckets

    @property
    def max_exact(self) -> int:
        """The number of distances, from 0 up, that have a bucket each."""
        return self.one_direction // 2

    def own_parameters(self, dim: int) -> int:
        return self.buckets * self.heads

    def divided(self, dim, share):
        """By the heads of attention, where these are divided."""
        if share.heads is None:
            return None
        first, last = share.heads
        return Division(self.change(heads=last - first), {"weight": Cut(-1, (share.heads,))})


@frozen(kw_only=True)
class RelativeAttention(Attention):
    """Attention with a relative position bias for each layer; T5 has one for all layers (Chung et al., 2023, UMT5)."""

    kind, name = "mixer", "relative-attention"
    relative: RelativeBias = field(metadata={"kind": "position"})

    @property
    def title(self) -> str:
        """The attention's name, with the relative position bias."""
        return f"{super().title} with a relative position bias"

    def divided(self, dim, share):
        """By heads, the bias's like the queries'."""
        division = super().divided(dim, share)
        first, last = heads = division.heads[""]
        spec = division.spec.change(relative=dict(heads=last - first))
        return replace(division, spec=spec, cuts={**division.cuts, "relative.weight": Cut(-1, (heads,))})


# How training starts, and what it leaves out at random.
UNUSED = (
    *("init_std", "encoder_layerdrop", "decoder_layerdrop"),
    *("dropout", "attention_dropout", "activation_dropout", "classifier_dropout", "classif_dropout"),
)


def transformer(config, activation="relu", scaled=True, start=0):
    """Post-LN, sinusoidal positions, ReLU, one table for source, target and head (Vaswani et al., 2017).

    The arguments are the family's defaults: its activation, whether embeddings are scaled by √D, the start token.
    """
    dim, vocab = config.count("d_model"), config.count("vocab_size")
    tied = config.flag("tie_word_embeddings", True)
    shared = config.flag("share_encoder_decoder_embeddings", True)
    if not tied:  # then a checkpoint may hold a table for each side
        shared = shared and not config.has_tensor("decoder.embed_tokens", False)
    target_vocab = config.count("decoder_vocab_size", vocab)
    function = config.activation("activation_function", activation)
    config.ignore(*UNUSED)
    norm = LayerNorm(eps=1e-5)

    def parts(side):
        heads = config.count(f"{side}_attention_heads")
        if dim % heads:
            raise config.error(f"{side}_attention_heads", f"does not divide d_model, {dim}")
        return dict(
            placement="post",
            mixer=Attention(heads=heads, bias=True, output_bias=True),
            mixer_norm=norm,
            feedforward=MLP(hidden=config.count(f"{side}_ffn_dim"), activation=function),
            feedforward_norm=norm,
        )

    embedding = Embedding(
        vocab=vocab,
        dim=dim,
        positions=SinusoidalPositions(),
        scale=dim**0.5 if config.flag("scale_embedding", scaled) else 1.0,
    )
    target = parts("decoder")
    look = CrossAttention(heads=target["mixer"].heads, bias=True, output_bias=True)
    context = config.count("max_position_embeddings", 1024)
    return EncoderDecoder(
        encoder=Encoder(
            embedding=embedding,
            layers=repeat(Layer(**parts("encoder")), config.layers("encoder_layers")),
            context=context,
        ),
        decoder=Decoder(
            embedding=embedding.change(vocab=target_vocab, shared=shared),
            layers=repeat(CrossLayer(**target, cross=look, cross_norm=norm), config.layers("decoder_layers")),
            norm=None,
            head=Head(tied=tied, bias=config.has_tensor("final_logits_bias", False), vocab=target_vocab),
            context=context,
        ),
        start=config.count("decoder_start_token_id", start, least=0),
    )


def both(recipe, **changes):
    """A recipe with the encoder and the decoder changed alike."""
    return recipe.change(encoder=changes, decoder=changes)


def marian(config):
    """The 2017 Transformer with all sines before all cosines and a bias on the logits (Junczys-Dowmunt et al., 2018)."""
    config = with_own_names(config)
    as_released(config, normalize_embedding=False)
    recipe = transformer(config, "gelu", scaled=False, start=58100)
    recipe = both(recipe, embedding=dict(positions=SinusoidalPositions(interleaved=False)))
    return with_logits_bias(config, recipe)


def bart(config, normalize_before=False):
    """The 2017 Transformer with learned positions, a norm after the embedding, GELU (Lewis et al., 2019)."""
    config = with_own_names(config)
    as_released(config, normalize_embedding=True, normalize_before=normalize_before)
    recipe = transformer(config, "gelu", scaled=False, start=2)
    # The first two rows of the table of positions are never used.
    positions = LearnedPositions(config.count("max_position_embeddings", 1024), offset=2)
    recipe = both(recipe, embedding=dict(positions=positions, norm=LayerNorm(eps=1e-5)))
    return with_logits_bias(config, recipe)


def mbart(config):
    """BART with Pre-LN, between languages (Liu et al., 2020)."""
    recipe = bart(config, normalize_before=True)
    return both(recipe, norm=LayerNorm(eps=1e-5)).change_layers(placement="pre")


def pegasus(config):
    """The 2017 Transformer with Pre-LN, all sines before all cosines, GELU (Zhang et al., 2019)."""
    config = with_own_names(config)
    as_released(config, normalize_embedding=False, normalize_before=True)
    recipe = transformer(config, "gelu", scaled=False)
    recipe = both(
        recipe, embedding=dict(positions=SinusoidalPositions(interleaved=False)), norm=LayerNorm(eps=1e-5)
    )
    return with_logits_bias(config, recipe.change_layers(placement="pre"))


def m2m_100(config):
    """The 2017 Transformer with Pre-LN, fairseq's sinusoids from position 2 on (Fan et al., 2020; NLLB, 2022)."""
    config = with_own_names(config)
    dim, padding = config.count("d_model"), config.count("pad_token_id", 1, least=0)
    if dim % 2 or dim < 4:
        raise config.error("d_model", "must be even, and at least 4, for its sinusoidal positions")
    recipe = transformer(config, "relu", scaled=True, start=2)
    positions = SinusoidalPositions(interleaved=False, inclusive=True, offset=padding + 1)
    recipe = both(recipe, embedding=dict(positions=positions), norm=LayerNorm(eps=1e-5))
    return recipe.change_layers(placement="pre")


NAMES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}


def with_own_names(config, names=NAMES):
    """The config under the names that its family reads. Others stand for those that it lacks, and else count for nothing."""
    config.ignore(*names)
    return config.renamed({alias: key for alias, key in names.items() if key not in config})


def as_released(config, normalize_embedding, normalize_before=False):
    """Read the switches of the first releases, which transformers has built in and checkpoints still carry."""
    for key in ("normalize_before", "add_final_layer_norm"):
        config.refuse(key, not normalize_before)
    config.refuse("static_position_embeddings", normalize_embedding)
    config.refuse("normalize_embedding", not normalize_embedding)
    config.ignore("add_bias_logits", "extra_pos_embeddings", "force_bos_token_to_be_generated")


def with_logits_bias(config, recipe):
    """A bias on the logits, unless the checkpoint has none."""
    return recipe.change(decoder=dict(head=dict(bias=config.has_tensor("final_logits_bias", True))))


T5_NAMES = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}


def t5(config):
    """Pre-RMSNorm, relative positions shared by all layers, scores unscaled, no biases (Raffel et al., 2019)."""
    config = with_own_names(config, T5_NAMES)
    # transformers 5 writes the second key; before it, untied embeddings meant the same.
    scaled = config.flag("tie_word_embeddings", True) and config.flag("scale_decoder_outputs", True)
    return t5_like(config, "relu", scaled)


def umt5(config):
    """T5 1.1, multilingual, with a relative bias in each layer (Chung et al., 2023)."""
    config = with_own_names(config, T5_NAMES)
    scaled = config.flag("tie_word_embeddings", True) and config.flag("scale_decoder_outputs", True)
    recipe = t5_like(config, "gated-gelu", scaled)

    def biased(stack):
        mixer = RelativeAttention(**vars(stack.layers[0].mixer), relative=stack.relative)
        return dict(layers=tuple(layer.change(mixer=mixer) for layer in stack.layers), relative=None)

    return recipe.change(encoder=biased(recipe.encoder), decoder=biased(recipe.decoder))


def mt5(config):
    """T5 1.1, multilingual: gated GELU, hidden states not scaled before the head (Xue et al., 2020)."""
    config = with_own_names(config, T5_NAMES)
    config.ignore("tie_word_embeddings")  # whatever it says, a head that is there is used
    return t5_like(config, "gated-gelu", scaled=False)


def t5_like(config, feedforward, scaled):
    """The recipe of both. The head is tied when hidden states are scaled for it, or the checkpoint has no other."""
    dim, heads, head_dim = config.count("d_model"), config.count("num_heads"), config.count("d_kv", 64)
    norm = RMSNorm(eps=config.number("layer_norm_epsilon", 1e-6))
    shape = dict(heads=heads, head_dim=head_dim, scale=1.0)
    parts = dict(
        placement="pre",
        mixer=Attention(**shape),
        mixer_norm=norm,
        feedforward=t5_feedforward(config, feedforward),
        feedforward_norm=norm,
    )
    bias = RelativeBias(
        heads=heads,
        buckets=config.count("relative_attention_num_buckets", 32),
        max_distance=config.count("relative_attention_max_distance", 128),
    )
    embedding = Embedding(vocab=config.count("vocab_size"), dim=dim)
    layers = config.layers("num_layers")
    # Derived from feed_forward_proj, or saying nothing: there is no table of positions.
    config.ignore("dense_act_fn", "is_gated_act", "n_positions")
    config.ignore("dropout_rate", "classifier_dropout", "initializer_factor")
    return EncoderDecoder(
        encoder=Encoder(
            embedding=embedding,
            layers=repeat(Layer(**parts), layers),
            norm=norm,
            relative=bias.change(bidirectional=True),
        ),
        decoder=Decoder(
            embedding=embedding.change(shared=True),
            layers=repeat(
                CrossLayer(**parts, cross=CrossAttention(**shape), cross_norm=norm),
                config.layers("num_decoder_layers") if "num_decoder_layers" in config else layers,
            ),
            norm=norm,
            head=Head(tied=scaled or not has_head(config), scale=dim**-0.5 if scaled else 1.0),
            relative=bias,
        ),
        start=config.count("decoder_start_token_id", config.count("pad_token_id", 0, least=0), least=0),
    )


def has_head(config):
    """Whether a T5 has a head of its own, by the names of a folder's tensors and a GGUF file's."""
    return config.has_tensor("lm_head", True) or config.has_tensor("output.weight", True)


def t5_feedforward(config, default):
    """ "relu" or "gated-gelu", the gated one's GELU being the tanh form."""
    name = config.get("feed_forward_proj", default)
    gated, _, function = str(name).rpartition("-")
    if gated not in ("", "gated") or function not in ACTIVATION_NAMES:
        known = ", ".join(ACTIVATION_NAMES)
        raise config.error("feed_forward_proj", f"is neither F nor gated-F with F one of {known}")
    if not gated:
        return MLP(hidden=config.count("d_ff"), activation=ACTIVATION_NAMES[function], bias=False)
    function = "gelu_tanh" if function == "gelu" else ACTIVATION_NAMES[function]
    return GatedMLP(hidden=config.count("d_ff"), activation=function)
