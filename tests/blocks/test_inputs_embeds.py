"""A decoder run from vectors in the place of tokens."""

import mlx.core as mx
import pytest

from zoo.assemble import assemble
from zoo.blocks.embedding import Embedding as EmbeddingModule
from zoo.errors import PromptError
from zoo.host.registry import default_registry
from zoo.testing import randomise, same, subject

DECODERS = [
    name
    for name, architecture in default_registry().architectures.items()
    if architecture.task in ("generate", "denoise") and not architecture.bridged
    if name != "gemma3n"  # its inputs for each layer are made of tokens
]


@pytest.mark.parametrize("name", DECODERS)
def test_vectors_of_tokens_give_the_logits_of_tokens(name):
    made = subject(name)
    prefix = {"prefix": made.tokens.shape[1]} if made.architecture.causality == "prefix" else {}
    vectors = made.model.embedding.vectors(made.tokens)
    expected = made.model(made.tokens, **prefix)
    same(made.model(inputs_embeds=vectors, **prefix), expected, "logits", 1e-6)


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "mamba"])
def test_vectors_then_tokens_with_one_cache_and_padding(name):
    made = subject(name)
    mask = mx.array([[1] * 12, [0] * 5 + [1] * 7])
    cache = made.model.make_cache()
    vectors = made.model.embedding.vectors(made.tokens[:, :12])
    found = [made.model(None, cache, mask, inputs_embeds=vectors), made.model(made.tokens[:, 12:], cache)]
    for row, start in ((0, 0), (1, 5)):
        alone = made.model(made.tokens[row : row + 1, start:])
        same(mx.concatenate(found, axis=1)[row : row + 1, start:], alone, f"row {row}")


def test_other_vectors_give_other_logits_and_have_gradients():
    made = subject("llama")
    vectors = mx.random.normal((2, 5, made.recipe.dim))
    gradient = mx.grad(lambda x: made.model(inputs_embeds=x).square().sum())(vectors)
    assert gradient.shape == vectors.shape and mx.abs(gradient).min(axis=-1).max().item() > 0
    assert not mx.allclose(made.model(inputs_embeds=vectors), made.model(inputs_embeds=vectors[::-1])).item()


def test_one_of_both_and_of_the_right_shape():
    made = subject("llama")
    vectors = mx.zeros((1, 3, made.recipe.dim))
    for given in ({}, dict(tokens=made.tokens, inputs_embeds=vectors)):
        with pytest.raises(PromptError, match="inputs_embeds: give either these or tokens"):
            made.model(**given)
    for wrong in (vectors[0], vectors[..., 1:]):
        with pytest.raises(PromptError, match=r"inputs_embeds: expected \(B, T, "):
            made.model(inputs_embeds=wrong)


def test_an_embedding_of_its_own_says_whether_it_takes_them(monkeypatch):
    made = subject("llama")

    class Shouting(EmbeddingModule):
        def __call__(self, tokens, offset=0):
            return 2 * super().__call__(tokens, offset)

    made.model.embedding = Shouting(made.recipe.embedding, dim=made.recipe.dim)
    assert made.model(made.tokens).shape[1] == made.tokens.shape[1]
    with pytest.raises(PromptError, match="inputs_embeds: embedding/tokens is made of tokens"):
        made.model(inputs_embeds=mx.zeros((1, 3, made.recipe.dim)))


@pytest.mark.parametrize("name", ["bert", "transformer", "t5"])
def test_encoders_and_translators_refuse_them(name):
    made = subject(name)
    inputs = (made.tokens,) if name == "bert" else (made.tokens, made.tokens)
    with pytest.raises(PromptError, match=r"inputs_embeds: an encoder.* reads tokens only"):
        made.model(*inputs, inputs_embeds=mx.zeros((2, 3, made.recipe.dim)))


def test_a_bridged_model_refuses_them():
    from zoo.config import Config
    from zoo_mlx_lm.block import recipe_of

    numbers = dict(
        **dict(model_type="llama", hidden_size=16, num_hidden_layers=1, intermediate_size=16),
        **dict(num_attention_heads=2, rms_norm_eps=1e-5, vocab_size=31),
    )
    model = assemble(recipe_of("llama", Config(numbers)), default_registry())
    randomise(model)
    with pytest.raises(PromptError, match="inputs_embeds: mlx-lm::llama reads tokens only"):
        model(inputs_embeds=mx.zeros((1, 2, 16)))
