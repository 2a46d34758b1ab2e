"""ERNIE 4.5, dense and with experts, as differences from LLaMA. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Block, Drawing, Ignore, ModuleProbe, Preset, Rename, hookimpl
from zoo.frozen import frozen
from zoo.gguf import DECODER
from zoo.recipe import Experts, GatedMLP, MoE, Router
from zoo.weights.experts import expert_rules, mlx_expert_rule
from zoo_deepseek.spec import SigmoidRouter
from zoo_llama import POCKET, TINY, WEIGHTS, llama, published, sized


@frozen()
class BalancedRouter(SigmoidRouter):
    """The `top_k` experts of the largest softmax(W x) (Baidu, 2025).

    `correction_bias` is added where experts are chosen, and not to their weights.
    """

    kind, name = "router", "balanced-softmax"


def ernie4_5(config):
    """LLaMA whose heads are turned in neighbouring pairs, and may be of any width (Baidu, 2025)."""
    bias = config.flag("use_bias", False)
    config = config.with_defaults(
        head_dim=128,
        num_key_value_heads=2,
        attention_bias=bias,
        mlp_bias=bias,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        max_position_embeddings=131072,
        tie_word_embeddings=True,
    )
    return llama(config).change_layers(mixer=dict(rope=dict(interleaved=True)))


LEAST_SUM = (
    1e-3  # that the weights of a token's experts can have is far above this: the best of E is at least 1/E
)


def ernie4_5_moe(config):
    """ERNIE 4.5 whose layers have experts and shared ones, but for the first (Baidu, 2025)."""
    config.ignore("output_router_logits", "router_aux_loss_coef")
    if config.number("moe_norm_min", 1e-12) > LEAST_SUM:
        raise config.error(
            "moe_norm_min", "is not implemented: weights are divided by their sum, however small"
        )
    config = config.with_defaults(head_dim=config.head_width(), num_key_value_heads=4)
    first, last = (
        config.count("moe_layer_start_index", 1, least=0),
        config.count("moe_layer_end_index", -1, least=-1),
    )
    step, sparse = config.count("moe_layer_interval", 1), moe(config)
    end = config.layers() - 1 if last == -1 else last
    return ernie4_5(config).change_layers(
        lambda index, layer: dict(
            feedforward=sparse if first <= index <= end and (index + 1) % step == 0 else layer.feedforward
        )
    )


def moe(config):
    """The experts of a layer. MLX conversions leave out what balances the router."""
    count, hidden = config.count("moe_num_experts", 64), config.count("moe_intermediate_size", 1536)
    shared, activation = config.count("moe_num_shared_experts", 2, least=0), config.activation()
    router = BalancedRouter if config.has_tensor("e_score_correction_bias", True) else Router
    width, bias = hidden * shared, config.flag("use_bias", False)
    return MoE(
        router=router(experts=count, top_k=config.count("moe_k", 6)),
        experts=Experts(count=count, hidden=hidden, activation=activation),
        shared=GatedMLP(hidden=width, activation=activation, bias=bias) if shared else None,
    )


@frozen()
class RowVector(Rename):
    """A vector, (E,), that files hold as a matrix of one row."""

    def loaded(self, tensor):
        return tensor.reshape(-1)

    def saved(self, parameter):
        return parameter[None]


@frozen()
class BalancedRename(Rename):
    """A tensor of a balanced router; other rules take that of a router without a bias."""

    def forward(self, source, target, recipe, join):
        if any(isinstance(spec, BalancedRouter) for _, spec in recipe.walk()):
            super().forward(source, target, recipe, join)


LAYER, FEEDFORWARD = "[model.]layers.{i}.mlp.", "layers.{i}.feedforward."
BIAS, EXPERTS = "moe_statics.e_score_correction_bias", FEEDFORWARD + "experts."
MIXTURE = (
    *(Ignore(f"model.mtp_{part}.*") for part in ("block", "linear_proj", "hidden_norm", "emb_norm")),
    RowVector(LAYER + BIAS, FEEDFORWARD + "router.correction_bias"),
    RowVector(LAYER + "gate." + BIAS, FEEDFORWARD + "router.correction_bias"),  # as transformers 5 holds it
    BalancedRename(LAYER + "gate.weight", FEEDFORWARD + "router.weight"),
    Rename(LAYER + "gate.weight", FEEDFORWARD + "router.scores.weight"),
    Rename(LAYER + "shared_experts.{p}_proj.*", FEEDFORWARD + "shared.{p}.*"),
    *WEIGHTS,
)
MOE_WEIGHTS = (*MIXTURE, *expert_rules(LAYER, EXPERTS))
MOE_MLX_WEIGHTS = (*MIXTURE, mlx_expert_rule(LAYER, EXPERTS))
ERNIE_MOE = dict(
    vocab_size=103424,
    max_position_embeddings=131072,
    rope_theta=500000.0,
    rms_norm_eps=1e-5,
    moe_num_experts=64,
)
SMALL = dict(moe_num_experts=6, moe_k=2, moe_intermediate_size=32, moe_num_shared_experts=1)


def biases(config, tensors):
    """Whether the projections have biases: only the tensors show it."""
    return dict(use_bias="blk.0.attn_q.bias" in tensors)


@hookimpl
def zoo_architectures():
    """The dense models of ERNIE 4.5."""
    yield Architecture(
        name="ernie4.5",
        base="llama",
        summary="LLaMA whose rotary positions pair neighbouring dimensions",
        model_types=("ernie4_5",),
        recipe=ernie4_5,
        weights=WEIGHTS,
        gguf=GGUF("ernie4_5", DECODER, config=biases),
        presets=(
            published(
                "0.3b",
                "baidu/ERNIE-4.5-0.3B-PT",
                "Apache-2.0",
                **sized(layers=18, dim=1024, heads=16, kv_heads=2, hidden=3072, rms_norm_eps=1e-5),
                head_dim=128,
                vocab_size=103424,
                max_position_embeddings=131072,
                rope_theta=500000.0,
                tie_word_embeddings=True,
            ),
            Preset("pocket", config=POCKET | dict(head_dim=32)),
            Preset("tiny", config=TINY | dict(head_dim=24)),
        ),
        references=('Baidu, 2025, "ERNIE 4.5 Technical Report"',),
        published="2025-06",
    )
    yield Architecture(
        name="ernie4.5-moe",
        base="ernie4.5",
        summary="ERNIE 4.5 with sixty-four experts and shared ones after a dense layer, chosen by a softmax and a bias",
        model_types=("ernie4_5_moe",),
        recipe=ernie4_5_moe,
        weights=MOE_WEIGHTS,
        mlx_weights=MOE_MLX_WEIGHTS,
        presets=(
            published(
                "21b-a3b",
                "baidu/ERNIE-4.5-21B-A3B-PT",
                "Apache-2.0",
                **sized(layers=28, dim=2560, heads=20, kv_heads=4, hidden=12288, **ERNIE_MOE),
                moe_intermediate_size=1536,
                moe_k=6,
                moe_num_shared_experts=2,
                tie_word_embeddings=True,
            ),
            published(
                "300b-a47b",
                "baidu/ERNIE-4.5-300B-A47B-PT",
                "Apache-2.0",
                **sized(layers=54, dim=8192, heads=64, kv_heads=8, hidden=28672, **ERNIE_MOE),
                moe_intermediate_size=3584,
                moe_k=8,
                moe_num_shared_experts=0,
                moe_layer_start_index=3,
                tie_word_embeddings=False,
            ),
            Preset("pocket", config=POCKET | SMALL | dict(moe_num_experts=16, moe_intermediate_size=96)),
            Preset("tiny", config=TINY | SMALL),
        ),
        references=('Baidu, 2025, "ERNIE 4.5 Technical Report"',),
        published="2025-06",
    )


@hookimpl
def zoo_blocks():
    """The router, which is all that the zoo lacks."""
    yield Block(
        BalancedRouter,
        "zoo_ernie.block:BalancedRouter",
        "top-k router over a softmax, with a bias that balances",
    )


@hookimpl
def zoo_drawings():
    yield Drawing(BalancedRouter, "zoo_deepseek.drawing:sigmoid_router")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_ernie.block:BalancedRouter", "zoo_deepseek.probe:SigmoidRouterProbe")
