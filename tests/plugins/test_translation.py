"""The encoder-decoders' recipes, positions and weight rules."""

import json
import shutil

import mlx.core as mx
import numpy as np
import pytest

import zoo
from zoo.assemble import build
from zoo.checkpoint.open import make_recipe
from zoo.checkpoint.parameters import export
from zoo.config import Config
from zoo.errors import ConfigError, RecipeError
from zoo.host.registry import default_registry
from zoo.recipe import LearnedPositions, SinusoidalPositions
from zoo.testing import numbers_of, subject
from zoo_translation.recipes import RelativeBias

NAMES = ("transformer", "marian", "bart", "mbart", "pegasus", "m2m-100", "t5", "mt5", "umt5")


def recipe(name, tensors=None, **changes):
    architecture = default_registry().architecture(name)
    config = Config({**numbers_of(architecture), **changes}, tensors=tensors)
    return make_recipe(architecture, config, default_registry())


def full(name, preset):
    architecture = default_registry().architecture(name)
    made = make_recipe(architecture, architecture.preset(preset).config, default_registry())
    return made.parameters(made.dim)


@pytest.mark.parametrize(
    ("name", "preset", "parameters"),
    [
        ("transformer", "base", 63_082_496),
        ("marian", "opus-mt-en-de", 73_886_208 + 58_101),
        ("bart", "large", 406_291_456 + 50_265),
        ("mbart", "large-50", 610_879_488 + 250_054),
        ("pegasus", "large", 568_699_904 + 96_103),
        ("m2m-100", "418m", 483_905_536),
        ("t5", "small", 60_506_624),
        ("mt5", "small", 300_176_768),
    ],
)
def test_published_sizes(name, preset, parameters):
    assert full(name, preset) == parameters


def test_the_paper_s_positions():
    found = np.array(build(SinusoidalPositions(), 6, registry=default_registry())(50))
    for place in (0, 1, 7, 49):
        for k in range(3):
            angle = place / 10000 ** (2 * k / 6)
            assert found[place, 2 * k] == pytest.approx(np.sin(angle), abs=1e-6)
            assert found[place, 2 * k + 1] == pytest.approx(np.cos(angle), abs=1e-6)


def test_positions_stay_exact_far_out():
    found = np.array(build(SinusoidalPositions(interleaved=False), 64, registry=default_registry())(8000)[-1])
    angles = 7999 / 10000 ** (np.arange(32) / 32)
    assert np.abs(found - np.concatenate([np.sin(angles), np.cos(angles)])).max() < 1e-5


@pytest.mark.parametrize("spec", [SinusoidalPositions(offset=2), LearnedPositions(context=30, offset=2)])
def test_positions_of_rows_that_start_apart(spec):
    positions = build(spec, 8, registry=default_registry())
    whole = positions(20)
    rows = positions(6, mx.array([4, -3]))
    assert mx.allclose(rows[0], whole[4:10], atol=1e-6)
    assert mx.allclose(rows[1, 3:], whole[:3], atol=1e-6)
    assert mx.allclose(positions(6, 4), whole[4:10], atol=1e-6)


def test_the_first_rows_of_bart_s_table_are_no_positions():
    positions = build(LearnedPositions(context=5, offset=2), 4, registry=default_registry())
    assert positions.weight.shape == (7, 4)
    assert mx.array_equal(positions(2), positions.weight[2:4])


def test_distances_share_buckets_the_farther_they_are():
    causal = build(RelativeBias(heads=1, buckets=8, max_distance=32), 4, registry=default_registry())
    distances = mx.array([3, 1, 0, -1, -3, -4, -7, -15, -16, -31, -32, -500])
    # 4 + 4 · log(distance / 4) / log(32 / 4), rounded down, from distance 4 on
    assert causal.bucket(distances).tolist() == [0, 0, 0, 1, 3, 4, 5, 6, 6, 7, 7, 7]
    bidirectional = build(
        RelativeBias(heads=1, buckets=8, max_distance=32, bidirectional=True), 4, registry=default_registry()
    )
    assert bidirectional.bucket(mx.array([0, -1, -2, -40, 1, 2, 40])).tolist() == [0, 1, 2, 3, 5, 6, 7]


def test_a_query_after_cached_ones_has_the_same_bias():
    bias = build(RelativeBias(heads=2, buckets=8, max_distance=32), 4, registry=default_registry())
    bias.weight = mx.random.normal((8, 2))
    assert mx.array_equal(bias(3, length=6), bias(9)[:, :, 6:])


@pytest.mark.parametrize("name", NAMES)
def test_one_table_for_source_target_and_head(name):
    made = subject(name)
    tables = [
        path
        for path in export(made.model, made.architecture, made.recipe)
        if "embed" in path or "shared" in path
    ]
    tables = [path for path in tables if "positions" not in path and "layernorm" not in path]
    assert tables == (["shared.weight"] if "t5" in name else ["model.shared.weight"])


def test_a_target_vocabulary_of_its_own():
    made = recipe("marian", share_encoder_decoder_embeddings=False, decoder_vocab_size=90)
    assert (made.encoder.embedding.vocab, made.decoder.embedding.vocab, made.head.vocab) == (128, 90, 90)
    assert not made.decoder.embedding.shared


def test_what_t5_ties_it_scales():
    tied = recipe("t5").head
    assert tied.tied and tied.scale == 32**-0.5
    for key in ("tie_word_embeddings", "scale_decoder_outputs"):
        untied = recipe("t5", tensors=["lm_head.weight"], **{key: False}).head
        assert not untied.tied and untied.scale == 1.0
        assert recipe("t5", tensors=["shared.weight"], **{key: False}).head.tied


def test_t5_s_gated_gelu_is_the_tanh_form():
    parts = {
        form: recipe("t5", feed_forward_proj=form).layers[0].feedforward for form in ("gelu", "gated-gelu")
    }
    assert parts["gelu"].activation == "gelu" and parts["gated-gelu"].activation == "gelu_tanh"
    assert parts["gated-gelu"].name == "gated-mlp"


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("marian", {"normalize_before": True}, "normalize_before"),
        ("marian", {"add_final_layer_norm": True}, "add_final_layer_norm"),
        ("marian", {"static_position_embeddings": False}, "static_position_embeddings"),
        ("marian", {"normalize_embedding": True}, "normalize_embedding"),
        ("bart", {"normalize_embedding": False}, "normalize_embedding"),
        ("bart", {"encoder_attention_heads": 5}, "encoder_attention_heads"),
        ("transformer", {"decoder_layers": 0}, "decoder_layers"),
        ("transformer", {"activation_function": "glu"}, "activation_function"),
        ("m2m-100", {"d_model": 33, "encoder_attention_heads": 3}, "d_model"),
        ("t5", {"feed_forward_proj": "double-relu"}, "feed_forward_proj"),
        ("t5", {"num_layers": 10**9}, "num_layers"),
    ],
)
def test_a_config_that_is_not_implemented_is_refused_by_its_key(name, changes, key):
    with pytest.raises(ConfigError, match=key):
        recipe(name, **changes)


def test_a_start_token_outside_the_vocabulary_is_refused():
    with pytest.raises(RecipeError, match="start"):
        recipe("bart", decoder_start_token_id=5000)


@pytest.mark.parametrize("name", NAMES)
def test_a_config_written_out_leaves_no_key_unread(name, folder, recwarn):
    zoo.load(folder(name, tokenizer=False))
    assert not [warning for warning in recwarn if "unknown to this architecture" in str(warning.message)]


def test_a_folder_without_a_logits_bias_has_none_in_its_recipe(folder):
    path = folder("marian", tokenizer=False)
    tensors = mx.load(str(path / "model.safetensors"))
    with_bias = zoo.load(path)
    assert with_bias.recipe.head.bias and with_bias.model.decoder.head.bias.shape == (128,)
    del tensors["final_logits_bias"]
    mx.save_safetensors(str(path / "model.safetensors"), tensors, metadata={"format": "pt"})
    without = zoo.load(path)
    assert not without.recipe.head.bias
    source, target = mx.array([[5, 6, 7]]), mx.array([[2, 9]])
    moved = with_bias.model(source, target) - without.model(source, target)
    assert mx.allclose(moved, with_bias.model.decoder.head.bias, atol=1e-4)


def test_embeddings_are_scaled_on_the_way_in_only():
    plain, scaled = (subject("transformer").model for _ in range(2))
    scaled.encoder.embedding.scale = 1.0
    token = mx.array([[7]])
    row = plain.encoder.embedding.tokens.weight[7]
    moved = plain.encoder.embedding(token) - scaled.encoder.embedding(token)
    assert mx.allclose(moved[0, 0], row * (32**0.5 - 1), atol=1e-4)
    x = mx.random.normal((1, 1, 32))
    assert mx.allclose(plain.decoder.head(x), scaled.decoder.head(x))


def test_the_pocket_is_about_a_million_parameters():
    made = recipe("transformer", **default_registry().architecture("transformer").preset("pocket").config)
    assert 0.9e6 < made.parameters(made.dim) < 1.2e6


def test_the_command_prints_the_languages_of_a_tokenizer(command, tokenizer_folder, tmp_path):
    folder = tmp_path / "nllb"
    shutil.copytree(tokenizer_folder, folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "m2m_100"}))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for id, code in enumerate(("fra_Latn", "eng_Latn"), 1000):
        tokenizer["added_tokens"].append(dict(PLAIN, id=id, content=code))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = dict(tokenizer_class="NllbTokenizer", eos_token="<|endoftext|>")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    done = command("languages", folder)
    assert done.stdout == "eng_Latn\nfra_Latn\n", done.stderr
    assert json.loads(command("languages", folder, "--json").stdout) == ["eng_Latn", "fra_Latn"]
    other = command("languages", "transformer")
    assert other.returncode == 1 and "names no languages" in other.stderr and other.stdout == ""


PLAIN = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
