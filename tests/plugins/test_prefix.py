"""The prefix LM: how its prompt is read."""

import mlx.core as mx
import pytest

import zoo
from zoo.config import Config
from zoo.loading import Loaded
from zoo.testing import subject
from zoo_prefix import SEVEN_BILLION, prefix_lm

PROMPT = [5, 6, 7, 8, 9]


def test_it_is_llama_with_another_causality():
    from zoo_llama import llama

    made, base = (function(Config(SEVEN_BILLION)) for function in (prefix_lm, llama))
    assert made.causality == "prefix"
    assert made.change(causality="causal") == base
    assert made.parameters(4096) == 6_738_415_616


@pytest.fixture(scope="module")
def made():
    return subject("prefix-lm")


class Recording:
    """A model that notes how each pass was called."""

    def __init__(self, model):
        self.model, self.passes = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def backbone(self, tokens, cache=None, mask=None, prefix=None):
        self.passes.append((tokens.shape[1], prefix))
        return self.model.backbone(tokens, cache, mask, prefix)


def test_the_prompt_is_one_piece_that_sees_itself_both_ways(made, tmp_path):
    model = Recording(made.model)
    loaded = Loaded(model, None, made.architecture, made.recipe, {}, tmp_path)
    zoo.generate(loaded, PROMPT, max_tokens=3, prefill_chunk=2)
    assert model.passes == [(5, 5), (1, None), (1, None)]


def test_without_a_prefix_it_is_causal(made):
    changed = mx.where(mx.arange(made.tokens.shape[1]) == 9, 1, made.tokens)
    before, after = made.model(made.tokens), made.model(changed)
    assert mx.abs(before[:, :9] - after[:, :9]).max().item() < 1e-4
