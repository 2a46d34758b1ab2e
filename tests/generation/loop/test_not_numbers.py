"""A model that gives no numbers: every way to use it ends with an error that says so."""

import math

import pytest

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.errors import ZooError
from zoo.generation.strategies.fill_mask import fill
from zoo.loading import Loaded
from zoo.testing import subject

PROMPT = [5, 9, 6, 7]
WAYS = [
    ("llama", {}),
    ("llama", {"temperature": 0.7, "seed": 1}),
    ("llama", {"logprobs": 2}),
    ("llama", {"strategy": "beam", "beams": 1}),
    ("llama", {"beams": 2}),
    ("llama", {"beams": 2, "beam_groups": 2, "diversity_penalty": 1.0}),
    ("llama", {"penalty_alpha": 0.6}),
    ("llama", {"best_of": 2}),
    ("transformer", {}),
    ("transformer", {"beams": 2}),
    ("prefix-lm", {}),
    ("mamba", {}),
    ("llada", {}),
    ("llada", {"temperature": 0.7, "seed": 1}),
    ("bert", {}),
]


def spoilt(name, value, folder):
    """A loaded model whose embedding of token 7 is no number."""
    made = subject(name)
    model = made.model
    owner = getattr(model, "encoder", model) if hasattr(model, "encode") else model
    table = owner.embedding.tokens
    weight = mx.array(table.weight)
    weight[7] = value
    table.weight = weight
    return Loaded(model, None, made.architecture, made.recipe, {"mask_token_id": 9}, folder)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(("name", "settings"), WAYS)
def test_it_ends_with_an_error(tmp_path, name, settings, value):
    loaded = spoilt(name, value, tmp_path)
    more = {} if name == "bert" else {"max_tokens": 3}
    with pytest.raises(ZooError, match=r"the model gives (NaN|infinity) where numbers belong"):
        zoo.generate(loaded, PROMPT, **settings, **more)


def test_the_token_is_counted(tmp_path):
    made = subject("llama")

    class Overflowing:
        passes = 0

        def __getattr__(self, name):
            return getattr(made.model, name)

        def head(self, hidden):
            self.passes += 1
            return made.model.head(hidden) * (math.nan if self.passes == 2 else 1)

    loaded = Loaded(Overflowing(), None, made.architecture, made.recipe, {}, tmp_path)
    steps = zoo.stream(loaded, PROMPT, max_tokens=3)
    next(steps)
    with pytest.raises(ZooError, match="token 2: the model gives NaN"):
        next(steps)


def test_vectors_and_filled_masks_too(tmp_path):
    loaded = spoilt("bert", math.nan, tmp_path)
    for call in (lambda: zoo.embed(loaded, [[5, 6], PROMPT]), lambda: fill(loaded, PROMPT)):
        with pytest.raises(ZooError, match="gives NaN"):
            call()


def test_a_token_that_must_not_come_may_be_infinitely_unlikely(tmp_path):
    made = subject("llama")

    class Masked:
        def __getattr__(self, name):
            return getattr(made.model, name)

        def head(self, hidden):
            logits = made.model.head(hidden)
            return mx.where(mx.arange(logits.shape[-1]) < 100, logits, -mx.inf)

    loaded = Loaded(Masked(), None, made.architecture, made.recipe, {}, tmp_path)
    for settings in ({}, {"temperature": 1.0}, {"beams": 2}):
        assert all(token < 100 for token in zoo.generate(loaded, PROMPT, max_tokens=4, **settings).tokens)
