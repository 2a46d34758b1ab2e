"""Vectors in the place of tokens, against transformers' argument of that name."""

import mlx.core as mx
import numpy as np
import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

import zoo

from .support import TOLERANCE, difference, reference

VOCAB, DIM = 99, 32
SHAPE = dict(vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=2)
HEADS = SHAPE | dict(
    intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64
)
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**HEADS)),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config(**HEADS, head_dim=8, sliding_window=6)),
    "gpt2": (GPT2LMHeadModel, GPT2Config(vocab_size=VOCAB, n_embd=DIM, n_layer=2, n_head=4, n_positions=64)),
    "mamba": (MambaForCausalLM, MambaConfig(**SHAPE, state_size=4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_vectors(name, tmp_path):
    model = reference(*MODELS[name])
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path)
    vectors = np.random.default_rng(0).normal(size=(2, 20, DIM)).astype(np.float32)
    with torch.no_grad():
        expected = model(inputs_embeds=torch.tensor(vectors)).logits
    assert difference(loaded.model(inputs_embeds=mx.array(vectors)), expected) <= TOLERANCE
    cache = loaded.model.make_cache()
    places = ((0, 9), (9, 10), (10, 20))
    found = [loaded.model(None, cache, inputs_embeds=mx.array(vectors[:, a:b])) for a, b in places]
    assert difference(mx.concatenate(found, axis=1), expected) <= TOLERANCE
