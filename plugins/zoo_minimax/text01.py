"""MiniMax-01 and M1: Mixtral with lightning attention in seven layers of eight. Imports no mlx."""

from dataclasses import field
from typing import ClassVar

from zoo.architecture import Ignore, OfBlock, Rename, Split
from zoo.frozen import frozen
from zoo.recipe import ACTIVATIONS, Layer, Matrix, RMSNorm, Spec
from zoo_mamba2 import CHUNK
from zoo_mixtral import MIXTRAL_MLX_WEIGHTS, MIXTRAL_WEIGHTS, mixtral


@frozen(kw_only=True)
class LightningAttention(Spec):
    """Linear attention whose states fade at fixed rates (Qin et al., 2024, "Lightning Attention-2").

    A head's state S, (`head_dim`, `head_dim`), becomes exp(−rate) S + k ⊗ v, and gives Sᵀ q; q, k and v go through the
    `activation`. The rate of head h of H in layer i of `depth` layers is about (1 − i / (depth − 1)) 2^(−8 (h + 1) / H).
    What the heads give is normalised together and multiplied by σ(gate(x)) (MiniMax, 2025).
    """

    kind, name = "mixer", "lightning-attention"
    recurrent: ClassVar[bool] = True
    chunks: ClassVar[tuple[int, ...]] = (CHUNK,)
    heads: int
    head_dim: int
    depth: int
    norm: Spec = field(metadata={"kind": "norm"})
    activation: str = field(default="silu", metadata={"choices": ACTIVATIONS})

    def width(self, part, dim):
        return self.heads * self.head_dim

    def matrices(self, dim):
        inner = self.heads * self.head_dim
        names = ("query", "key", "value", "gate")
        return *(Matrix(name, dim, inner) for name in names), Matrix("output", inner, dim)

    def state_size(self, dim):
        return self.heads * self.head_dim**2


@frozen(kw_only=True)
class NormedStreamLayer(Layer):
    """A layer whose residual sums start from the normalised stream: h = norm(x), then α · h + β · f(h), for both parts."""

    kind, name = "layer", "normed-stream"
    mixer_alpha: float = 1.0
    mixer_beta: float = 1.0
    feedforward_alpha: float = 1.0
    feedforward_beta: float = 1.0

    @property
    def norm_placement(self):
        """Before each part, and before what its sum keeps."""
        return "before each part and its sum"


# The names in the first configs.
NAMES = {
    f"layernorm_{old}_{factor}": f"{new}_{factor}_factor"
    for old, new in dict(full_attention="full_attn", linear_attention="linear_attn", mlp="mlp").items()
    for factor in ("alpha", "beta")
}
FULL, LINEAR = "full_attention", "linear_attention"


def minimax(config):
    """Mixtral with lightning attention in most layers, and norms before the residual sums (MiniMax, 2025)."""
    config = config.renamed(NAMES)
    config.ignore(
        "block_size", "shared_moe_mode", "attention_dropout"
    )  # how it is computed, and of a shared expert
    config.refuse("postnorm", False)
    if config.get("shared_intermediate_size", 0) not in (0, [0]):
        raise config.error("shared_intermediate_size", "is not implemented")
    recipe, count = mixtral(config), config.layers()
    attention = recipe.layers[0].mixer
    if (turned := config.count("rotary_dim", None)) is not None and turned < attention.head_dim:
        attention = attention.change(rope=attention.rope.change(dims=turned))
    kinds = config.get("attn_type_list", [index % 2 == 0 for index in range(count)])
    if not isinstance(kinds, list) or len(kinds) != count or any(kind not in (0, 1) for kind in kinds):
        raise config.error("attn_type_list", f"must be a list of {count}, each 0 or 1")
    default = [FULL if kind else LINEAR for kind in kinds]
    types = config.choices("layer_types", (FULL, LINEAR), count, default)
    activation = config.activation("hidden_act", "silu")

    def factor(name):
        return config.number(name, 1.0, least=1e-6, most=1e6)

    def layer(kind, mixer):
        plain = recipe.layers[0]
        return NormedStreamLayer(
            mixer=mixer,
            mixer_norm=plain.mixer_norm,
            mixer_alpha=factor(f"{kind}_alpha_factor"),
            mixer_beta=factor(f"{kind}_beta_factor"),
            feedforward=plain.feedforward,
            feedforward_norm=plain.feedforward_norm,
            feedforward_alpha=factor("mlp_alpha_factor"),
            feedforward_beta=factor("mlp_beta_factor"),
        )

    lightning = LightningAttention(
        heads=attention.heads,
        head_dim=attention.head_dim,
        depth=count,
        norm=RMSNorm(eps=1e-6),
        activation=activation,
    )
    layers = {FULL: layer("full_attn", attention), LINEAR: layer("linear_attn", lightning)}
    return recipe.change(layers=tuple(layers[kind] for kind in types))


LAYER, MIXER = "[model.]layers.{i}.self_attn.", "layers.{i}.mixer."
LIGHTNING = (
    Split(
        LAYER + "qkv_proj.*", tuple(f"{MIXER}{part}.*" for part in ("query", "key", "value")), groups="heads"
    ),
    Rename(LAYER + "output_gate.*", MIXER + "gate.*"),
    Rename(LAYER + "out_proj.*", MIXER + "output.*"),
)
BUFFERS = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
OWN_WEIGHTS = (
    OfBlock(LightningAttention, LIGHTNING),
    Rename(LAYER + "norm.*", MIXER + "norm.*"),
    *(Ignore(LAYER + name) for name in BUFFERS),
)
WEIGHTS = (*OWN_WEIGHTS, *MIXTRAL_WEIGHTS)
MLX_WEIGHTS = (*OWN_WEIGHTS, *MIXTRAL_MLX_WEIGHTS)
