"""From checkpoint tensors to parameters, with two rules that only DeepSeek's need. Imports no mlx."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.errors import CheckpointError
from zoo.weights import Ignore, Join, OutputHead, Rename, Rule, Stack, Tensors, fill, matches


@dataclass(frozen=True)
class SplitHeads(Rule):
    """`kv_b_proj`, (H·(N + V), R), to what each head makes of a latent: `key` (H, R, N) and `value` (H, V, R)."""

    source: str
    key: str
    value: str

    def forward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        for name, values in matches(self.source, source):
            mixer = recipe.layers[0].mixer
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


@dataclass(frozen=True)
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
PARTS = ("gate", "up", "down")
SHARED_RULES = (
    Rename("[model.]embed_tokens.*", "embedding.tokens.*"),
    Rename(LAYER + "input_layernorm.*", "layers.{i}.mixer_norm.*"),
    Rename(LAYER + "self_attn.q_proj.*", "layers.{i}.mixer.query.*"),
    Rename(LAYER + "self_attn.q_a_proj.*", "layers.{i}.mixer.query_down.*"),
    Rename(LAYER + "self_attn.q_a_layernorm.*", "layers.{i}.mixer.query_norm.*"),
    Rename(LAYER + "self_attn.q_b_proj.*", "layers.{i}.mixer.query_up.*"),
    Rename(LAYER + "self_attn.kv_a_proj_with_mqa.*", "layers.{i}.mixer.kv_down.*"),
    Rename(LAYER + "self_attn.kv_a_layernorm.*", "layers.{i}.mixer.kv_norm.*"),
    Rename(LAYER + "self_attn.o_proj.*", "layers.{i}.mixer.output.*"),
    Rename(LAYER + "post_attention_layernorm.*", "layers.{i}.feedforward_norm.*"),
    Rename(LAYER + "mlp.gate_proj.*", "layers.{i}.feedforward.gate.*"),
    Rename(LAYER + "mlp.up_proj.*", "layers.{i}.feedforward.up.*"),
    Rename(LAYER + "mlp.down_proj.*", "layers.{i}.feedforward.down.*"),
    Rename(LAYER + "mlp.gate.weight", "layers.{i}.feedforward.router.weight"),
    Rename(LAYER + "mlp.gate.e_score_correction_bias", "layers.{i}.feedforward.router.correction"),
    *(
        Rename(LAYER + f"mlp.shared_experts.{part}_proj.*", f"layers.{{i}}.feedforward.shared.{part}.*")
        for part in PARTS
    ),
    Rename("[model.]norm.*", "norm.*"),
    OutputHead("lm_head.*", "head.output.*"),
    Ignore(LAYER + "self_attn.rotary_emb.inv_freq"),
)

WEIGHTS = (
    IgnorePredictionLayers(LAYER),
    *SHARED_RULES,
    SplitHeads(
        LAYER + "self_attn.kv_b_proj.weight",
        "layers.{i}.mixer.key_up.weight",
        "layers.{i}.mixer.value_up.weight",
    ),
    *(
        Stack(
            LAYER + f"mlp.experts.{{e}}.{part}_proj.weight",
            f"layers.{{i}}.feedforward.experts.{part}.weight",
        )
        for part in PARTS
    ),
)
MLX_WEIGHTS = (
    *SHARED_RULES,
    Rename(LAYER + "self_attn.embed_q.*", "layers.{i}.mixer.key_up.*"),
    Rename(LAYER + "self_attn.unembed_out.*", "layers.{i}.mixer.value_up.*"),
    *(
        Rename(LAYER + f"mlp.switch_mlp.{part}_proj.*", f"layers.{{i}}.feedforward.experts.{part}.*")
        for part in PARTS
    ),
)
