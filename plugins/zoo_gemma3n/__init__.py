"""Gemma 3n's text models, as a difference from Gemma 3, and the blocks that only they have. Imports no mlx."""

from dataclasses import field
from functools import cache

from zoo.architecture import Architecture, Block, Drawing, Preset, Rename, hookimpl
from zoo.frozen import frozen
from zoo.recipe import (
    Decoder,
    GatedMLP,
    Head,
    Matrix,
    PerLayerEmbedding,
    PerLayerInput,
    RMSNorm,
    RoPE,
    SharedKeyValueAttention,
    Spec,
)
from zoo_gemma import POCKET, TINY, CappedHead, cap
from zoo_gemma import WEIGHTS as GEMMA_WEIGHTS
from zoo_gemma4 import (
    FULL,
    PER_LAYER_WEIGHTS,
    WINDOW,
    ValueNormAttention,
    key_value_sources,
    per_layer_embedding,
)
from zoo_llama import published, sized, windows_by_type

STREAMS = "streams"  # (B, T, N − 1, D)


@frozen(kw_only=True)
class AltUpEmbedding(PerLayerEmbedding):
    """A per-layer embedding that also gives the other residual streams of AltUp, which has `inputs` streams.

    Each is a projection of the token's vector, scaled to the vector's magnitude (Baykal et al., 2023).
    """

    kind, name = "embedding", "altup"
    inputs: int

    gives = (*PerLayerEmbedding.gives, STREAMS)

    def matrices(self, dim):
        return (*super().matrices(dim), *stream_matrices(self.inputs, dim))

    def active_parameters(self, dim):
        return super().active_parameters(dim) + (self.inputs - 1) * dim * dim


@frozen()
class StreamMean(Spec):
    """The mean of `inputs` residual streams, the others but the first projected and scaled to the magnitude of the first."""

    kind, name = "residual", "stream-mean"
    inputs: int

    def matrices(self, dim):
        return stream_matrices(self.inputs, dim)


def stream_matrices(inputs, dim):
    """A projection (D, D) for each stream but the first."""
    return tuple(Matrix(f"streams.{index}", dim, dim) for index in range(inputs - 1))


@frozen()
class AltUp(Spec):
    """Predicts each of the `inputs` residual streams from all of them. The layer then reads the first predicted stream.

    The difference that the layer makes to this stream corrects all predictions. The coefficients of both steps are linear in
    tanh(router(norm(x) / D)), where x is the first stream before the layer, for the prediction, or the layer's output, for the
    correction (Baykal et al., 2023, "Alternating Updates").
    """

    kind, name = "residual", "altup"
    inputs: int
    router_norm: Spec = field(metadata={"kind": "norm"})

    def matrices(self, dim):
        count = self.inputs
        router = Matrix("router", dim, count, uses=2)
        return (router, Matrix("prediction", count, count**2), Matrix("correction", count, count))

    def own_parameters(self, dim):
        return super().own_parameters(dim) + dim


@frozen()
class Laurel(Spec):
    """x + norm(right(left(x))), of rank `rank` (Menghani et al., 2024)."""

    kind, name = "residual", "laurel"
    rank: int
    norm: Spec = field(metadata={"kind": "norm"})

    def matrices(self, dim):
        return (Matrix("left", dim, self.rank), Matrix("right", self.rank, dim))


@frozen(kw_only=True)
class SparseGatedMLP(GatedMLP):
    """A gated feed-forward that sets the lowest values of its gate to zero, a share of `sparsity` if they are normally distributed."""

    kind, name = "feedforward", "sparse-gated-mlp"
    sparsity: float = field(metadata={"above": 0})


@frozen()
class AltUpLayer(Spec):
    """A sandwich layer with LAuReL beside the mixer, run on the first of AltUp's streams, and an input of its own for the others.

    The last layer has `merge`, which makes one of all streams.
    """

    kind, name = "layer", "altup"
    altup: Spec
    laurel: Spec
    mixer_norm: Spec
    mixer: Spec
    mixer_output_norm: Spec
    feedforward_norm: Spec
    feedforward: Spec
    feedforward_output_norm: Spec
    layer_input: Spec
    layer_input_norm: Spec
    merge: Spec | None = None

    @property
    def gives(self):
        """What its mixer gives, and the other streams."""
        return (*self.mixer.gives, STREAMS)

    @property
    def takes(self):
        """What its mixer and its own input take, and the other streams."""
        return (*self.mixer.takes, *self.layer_input.takes, STREAMS)

    @property
    def norm_placement(self):
        """On both sides."""
        return "before and after each part"


@frozen()
class OfLastLayer(Rename):
    """A tensor that is the last layer's: `{last}` in `target` stands for its number."""

    def rule(self, recipe):
        """The rule for a model of as many layers."""
        return Rename(self.source, self.target.replace("LAST", str(len(recipe.layers) - 1)))

    def forward(self, source, target, recipe, join):
        self.rule(recipe).forward(source, target, recipe, join)

    def backward(self, source, target, recipe, join):
        self.rule(recipe).backward(source, target, recipe, join)


def gemma3n(config):
    """Gemma 3 with AltUp, LAuReL, inputs for each layer, and layers that share keys and values (Gemma Team, 2025)."""
    config.refuse("altup_active_idx")
    if not config.flag("altup_correct_scale", True):
        raise config.error("altup_correct_scale", "is not implemented")
    config.refuse("attention_bias")
    config.ignore("altup_coef_clip", "attention_dropout", "altup_lr_multiplier", "query_pre_attn_scalar")
    config = config.with_defaults(
        **dict(rope_theta=1e6, rope_local_base_freq=1e4, sliding_window=512, num_kv_shared_layers=15)
    )
    count, head_dim = config.layers(), config.count("head_dim", 256)
    windows, norm = windows_by_type(config, 5), RMSNorm(eps=config.number("rms_norm_eps", 1e-6))
    kinds = [WINDOW if window else FULL for window in windows]
    sources = key_value_sources(config, kinds)
    first_shared = count - config.count("num_kv_shared_layers", least=0)
    ropes = {
        FULL: RoPE.of(config, head_dim, layer_type=FULL),
        WINDOW: RoPE.of(
            config,
            head_dim,
            layer_type=WINDOW,
            theta_key="rope_local_base_freq",
            scaling_key="rope_parameters",
        ),
    }
    inputs, rank = config.count("altup_num_inputs", 4), config.count("laurel_rank", 64)
    activation = config.activation("hidden_activation", "gelu_pytorch_tanh")
    hidden, sparsity = hidden_sizes(config), sparsities(config)
    embedding = per_layer_embedding(config, norm)
    if not isinstance(embedding, PerLayerEmbedding):
        raise config.error("hidden_size_per_layer_input", "must be positive")
    heads, kv_heads = config.count("num_attention_heads"), config.kv_heads(2)

    def attention(window, shared, shares):
        kind = WINDOW if window else FULL
        common = dict(heads=heads, kv_heads=kv_heads, head_dim=head_dim, rope=ropes[kind], query_norm=norm)
        common |= dict(window=window, scale=1.0)
        if shared:
            return SharedKeyValueAttention(source=kind, **common)
        return ValueNormAttention(key_norm=norm, eps=norm.eps, shares=kind if shares else None, **common)

    def feedforward(hidden, sparsity):
        common = dict(hidden=hidden, activation=activation)
        return SparseGatedMLP(**common, sparsity=sparsity) if sparsity else GatedMLP(**common)

    @cache  # equal layers are one object
    def layer(window, shared, shares, hidden, sparsity, last):
        return AltUpLayer(
            altup=AltUp(inputs, router_norm=norm),
            laurel=Laurel(rank, norm=norm),
            mixer_norm=norm,
            mixer=attention(window, shared, shares),
            mixer_output_norm=norm,
            feedforward_norm=norm,
            feedforward=feedforward(hidden, sparsity),
            feedforward_output_norm=norm,
            layer_input=PerLayerInput(embedding.width_per_layer, activation),
            layer_input_norm=norm,
            merge=StreamMean(inputs) if last else None,
        )

    tied, limit = config.flag("tie_word_embeddings", True), cap(config, "final_logit_softcapping", 30.0)
    own = {name: value for name, value in vars(embedding).items()}
    return Decoder(
        embedding=AltUpEmbedding(**own, inputs=inputs),
        layers=tuple(
            layer(windows[i], i >= first_shared, i in sources, hidden[i], sparsity[i], i == count - 1)
            for i in range(count)
        ),
        norm=norm,
        head=CappedHead(tied=tied, cap=limit) if limit else Head(tied=tied),
        context=config.count("max_position_embeddings", 32768),
    )


def hidden_sizes(config):
    """The hidden size of each layer's feed-forward: `intermediate_size`, a number for all or a list (MatFormer)."""
    count = config.layers()
    if not isinstance(config.get("intermediate_size"), list):
        return [config.count("intermediate_size", 16384)] * count
    sizes = config.numbers("intermediate_size", least=1, most=2**24)
    if len(sizes) != count or any(size != int(size) for size in sizes):
        raise config.error("intermediate_size", f"must be {count} whole numbers, one a layer")
    return [int(size) for size in sizes]


def sparsities(config):
    """The share of each layer's gate that is zero: `activation_sparsity_pattern`, by default 0.95 in the first ten layers."""
    count = config.layers()
    first = 10 if count > 10 else 0
    default = (0.95,) * first + (0.0,) * (count - first)
    found = config.numbers("activation_sparsity_pattern", default, least=0, most=0.999999)
    if len(found) != count:
        raise config.error("activation_sparsity_pattern", f"must be {count} numbers, one a layer")
    return found


LAYER, PARAMETERS = "[model.]layers.{i}.", "layers.{i}."
WEIGHTS = (
    Rename(f"{LAYER}altup.correct_output_scale", f"{PARAMETERS}altup.scale"),
    Rename(f"{LAYER}altup.correction_coefs.*", f"{PARAMETERS}altup.correction.*"),
    Rename(f"{LAYER}altup.prediction_coefs.*", f"{PARAMETERS}altup.prediction.*"),
    Rename(f"{LAYER}altup.modality_router.*", f"{PARAMETERS}altup.router.*"),
    Rename(f"{LAYER}altup.router_norm.*", f"{PARAMETERS}altup.router_norm.*"),
    Rename(f"{LAYER}laurel.linear_left.*", f"{PARAMETERS}laurel.left.*"),
    Rename(f"{LAYER}laurel.linear_right.*", f"{PARAMETERS}laurel.right.*"),
    Rename(f"{LAYER}laurel.post_laurel_norm.*", f"{PARAMETERS}laurel.norm.*"),
    Rename("[model.]altup_projections.*", "embedding.streams.*"),
    OfLastLayer("[model.]altup_unembed_projections.*", "layers.LAST.merge.streams.*"),
    *PER_LAYER_WEIGHTS,
    *GEMMA_WEIGHTS,
)
SMALL = dict(
    layer_types=([WINDOW] * 2 + [FULL]) * 2,
    **dict(num_hidden_layers=6, num_kv_shared_layers=3, sliding_window=6, laurel_rank=8, altup_num_inputs=4),
    **dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=200),
    activation_sparsity_pattern=[0.5] * 2 + [0.0] * 4,
)
FULL_SIZE = dict(
    **dict(hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144, final_logit_softcapping=30.0),
    **dict(head_dim=256, sliding_window=512, vocab_size=262400, max_position_embeddings=32768),
    **dict(altup_num_inputs=4, laurel_rank=64),
)


def small(config):
    """A small config without what Gemma 3n does not read."""
    return {key: value for key, value in config.items() if key != "query_pre_attn_scalar"} | SMALL


@hookimpl
def zoo_blocks():
    home = "zoo_gemma3n.block"
    yield Block(AltUpEmbedding, f"{home}:AltUpEmbedding", "per-layer embedding with AltUp's streams")
    yield Block(StreamMean, f"{home}:StreamMean", "the mean of AltUp's streams")
    yield Block(AltUp, f"{home}:AltUp", "prediction and correction of residual streams")
    yield Block(Laurel, f"{home}:Laurel", "a residual sum with a product of small rank")
    yield Block(SparseGatedMLP, f"{home}:SparseGatedMLP", "gated feed-forward with a sparse gate")
    yield Block(AltUpLayer, f"{home}:AltUpLayer", "a sandwich layer on the first of several streams")


@hookimpl
def zoo_drawings():
    home = "zoo_gemma3n.drawing"
    yield Drawing(AltUpEmbedding, "zoo.describe.diagram.parts:per_layer_embedding")
    yield Drawing(StreamMean, f"{home}:stream_mean")
    yield Drawing(AltUp, f"{home}:altup")
    yield Drawing(Laurel, f"{home}:laurel")
    yield Drawing(SparseGatedMLP, f"{home}:sparse_gated_mlp")
    yield Drawing(AltUpLayer, f"{home}:layer")


@hookimpl
def zoo_architectures():
    """Gemma 3n."""
    yield Architecture(
        name="gemma3n",
        base="gemma3",
        summary="Gemma 3 with several residual streams, inputs for each layer, and layers that share keys and values",
        model_types=("gemma3n_text",),
        text_of=("gemma3n",),
        recipe=gemma3n,
        weights=WEIGHTS,
        presets=(
            published(
                "e2b",
                "google/gemma-3n-E2B-it",
                "Gemma Terms of Use",
                **sized(layers=30, dim=2048, heads=8, kv_heads=2, hidden=8192),
                **FULL_SIZE | dict(num_kv_shared_layers=10),
            ),
            published(
                "e4b",
                "google/gemma-3n-E4B-it",
                "Gemma Terms of Use",
                **sized(layers=35, dim=2048, heads=8, kv_heads=2, hidden=16384),
                **FULL_SIZE | dict(num_kv_shared_layers=15),
            ),
            Preset("pocket", config=small(POCKET)),
            Preset("tiny", config=small(TINY)),
        ),
        references=('Gemma Team, 2025, "Gemma 3n"', "Baykal et al., 2023, arXiv:2301.13310"),
        published="2025-06",
    )
