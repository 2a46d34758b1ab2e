"""From checkpoint tensors to parameters, by rules of which some are DeepSeek's alone. Imports no mlx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.errors import CheckpointError
from zoo.frozen import frozen
from zoo.gguf import DECODER, MOE
from zoo.weights import Ignore, Join, Rename, Rule, Tensors, fill, matches
from zoo.weights.experts import expert_rules, mlx_expert_rule
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS


@frozen()
class SplitHeads(Rule):
    """`kv_b_proj`, (H·(N + V), R), to what each head makes of a latent: `key` (H, R, N) and `value` (H, V, R).

    A GGUF file may hold the two parts beside the fused matrix: the parts are used then.
    """

    source: str
    key: str
    value: str

    def forward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        for name, values in matches(self.source, source):
            if fill(self.key, values) in target:
                del source[name]
                continue
            if int(values["i"]) >= len(recipe.layers):
                continue  # of no layer: left over, and named as that
            mixer = recipe.layers[int(values["i"])].mixer
            expected = (mixer.heads * (mixer.nope_dim + mixer.value_dim), mixer.kv_rank)
            shape = tuple(source[name].shape)
            if shape != expected:
                raise CheckpointError(f"tensor {name}: expected shape {expected}, found {shape}")
            heads = source.pop(name).reshape(mixer.heads, -1, mixer.kv_rank)  # (H, N + V, R)
            target[fill(self.key, values)] = heads[:, : mixer.nope_dim].swapaxes(1, 2)
            target[fill(self.value, values)] = heads[:, mixer.nope_dim :]

    def backward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        for name, values in matches(self.key, source):
            key, value = source.pop(name), source.pop(fill(self.value, values))
            heads = join([key.swapaxes(1, 2), value], 1)  # (H, N + V, R)
            target[fill(self.source, values)] = heads.reshape(-1, heads.shape[-1])


@frozen()
class IgnorePredictionLayers(Rule):
    """Layers past the recipe's last that predict further tokens: those with a `mark`, a tensor no other layer has.

    A layer past the last without that mark stays, and so is complained of: the config has too few layers.
    """

    layer: str
    mark: str = "eh_proj.weight"

    def forward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        past = {
            values["i"]
            for _, values in matches(self.layer + self.mark, source)
            if values["i"].isdecimal() and int(values["i"]) >= len(recipe.layers)
        }
        for name, values in matches(self.layer + "*", source):
            if values["i"] in past:
                del source[name]

    def backward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        pass


LAYER = "[model.]layers.{i}."
KEY_UP, VALUE_UP = "layers.{i}.mixer.key_up.weight", "layers.{i}.mixer.value_up.weight"
# A mixture of experts, in every layout of a folder.
MIXTURE = (
    Rename(LAYER + "mlp.gate.weight", "layers.{i}.feedforward.router.weight"),
    Rename(LAYER + "mlp.gate.e_score_correction_bias", "layers.{i}.feedforward.router.correction_bias"),
    Rename(LAYER + "mlp.shared_experts.{p}_proj.*", "layers.{i}.feedforward.shared.{p}.*"),
)
EXPERTS = expert_rules(LAYER + "mlp.", "layers.{i}.feedforward.experts.")
MLX_EXPERTS = mlx_expert_rule(LAYER + "mlp.", "layers.{i}.feedforward.experts.")
# The same in GGUF files.
GGUF_MIXTURE = (
    Rename("blk.{i}.ffn_gate_inp.weight", "layers.{i}.feedforward.router.weight"),
    Rename("blk.{i}.exp_probs_b.bias", "layers.{i}.feedforward.router.correction_bias"),
    Rename("blk.{i}.ffn_{p}_shexp.*", "layers.{i}.feedforward.shared.{p}.*"),
    *MOE,
)
SHARED_RULES = (
    Rename(LAYER + "self_attn.q_a_proj.*", "layers.{i}.mixer.query_down.*"),
    Rename(LAYER + "self_attn.q_a_layernorm.*", "layers.{i}.mixer.query_norm.*"),
    Rename(LAYER + "self_attn.q_b_proj.*", "layers.{i}.mixer.query_up.*"),
    Rename(LAYER + "self_attn.kv_a_proj_with_mqa.*", "layers.{i}.mixer.kv_down.*"),
    Rename(LAYER + "self_attn.kv_a_layernorm.*", "layers.{i}.mixer.kv_norm.*"),
    *MIXTURE,
    *LLAMA_WEIGHTS,
)

WEIGHTS = (
    IgnorePredictionLayers(LAYER),
    *SHARED_RULES,
    SplitHeads(LAYER + "self_attn.kv_b_proj.weight", KEY_UP, VALUE_UP),
    *EXPERTS,
)
MLX_WEIGHTS = (
    *SHARED_RULES,
    Rename(LAYER + "self_attn.embed_q.*", "layers.{i}.mixer.key_up.*"),
    Rename(LAYER + "self_attn.unembed_out.*", "layers.{i}.mixer.value_up.*"),
    MLX_EXPERTS,
)

GGUF_WEIGHTS = (
    Rename("blk.{i}.attn_q_a.*", "layers.{i}.mixer.query_down.*"),
    Rename("blk.{i}.attn_q_a_norm.*", "layers.{i}.mixer.query_norm.*"),
    Rename("blk.{i}.attn_q_b.*", "layers.{i}.mixer.query_up.*"),
    Rename("blk.{i}.attn_kv_a_mqa.*", "layers.{i}.mixer.kv_down.*"),
    Rename("blk.{i}.attn_kv_a_norm.*", "layers.{i}.mixer.kv_norm.*"),
    Rename("blk.{i}.attn_k_b.weight", KEY_UP),
    Rename("blk.{i}.attn_v_b.weight", VALUE_UP),
    SplitHeads("blk.{i}.attn_kv_b.weight", KEY_UP, VALUE_UP),  # until the spring of 2025
    *GGUF_MIXTURE,
    *DECODER,
)
MIXTURE_KEYS = {
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_count": "n_routed_experts",
    "expert_shared_count": "n_shared_experts",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
    "expert_weights_scale": "routed_scaling_factor",
    "expert_weights_norm": "norm_topk_prob",
    "expert_gating_func": "gguf.gating",
    "nextn_predict_layers": "num_nextn_predict_layers",
}
GGUF_KEYS = {
    "attention.key_length": "gguf.key_length",
    "attention.value_length": "gguf.value_length",
    "attention.key_length_mla": "gguf.key_length_mla",
    "attention.value_length_mla": "v_head_dim",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank",
    "attention.head_count_kv": None,  # one, or as many as there are heads: latents are shared
    "rope.dimension_count": "qk_rope_head_dim",
    **MIXTURE_KEYS,
}
GATING = {1: "softmax", 2: "sigmoid"}


def mixture_of_gguf(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same config, with what files leave out of a mixture of experts; the gate between these by its name."""
    gating = config.get("gguf.gating", 1)
    return {
        "n_group": 1,
        "topk_group": 1,
        "n_shared_experts": 0,
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        **config,
        "scoring_func": GATING.get(gating, gating),
    }


def config_of_gguf(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of a file's metadata: its own spellings translated, absent keys filled in."""
    keys: dict[str, Any] = {"q_lora_rank": None, **mixture_of_gguf(config)}
    keys["num_key_value_heads"] = keys.get("num_attention_heads")
    # Without the latter, files are older than the split of kv_b: lengths are those of a head of its own.
    head, rope = keys.get("gguf.key_length_mla", keys.get("gguf.key_length")), keys.get("qk_rope_head_dim")
    if isinstance(head, int) and isinstance(rope, int):
        keys["qk_nope_head_dim"] = head - rope
    if "gguf.value_length" in keys:
        keys.setdefault("v_head_dim", keys["gguf.value_length"])
    scaling = keys.get("rope_scaling")
    if scaling and "mscale_all_dim" in scaling:  # of which this family's files have a tenth
        weight = round(10 * scaling["mscale_all_dim"], 6)
        keys["rope_scaling"] = {**scaling, "mscale": weight, "mscale_all_dim": weight}
    return keys


@frozen()
class OnlyPredictionLayer(Rule):
    """The tensors that `old` fits, by the names that `new` gives them; all other tensors are left out.

    In `old`, "{index}" stands for the layer's number in the checkpoint, `recipe.index`.
    """

    old: str
    new: str

    def forward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        pattern = self.old.replace("{index}", str(recipe.index))
        tensors = {fill(self.new, values): source[name] for name, values in matches(pattern, source)}
        source.clear()
        source.update(tensors)

    def backward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        pass


FIRST = "[model.]layers.0."
# The tensors that a prediction layer has besides those of an ordinary layer.
PREDICTION_WEIGHTS = (
    OnlyPredictionLayer("[model.]layers.{index}.*", FIRST + "*"),
    Rename(FIRST + "enorm.*", "embedding_norm.*"),
    Rename(FIRST + "hnorm.*", "hidden_norm.*"),
    Rename(FIRST + "eh_proj.*", "projection.*"),
    Rename(FIRST + "shared_head.norm.*", "norm.*"),
    # Copies of the model's own embedding and head, which it shares.
    Ignore(FIRST + "embed_tokens.weight"),
    Ignore(FIRST + "shared_head.head.weight"),
)
