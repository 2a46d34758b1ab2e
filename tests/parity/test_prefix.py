"""The prefix LM against transformers' LLaMA with the same folder and a mask that is free within the prompt."""

import numpy as np
import pytest
import torch

import zoo

from .families import FAMILIES
from .family import VOCAB, edit, heads
from .support import TOLERANCE, difference, texts

import mlx.core as mx  # isort: skip (after zoo, which loads the fast BLAS)

LENGTH = 21


def llama(folder, seed):
    """A LLaMA with random weights, and its folder, which says that it is a prefix LM."""
    shape = heads(*[(4, 2, 8), (6, 6, 16)][seed])
    model = FAMILIES["llama"].make(dict(tie_word_embeddings=bool(seed)), shape)
    model.save_pretrained(folder)
    edit(folder, lambda config: config | {"model_type": "prefix-lm"})
    return model


def seen(prefixes, length):
    """What the reference adds to its scores, (B, 1, T, T): 0 where a row's query sees, −∞ elsewhere."""
    places = np.arange(length)
    sees = places[None, None] <= places[None, :, None]
    sees = sees | (places[None, None] < np.array(prefixes)[:, None, None])
    return torch.where(torch.tensor(sees)[:, None], 0.0, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("seed", [0, 1])
def test_logits_for_a_prefix_a_row(tmp_path, seed):
    model, tokens = llama(tmp_path, seed), texts(VOCAB, 4, LENGTH)
    prefixes = [0, 1, 9, LENGTH]
    with torch.no_grad():
        expected = model(torch.tensor(tokens), attention_mask=seen(prefixes, LENGTH)).logits
    loaded = zoo.load(tmp_path)
    found = loaded.model(mx.array(tokens), prefix=mx.array(prefixes))
    assert difference(found, expected) <= TOLERANCE
    row = loaded.model(mx.array(tokens[2:3]), prefix=9)
    assert difference(row, expected[2:3]) <= TOLERANCE


@pytest.mark.parametrize("seed", [0, 1])
def test_generated_tokens_are_the_references_likeliest(tmp_path, seed):
    model, prompt = llama(tmp_path, seed), texts(VOCAB, 1, 9)[0].tolist()
    made = zoo.generate(zoo.load(tmp_path), prompt, max_tokens=8, temperature=0.0, prefill_chunk=4)
    text = prompt + made.tokens
    with torch.no_grad():
        logits = model(torch.tensor([text]), attention_mask=seen([len(prompt)], len(text))).logits[0]
    margin = TOLERANCE * float(logits.max() - logits.min())
    for step, token in enumerate(made.tokens):
        row = logits[len(prompt) + step - 1]
        assert float(row.max() - row[token]) <= margin
