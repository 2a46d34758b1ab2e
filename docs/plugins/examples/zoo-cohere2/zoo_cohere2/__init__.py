"""Command R7B and Command A: LLaMA with parallel layers. Imports no mlx."""

from zoo.architecture import Architecture, Preset, hookimpl
from zoo.recipe import LayerNorm
from zoo_llama import TINY, WEIGHTS, llama

# What the first configs say of the code that trained them.
UNUSED = ("layer_switch", "order_of_interleaved_layers", "position_embedding_type", "rotary_pct")
UNUSED += ("use_embedding_sharing", "use_gated_activation", "use_parallel_block", "use_parallel_embedding")
KINDS = ("sliding_attention", "full_attention")


def cohere2(config):
    """One LayerNorm before both parts of a layer; layers without a window have no positions (Cohere, 2025)."""
    config = config.with_defaults(tie_word_embeddings=True, max_position_embeddings=8192, logit_scale=0.0625)
    config.ignore("cache_implementation", *UNUSED)
    count, every = config.layers(), config.count("sliding_window_pattern", 4)
    default = [KINDS[(index + 1) % every == 0] for index in range(count)]
    types = config.choices("layer_types", KINDS, count, default)
    window = config.count("sliding_window", 4096)
    norm = LayerNorm(eps=config.number("layer_norm_eps", 1e-5), bias=False)

    def layer(index, base):
        local = types[index] == "sliding_attention"
        rope = base.mixer.rope.change(interleaved=True) if local else None
        mixer = dict(rope=rope, window=window if local else None)
        return dict(mixer=mixer, mixer_norm=norm, feedforward_norm=None, parallel=True)

    scale = config.number("logit_scale", least=1e-6, most=1e6)
    return llama(config).change_layers(layer).change(norm=norm, head=dict(scale=scale))


R7B = dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32)
R7B |= dict(num_key_value_heads=8, vocab_size=256000, rope_theta=50000.0, logit_scale=0.25)


@hookimpl
def zoo_architectures():
    """Cohere's Command models since R7B."""
    yield Architecture(
        name="cohere2",
        base="llama",
        summary="LLaMA with parallel layers, and positions only in layers with a window",
        model_types=("cohere2",),
        recipe=cohere2,
        weights=WEIGHTS,
        presets=(
            Preset("r7b", hub="CohereLabs/c4ai-command-r7b-12-2024", config=R7B, licence="CC-BY-NC-4.0"),
            Preset("tiny", config=TINY | dict(sliding_window=6, sliding_window_pattern=3)),
        ),
        references=("Cohere, 2025, arXiv:2504.00698",),
        published="2025-04",
        api=1,
    )
