"""DiffLlama, as a difference from LLaMA, and the attention that only it has. Imports no mlx."""

from zoo.architecture import Architecture, Block, Drawing, ModuleProbe, Preset, Rename, hookimpl
from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe import Attention
from zoo_llama import POCKET, TINY, llama
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS

LAMBDAS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


@frozen()
class DifferentialAttention(Attention):
    """Differential attention: each head of the second half is taken, times λ, from one of the first (Ye et al., 2024).

    Both read the values of two heads side by side; their difference is normalised without a weight. λ is made of four learned
    vectors: parameters `lambda_q1`, `lambda_k1`, `lambda_q2`, `lambda_k2` (K,).
    """

    kind, name = "mixer", "differential-attention"
    eps: float = 1e-5

    def __post_init__(self):
        super().__post_init__()
        if (self.kv_heads or self.heads) % 2:
            raise RecipeError(f"kv_heads: {self.kv_heads or self.heads} is odd, and heads are taken in pairs")

    @property
    def title(self):
        """Its name, with the kind of attention."""
        return f"differential {super().title}"

    def own_parameters(self, dim):
        return super().own_parameters(dim) + len(LAMBDAS) * self.head_width(dim)

    def own_flops(self, dim, keys, prefill=False):
        """Each head attends twice, to the values of two."""
        return super().own_flops(dim, keys, prefill) + self.score_flops(dim, keys)


def diffllama(config):
    """LLaMA with differential attention (Ye et al., 2024)."""
    config.ignore("lambda_std_dev")  # of training
    config = config.with_defaults(rms_norm_eps=1e-5)
    eps = config.number("rms_norm_eps")
    return llama(config).change_layers(
        lambda index, layer: dict(mixer=DifferentialAttention(**vars(layer.mixer), eps=eps))
    )


WEIGHTS = (
    *(Rename(f"[model.]layers.{{i}}.self_attn.{name}", f"layers.{{i}}.mixer.{name}") for name in LAMBDAS),
    *LLAMA_WEIGHTS,
)


@hookimpl
def zoo_blocks():
    """The attention, which is all that LLaMA lacks."""
    yield Block(DifferentialAttention, "zoo_diffllama.block:DifferentialAttention", "differential attention")


@hookimpl
def zoo_drawings():
    yield Drawing(DifferentialAttention, "zoo_diffllama.drawing:differential_attention")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_diffllama.block:DifferentialAttention", "zoo_diffllama.probe:DifferentialProbe")


@hookimpl
def zoo_architectures():
    """DiffLlama."""
    yield Architecture(
        name="diffllama",
        base="llama",
        summary="LLaMA with the difference of two maps of attention",
        model_types=("diffllama",),
        recipe=diffllama,
        weights=WEIGHTS,
        presets=(Preset("pocket", config=POCKET), Preset("tiny", config=TINY)),
        references=("Ye et al., 2024, arXiv:2410.05258",),
        published="2024-10",
    )
