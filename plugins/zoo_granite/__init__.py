"""Granite: LLaMA with four numbers that scale. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, hookimpl
from zoo_llama import EIGHT_BILLION, LLAMA_GGUF, POCKET, TINY, WEIGHTS, biases, llama, published, sized


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


GGUF_KEYS = {
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier",
    "logit_scale": "logits_scaling",
}

SCALES = dict(embedding_multiplier=12.0, residual_multiplier=0.22)
# What the checkpoints of 3.0 have in common.
GRANITE_3 = SCALES | dict(
    vocab_size=49155, rope_theta=10000.0, max_position_embeddings=4096, tie_word_embeddings=True
)


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
        gguf=GGUF("granite", LLAMA_GGUF, keys=GGUF_KEYS, config=biases),
        presets=(
            published(
                "8b",
                "ibm-granite/granite-3.0-8b-base",
                "Apache-2.0",
                **EIGHT_BILLION | dict(num_hidden_layers=40, intermediate_size=12800) | GRANITE_3,
                attention_multiplier=0.0078125,
                logits_scaling=16.0,
            ),
            published(
                "2b",
                "ibm-granite/granite-3.0-2b-base",
                "Apache-2.0",
                **sized(layers=40, dim=2048, heads=32, kv_heads=8, hidden=8192, rms_norm_eps=1e-5),
                **GRANITE_3,
                attention_multiplier=0.015625,
                logits_scaling=8.0,
            ),
            Preset("pocket", config=POCKET | SCALES | dict(attention_multiplier=0.03125, logits_scaling=8.0)),
            Preset("tiny", config=TINY | SCALES | dict(attention_multiplier=0.0625, logits_scaling=8.0)),
        ),
        references=('Granite Team, 2024, "Granite 3.0 Language Models"',),
        published="2024-10",
    )
