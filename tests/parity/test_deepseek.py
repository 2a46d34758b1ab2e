"""DeepSeek-V3 against transformers and mlx-lm, on folders that transformers writes."""

import json
import random

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.errors import CheckpointError

from .support import (
    TOLERANCE,
    agrees,
    agrees_from_folder,
    decodes_as,
    difference,
    exports_as_written,
    reference,
    texts,
)

VOCAB = 99


def shape(seed):
    """Random sizes; keys wider and narrower than values, latents wide and narrow."""
    draw = random.Random(seed)
    heads = draw.choice([2, 3, 4])
    return dict(
        vocab_size=VOCAB,
        hidden_size=draw.choice([24, 40]),
        intermediate_size=draw.choice([48, 56]),
        moe_intermediate_size=draw.choice([12, 20]),
        num_hidden_layers=3,
        first_k_dense_replace=1,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        kv_lora_rank=draw.choice([6, 16, 40]),
        q_lora_rank=draw.choice([10, 14]),
        qk_nope_head_dim=draw.choice([6, 10]),
        qk_rope_head_dim=draw.choice([4, 8]),
        v_head_dim=draw.choice([5, 12]),
        n_routed_experts=12,
        n_group=4,
        topk_group=2,
        num_experts_per_tok=3,
        n_shared_experts=1,
        routed_scaling_factor=1.7,
        rms_norm_eps=draw.choice([1e-6, 1e-3]),
        max_position_embeddings=64,
        pad_token_id=None,
    )


def deepseek(seed, **changes):
    """A reference model; its routers' corrections, which are no parameters there, are random too."""
    model = reference(DeepseekV3ForCausalLM, DeepseekV3Config(**shape(seed) | changes), seed)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.3 * torch.randn_like(buffer))
    return model


YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=1000.0)

VARIANTS = {
    "as published": dict(),
    "queries from x": dict(q_lora_rank=None),
    "halves turned, biases, tied": dict(rope_interleave=False, attention_bias=True, tie_word_embeddings=True),
    "one group": dict(n_group=1, topk_group=1, num_experts_per_tok=5, n_shared_experts=2),
    "every group": dict(topk_group=4, norm_topk_prob=False),
    "one expert a token": dict(num_experts_per_tok=1, first_k_dense_replace=0),
    "all dense": dict(first_k_dense_replace=3, hidden_act="gelu"),
    "yarn, scores sharpened": dict(rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0)),
    "yarn, mscales apart": dict(rope_parameters=YARN | dict(mscale=0.7, mscale_all_dim=1.3)),
    "yarn without mscales": dict(rope_parameters=YARN),
    "yarn without a ramp, as Kimi K2's": dict(
        rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0, beta_fast=1.0, beta_slow=1.0),
        n_group=1,
        topk_group=1,
    ),
}


@pytest.mark.filterwarnings("error::UserWarning:zoo")  # a key that nothing reads is warned of
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_transformers(variant, tmp_path):
    agrees_from_folder(deepseek(1, **VARIANTS[variant]), tmp_path, VOCAB)


@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_random_shapes(seed, tmp_path):
    agrees_from_folder(deepseek(seed), tmp_path, VOCAB, lengths=(1, 33))


@pytest.mark.parametrize("seed", [1, 3])
def test_decoding_with_absorbed_projections_equals_transformers(seed, tmp_path):
    model = deepseek(seed)
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path)
    assert loaded.model.layers[0].mixer.absorbs(1, 20)
    decodes_as(model, loaded, VOCAB, 7, 20)


def test_kimi_is_told_by_its_model_type(tmp_path):
    model = deepseek(1, n_group=1, topk_group=1)
    model.save_pretrained(tmp_path)
    rewrite(tmp_path, model_type="kimi_k2")
    agrees(model, zoo.load(tmp_path), VOCAB)


def test_export_is_what_transformers_wrote(tmp_path):
    deepseek(1).save_pretrained(tmp_path)
    exports_as_written(tmp_path)


def test_the_prediction_layer_is_left_out(tmp_path):
    model = deepseek(1)
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    last = {name: array for name, array in tensors.items() if name.startswith("model.layers.2.")}
    extra = {name.replace("layers.2.", "layers.3."): array for name, array in last.items()}
    for part in ("eh_proj", "enorm", "hnorm", "embed_tokens", "shared_head.norm", "shared_head.head"):
        extra[f"model.layers.3.{part}.weight"] = np.zeros((4, 4), np.float32)
    save_file(tensors | extra, path, metadata={"format": "pt"})
    agrees(model, zoo.load(tmp_path), VOCAB, lengths=(9,))
    rewrite(
        tmp_path, num_hidden_layers=2
    )  # now layer 2 is no prediction layer, but one that the config forgot
    with pytest.raises(CheckpointError, match=r"unexpected tensor model\.layers\.2\."):
        zoo.load(tmp_path)


def rewrite(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("variant", ["as published", "queries from x", "yarn, scores sharpened"])
def test_mlx_lm_layout_and_logits(variant, tmp_path):
    """The folder that mlx-lm would write of this one: the per-head projections split, the experts stacked."""
    from mlx.utils import tree_flatten
    from mlx_lm.models.deepseek_v3 import Model, ModelArgs

    from .support import spelled_as_4

    # One group: where there are more, mlx-lm gives experts of the others the merit 0, not −∞.
    model = deepseek(1, n_group=1, topk_group=1, **VARIANTS[variant])
    model.save_pretrained(tmp_path)
    spelled_as_4(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    theirs = Model(ModelArgs.from_dict(config))
    theirs.load_weights(
        list(theirs.sanitize(mx.load(str(tmp_path / "model.safetensors"))).items()), strict=True
    )
    weights = dict(tree_flatten(theirs.parameters()))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), weights, metadata={"format": "mlx"})
    loaded = zoo.load(tmp_path)
    agrees(model, loaded, VOCAB, lengths=(17,))
    tokens = mx.array(texts(VOCAB, 2, 17))
    assert difference(loaded.model(tokens), torch.tensor(np.array(theirs(tokens)))) <= TOLERANCE
