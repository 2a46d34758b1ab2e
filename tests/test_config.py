"""`config.json` values: types, bounds, defaults, the two spellings of rotary positions."""

import math
from types import SimpleNamespace

import pytest

from zoo.config import Config, Origin
from zoo.errors import ConfigError
from zoo.recipe import DynamicScaling, LinearScaling, Llama3Scaling, RoPE, YarnScaling
from zoo_gpt2 import gpt2


def test_null_means_absent():
    config = Config({"a": None, "b": 3})
    assert "a" not in config and config.get("a", 5) == 5 and config.count("a", 7) == 7
    assert config.is_null("a") and not config.is_null("c")


def test_a_required_key_is_named():
    with pytest.raises(ConfigError, match=r"config\.json: width is missing"):
        Config({}).count("width")


@pytest.mark.parametrize("value", ["8", True, 8.5, -1, 0, 10**9, [8], math.inf])
def test_a_count_is_a_whole_number_within_bounds(value):
    with pytest.raises(ConfigError, match="width"):
        Config({"width": value}).count("width")


def test_a_long_value_is_shortened_in_its_error():
    with pytest.raises(ConfigError) as caught:
        Config({"width": "x" * 10_000}).count("width")
    assert len(str(caught.value)) < 200


def test_unread_keys_are_told_but_for_harmless_ones():
    config = Config({"width": 3, "use_cache": True, "mystery": 1, "torch_dtype": "float16"})
    config.count("width")
    assert config.unread() == ["mystery"]


@pytest.mark.parametrize(
    ("value", "refused"), [(True, True), (False, False), (None, False), (0, False), (2, True)]
)
def test_refuse_any_value_that_says_yes(value, refused):
    config = Config({"flag": value})
    if refused:
        with pytest.raises(ConfigError, match="flag"):
            config.refuse("flag")
    else:
        config.refuse("flag")


def both(theta=None, **scaling):
    """The same rotary positions as transformers 4 and 5 spell them."""
    outer = {"max_position_embeddings": 64}
    old = outer | ({"rope_theta": theta} if theta else {}) | {"rope_scaling": scaling or None}
    new = outer | {
        "rope_parameters": ({"rope_theta": theta} if theta else {}) | (scaling or {"rope_type": "default"})
    }
    return Config(old), Config(new)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({}, None),
        ({"rope_type": "linear", "factor": 4.0}, LinearScaling(4.0)),
        ({"type": "linear", "factor": 4}, LinearScaling(4.0)),
        ({"rope_type": "dynamic", "factor": 2.0}, DynamicScaling(2.0, 64)),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
            Llama3Scaling(8.0, 1.0, 4.0, 64),
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
            YarnScaling(4.0, 16, magnitude=0.1 * math.log(4) + 1),
        ),
        (
            {"rope_type": "yarn", "original_max_position_embeddings": 16, "attention_factor": 1.5},
            YarnScaling(4.0, 16, magnitude=1.5),
        ),
    ],
)
def test_both_spellings_say_the_same(scaling, expected):
    for config in both(500.0, **scaling):
        assert RoPE.of(config) == RoPE(theta=500.0, scaling=expected)
        assert set(config.unread()) <= {"max_position_embeddings"}


def test_part_of_a_head_may_be_turned():
    assert RoPE.of(Config({"partial_rotary_factor": 0.5}), 8).dims == 4
    with pytest.raises(ConfigError, match="partial_rotary_factor"):
        RoPE.of(Config({"partial_rotary_factor": 0.4}), 8)


def test_a_key_that_is_ignored_is_warned_of_by_nobody():
    config = Config({"width": 3, "dropout": 0.1, "mystery": 1})
    config.ignore("width", "dropout", "absent")
    assert config.unread() == ["mystery"] and "dropout" in config and not config.defaults()
    config.with_defaults(depth=2).ignore("mystery")
    assert not config.unread()


def test_what_a_key_comes_to_is_noted_where_it_is_not_there():
    config = Config({"width": 3, "depth": None})
    config.note("base", 7.0)
    config.note("depth", 2)
    assert config.defaults() == {"base": 7.0} and "base" not in config


def test_no_family_has_its_keys_among_those_of_all_families():
    for key in ("attention_dropout", "pretraining_tp", "summary_type", "router_aux_loss_coef", "n_ctx"):
        assert Config({key: 1}).unread() == [key]


def test_a_list_of_numbers():
    config = Config({"factors": [1, 2.5], "none": []})
    assert config.numbers("factors") == (1.0, 2.5) and config.numbers("absent", None) is None
    for key, value, words in (
        ("factors", [1, "2"], r"factors\[1\] '2' expected a number"),
        ("factors", [0.5, 9], r"factors\[0\] 0\.5 must lie in 1\.\.8"),
        ("factors", [], r"factors \[\] expected a list of numbers"),
        ("factors", 3, r"factors 3 expected a list of numbers"),
    ):
        with pytest.raises(ConfigError, match=words):
            Config({key: value}).numbers(key, least=1, most=8)
    with pytest.raises(ConfigError, match="lost is missing"):
        config.numbers("lost")


def test_an_error_names_the_file_and_the_key_that_it_has():
    origin = Origin("a.gguf", {"width": "llama.width", "rope.factor": "llama.rope.factor"})
    config = Config({"width": 7, "heads": 3, "rope": {"factor": -1}}, origin=origin)
    for ask, words in (
        (lambda: config.count("width", most=4), r"^a\.gguf: llama\.width 7 must lie in"),
        (lambda: config.nested("rope").number("factor", least=0), r"^a\.gguf: llama\.rope\.factor -1 must"),
        (lambda: config.head_width("width", "heads"), r"^a\.gguf, read as a config\.json: heads 3 does not"),
        (lambda: config.head_width("heads", "width"), r"^a\.gguf: llama\.width 7 does not divide heads, 3"),
        (lambda: config.with_defaults(depth=1)["length"], r"^a\.gguf, read as a config\.json: length is"),
    ):
        with pytest.raises(ConfigError, match=words):
            ask()
    with pytest.raises(ConfigError, match=r"^weights\.npz: width 7 must"):
        Config({"width": 7}, origin=Origin("weights.npz")).count("width", most=4)


KINDS = ("full_attention", "sliding_attention")


def test_a_list_of_choices_has_one_for_each_layer():
    config = Config({"layer_types": [*KINDS, "full_attention"]})
    assert config.choices("layer_types", KINDS, 3) == (*KINDS, "full_attention")
    assert not config.unread()
    default = ["full_attention"] * 2
    assert Config({}).choices("layer_types", KINDS, 2, default) == tuple(default)
    assert Config({"layer_types": None}).choices("layer_types", KINDS, 2, None) is None


@pytest.mark.parametrize(
    "value", [["full_attention"], [*KINDS, "chunked_attention"], "full_attention", [1, 2, 3]]
)
def test_a_list_of_choices_names_how_many_and_which(value):
    with pytest.raises(
        ConfigError, match=r"layer_types .* a list of 3, each one of full_attention, sliding_att"
    ):
        Config({"layer_types": value}).choices("layer_types", KINDS, 3)
    with pytest.raises(ConfigError, match="layer_types is missing"):
        Config({}).choices("layer_types", KINDS, 3)


def test_values_that_do_not_count_are_replaced_and_the_ones_that_do_are_the_defaults():
    config = Config(dict(scale=5.0, width=3))
    other = config.replaced(scale=1.0)
    assert other.number("scale") == 1.0 and config.number("scale") == 5.0
    assert other.count("width") == 3 and config.unread() == [] and config.defaults() == {"scale": 1.0}


def test_a_key_replaced_by_none_is_absent():
    config = Config({"width": 3, "rope": {"base": 1e4, "odd": 1}})
    other = config.replaced(width=None, rope=dict(config["rope"], odd=None))
    assert "width" not in other and other.count("width", 5) == 5 and not other.nested("rope").get("odd")
    assert config["width"] == 3 and not config.unread()
    with pytest.raises(ConfigError, match="width is missing"):
        other.count("width")


def test_an_error_about_a_value_has_its_key():
    for make, key in (
        (lambda: Config({"width": "a"}).count("width"), "width"),
        (lambda: Config({"rope": {"factor": 0}}).nested("rope").refuse("factor", 0), "rope.factor"),
        (lambda: Config({}).count("width"), ""),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert caught.value.key == key


def test_the_shape_of_a_tensor_is_that_of_the_first_with_the_word_in_its_name():
    shapes = {"a.weight": SimpleNamespace(shape=(2, 3)), "b.conv.weight": SimpleNamespace(shape=(4, 1, 3))}
    config = Config({}, tensors=shapes)
    assert config.tensor_shape("weight") == (2, 3) and config.tensor_shape("conv") == (4, 1, 3)
    assert config.tensor_shape("norm") is None
    assert (
        Config({}).tensor_shape("weight") is None
        and Config({}, tensors=["a.weight"]).tensor_shape("a") is None
    )


def test_a_key_under_another_name_is_read_unless_its_own_contradicts_it():
    config = Config({"hidden_size": 8, "n_head": 2, "num_attention_heads": 2})
    names = {"hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
    renamed = config.renamed(names)
    assert (renamed.count("n_embd"), renamed.count("n_head"), "n_layer" in renamed) == (8, 2, False)
    assert config.unread() == []
    with pytest.raises(ConfigError, match=r"num_attention_heads 4 contradicts n_head, 2"):
        Config({"n_head": 2, "num_attention_heads": 4}).renamed(names)


def test_gpt2_takes_the_names_that_most_families_have():
    names = {"n_embd": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers"}
    names |= {"n_positions": "max_position_embeddings"}
    own = dict(vocab_size=50, n_embd=16, n_head=4, n_layer=3, n_positions=32)
    others = Config({names.get(key, key): value for key, value in own.items()})
    assert gpt2(others) == gpt2(Config(own)) and not others.unread()
