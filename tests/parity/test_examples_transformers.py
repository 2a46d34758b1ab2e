"""The example plugins against transformers, on folders that transformers writes; and what they write themselves."""

import mlx_lm.utils as mlx_lm
import pytest
from mlx_lm.tuner.utils import load_adapters

import zoo
from tests.helpers.example_plugins import example
from zoo.checkpoint.convert import convert
from zoo.host.registry import isolated, using

from .family import VOCAB, Family, edit, heads, rope
from .support import TOLERANCE, compared, far, texts
from .test_adapters import train

import mlx.core as mx  # isort: skip (after zoo, which loads the fast BLAS)


@pytest.fixture
def served(request):
    """The zoo with the example plugin of the test's parameter."""
    with using(isolated(example(request.param))) as known:
        yield known


def spelled_as_gpt_neox(folder):
    """Rewrite a config.json as transformers 4 wrote those of GPT-NeoX."""

    def change(config):
        rope = config.pop("rope_parameters")
        kind = rope.pop("rope_type")
        shares = dict(rotary_emb_base=rope.pop("rope_theta"), rotary_pct=rope.pop("partial_rotary_factor"))
        return config | shares | dict(rope_scaling={"type": kind, **rope} if kind != "default" else None)

    edit(folder, change)


GPT_NEOX = Family(
    "GPTNeoX",
    (
        dict(),
        dict(use_parallel_residual=False),
        dict(attention_bias=False, hidden_act="gelu_pytorch_tanh"),
        dict(tie_word_embeddings=True, layer_norm_eps=1e-3),
        dict(rope_parameters=rope(partial_rotary_factor=1.0)),
        dict(rope_parameters=rope("linear", 300.0, factor=4.0, partial_rotary_factor=0.5)),
    ),
    shapes=(heads(4, 4), heads(3, 3, 16)),
    # The feed-forward is four times as wide, as mlx-lm has it.
    wide=dict(intermediate_size=256, hidden_act="gelu_pytorch_tanh"),
)


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("served", ["zoo-gpt-neox"], indirect=True)
@pytest.mark.parametrize("shape", GPT_NEOX.shapes)
@pytest.mark.parametrize("variant", GPT_NEOX.variants)
def test_gpt_neox(served, tmp_path, shape, variant):
    model = GPT_NEOX.make(variant, shape)
    compared(model, tmp_path, "gpt-neox", VOCAB, respelled=spelled_as_gpt_neox)


@pytest.mark.parametrize("quantize", [None, "8"])
@pytest.mark.parametrize("served", ["zoo-gpt-neox"], indirect=True)
def test_mlx_lm_reads_what_is_converted(served, tmp_path, quantize):
    GPT_NEOX.make(wide=True).save_pretrained(tmp_path / "written")
    convert(tmp_path / "written", tmp_path / "mlx", quantize=quantize)
    theirs, ours = mlx_lm.load_model(tmp_path / "mlx")[0], zoo.load(tmp_path / "mlx")
    tokens = mx.array(texts(VOCAB, 2, 30))
    assert far(ours.model(tokens), theirs(tokens)) <= TOLERANCE
    packed = [path for path, layer in ours.model.named_modules() if "scales" in layer]
    assert bool(packed) == (quantize is not None)


@pytest.mark.parametrize("quantize", [None, "4"])
@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("served", ["zoo-gpt-neox"], indirect=True)
def test_an_adapter_of_a_fused_projection_is_the_same_as_mlx_lms(served, tmp_path, kind, quantize):
    GPT_NEOX.make(wide=True).save_pretrained(tmp_path / "written")
    convert(tmp_path / "written", tmp_path / "mlx", quantize=quantize, group_size=32 if quantize else None)
    train(tmp_path / "mlx", tmp_path / "adapter", kind, ["attention.query_key_value"])
    theirs = load_adapters(mlx_lm.load_model(tmp_path / "mlx")[0], str(tmp_path / "adapter")).eval()
    tokens = mx.array(texts(VOCAB, 2, 20))
    expected, plain = theirs(tokens), zoo.load(tmp_path / "mlx").model(tokens)
    found = zoo.load(tmp_path / "mlx", adapter=tmp_path / "adapter").model(tokens)
    assert far(plain, expected) > 0.01
    assert far(found, expected) <= TOLERANCE
