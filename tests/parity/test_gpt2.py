"""GPT-2, its Post-LN variant and the first GPT against transformers."""

import json
import random

import mlx.core as mx
import pytest
import torch
from mlx_lm.models import gpt2 as mlx_gpt2
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel

import zoo

from .support import TOLERANCE, agrees, agrees_from_folder, difference, reference, texts

VOCAB = 99


def shape(seed):
    """Random sizes."""
    draw = random.Random(seed)
    heads, head_dim = draw.choice([(4, 8), (3, 16), (8, 4)])
    return dict(
        vocab_size=VOCAB,
        n_embd=heads * head_dim,
        n_layer=draw.choice([2, 3]),
        n_head=heads,
        n_positions=48,
        layer_norm_epsilon=draw.choice([1e-5, 1e-3]),
    )


VARIANTS = [
    dict(),
    dict(scale_attn_by_inverse_layer_idx=True, n_inner=50),
    dict(activation_function="relu", tie_word_embeddings=False),
    dict(activation_function="gelu", scale_attn_weights=False),
    dict(reorder_and_upcast_attn=True),
]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("extra", VARIANTS)
def test_gpt2(seed, extra, tmp_path):
    config = GPT2Config(**shape(seed), **extra)
    agrees_from_folder(reference(GPT2LMHeadModel, config, seed), tmp_path, VOCAB)


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("extra", [dict(), dict(afn="relu"), dict(afn="silu", tie_word_embeddings=False)])
def test_gpt(seed, extra, tmp_path):
    config = OpenAIGPTConfig(**shape(seed), **extra)
    agrees_from_folder(reference(OpenAIGPTLMHeadModel, config, seed), tmp_path, VOCAB)


def post_ln(model, tokens):
    """The forward of a transformers GPT-2 with each LayerNorm moved behind its residual sum, and none at the end."""
    body, length = model.transformer, tokens.shape[1]
    x = body.wte(tokens) + body.wpe(torch.arange(length))
    mask = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)[None, None]
    for block in body.h:
        x = block.ln_1(x + block.attn(x, attention_mask=mask)[0])
        x = block.ln_2(x + block.mlp(x))
    return model.lm_head(x)


@pytest.mark.parametrize("seed", [5, 6])
def test_gpt2_postln(seed, tmp_path):
    model = reference(GPT2LMHeadModel, GPT2Config(**shape(seed)), seed)
    model.save_pretrained(tmp_path)
    strip_final_norm(tmp_path)
    loaded = zoo.load(tmp_path, architecture="gpt2-postln")
    for length in (1, 17, 40):
        tokens = texts(VOCAB, 2, length)
        with torch.no_grad():
            expected = post_ln(model, torch.tensor(tokens))
        assert difference(loaded.model(mx.array(tokens)), expected) <= TOLERANCE


def strip_final_norm(folder):
    """Take `ln_f` out of a GPT-2 folder: the Post-LN variant has none."""
    path = folder / "model.safetensors"
    tensors = {name: array for name, array in mx.load(str(path)).items() if ".ln_f." not in name}
    mx.eval(tensors)
    mx.save_safetensors(str(path), tensors, metadata={"format": "pt"})


def test_the_layout_of_mlx_conversions(tmp_path):
    model = reference(GPT2LMHeadModel, GPT2Config(**shape(7)), 7)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    arguments = mlx_gpt2.ModelArgs.from_dict(config | {"n_ctx": 48, "num_key_value_heads": None})
    path = tmp_path / "model.safetensors"
    # mlx-lm reads GPT-2 as OpenAI published it, without the prefix that transformers writes.
    plain = {name.removeprefix("transformer."): array for name, array in mx.load(str(path)).items()}
    tensors = mlx_gpt2.Model(arguments).sanitize(plain)
    mx.eval(tensors)
    mx.save_safetensors(str(path), tensors, metadata={"format": "mlx"})
    agrees(model, zoo.load(tmp_path), VOCAB)


def test_transformers_runs_the_pocket():
    from zoo.host.registry import default_registry

    folder = default_registry().architecture("gpt2").preset("pocket").folder
    model = GPT2LMHeadModel.from_pretrained(folder, dtype="float32", attn_implementation="eager").eval()
    agrees(model, zoo.load("gpt2"), model.config.vocab_size)
