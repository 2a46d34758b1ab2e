"""ModernBERT's recipe: which layers see a window, what its config.json says, and which folders have a head."""

import pytest

from zoo.config import Config
from zoo.errors import ConfigError
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(hidden_activation="mish"), "hidden_activation 'mish' is not an activation"),
        (dict(layer_types=["full_attention"]), "layer_types .* must be a list of 22"),
        (dict(num_attention_heads=7), "num_attention_heads 7 does not divide hidden_size, 768"),
        (dict(global_rope_theta=0.5), "global_rope_theta 0.5 must be greater than 1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=message):
        recipe(changes)


def test_every_key_of_a_published_config_is_known():
    published = dict(
        **BASE,
        **dict(
            attention_bias=False, attention_dropout=0.0, classifier_activation="gelu", classifier_bias=False
        ),
        **dict(classifier_dropout=0.0, classifier_pooling="mean", decoder_bias=True, norm_bias=False),
        **dict(deterministic_flash_attn=False, embedding_dropout=0.0, global_attn_every_n_layers=3),
        **dict(global_rope_theta=160000.0, hidden_activation="gelu", initializer_cutoff_factor=2.0),
        **dict(layer_norm_eps=1e-05, local_attention=128, local_rope_theta=10000.0, mlp_bias=False),
        **dict(
            mlp_dropout=0.0, norm_eps=1e-05, position_embedding_type="absolute", repad_logits_with_grad=False
        ),
        **dict(max_position_embeddings=8192, sparse_pred_ignore_index=-100, sparse_prediction=False),
        **dict(reference_compile=None, tie_word_embeddings=True),
    )
    config = Config(published)
    modernbert(config)
    assert config.unread() == []


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
