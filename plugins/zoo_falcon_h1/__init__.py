"""Falcon-H1, told as a difference from LLaMA: a state space beside every attention. Imports no mlx."""

from zoo.architecture import Architecture, Block, Depthwise, Drawing, ModuleProbe, Preset, Rename, hookimpl
from zoo.frozen import frozen
from zoo.recipe import repeat
from zoo_falcon_h1.specs import ParallelMixers, ScaledMLP, ScaledStateSpace
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS
from zoo_llama import llama, sized
from zoo_mamba2 import mixer_weights, state_space_of


def falcon_h1(config):
    """LLaMA with two mixers a layer and a number before each matrix (Falcon-LLM Team, 2025)."""
    recipe = llama(
        config.with_defaults(rms_norm_eps=1e-5, num_key_value_heads=8, max_position_embeddings=8192)
    )
    config = without_folded(config)
    base, one = recipe.layers[0], lambda key: config.number(key, 1.0)
    layer = ParallelMixers(
        mixer_norm=base.mixer_norm,
        mixer=base.mixer.change(scale=base.mixer.head_dim**-0.5 * one("key_multiplier")),
        mixer_scales=(one("attention_in_multiplier"), one("attention_out_multiplier")),
        memory=state_space(config, base.mixer_norm.eps),
        memory_scales=(one("ssm_in_multiplier"), one("ssm_out_multiplier")),
        feedforward_norm=base.feedforward_norm,
        feedforward=ScaledMLP(
            hidden=base.feedforward.hidden,
            activation=base.feedforward.activation,
            bias=base.feedforward.bias,
            scales=multipliers(config, "mlp_multipliers", 2),
        ),
    )
    config.refuse("mamba_use_mlp", False)
    config.ignore("num_logits_to_keep", "mlp_expansion_factor")  # they change no logit
    return recipe.change(
        embedding=dict(scale=one("embedding_multiplier")),
        layers=repeat(layer, len(recipe.layers)),
        head=dict(scale=one("lm_head_multiplier")),
    )


def without_folded(config):
    """The config without the multipliers that are in the weights already, as mlx-lm's conversions have them.

    Those are known by their convolution, whose one input channel stands last. They leave out that of attention's values.
    """
    shape = config.tensor_shape("mamba.conv1d.weight") or (1, 1, 1)
    if shape[-1] > 1 or shape[1] == 1:
        return config
    if config.number("attention_in_multiplier", 1.0) != 1.0:
        raise config.error(
            "attention_in_multiplier", "is not in the values of attention, where mlx-lm converted"
        )
    # A tied head multiplies by the embedding's table, and with its multiplier.
    scale = config.number("lm_head_multiplier", 1.0) / config.number("embedding_multiplier", 1.0)
    head = scale if config.flag("tie_word_embeddings", False) else 1.0
    scales = dict(mlp_multipliers=[1.0] * 2, ssm_multipliers=[1.0] * 5, lm_head_multiplier=head)
    return config.replaced(**dict.fromkeys(FOLDED, 1.0), **scales)


FOLDED = ("embedding_multiplier", "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier")


@frozen()
class EitherDepthwise(Depthwise):
    """A convolution's weight with its one input channel at either place; it is written as `axis` says."""

    def loaded(self, tensor):
        last = len(tensor.shape) == 3 and tensor.shape[2] == 1
        return Depthwise(self.source, self.target, axis=2).loaded(tensor) if last else super().loaded(tensor)


def state_space(config, eps):
    """The mixer beside attention, whose norm is optional."""
    normalised = config.flag("mamba_rms_norm", False)
    wide = config.count("mamba_expand", 2) * config.count("hidden_size")
    return state_space_of(
        config,
        config.count("mamba_d_ssm", wide if config.is_null("mamba_d_ssm") else 1024),
        ScaledStateSpace,
        output_bias=config.flag("projectors_bias", False),
        eps=eps if normalised else None,
        norm_first=config.flag("mamba_norm_before_gate", True) and normalised,
        scales=multipliers(config, "ssm_multipliers", 5),
    )


def multipliers(config, key, count):
    """The `count` numbers of a key; ones when it is absent."""
    numbers = config.numbers(key, [1.0] * count)
    if len(numbers) != count:
        raise config.error(key, f"must be {count} numbers")
    return tuple(numbers)


WEIGHTS = (
    *mixer_weights("model.layers.{i}.mamba.", "layers.{i}.memory.", kind=EitherDepthwise),
    Rename("model.layers.{i}.pre_ff_layernorm.*", "layers.{i}.feedforward_norm.*"),
    Rename("model.layers.{i}.feed_forward.{part}_proj.*", "layers.{i}.feedforward.{part}.*"),
    Rename("model.final_layernorm.*", "norm.*"),
    *LLAMA_WEIGHTS,
)

HALF_BILLION = sized(
    layers=36, dim=1024, heads=8, kv_heads=2, hidden=2048, head_dim=64, vocab_size=32784
) | dict(
    **dict(mamba_d_ssm=1536, mamba_n_heads=24, mamba_d_head=64, mamba_d_state=128),
    **dict(mamba_norm_before_gate=False, rope_theta=1e11, max_position_embeddings=16384),
    **dict(embedding_multiplier=5.656854249492381, lm_head_multiplier=0.0390625, key_multiplier=0.390625),
    **dict(attention_out_multiplier=0.9375, ssm_in_multiplier=1.25, ssm_out_multiplier=0.23570226039551587),
    mlp_multipliers=[0.8838834764831844, 0.5859375],
    ssm_multipliers=[0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
)
TINY = sized(layers=2, dim=64, heads=4, kv_heads=2, hidden=128, vocab_size=256) | dict(
    **dict(mamba_d_ssm=48, mamba_n_heads=6, mamba_d_state=6, mamba_n_groups=2),
    **dict(max_position_embeddings=128, key_multiplier=0.4, embedding_multiplier=3.0, lm_head_multiplier=0.5),
    **dict(mlp_multipliers=[0.9, 0.6], ssm_multipliers=[0.4, 0.3, 0.5, 0.6, 0.7]),
)
POCKET = TINY | dict(hidden_size=128, intermediate_size=384, num_hidden_layers=3, vocab_size=2048)


@hookimpl
def zoo_blocks():
    yield Block(
        ParallelMixers, "zoo_falcon_h1.block:ParallelMixers", "two mixers side by side, then a feed-forward"
    )
    yield Block(ScaledStateSpace, "zoo_falcon_h1.block:ScaledStateSpace", "Mamba-2's mixer with multipliers")
    yield Block(ScaledMLP, "zoo_falcon_h1.block:ScaledMLP", "gated feed-forward with multipliers")


@hookimpl
def zoo_drawings():
    yield Drawing(ParallelMixers, "zoo_falcon_h1.drawing:parallel_mixers")
    yield Drawing(ScaledStateSpace, "zoo_falcon_h1.drawing:scaled_state_space")
    yield Drawing(ScaledMLP, "zoo_falcon_h1.drawing:scaled_mlp")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_falcon_h1.block:ParallelMixers", "zoo.inspect.tracing.block_probes:ResidualProbe")


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="falcon-h1",
        base="llama",
        summary="attention and a state space in every layer, side by side",
        model_types=("falcon_h1",),
        recipe=falcon_h1,
        weights=WEIGHTS,
        presets=(
            Preset(
                "0.5b", hub="tiiuae/Falcon-H1-0.5B-Base", config=HALF_BILLION, licence="Falcon-LLM License"
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=("Falcon-LLM Team, 2025, arXiv:2507.22448",),
        published="2025-07",
    )
