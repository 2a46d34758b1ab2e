"""Ling against mlx-lm, which has this family as transformers has not."""

import json

import mlx_lm.utils as mlx_lm
import pytest

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map_with_path
from mlx_lm.models import bailing_moe

from zoo.checkpoint.convert import convert

from .support import TOLERANCE, far, texts

CONFIG = dict(
    model_type="bailing_moe",
    vocab_size=99,
    hidden_size=64,
    intermediate_size=96,
    moe_intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_experts=8,
    num_experts_per_tok=3,
    num_shared_experts=2,
    norm_topk_prob=True,
    first_k_dense_replace=1,
    rms_norm_eps=1e-5,
    rope_theta=600.0,
    max_position_embeddings=64,
    use_bias=False,
)
SECOND = dict(score_function="sigmoid", moe_router_enable_expert_bias=True, use_qk_norm=True)
VARIANTS = (
    dict(),
    dict(use_qkv_bias=True, norm_topk_prob=False, first_k_dense_replace=0, tie_word_embeddings=True),
    SECOND | dict(n_group=4, topk_group=2, partial_rotary_factor=0.5, routed_scaling_factor=2.5),
    SECOND | dict(rotary_dim=8, moe_shared_expert_intermediate_size=32, num_shared_experts=1),
    dict(moe_router_enable_expert_bias=True, moe_router_enable_shared_expert=False),
)


def written(folder, config, **packed):
    """A random model of mlx-lm, its folder written."""
    mx.random.seed(5)
    model = bailing_moe.Model(bailing_moe.ModelArgs.from_dict(config))

    def draw(name, array):
        # Scores and corrections stay positive: mlx-lm gives experts of other groups a score of zero.
        return (
            mx.random.uniform(0, 0.3, array.shape) if "bias" in name else mx.random.normal(array.shape) * 0.2
        )

    model.update(tree_map_with_path(draw, model.parameters()))
    if packed:
        nn.quantize(model, **packed, class_predicate=lambda name, layer: hasattr(layer, "to_quantized"))
    folder.mkdir()
    mlx_lm.save_model(folder, model)
    (folder / "config.json").write_text(json.dumps(config | (dict(quantization=packed) if packed else {})))
    return model


@pytest.mark.filterwarnings("error:config.json")  # a key that nothing reads
@pytest.mark.parametrize("variant", range(len(VARIANTS)))
def test_logits_equal_mlx_lm_in_both_layouts(tmp_path, variant):
    mx.disable_compile()
    model = written(tmp_path / "mlx", CONFIG | VARIANTS[variant])
    tokens = mx.array(texts(99, 2, 30))
    expected, loaded = model(tokens), zoo.load(tmp_path / "mlx").model
    assert far(loaded(tokens), expected) <= TOLERANCE
    cache = loaded.make_cache()
    pieces = [loaded(tokens[:, a:b], cache) for a, b in ((0, 9), (9, 10), (10, 30))]
    assert far(mx.concatenate(pieces, axis=1), expected) <= TOLERANCE
    for layout in ("hf", "mlx"):
        convert(tmp_path / "mlx", tmp_path / layout / "again", layout=layout)
        again, _ = mlx_lm.load_model(tmp_path / layout / "again")
        assert far(again(tokens), expected) <= TOLERANCE
        assert far(zoo.load(tmp_path / layout / "again").model(tokens), expected) <= TOLERANCE
    mx.enable_compile()


@pytest.mark.parametrize("bits", [4, 8])
def test_packed_folders_mean_the_same(tmp_path, bits):
    mx.disable_compile()
    written(tmp_path / "plain", CONFIG | VARIANTS[2])
    convert(tmp_path / "plain", tmp_path / "packed", quantize=str(bits), group_size=32)
    model, _ = mlx_lm.load_model(tmp_path / "packed")
    tokens = mx.array(texts(99, 2, 20))
    assert far(zoo.load(tmp_path / "packed").model(tokens), model(tokens)) <= TOLERANCE
    mx.enable_compile()
