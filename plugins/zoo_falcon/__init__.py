"""Falcon, as a difference from LLaMA; its first models have BLOOM's linear biases. Imports no mlx."""

from zoo.architecture import Architecture, Ignore, OutputHead, Preset, Rename, Split, hookimpl
from zoo.frozen import frozen
from zoo.recipe import MLP, LayerNorm
from zoo_bloom import AlibiAttention
from zoo_llama import llama
from zoo_neox import QKV

NAMES = {"n_embed": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
NAMES |= {"n_head_kv": "num_key_value_heads", "num_kv_heads": "num_key_value_heads", "bias": "attention_bias"}
NAMES |= {"ffn_hidden_size": "intermediate_size", "activation": "hidden_act"}


def falcon(config):
    """Parallel layers, no gates, one head of keys or few, rotary positions or linear biases (Almazrouei et al., 2023)."""
    config.ignore("hidden_dropout", "apply_residual_connection_post_layernorm")
    config = config.renamed(NAMES)
    grouped = config.flag("new_decoder_architecture", False)
    single = config.flag("multi_query", True) and not grouped
    parallel = config.flag("parallel_attn", True)
    norms = config.count("num_ln_in_parallel_attn", 2 if grouped else 1, most=2)
    if grouped and not parallel:
        raise config.error("parallel_attn", "is not implemented together with new_decoder_architecture")
    if norms == 2 and parallel and not grouped:
        raise config.error("num_ln_in_parallel_attn", "is not implemented without new_decoder_architecture")
    config = config.with_defaults(
        intermediate_size=4 * config.count("hidden_size"), hidden_act="gelu", tie_word_embeddings=True
    )
    norm = LayerNorm(eps=config.number("layer_norm_epsilon", 1e-5))
    recipe, bias, alibi = llama(config), config.flag("attention_bias", False), config.flag("alibi", False)

    def change(index, layer):
        mixer = layer.mixer.change(kv_heads=1) if single else layer.mixer
        if alibi:
            mixer = AlibiAttention(**vars(mixer.change(rope=None)), rounded=True)
        return dict(
            mixer=mixer,
            feedforward=MLP(layer.feedforward.hidden, layer.feedforward.activation, bias),
            mixer_norm=norm,
            feedforward_norm=norm if norms == 2 or not parallel else None,
            parallel=parallel,
        )

    return recipe.change_layers(change).change(norm=norm)


@frozen()
class OfTwoNorms(Rename):
    """A norm by its name in models whose parallel parts have one each."""

    def backward(self, source, target, recipe, join):
        """Takes the norms of no other layers."""
        if recipe.layers[0].parallel and recipe.layers[0].feedforward_norm is not None:
            super().backward(source, target, recipe, join)


LAYER = "[transformer.]h.{i}."
# Each group's queries, then its key and value: one group where all queries share a key, one a head where none do.
SIZES = ("heads", "kv_heads", "kv_heads")
WEIGHTS = (
    Rename("[transformer.]word_embeddings.*", "embedding.tokens.*"),
    OfTwoNorms(LAYER + "ln_attn.*", "layers.{i}.mixer_norm.*"),
    OfTwoNorms(LAYER + "ln_mlp.*", "layers.{i}.feedforward_norm.*"),
    Rename(LAYER + "input_layernorm.*", "layers.{i}.mixer_norm.*"),
    Rename(LAYER + "post_attention_layernorm.*", "layers.{i}.feedforward_norm.*"),
    Split(LAYER + "self_attention.query_key_value.*", QKV, sizes=SIZES, groups="kv_heads"),
    Rename(LAYER + "self_attention.dense.*", "layers.{i}.mixer.output.*"),
    Rename(LAYER + "mlp.dense_h_to_4h.*", "layers.{i}.feedforward.up.*"),
    Rename(LAYER + "mlp.dense_4h_to_h.*", "layers.{i}.feedforward.down.*"),
    Rename("[transformer.]ln_f.*", "norm.*"),
    OutputHead("lm_head.*", "head.output.*"),
    Ignore(LAYER + "self_attention.rotary_emb.inv_freq"),
)


def published(size, name, licence, layers, dim, heads, aliases=(), **numbers):
    """Falcon of a size."""
    numbers = dict(vocab_size=65024) | numbers
    numbers |= dict(hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads)
    return Preset(size, hub=f"tiiuae/{name}", config=numbers, licence=licence, aliases=aliases)


POCKET = dict(vocab_size=2048, hidden_size=128, num_hidden_layers=4, num_attention_heads=4)
TINY = POCKET | dict(vocab_size=256, hidden_size=64, num_hidden_layers=3)
FEW_KEYS = dict(new_decoder_architecture=True, num_kv_heads=8)


@hookimpl
def zoo_architectures():
    """Falcon."""
    yield Architecture(
        name="falcon",
        base="llama",
        summary="LLaMA with parallel layers, LayerNorm, no gates, and one head of keys for all queries or few",
        model_types=("falcon", "RefinedWeb", "RefinedWebModel"),
        recipe=falcon,
        weights=WEIGHTS,
        presets=(
            published(
                "rw-1b",
                "falcon-rw-1b",
                "Apache-2.0",
                *(24, 2048, 32),
                **dict(alibi=True, bias=True, multi_query=False, parallel_attn=False, vocab_size=50304),
            ),
            published("7b", "falcon-7b", "Apache-2.0", 32, 4544, 71, ("falcon", "falcon:7b")),
            published("40b", "falcon-40b", "Apache-2.0", 60, 8192, 128, ("falcon:40b",), **FEW_KEYS),
            Preset("pocket", config=POCKET | dict(new_decoder_architecture=True, num_kv_heads=2)),
            Preset("tiny", config=TINY | dict(new_decoder_architecture=True, num_kv_heads=2)),
            Preset("tiny-alibi", config=TINY | dict(alibi=True, parallel_attn=False, bias=True)),
        ),
        references=("Almazrouei et al., 2023, arXiv:2311.16867",),
        published="2023-11",
    )
