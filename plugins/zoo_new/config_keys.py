"""What keys of published configs mean, and the field of the recipe that has it, where there is one. Imports no mlx."""

from __future__ import annotations

# Paths that begin with "layers" are of every layer.
MEANINGS = {
    "embedding_multiplier": "multiplies the embeddings: embedding.scale",
    "scale_emb": "multiplies the embeddings: embedding.scale",
    "attention_multiplier": "multiplies attention's scores: layers.mixer.scale",
    "residual_multiplier": "multiplies what is added to the residual stream: layers.residual_scale",
    "logits_scaling": "divides the logits: head.scale",
    "logit_scale": "multiplies the logits: head.scale",
    "use_parallel_residual": "attention and feed-forward read the same input: layers.parallel",
    "parallel_attn": "attention and feed-forward read the same input: layers.parallel",
    "no_rope_layers": "0 for each layer without rotary positions: layers.mixer.rope",
    "no_rope_layer_interval": "each such layer has no rotary positions: layers.mixer.rope",
    "layer_types": "which layers have a window: layers.mixer.window",
    "local_attention": "the window of local layers: layers.mixer.window",
    "sliding_window": "how many tokens attention sees: layers.mixer.window",
    "partial_rotary_factor": "the share of each head that is rotated: layers.mixer.rope",
    "rotary_pct": "the share of each head that is rotated: layers.mixer.rope",
    "rotary_emb_base": "the base of the rotary wavelengths: layers.mixer.rope",
    "rope_parameters": "rotary positions: layers.mixer.rope",
    "rope_theta": "the base of the rotary wavelengths: layers.mixer.rope",
    "rope_scaling": "scaling of rotary positions: layers.mixer.rope",
    "layer_norm_eps": "the norms' epsilon: layers.mixer_norm.eps",
    "layer_norm_epsilon": "the norms' epsilon: layers.mixer_norm.eps",
    "norm_eps": "the norms' epsilon: layers.mixer_norm.eps",
    "hidden_activation": "the activation: layers.feedforward.activation",
    "activation_function": "the activation: layers.feedforward.activation",
    "qk_layernorm": "norms on queries and keys: layers.mixer.query_norm and key_norm",
    "use_qk_norm": "norms on queries and keys: layers.mixer.query_norm and key_norm",
    "decoder_bias": "a bias on the logits: head.bias",
    "clip_qkv": "queries, keys and values are clipped, which needs a mixer of its own",
    "attn_logit_softcapping": "attention's scores are capped by tanh, as in gemma2",
    "final_logit_softcapping": "logits are capped by tanh, as in gemma2",
    "routed_scaling_factor": "multiplies the experts' weights: layers.feedforward.router.scale",
    "n_shared_experts": "experts that every token uses: layers.feedforward.shared",
    "first_k_dense_replace": "the first layers have no experts: layers.feedforward",
}


def meaning(key: str) -> str:
    """What a key means, after a comma; "" for one that is not known."""
    return f", {MEANINGS[key]}" if key in MEANINGS else ""
