"""A prefix language model: attention is bidirectional over the prompt, causal after it. Imports no mlx."""

from zoo.architecture import Architecture, Objective, Preset, hookimpl, pocket
from zoo_llama import POCKET, TINY, WEIGHTS, llama


def prefix_lm(config):
    """LLaMA with bidirectional attention over the prompt (Dong et al., 2019; Raffel et al., 2019; Du et al., 2021)."""
    return llama(config).change(causality="prefix")


# Those of the first LLaMA, to compare with it.
SEVEN_BILLION = dict(
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=2048,
    vocab_size=32000,
    rms_norm_eps=1e-6,
)


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="prefix-lm",
        base="llama",
        summary="LLaMA with bidirectional attention over the prompt, as the first ChatGLM's",
        causality="prefix",
        model_types=("prefix-lm",),
        recipe=prefix_lm,
        weights=WEIGHTS,
        presets=(
            pocket(__file__, "prefix-lm", **POCKET),
            Preset("7b", config=SEVEN_BILLION),
            Preset("tiny", config=TINY),
        ),
        references=(
            "Dong et al., 2019, arXiv:1905.03197",
            "Raffel et al., 2019, arXiv:1910.10683",
            "Du et al., 2021, arXiv:2103.10360",
        ),
        published="2019-05",
    )


@hookimpl
def zoo_objectives():
    yield Objective(
        "answer",
        "zoo_prefix.objective:PREFIX_LM",
        tasks=("generate",),
        causalities=("prefix",),
        summary="each next token after a prompt with bidirectional attention",
    )
