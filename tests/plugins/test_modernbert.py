"""ModernBERT's recipe: which layers see a window, what its config.json says, and which folders have a head."""

import pytest

from zoo.config import Config
from zoo.recipe import LayerNorm
from zoo.testing import same, subject
from zoo_modernbert import BASE, LARGE, TINY, modernbert


def recipe(changes=(), tensors=None, numbers=BASE):
    return modernbert(Config(numbers | dict(changes), tensors=tensors))


@pytest.mark.parametrize(("numbers", "layers"), [(BASE, 22), (LARGE, 28)])
def test_one_layer_in_three_sees_all_tokens_and_turns_more_slowly(numbers, layers):
    made = recipe(numbers=numbers).layers
    assert len(made) == layers
    assert [i for i, layer in enumerate(made) if layer.mixer.window is None] == [*range(0, layers, 3)]
    assert {(layer.mixer.window, layer.mixer.rope.theta) for layer in made} == {
        (None, 160000.0),
        (128, 10000.0),
    }


def test_the_embedding_s_norm_stands_for_the_first_layer_s():
    made = recipe()
    assert [layer.mixer_norm is None for layer in made.layers] == [True] + [False] * 21
    assert isinstance(made.embedding.norm, LayerNorm) and not made.embedding.norm.bias


@pytest.mark.parametrize(
    ("classes", "tensors", "has"),
    [
        (None, None, True),
        (["ModernBertModel"], None, False),
        (["ModernBertForMaskedLM"], ["embeddings.tok_embeddings.weight"], False),
        (["ModernBertModel"], ["head.dense.weight"], True),
    ],
)
def test_the_tensors_say_whether_there_is_a_head_else_the_class(classes, tensors, has):
    assert (recipe(dict(architectures=classes), tensors).head is not None) is has


def test_a_token_reaches_only_its_window_where_no_layer_sees_all():
    import mlx.core as mx

    from zoo.assemble import assemble
    from zoo.host.registry import default_registry
    from zoo.testing import randomise

    kinds = dict(layer_types=["sliding_attention"], num_hidden_layers=1, local_attention=6)
    model = assemble(recipe(kinds, numbers=TINY), default_registry())
    randomise(model)
    tokens = mx.arange(20)[None]
    changed = mx.where(mx.arange(20) == 10, 77, tokens)
    moved = mx.abs(model(changed) - model(tokens)).max(axis=-1)[0] > 0
    assert [i for i, one in enumerate(moved.tolist()) if one] == [*range(7, 14)]


def test_the_head_normalises_before_the_logits():
    import mlx.core as mx

    made = subject("modernbert")
    head, hidden = made.model.head, mx.random.normal((1, 3, 64))
    expected = (
        head.norm(head.activation(head.dense(hidden))) @ made.model.embedding.tokens.weight.T + head.bias
    )
    same(head(hidden), expected, "logits")
