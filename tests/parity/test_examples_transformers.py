"""The example plugins against transformers, on folders that transformers writes; and what they write themselves."""

import json

import pytest
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

import zoo
from tests.helpers.example_plugins import example
from zoo.checkpoint.convert import convert
from zoo.host.registry import isolated, using

from .support import TOLERANCE, compared, reference, texts
from .test_adapters import train

import mlx.core as mx  # isort: skip (after zoo, which loads the fast BLAS)

VOCAB = 99
SMALL = dict(vocab_size=VOCAB, num_hidden_layers=2, max_position_embeddings=64)
# The feed-forward is four times as wide, as mlx-lm has it.
WIDE = dict(hidden_size=64, num_attention_heads=4, intermediate_size=256, hidden_act="gelu_pytorch_tanh")


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


@pytest.mark.parametrize("quantize", [None, "8"])
@pytest.mark.parametrize("served", ["zoo-gpt-neox"], indirect=True)
def test_mlx_lm_reads_what_is_converted(served, tmp_path, quantize):
    import mlx_lm.utils as mlx_lm

    reference(GPTNeoXForCausalLM, GPTNeoXConfig(**SMALL | WIDE)).save_pretrained(tmp_path / "written")
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
@pytest.mark.parametrize("served", ["zoo-gpt-neox"], indirect=True)
def test_an_adapter_of_a_fused_projection_is_the_same_as_mlx_lms(served, tmp_path, kind, quantize):
    import mlx_lm.utils as mlx_lm
    from mlx_lm.tuner.utils import load_adapters

    reference(GPTNeoXForCausalLM, GPTNeoXConfig(**SMALL | WIDE)).save_pretrained(tmp_path / "written")
    convert(tmp_path / "written", tmp_path / "mlx", quantize=quantize, group_size=32 if quantize else None)
    train(tmp_path / "mlx", tmp_path / "adapter", kind, ["attention.query_key_value"])
    theirs = load_adapters(mlx_lm.load_model(tmp_path / "mlx")[0], str(tmp_path / "adapter")).eval()
    tokens = mx.array(texts(VOCAB, 2, 20))
    expected, plain = theirs(tokens), zoo.load(tmp_path / "mlx").model(tokens)
    found = zoo.load(tmp_path / "mlx", adapter=tmp_path / "adapter").model(tokens)
    scale = (expected.max() - expected.min()).item()
    assert mx.abs(plain - expected).max().item() > 0.01 * scale
    assert mx.abs(found - expected).max().item() <= TOLERANCE * scale
