"""Phi-1 to Phi-2, as a difference from LLaMA. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, Rename, hookimpl
from zoo.gguf import DECODER
from zoo.recipe import LayerNorm
from zoo_llama import POCKET, TINY, llama, published, sized
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS
from zoo_neox import whole_heads, with_layer_norms


def phi(config):
    """One LayerNorm before attention and feed-forward, which share a sum; biases, of the head too (Li et al., 2023)."""
    config.ignore("resid_pdrop", "embd_pdrop")  # of training
    config = config.with_defaults(partial_rotary_factor=0.5, hidden_act="gelu_new", attention_bias=True)
    norm = LayerNorm(eps=config.number("layer_norm_eps", 1e-5))
    of_heads = norm if config.flag("qk_layernorm", False) else None
    recipe = with_layer_norms(llama(config), norm).change(head=dict(bias=True))
    return recipe.change_layers(
        feedforward_norm=None, parallel=True, mixer=dict(query_norm=of_heads, key_norm=of_heads)
    )


LAYER = "[model.]layers.{i}."
WEIGHTS = (
    Rename(LAYER + "self_attn.dense.*", "layers.{i}.mixer.output.*"),
    Rename(LAYER + "self_attn.q_layernorm.*", "layers.{i}.mixer.query_norm.*"),
    Rename(LAYER + "self_attn.k_layernorm.*", "layers.{i}.mixer.key_norm.*"),
    Rename(LAYER + "mlp.fc1.*", "layers.{i}.feedforward.up.*"),
    Rename(LAYER + "mlp.fc2.*", "layers.{i}.feedforward.down.*"),
    Rename("[model.]final_layernorm.*", "norm.*"),
    *LLAMA_WEIGHTS,
)
PHI = dict(vocab_size=51200, max_position_embeddings=2048)
PHI_1 = sized(layers=24, dim=2048, heads=32, kv_heads=32, hidden=8192, partial_rotary_factor=0.5, **PHI)
PHI_2 = sized(layers=32, dim=2560, heads=32, kv_heads=32, hidden=10240, partial_rotary_factor=0.4, **PHI)


@hookimpl
def zoo_architectures():
    """Phi-1, Phi-1.5 and Phi-2."""
    yield Architecture(
        name="phi",
        base="gpt-neox",
        summary="GPT-NeoX with one LayerNorm before both parts of a layer, and a bias of the head",
        model_types=("phi",),
        recipe=phi,
        weights=WEIGHTS,
        gguf=GGUF("phi2", DECODER, config=whole_heads),
        presets=(
            published("1", "microsoft/phi-1", "MIT", **PHI_1, aliases=("phi-1",)),
            published("1.5", "microsoft/phi-1_5", "MIT", **PHI_1, aliases=("phi-1.5",)),
            published("2", "microsoft/phi-2", "MIT", **PHI_2, aliases=("phi-2", "phi:2.7b")),
            Preset("pocket", config=POCKET | dict(intermediate_size=512)),
            Preset("tiny", config=TINY),
        ),
        references=("Gunasekar et al., 2023, arXiv:2306.11644", "Li et al., 2023, arXiv:2309.05463"),
        published="2023-06",
    )
