"""Granite: LLaMA with four numbers that scale. Imports no mlx."""

from zoo.architecture import Architecture, Preset, hookimpl
from zoo_llama import EIGHT_BILLION, TINY, WEIGHTS, llama


def granite(config):
    """LLaMA with scaled embeddings, scores, residual sums and logits (Granite Team, 2024)."""

    def scale(key):
        return config.number(key, 1.0, least=1e-6, most=1e6)

    recipe = llama(config).change(
        embedding=dict(scale=scale("embedding_multiplier")), head=dict(scale=1 / scale("logits_scaling"))
    )
    return recipe.change_layers(
        mixer=dict(scale=scale("attention_multiplier")), residual_scale=scale("residual_multiplier")
    )


SCALES = dict(embedding_multiplier=12.0, residual_multiplier=0.22)
GRANITE_8B = EIGHT_BILLION | dict(num_hidden_layers=40, intermediate_size=12800, vocab_size=49155)
GRANITE_8B |= SCALES | dict(attention_multiplier=0.0078125, logits_scaling=16.0, rope_theta=1e4)
GRANITE_8B |= dict(max_position_embeddings=4096, tie_word_embeddings=True)


@hookimpl
def zoo_architectures():
    """Granite 3."""
    yield Architecture(
        name="granite",
        base="llama",
        summary="LLaMA with scaled embeddings, scores, residual sums and logits",
        model_types=("granite",),
        recipe=granite,
        weights=WEIGHTS,
        presets=(
            Preset("8b", hub="ibm-granite/granite-3.0-8b-base", config=GRANITE_8B, licence="Apache-2.0"),
            Preset("tiny", config=TINY | SCALES | dict(attention_multiplier=0.0625, logits_scaling=8.0)),
        ),
        references=('Granite Team, 2024, "Granite 3.0 Language Models"',),
        published="2024-10",
        api=1,
    )
