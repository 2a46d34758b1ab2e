"""GGUF files, against transformers' reading of the same files."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import zoo
from tests.helpers import gguf_files
from zoo.checkpoint.convert import convert
from zoo.host.registry import default_registry

from .support import TOLERANCE, agrees

TEXTS = [
    "The capital city of China is Beijing, isn't it? 1234567 reasons.",
    "中国的首都是北京，人口很多。",
    "👩‍👩‍👧 and 🚀🚀 — naïve café",
    "def f(x):\n    return x**2  # 3.14\n\n\n\tif x:\n        pass   \n",
    "<|endoftext|>begins<|endoftext|>",
]


def pocket(name):
    return default_registry().architecture(name).preset("pocket").folder


def reference(path, folder):
    """transformers' model of a file; its config is the folder's, since it does not read all of a file's numbers."""
    config = AutoConfig.from_pretrained(folder, attn_implementation="eager")
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, config=config, dtype=torch.float32
    )
    return model.eval()


@pytest.mark.parametrize("kind", ["F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_llama_in_every_kind_of_block(tmp_path, kind):
    path = gguf_files.write(tmp_path / "model.gguf", pocket("llama"), kind)
    agrees(reference(path, pocket("llama")), zoo.load(path), 2048)


@pytest.mark.parametrize("name", ["qwen3", "gpt2", "gemma2", "qwen3-moe"])
def test_families(tmp_path, name):
    path = gguf_files.write(tmp_path / "model.gguf", pocket(name), "Q8_0")
    agrees(reference(path, pocket(name)), zoo.load(path), 2048)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K"])
@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_k_blocks(tmp_path, name, kind):
    numbers = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, vocab_size=256)
    if name == "qwen2":
        numbers["use_sliding_window"] = False
    folder = gguf_files.random_folder(tmp_path / "model", name, **numbers)
    path = gguf_files.write(tmp_path / "model.gguf", folder, kind)
    agrees(reference(path, folder), zoo.load(path), 256)


def test_the_tolerance_tells_a_packing_from_another(tmp_path):
    """Four bits are further from eight than the tolerance: the comparisons above do compare the numbers."""
    paths = [gguf_files.write(tmp_path / f"{k}.gguf", pocket("llama"), k) for k in ("Q4_0", "Q8_0")]
    assert gguf_files.difference(*map(zoo.load, paths)) > 10 * TOLERANCE


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_tokenizers(tmp_path, name):
    path = gguf_files.write(tmp_path / "model.gguf", pocket(name), "Q8_0")
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    ours = zoo.load(path).tokenizer
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text), text


@pytest.mark.parametrize("kinds", [("freqs",), ("factors_short", "factors_long")])
def test_factors_of_wavelengths(tmp_path, kinds):
    """Any factors in a file of LLaMA's, by the LongRoPE that a converted folder has, below and beyond the trained context."""
    folder = gguf_files.random_folder(
        tmp_path / "model", "llama", vocab_size=256, max_position_embeddings=128
    )
    dims = zoo.load(folder).recipe.layers[0].mixer.head_dim
    factors = {kind: np.linspace(0.7 + at, 5, dims // 2).astype(np.float32) for at, kind in enumerate(kinds)}

    def extra(writer):
        for kind, row in factors.items():
            gguf_files.add_tensor(writer, f"rope_{kind}.weight", row)
        if len(kinds) > 1:
            writer.add_rope_scaling_orig_ctx_len(32)
            writer.add_rope_scaling_attn_factors(1.25)

    loaded = zoo.load(gguf_files.write(tmp_path / "model.gguf", folder, extra=extra), dtype="float32")
    convert(tmp_path / "model.gguf", tmp_path / "out", layout="hf", dtype="float32")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    assert model.config.rope_parameters["rope_type"] == "longrope"
    agrees(model, loaded, 256, lengths=(1, 17, 32, 33, 60))
