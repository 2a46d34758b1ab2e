"""Current decoders against transformers and mlx-lm, on folders that transformers writes."""

import json
from typing import NamedTuple

import mlx_lm.utils as mlx_lm
import pytest
import torch
import transformers as tf

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.checkpoint.convert import convert

from .support import TOLERANCE, compared, decodes_as, difference, reference, spelled_as_4, texts
from .test_adapters import train

VOCAB = 99
SMALL = dict(
    vocab_size=VOCAB,
    num_hidden_layers=4,
    max_position_embeddings=64,
    intermediate_size=48,
    pad_token_id=None,
    bos_token_id=None,
    eos_token_id=None,
)
SHAPES = [(4, 4), (6, 2), (4, 1)]  # heads, and those of keys and values
LOCAL = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=500.0)
PLAIN = dict(rope_type="default", rope_theta=500.0)
LINEAR = dict(rope_type="linear", factor=4.0, rope_theta=300.0)


class Family(NamedTuple):
    """The classes of transformers, the settings that its models share, and variants of these."""

    model: type
    config: type
    settings: dict
    variants: list


def long_rope(pairs, **more):
    """LongRoPE's factors for so many pairs of dimensions."""
    return dict(
        rope_type="longrope",
        short_factor=[1 + 0.05 * k for k in range(pairs)],
        long_factor=[1.5 + 0.7 * k for k in range(pairs)],
        **more,
    )


LONG = dict(num_hidden_layers=2, original_max_position_embeddings=24)
SCALES = dict(
    embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.125, logits_scaling=8.0
)
EXPERTS = dict(n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, head_dim=8)
FAMILIES = {
    "olmo2": Family(
        tf.Olmo2ForCausalLM,
        tf.Olmo2Config,
        {},
        [
            dict(),
            dict(attention_bias=True, tie_word_embeddings=True),
            dict(rope_parameters=dict(rope_type="dynamic", factor=2.0, rope_theta=500.0), rms_norm_eps=1e-3),
        ],
    ),
    "olmo3": Family(
        tf.Olmo3ForCausalLM,
        tf.Olmo3Config,
        dict(sliding_window=7),
        [
            dict(),
            dict(layer_types=LOCAL, attention_bias=True, tie_word_embeddings=True),
            dict(rope_parameters=dict(full_attention=YARN, sliding_attention=PLAIN)),
        ],
    ),
    "gemma3": Family(
        tf.Gemma3ForCausalLM,
        tf.Gemma3TextConfig,
        dict(sliding_window=7, head_dim=16, query_pre_attn_scalar=20),
        [
            dict(num_hidden_layers=6),
            dict(layer_types=LOCAL, attention_bias=True, tie_word_embeddings=False),
            dict(
                layer_types=LOCAL,
                final_logit_softcapping=3.0,
                rms_norm_eps=1e-3,
                rope_parameters=dict(full_attention=LINEAR, sliding_attention=dict(PLAIN, rope_theta=50.0)),
            ),
        ],
    ),
    "glm4": Family(
        tf.Glm4ForCausalLM,
        tf.Glm4Config,
        dict(head_dim=8),
        [
            dict(),
            dict(attention_bias=False, tie_word_embeddings=True, rms_norm_eps=1e-3),
            dict(rope_parameters=dict(YARN, partial_rotary_factor=0.5), head_dim=16),
        ],
    ),
    "glm4-moe": Family(
        tf.Glm4MoeForCausalLM,
        tf.Glm4MoeConfig,
        EXPERTS,
        [
            dict(),
            dict(use_qk_norm=True, attention_bias=True, first_k_dense_replace=3, routed_scaling_factor=2.5),
            dict(n_group=3, topk_group=2, norm_topk_prob=False, n_shared_experts=2),
        ],
    ),
    "minimax-m2": Family(
        tf.MiniMaxM2ForCausalLM,
        tf.MiniMaxM2Config,
        dict(num_local_experts=6, num_experts_per_tok=3, head_dim=8),
        [
            dict(rotary_dim=4),
            dict(tie_word_embeddings=True, rms_norm_eps=1e-3, head_dim=16),
        ],
    ),
    "granite": Family(
        tf.GraniteForCausalLM,
        tf.GraniteConfig,
        {},
        [
            SCALES,
            dict(residual_multiplier=0.5, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
            dict(attention_multiplier=0.3, rope_parameters=LINEAR),
        ],
    ),
    "smollm3": Family(
        tf.SmolLM3ForCausalLM,
        tf.SmolLM3Config,
        {},
        [
            dict(),
            dict(no_rope_layers=[0, 1, 1, 0], attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
            dict(use_sliding_window=True, sliding_window=7, no_rope_layer_interval=2),
        ],
    ),
    "phi3": Family(
        tf.Phi3ForCausalLM,
        tf.Phi3Config,
        dict(pad_token_id=0),
        [
            dict(),
            dict(sliding_window=7, tie_word_embeddings=True),
            dict(rope_parameters=dict(PLAIN, partial_rotary_factor=0.5)),
            dict(LONG, rope_parameters=long_rope(4, rope_theta=300.0)),
            dict(LONG, rope_parameters=long_rope(4, attention_factor=1.3)),
            dict(LONG, rope_parameters=long_rope(4, factor=1.0)),
            dict(LONG, rope_parameters=long_rope(2, partial_rotary_factor=0.5), sliding_window=9),
        ],
    ),
    "cohere": Family(
        tf.CohereForCausalLM,
        tf.CohereConfig,
        {},
        [
            dict(),
            dict(attention_bias=True, tie_word_embeddings=False, logit_scale=0.25, layer_norm_eps=1e-3),
        ],
    ),
    "cohere2": Family(
        tf.Cohere2ForCausalLM,
        tf.Cohere2Config,
        dict(sliding_window=7),
        [
            dict(),
            dict(attention_bias=True, tie_word_embeddings=False, logit_scale=0.25),
            dict(layer_types=LOCAL),
            dict(sliding_window=64, rope_parameters=dict(PLAIN, rope_theta=300.0), layer_norm_eps=1e-3),
        ],
    ),
    "starcoder2": Family(
        tf.Starcoder2ForCausalLM,
        tf.Starcoder2Config,
        {},
        [
            dict(),
            dict(sliding_window=7, use_bias=False, tie_word_embeddings=False, norm_epsilon=1e-3),
            dict(hidden_act="gelu", rope_parameters=LINEAR),
        ],
    ),
    "ernie4.5": Family(
        tf.Ernie4_5ForCausalLM,
        tf.Ernie4_5Config,
        dict(head_dim=8),
        [dict(), dict(use_bias=True, tie_word_embeddings=False, head_dim=16, rope_parameters=PLAIN)],
    ),
    "hunyuan-dense": Family(
        tf.HunYuanDenseV1ForCausalLM,
        tf.HunYuanDenseV1Config,
        dict(head_dim=8),
        [
            dict(rope_parameters=dict(rope_type="dynamic", alpha=1000.0, factor=1.0, rope_theta=1e4)),
            dict(attention_bias=True, tie_word_embeddings=True, head_dim=16, rms_norm_eps=1e-3),
        ],
    ),
    "seed-oss": Family(
        tf.SeedOssForCausalLM,
        tf.SeedOssConfig,
        dict(head_dim=16),
        [
            dict(),
            dict(attention_bias=False, attention_out_bias=True, mlp_bias=True, tie_word_embeddings=True),
        ],
    ),
}
VARIANTS = [
    pytest.param(name, variant, id=f"{name}-{number}")
    for name, family in FAMILIES.items()
    for number, variant in enumerate(family.variants)
]


def made(name, variant, heads=4, kv_heads=2, **sizes):
    """A reference model; the corrections of its routers, which are no parameters there, are random too."""
    kind, config, settings, _ = FAMILIES[name]
    values = SMALL | dict(hidden_size=heads * 8) | settings | variant | sizes
    numbers = dict(num_attention_heads=heads, num_key_value_heads=kv_heads)
    model = reference(kind, config(**values, **numbers), heads)
    for buffer, values in model.named_buffers():
        if buffer.endswith("e_score_correction_bias"):
            values.copy_(0.3 * torch.randn_like(values))
    return model


def spelled(name):
    """The function that rewrites a folder's config.json as transformers 4 wrote those of this family."""
    if name in ("olmo3", "gemma3"):
        return spelled_by_keys
    return spelled_as_phi3 if name == "phi3" else spelled_as_4


def spelled_by_keys(folder):
    """Positions of two kinds of layers as keys of their own: those with a window are not scaled."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    whole, local = rope["full_attention"], rope["sliding_attention"]
    config["rope_theta"] = whole.pop("rope_theta")
    config["rope_scaling"] = None if whole["rope_type"] == "default" else whole
    if config["model_type"] == "gemma3_text":
        config["rope_local_base_freq"] = local["rope_theta"]
    path.write_text(json.dumps(config))


def spelled_as_phi3(folder):
    """As transformers 4 wrote it, with the first releases' name of LongRoPE."""
    spelled_as_4(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    scaling = config["rope_scaling"]
    if scaling:
        config["rope_scaling"] = {"type": "su", **{k: v for k, v in scaling.items() if k != "rope_type"}}
        share = config["rope_scaling"].pop("partial_rotary_factor", None)
        config |= {"partial_rotary_factor": share} if share else {}
    path.write_text(json.dumps(config))


def has_a_share(model):
    """Whether positions turn a part of each head without scaling, which `spelled_as_4` has no key for."""
    rope = model.config.rope_parameters
    return "partial_rotary_factor" in rope and rope["rope_type"] == "default"


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("heads, kv_heads", SHAPES)
@pytest.mark.parametrize("name, variant", VARIANTS)
def test_logits_equal_transformers_and_each_tensor_comes_back(tmp_path, name, variant, heads, kv_heads):
    model = made(name, variant, heads, kv_heads)
    respelled = (lambda folder: None) if has_a_share(model) else spelled(name)
    compared(model, tmp_path, name, VOCAB, respelled=respelled, lengths=(1, 24, 40))


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("name", ["olmo2", "olmo3", "glm4-moe", "smollm3", "cohere2"])
def test_attention_that_is_not_causal_gives_transformers_vectors(tmp_path, name):
    model = made(name, FAMILIES[name].variants[-1] | dict(is_causal=False))
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path)
    tokens = texts(VOCAB, 2, 24)
    mask = torch.ones(tokens.shape, dtype=torch.long)
    mask[1, 15:] = 0
    with torch.no_grad():
        expected = model.model(torch.tensor(tokens), attention_mask=mask).last_hidden_state
    found = loaded.model.encode(mx.array(tokens), mx.array(mask.numpy()))
    assert difference(found[0], expected[0]) <= TOLERANCE
    assert difference(found[1, :15], expected[1, :15]) <= TOLERANCE


@pytest.mark.parametrize("name", ["olmo3", "gemma3", "glm4-moe", "minimax-m2", "smollm3", "cohere2"])
def test_decoding_from_the_cache_equals_transformers(tmp_path, name):
    model = made(name, FAMILIES[name].variants[-1])
    model.save_pretrained(tmp_path)
    decodes_as(model, zoo.load(tmp_path), VOCAB, prompt=9, length=24)


def test_a_padded_row_of_phi3_turns_by_its_own_length(tmp_path):
    model = made("phi3", dict(LONG, rope_parameters=long_rope(4)))
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path)
    tokens = texts(VOCAB, 2, 30)
    mask = mx.array([[1] * 30, [0] * 10 + [1] * 20])  # the second row is short, the batch is not
    for cache in (None, loaded.model.make_cache()):
        found = loaded.model(mx.array(tokens), cache, mask=mask)
        for row, start in ((0, 0), (1, 10)):
            with torch.no_grad():
                expected = model(torch.tensor(tokens[row : row + 1, start:])).logits
            assert difference(found[row : row + 1, start:], expected) <= TOLERANCE


@pytest.mark.parametrize("quantize", [None, "8"])
@pytest.mark.parametrize("name", FAMILIES)
def test_mlx_lm_reads_what_is_converted(tmp_path, name, quantize):
    # Widths that quantized groups divide; mlx-lm has the window of every layer of Cohere 2, but none of StarCoder2.
    wide = dict(hidden_size=64, intermediate_size=128, head_dim=16)
    wide |= dict(moe_intermediate_size=64) if name == "glm4-moe" else {}
    made(name, FAMILIES[name].variants[0], **wide).save_pretrained(tmp_path / "written")
    convert(tmp_path / "written", tmp_path / "mlx", quantize=quantize)
    theirs, ours = mlx_lm.load_model(tmp_path / "mlx")[0], zoo.load(tmp_path / "mlx")
    tokens = mx.array(texts(VOCAB, 2, 30))
    expected, found = theirs(tokens), ours.model(tokens)
    scale = (expected.max() - expected.min()).item()
    assert mx.abs(found - expected).max().item() <= TOLERANCE * scale
    packed = [path for path, layer in ours.model.named_modules() if "scales" in layer]
    assert bool(packed) == (quantize is not None)


@pytest.mark.parametrize("quantize", [None, "4"])
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_an_adapter_of_a_fused_projection_is_the_same_as_mlx_lms(tmp_path, kind, quantize):
    from mlx_lm.tuner.utils import load_adapters

    made("phi3", {}, hidden_size=64, intermediate_size=256).save_pretrained(tmp_path / "written")
    convert(tmp_path / "written", tmp_path / "mlx", quantize=quantize, group_size=32 if quantize else None)
    train(tmp_path / "mlx", tmp_path / "adapter", kind, ["self_attn.qkv_proj"])
    theirs = load_adapters(mlx_lm.load_model(tmp_path / "mlx")[0], str(tmp_path / "adapter")).eval()
    tokens = mx.array(texts(VOCAB, 2, 20))
    expected, plain = theirs(tokens), zoo.load(tmp_path / "mlx").model(tokens)
    found = zoo.load(tmp_path / "mlx", adapter=tmp_path / "adapter").model(tokens)
    scale = (expected.max() - expected.min()).item()
    assert mx.abs(plain - expected).max().item() > 0.01 * scale
    assert mx.abs(found - expected).max().item() <= TOLERANCE * scale
