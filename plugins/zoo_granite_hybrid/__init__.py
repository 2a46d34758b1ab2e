"""Granite 4's hybrids: Mamba-2 in most layers, attention without positions in the others. Imports no mlx."""

from zoo.architecture import Architecture, OfBlock, Preset, Rename, Rule, Split, hookimpl
from zoo.frozen import frozen
from zoo.recipe import GatedMLP, MoE
from zoo.weights.experts import expert_rules, mlx_expert_rule, stacked_expert_rules
from zoo_llama import TINY as LLAMA_TINY
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS
from zoo_llama import llama, sized
from zoo_mamba2 import StateSpace, mixer_weights, state_space_of
from zoo_mixtral import moe


@frozen()
class ByFeedForward(Rule):
    """The rules `mixture` where the layers have experts, else the rules `dense`."""

    mixture: tuple[Rule, ...]
    dense: tuple[Rule, ...]

    def forward(self, source, target, recipe, join):
        for rule in self._rules(recipe):
            rule.forward(source, target, recipe, join)

    def backward(self, source, target, recipe, join):
        for rule in self._rules(recipe):
            rule.backward(source, target, recipe, join)

    def holder(self, path):
        names = (rule.holder(path) for rule in (*self.mixture, *self.dense))
        return next(filter(None, names), None)

    def _rules(self, recipe):
        return self.mixture if isinstance(recipe.layers[0].feedforward, MoE) else self.dense


def granite_hybrid(config):
    """LLaMA with a state space in most layers, scaled like Granite 3; dense, or with experts beside a shared one (IBM, 2025)."""

    def scale(key):
        return config.number(key, 1.0, least=1e-6, most=1e6)

    config.choice("normalization_function", ("rmsnorm",), "rmsnorm")
    config.ignore("init_method", "logits_to_keep")
    recipe, count = llama(config), config.layers()
    positions = config.choice("position_embedding_type", ("rope", "nope", "none"), "none")
    attention = recipe.layers[0].mixer.change(scale=scale("attention_multiplier"))
    attention = attention if positions == "rope" else attention.change(rope=None)
    wide = config.count("mamba_expand", 2) * config.count("hidden_size")
    bias, eps = config.flag("mamba_proj_bias", False), recipe.layers[0].mixer_norm.eps
    memory = state_space_of(config, wide, output_bias=bias, eps=eps)
    types = config.choices(
        "layer_types", tuple(TYPES), count, config.get("layers_block_type", ["mamba"] * count)
    )
    feedforward = mixture(config)
    return recipe.change(
        embedding=dict(scale=scale("embedding_multiplier")), head=dict(scale=1 / scale("logits_scaling"))
    ).change_layers(
        lambda index, layer: dict(
            mixer=attention if TYPES[types[index]] == "attention" else memory,
            feedforward=feedforward,
            residual_scale=scale("residual_multiplier"),
        )
    )


# What mixes tokens, as published configs and as transformers 5 spell it.
TYPES = {
    "mamba": "mamba",
    "attention": "attention",
    "linear_attention": "mamba",
    "full_attention": "attention",
}


def mixture(config):
    """The experts with the shared one beside them; without experts, that alone."""
    activation = config.activation("hidden_act", "silu")
    shared = GatedMLP(config.count("shared_intermediate_size", 1024), activation)
    count = config.count("num_local_experts", 8, least=0)
    config = config.with_defaults(num_experts_per_tok=2)
    config.ignore(
        "num_experts_per_tok", "router_aux_loss_coef", "output_router_logits", "normalization_function"
    )
    return moe(config, count, config.count("intermediate_size")).change(shared=shared) if count else shared


LAYER, FEEDFORWARD = "model.layers.{i}.", "layers.{i}.feedforward."
SPARSE, EXPERTS = LAYER + "block_sparse_moe.", FEEDFORWARD + "experts."


def shared_rules(target):
    """The rules of the fused feed-forward that every token uses."""
    halves = (target + "gate.*", target + "up.*")
    return (
        Split(LAYER + "shared_mlp.input_linear.*", halves),
        Rename(LAYER + "shared_mlp.output_linear.*", target + "down.*"),
    )


def weights(axis, *own):
    """The rules of a layout: those that it has of its own, and those of both; `axis` is as in `mixer_weights`."""
    return (
        OfBlock(StateSpace, mixer_weights(LAYER + "mamba.", "layers.{i}.mixer.", axis)),
        Rename(SPARSE + "router.layer.*", FEEDFORWARD + "router.scores.*"),
        *own,
        *LLAMA_WEIGHTS,
    )


SHARED = shared_rules(FEEDFORWARD + "shared.")
WEIGHTS = weights(
    1,
    *stacked_expert_rules(SPARSE + "input_linear.weight", SPARSE + "output_linear.weight", EXPERTS),
    # As transformers 5 holds them.
    *expert_rules(SPARSE, EXPERTS),
    Rename(SPARSE + "router.weight", FEEDFORWARD + "router.scores.weight"),
    ByFeedForward(SHARED, shared_rules(FEEDFORWARD)),
)
MLX_WEIGHTS = weights(2, mlx_expert_rule(SPARSE, EXPERTS), ByFeedForward(SHARED, ()))


def published(name, scores, logits, layers=40, **numbers):
    """A preset of one of IBM's checkpoints: every tenth layer attends, the sixth first."""
    config = sized(layers=layers, vocab_size=100352, rms_norm_eps=1e-5, **numbers) | dict(
        layer_types=["mamba" if index % 10 != 5 else "attention" for index in range(layers)],
        **dict(position_embedding_type="nope", max_position_embeddings=131072, tie_word_embeddings=True),
        **dict(mamba_d_head=64, mamba_d_state=128, embedding_multiplier=12.0, residual_multiplier=0.22),
        **dict(attention_multiplier=scores, logits_scaling=logits),
    )
    return Preset(name, hub=f"ibm-granite/granite-4.0-{name}", config=config, licence="Apache-2.0")


def experts(count, used, shared):
    """The numbers of a mixture of experts."""
    return dict(num_local_experts=count, num_experts_per_tok=used, shared_intermediate_size=shared)


TINY = (
    LLAMA_TINY
    | experts(4, 2, shared=48)
    | dict(
        **dict(num_hidden_layers=3, intermediate_size=32, layer_types=["mamba", "attention", "mamba"]),
        **dict(mamba_n_heads=4, mamba_d_state=6, mamba_n_groups=2),
        **dict(
            embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.1, logits_scaling=2.0
        ),
    )
)
POCKET = TINY | dict(hidden_size=128, intermediate_size=96, vocab_size=2048)


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="granite-hybrid",
        base="llama",
        summary="Mamba-2 in nine layers of ten, attention without positions in the tenth, experts with a shared one",
        model_types=("granitemoehybrid",),
        recipe=granite_hybrid,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published(
                "h-tiny",
                **dict(dim=1536, heads=12, kv_heads=4, hidden=512, mamba_n_heads=48),
                **experts(64, 6, shared=1024),
                **dict(scores=0.0078125, logits=6.0),
            ),
            published(
                "h-small",
                **dict(dim=4096, heads=32, kv_heads=8, hidden=768, mamba_n_heads=128),
                **experts(72, 10, shared=1536),
                **dict(scores=0.0078125, logits=16.0),
            ),
            published(
                "h-micro",
                **dict(dim=2048, heads=32, kv_heads=8, hidden=8192, mamba_n_heads=64),
                **experts(0, 0, shared=8192),
                **dict(scores=0.015625, logits=8.0),
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=(
            'IBM, 2025, "IBM Granite 4.0: Hyper-efficient, High Performance Hybrid Models for Enterprise"',
            "Dao and Gu, 2024, arXiv:2405.21060",
        ),
        published="2025-10",
    )
