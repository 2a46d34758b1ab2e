"""BERT's recipe: what its config.json says is honoured or refused by name, and which folders have a head."""

import mlx.core as mx
import pytest

from zoo.config import Config
from zoo.errors import ConfigError
from zoo.host.registry import default_registry
from zoo.host.resolve import resolve
from zoo.testing import same, subject
from zoo_bert import BASE, POCKET, bert


def recipe(changes=(), tensors=None, numbers=BASE):
    return bert(Config(numbers | dict(changes), tensors=tensors))


def test_nothing_is_cached():
    assert recipe().kv_cache_size(768) == 0


@pytest.mark.parametrize(
    ("classes", "tensors", "has"),
    [
        (None, None, True),
        (["BertForMaskedLM"], None, True),
        (["BertForPreTraining"], None, True),
        (["BertModel"], None, False),
        (["BertForMaskedLM"], ["embeddings.word_embeddings.weight"], False),
        (["BertModel"], ["bert.embeddings.LayerNorm.bias", "cls.predictions.bias"], True),
    ],
)
def test_the_tensors_say_whether_there_is_a_head_else_the_class(classes, tensors, has):
    assert (recipe(dict(architectures=classes), tensors).head is not None) is has


@pytest.fixture(scope="module")
def made():
    return subject("bert")


def test_types_tell_two_sentences_apart_and_default_to_the_first(made):
    first = mx.zeros_like(made.tokens)
    plain = made.model(made.tokens)
    same(made.model(made.tokens, token_types=first), plain, "type 0")
    second = mx.where(mx.arange(first.shape[1]) >= 9, 1, first)
    assert mx.abs(made.model(made.tokens, token_types=second) - plain).max().item() > 1e-3


def test_the_head_is_tied_to_the_embedding_but_has_a_bias_of_its_own(made):
    head = made.model.head
    hidden = made.model.encode(made.tokens)
    plain, bias = head(hidden), head.bias
    head.bias = bias + 1
    same(head(hidden), plain + 1, "logits with a bias one higher")
    head.bias = bias
    assert "output" not in head
    untied = recipe(dict(tie_word_embeddings=False), numbers=POCKET)
    assert untied.parameters(128) - recipe(numbers=POCKET).parameters(128) == POCKET["vocab_size"] * 128


OLD = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, type_vocab_size=2)


def test_a_config_older_than_model_types_is_berts():
    registry = default_registry()
    assert resolve(registry, OLD).name == "bert"
    assert resolve(registry, OLD | dict(architectures=["BertForMaskedLM"])).name == "bert"


@pytest.mark.parametrize(
    "changes",
    [
        dict(type_vocab_size=1),  # RoBERTa
        dict(embedding_size=64),  # ALBERT
        dict(architectures=["ElectraModel"]),
        dict(architectures=7),
        dict(model_type="electra"),
    ],
)
def test_its_relatives_are_not_taken_for_it(changes):
    with pytest.raises(ConfigError, match="model_type"):
        resolve(default_registry(), OLD | changes)
