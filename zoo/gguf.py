"""Descriptions of families' GGUF files: names of keys and tensors, most of which all families share.

GGUF calls a layer's tensors `blk.{i}.attn_q.weight` and its numbers `llama.attention.head_count`, whatever the family;
a plugin adds what is its own. Imports no mlx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar

from zoo.errors import CheckpointError
from zoo.frozen import Frozen, frozen
from zoo.recipe import Model
from zoo.weights import Ignore, Join, OutputHead, Rename, Rule, Tensors, fill, matches

__all__ = ["DECODER", "GGUF", "KEYS", "MOE", "Added", "RotaryPairs", "Row"]

# Metadata keys, without the architecture's name before them, to those of config.json.
KEYS = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attention.causal": "is_causal",
    "rope.freq_base": "rope_theta",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}


@frozen()
class GGUF(Frozen):
    """The keys and tensors of an architecture in GGUF files.

    `architecture` is the file's `general.architecture`. Where several of the zoo's share one, `when` is the key whose
    presence distinguishes this one from the plain one. `keys` changes or adds to `KEYS`: None for a key that says nothing, and
    for what `config` alone needs a name that begins with "gguf.". `config` gives what such files do not say, from the
    config.json that their metadata made and the tensors, a mapping of names to what has a `shape`. `weights` are the
    rules from the file's names to parameter paths.
    """

    architecture: str
    weights: tuple[Rule, ...]
    when: str | None = None
    keys: Mapping[str, str | None] = field(default_factory=dict)
    config: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]] | None = None


@frozen()
class RotaryPairs(Rename):
    """Query or key rows in llama.cpp's interleaved order: the two rows of a rotary pair are neighbours, 2k and 2k + 1.

    As LLaMA was first released; the rows of a parameter stand half a head apart, k and k + K/2. `heads` is the field of
    the layer's mixer that counts the heads.
    """

    heads: str = "heads"

    def forward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        self._swap(source, target, recipe, forward=True)

    def backward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        self._swap(source, target, recipe, forward=False)

    def _swap(self, source: Tensors, target: Tensors, recipe: Model, forward: bool) -> None:
        old, new = (self.source, self.target) if forward else (self.target, self.source)
        for name, values in matches(old, source):
            tensor, number = source[name], values["i"]
            if not number.isdecimal() or int(number) >= len(recipe.layers):
                continue  # of no layer: left over, and named as that
            mixer, shape = recipe.layers[int(number)].mixer, tuple(tensor.shape)
            heads = getattr(mixer, self.heads)
            if not shape or shape[0] % (2 * heads):
                raise CheckpointError(f"{name}: shape {shape} does not divide into {heads} heads")
            if mixer.rope is not None and mixer.rope.dims is not None:
                raise CheckpointError(f"{name}: heads of which only a part turns are not implemented")
            half = shape[0] // heads // 2
            pairs = tensor.reshape(heads, *((half, 2) if forward else (2, half)), *shape[1:])
            target[fill(new, values)] = pairs.swapaxes(1, 2).reshape(*shape)
            del source[name]


@frozen()
class Added(Rename):
    """A tensor to which the file's writer added `amount`; loading subtracts it."""

    exact: ClassVar[bool] = False
    amount: float = 1.0

    def loaded(self, tensor: Any) -> Any:
        return tensor - self.amount

    def saved(self, parameter: Any) -> Any:
        return parameter + self.amount


@frozen()
class Row(Rename):
    """A matrix of one row, (1, I), that files hold as (I,)."""

    def loaded(self, tensor: Any) -> Any:
        return tensor[None] if tensor.ndim == 1 else tensor

    def saved(self, parameter: Any) -> Any:
        return parameter[0]


DECODER = (
    Rename("token_embd.*", "embedding.tokens.*"),
    Rename("blk.{i}.attn_norm.*", "layers.{i}.mixer_norm.*"),
    Rename("blk.{i}.attn_q.*", "layers.{i}.mixer.query.*"),
    Rename("blk.{i}.attn_k.*", "layers.{i}.mixer.key.*"),
    Rename("blk.{i}.attn_v.*", "layers.{i}.mixer.value.*"),
    Rename("blk.{i}.attn_output.*", "layers.{i}.mixer.output.*"),
    Rename("blk.{i}.attn_q_norm.*", "layers.{i}.mixer.query_norm.*"),
    Rename("blk.{i}.attn_k_norm.*", "layers.{i}.mixer.key_norm.*"),
    Rename("blk.{i}.ffn_norm.*", "layers.{i}.feedforward_norm.*"),
    Rename("blk.{i}.ffn_gate.*", "layers.{i}.feedforward.gate.*"),
    Rename("blk.{i}.ffn_up.*", "layers.{i}.feedforward.up.*"),
    Rename("blk.{i}.ffn_down.*", "layers.{i}.feedforward.down.*"),
    Rename("output_norm.*", "norm.*"),
    OutputHead("output.*", "head.output.*"),
    Ignore("rope_freqs.weight"),  # this and the next are read as part of the config
    Ignore("rope_factors_{kind}.weight"),
    Ignore("blk.{i}.attn_rot_embd.inv_freq"),
)

# A mixture of experts in the place of a feed-forward; the experts' matrices are stacked, (E, out, in).
MOE = (
    Rename("blk.{i}.ffn_gate_inp.*", "layers.{i}.feedforward.router.scores.*"),
    Rename("blk.{i}.ffn_{p}_exps.*", "layers.{i}.feedforward.experts.{p}.*"),
)
