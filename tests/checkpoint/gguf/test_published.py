"""Kinds of GGUF files that people met, as public reports name them (project and number), written as their writers write them.

| Reported to | What | Here |
| --- | --- | --- |
| llama.cpp 10814 | Phi-4: a sliding window of 0 | there is none |
| llama.cpp 24823 | Phi-3.5 and Phi-4-mini: rope_factors_long, rope_factors_short | LongRoPE |
"""

import math

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers import gguf_files
from tests.helpers.gguf_files import difference
from zoo.checkpoint.convert import convert
from zoo.errors import ZooError

SHORT, LONG = [1.0] * 4 + [1.5] * 4, [1.0] * 2 + [8.0] * 6
LONGROPE = {
    "max_position_embeddings": 2048,
    "original_max_position_embeddings": 512,
    "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
}


@pytest.mark.filterwarnings("error")
def test_a_window_of_zero_is_none(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "phi3", sliding_window=None)
    path = gguf_files.write(
        tmp_path / "model.gguf",
        folder,
        extra=lambda writer: writer.add_uint32("phi3.attention.sliding_window", 0),
    )
    loaded, original = zoo.load(path), zoo.load(folder)
    assert loaded.recipe == original.recipe
    assert difference(loaded, original) <= 1e-5


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("llama", "attention.sliding_window"),
        ("gemma2", "final_logit_softcapping"),
        ("granite", "residual_scale"),
        ("granite", "logit_scale"),
        ("deepseek-v3", "expert_weights_scale"),
    ],
)
def test_zeros_stand_for_none(tmp_path, name, key):
    """As if the key were not there; where config.json has another default, as one."""
    numbers = {"first_k_dense_replace": 1} if name == "deepseek-v3" else {}
    folder = gguf_files.random_folder(tmp_path / "folder", name, vocab_size=200, **numbers)

    def recipe(zero):
        def extra(writer):
            full = f"{writer.arch}.{key}"
            writer.add_float32(full, 0.0) if key.endswith(("scale", "capping")) else writer.add_uint32(
                full, 0
            )

        path = tmp_path / f"{zero}.gguf"
        return zoo.load(gguf_files.write(path, folder, drop=[key], extra=extra if zero else None)).recipe

    zero, absent = recipe(True), recipe(False)
    if name == "gemma2":  # whose config.json has a cap where it does not say
        assert (zero.head.name, absent.head.name) == ("logits", "capped-logits")
    else:
        assert zero == absent


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("partial", [1.0, 0.75])
def test_longrope(tmp_path, partial):
    """The factors are tensors; the magnitude is a key; Phi-4-mini turns three quarters of each head."""
    numbers = LONGROPE | ({} if partial == 1 else {"partial_rotary_factor": 0.75, "head_dim": 16})
    if partial != 1:
        rows = {"short_factor": SHORT[2:], "long_factor": LONG[2:]}
        numbers["rope_scaling"] = LONGROPE["rope_scaling"] | rows
    scaling = numbers["rope_scaling"]
    folder = gguf_files.random_folder(tmp_path / "folder", "phi3", sliding_window=None, **numbers)

    def extra(writer):
        writer.add_uint32("phi3.attention.sliding_window", 0)
        writer.add_rope_scaling_orig_ctx_len(512)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(4) / math.log(512)))
        writer.add_rope_dimension_count(int(16 * partial))
        for kind in ("long", "short"):
            factors = np.array(scaling[f"{kind}_factor"], np.float32)
            gguf_files.add_tensor(writer, f"rope_factors_{kind}.weight", factors)

    path = gguf_files.write(tmp_path / "model.gguf", folder, extra=extra, drop=["rope.dimension_count"])
    loaded, original = zoo.load(path), zoo.load(folder)
    found, wanted = (model.recipe.layers[0].mixer.rope for model in (loaded, original))
    assert found.scaling.magnitude == pytest.approx(wanted.scaling.magnitude, rel=1e-6)
    assert found.scaling.change(magnitude=1.0) == wanted.scaling.change(magnitude=1.0)
    assert found.dims == wanted.dims and found.theta == wanted.theta
    for length in (40, 530):
        assert difference(loaded, original, length) <= 1e-4
    tokens = mx.arange(530)[None] % 200
    assert not mx.allclose(loaded.model(tokens)[:, :500], loaded.model(tokens[:, :500]), atol=1e-3)


def test_one_list_of_factors_alone_is_refused_by_name(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "phi3", sliding_window=None)
    row = np.ones(8, np.float32)
    path = gguf_files.write(
        tmp_path / "model.gguf",
        folder,
        extra=lambda writer: gguf_files.add_tensor(writer, "rope_factors_long.weight", row),
    )
    with pytest.raises(
        ZooError, match=r"rope_factors_short\.weight and rope_factors_long\.weight it has rope_factors_long"
    ):
        zoo.load(path)


@pytest.mark.filterwarnings("error")
def test_biases_of_queries_keys_and_values_alone(tmp_path):
    """Qwen's weights under LLaMA's name: no bias follows the attention."""
    numbers = {"attention_bias": True, "attention_out_bias": False}
    folder = gguf_files.random_folder(tmp_path / "folder", "llama", **numbers)
    loaded, original = zoo.load(gguf_files.write(tmp_path / "model.gguf", folder)), zoo.load(folder)
    mixer = loaded.recipe.layers[0].mixer
    assert (mixer.bias, mixer.output_bias) == (True, False) and loaded.recipe == original.recipe
    assert difference(loaded, original) <= 1e-5
    qwen = gguf_files.random_folder(tmp_path / "qwen", "qwen2", use_sliding_window=False)
    (qwen / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert difference(loaded, zoo.load(qwen)) <= 1e-5


@pytest.mark.filterwarnings("error")
def test_templates_by_name(tmp_path):
    folder = gguf_files.random_folder(tmp_path / "folder", "llama", vocab_size=300)
    gguf_files.small_tokenizer(folder, 300)
    templates = {"default": "D", "tool_use": "T", "rag": "R"}
    named = [{"name": name, "template": text} for name, text in templates.items()]
    path = gguf_files.write(
        tmp_path / "model.gguf", folder, extra=lambda writer: writer.add_chat_template(named)
    )
    convert(path, tmp_path / "out")
    for source in (path, tmp_path / "out"):
        tokenizer = zoo.load(source).tokenizer
        assert tokenizer.chat_templates == templates
        assert (tokenizer.chat_template, tokenizer.for_tools().chat_template) == ("D", "T")
