"""The example plugins against transformers, on folders that transformers writes; and what they write themselves."""

import json

import pytest
import torch
from transformers import (
    Cohere2Config,
    Cohere2ForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
)

import zoo
from tests.helpers.example_plugins import example
from zoo.checkpoint.convert import convert
from zoo.host.registry import isolated, using

from .support import TOLERANCE, compared, decodes_as, difference, reference, spelled_as_4, texts
from .test_adapters import train

import mlx.core as mx  # isort: skip (after zoo, which loads the fast BLAS)

VOCAB = 99
SMALL = dict(vocab_size=VOCAB, num_hidden_layers=2, max_position_embeddings=64)


@pytest.fixture
def served(request):
    """The zoo with the example plugin of the test's parameter."""
    with using(isolated(example(request.param))) as known:
        yield known


def spelled_as_gpt_neox(folder):
    """Rewrite a config.json as transformers 4 wrote those of GPT-NeoX."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config |= {"rotary_emb_base": rope.pop("rope_theta"), "rotary_pct": rope.pop("partial_rotary_factor")}
    kind = rope.pop("rope_type")
    config["rope_scaling"] = {"type": kind, **rope} if kind != "default" else None
    path.write_text(json.dumps(config))


GPT_NEOX = [
    dict(),
    dict(use_parallel_residual=False),
    dict(attention_bias=False, hidden_act="gelu_pytorch_tanh"),
    dict(tie_word_embeddings=True, layer_norm_eps=1e-3),
    dict(rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=1.0)),
    dict(rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=300.0, partial_rotary_factor=0.5)),
]


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("served", ["zoo-gpt-neox"], indirect=True)
@pytest.mark.parametrize("heads, head_dim", [(4, 8), (3, 16)])
@pytest.mark.parametrize("extra", GPT_NEOX)
def test_gpt_neox(served, tmp_path, heads, head_dim, extra):
    config = GPTNeoXConfig(
        **SMALL, hidden_size=heads * head_dim, num_attention_heads=heads, intermediate_size=80, **extra
    )
    model = reference(GPTNeoXForCausalLM, config, heads)
    compared(model, tmp_path, "gpt-neox", VOCAB, respelled=spelled_as_gpt_neox)


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("served", ["zoo-olmo2"], indirect=True)
@pytest.mark.parametrize("heads, kv_heads, head_dim", [(4, 4, 8), (6, 2, 8), (4, 1, 16)])
@pytest.mark.parametrize(
    "extra",
    [
        dict(),
        dict(attention_bias=True, tie_word_embeddings=True),
        dict(rope_parameters=dict(rope_type="dynamic", factor=2.0, rope_theta=500.0), rms_norm_eps=1e-3),
    ],
)
def test_olmo2(served, tmp_path, heads, kv_heads, head_dim, extra):
    config = Olmo2Config(
        **SMALL,
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=48,
        **extra,
    )
    compared(reference(Olmo2ForCausalLM, config, heads), tmp_path, "olmo2", VOCAB, lengths=(1, 17, 40, 80))


def long_rope(pairs, **more):
    """LongRoPE's factors for so many pairs of dimensions."""
    return dict(
        rope_type="longrope",
        short_factor=[1 + 0.05 * k for k in range(pairs)],
        long_factor=[1.5 + 0.7 * k for k in range(pairs)],
        **more,
    )


PHI3 = [
    dict(),
    dict(sliding_window=7, tie_word_embeddings=True),
    dict(rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5)),
    dict(original_max_position_embeddings=24, rope_parameters=long_rope(4, rope_theta=300.0)),
    dict(original_max_position_embeddings=24, rope_parameters=long_rope(4, attention_factor=1.3)),
    dict(original_max_position_embeddings=24, rope_parameters=long_rope(4, factor=1.0)),
    dict(
        original_max_position_embeddings=24,
        rope_parameters=long_rope(2, partial_rotary_factor=0.5),
        sliding_window=9,
    ),
]


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


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("served", ["zoo-phi3"], indirect=True)
@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (6, 2), (4, 1)])
@pytest.mark.parametrize("extra", PHI3)
def test_phi3(served, tmp_path, heads, kv_heads, extra):
    config = Phi3Config(
        **SMALL,
        hidden_size=heads * 8,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=48,
        pad_token_id=0,
        **extra,
    )
    model = reference(Phi3ForCausalLM, config, heads)
    partial = config.rope_parameters.get("partial_rotary_factor", 1.0) != 1.0
    plain = config.rope_parameters["rope_type"] == "default"
    respelled = (lambda folder: None) if partial and plain else spelled_as_phi3
    compared(model, tmp_path, "phi3", VOCAB, respelled=respelled, lengths=(1, 24, 25, 40))


@pytest.mark.parametrize("served", ["zoo-phi3"], indirect=True)
def test_a_padded_row_of_phi3_turns_by_its_own_length(served, tmp_path):
    config = Phi3Config(
        **SMALL,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        pad_token_id=0,
        original_max_position_embeddings=24,
        rope_parameters=long_rope(4),
    )
    model = reference(Phi3ForCausalLM, config)
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


GRANITE = [
    dict(embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.125, logits_scaling=8.0),
    dict(residual_multiplier=0.5, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    dict(attention_multiplier=0.3, rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=500.0)),
]


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("served", ["zoo-granite"], indirect=True)
@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (6, 2), (4, 1)])
@pytest.mark.parametrize("extra", GRANITE)
def test_granite(served, tmp_path, heads, kv_heads, extra):
    sizes = dict(hidden_size=heads * 8, num_attention_heads=heads, num_key_value_heads=kv_heads)
    config = GraniteConfig(**SMALL, **sizes, intermediate_size=48, **extra)
    compared(reference(GraniteForCausalLM, config, heads), tmp_path, "granite", VOCAB)


COHERE2 = [
    dict(),
    dict(attention_bias=True, tie_word_embeddings=False, logit_scale=0.25),
    dict(layer_types=["full_attention", "sliding_attention", "full_attention", "sliding_attention"]),
    dict(sliding_window=64, rope_parameters=dict(rope_type="default", rope_theta=300.0), layer_norm_eps=1e-3),
]


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("served", ["zoo-cohere2"], indirect=True)
@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (6, 2), (4, 1)])
@pytest.mark.parametrize("extra", COHERE2)
def test_cohere2(served, tmp_path, heads, kv_heads, extra):
    sizes = dict(hidden_size=heads * 8, num_attention_heads=heads, num_key_value_heads=kv_heads)
    values = SMALL | sizes | dict(num_hidden_layers=4, intermediate_size=48, sliding_window=7) | extra
    model = reference(Cohere2ForCausalLM, Cohere2Config(**values), heads)
    compared(model, tmp_path, "cohere2", VOCAB)
    decodes_as(model, zoo.load(tmp_path / "written"), VOCAB, prompt=9, length=24)


MLX_LM = {
    "zoo-gpt-neox": (GPTNeoXForCausalLM, GPTNeoXConfig, dict(hidden_act="gelu_pytorch_tanh")),
    "zoo-granite": (GraniteForCausalLM, GraniteConfig, dict(GRANITE[0], num_key_value_heads=2)),
    "zoo-cohere2": (
        Cohere2ForCausalLM,
        Cohere2Config,
        dict(num_hidden_layers=4, num_key_value_heads=2, sliding_window=7),
    ),
    "zoo-olmo2": (Olmo2ForCausalLM, Olmo2Config, dict(num_key_value_heads=2)),
    "zoo-phi3": (Phi3ForCausalLM, Phi3Config, dict(num_key_value_heads=2, pad_token_id=0)),
}


@pytest.mark.parametrize("quantize", [None, "8"])
@pytest.mark.parametrize("served", MLX_LM, indirect=True)
def test_mlx_lm_reads_what_is_converted(served, tmp_path, request, quantize):
    import mlx_lm.utils as mlx_lm

    name = request.node.callspec.params["served"]
    kind, config, extra = MLX_LM[name]
    sizes = dict(
        hidden_size=64, num_attention_heads=4, intermediate_size=256
    )  # four times the width, as mlx-lm has it
    reference(kind, config(**SMALL | sizes | extra)).save_pretrained(tmp_path / "written")
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
@pytest.mark.parametrize("served", ["zoo-gpt-neox", "zoo-phi3"], indirect=True)
def test_an_adapter_of_a_fused_projection_is_the_same_as_mlx_lms(served, tmp_path, request, kind, quantize):
    import mlx_lm.utils as mlx_lm
    from mlx_lm.tuner.utils import load_adapters

    name = request.node.callspec.params["served"]
    make, config, extra = MLX_LM[name]
    sizes = dict(hidden_size=64, num_attention_heads=4, intermediate_size=256)
    reference(make, config(**SMALL, **sizes, **extra)).save_pretrained(tmp_path / "written")
    convert(tmp_path / "written", tmp_path / "mlx", quantize=quantize, group_size=32 if quantize else None)
    fused = {"zoo-gpt-neox": "attention.query_key_value", "zoo-phi3": "self_attn.qkv_proj"}[name]
    train(tmp_path / "mlx", tmp_path / "adapter", kind, [fused])
    theirs = load_adapters(mlx_lm.load_model(tmp_path / "mlx")[0], str(tmp_path / "adapter")).eval()
    tokens = mx.array(texts(VOCAB, 2, 20))
    expected, plain = theirs(tokens), zoo.load(tmp_path / "mlx").model(tokens)
    found = zoo.load(tmp_path / "mlx", adapter=tmp_path / "adapter").model(tokens)
    scale = (expected.max() - expected.min()).item()
    assert mx.abs(plain - expected).max().item() > 0.01 * scale
    assert mx.abs(found - expected).max().item() <= TOLERANCE * scale
