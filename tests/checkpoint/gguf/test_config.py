"""The metadata of a GGUF file, as the config.json that they amount to."""

import json
import math

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers import gguf_files
from zoo.checkpoint.convert import convert
from zoo.checkpoint.gguf.gguf_checkpoint import GGUFCheckpoint
from zoo.checkpoint.gguf.header import decimal
from zoo.checkpoint.gguf.positions import factor_scaling
from zoo.errors import CheckpointError, ConfigError
from zoo.host.registry import default_registry

POCKET = default_registry().architecture("llama").preset("pocket").folder


def with_keys(tmp_path, drop=(), **keys):
    """A file of the LLaMA pocket with other metadata, dots in keys written as double underscores."""

    def extra(writer):
        for key, value in keys.items():
            gguf_files.add(writer, f"llama.{key.replace('__', '.')}", value)

    return gguf_files.write(tmp_path / "model.gguf", POCKET, extra=extra, drop=drop)


def config(path):
    return GGUFCheckpoint(path, registry=default_registry()).config


def test_numbers_are_those_of_the_config_json(tmp_path):
    wanted = json.loads((POCKET / "config.json").read_text())
    del wanted["torch_dtype"]
    assert config(with_keys(tmp_path)) == wanted | {
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
    }


def test_the_table_says_how_many_tokens_there_are(tmp_path):
    assert config(with_keys(tmp_path, drop=["vocab_size"]))["vocab_size"] == 2048


@pytest.mark.parametrize(
    ("keys", "scaling"),
    [
        ({"rope__scaling__type": "none"}, None),
        (
            {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0},
            {"rope_type": "linear", "factor": 4.0},
        ),
        ({"rope__scale_linear": 2.5}, {"rope_type": "linear", "factor": 2.5}),
        ({"rope__scaling__factor": 2.5}, {"rope_type": "linear", "factor": 2.5}),
        ({"rope__scaling__type": "none", "rope__scaling__factor": 2.5}, None),
        ({"rope__scale_linear": 1.0}, None),
        (
            {
                "rope__scaling__type": "yarn",
                "rope__scaling__factor": 4.0,
                "rope__scaling__original_context_length": 32,
                "rope__scaling__yarn_beta_fast": 16.0,
            },
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16.0},
        ),
        (
            {
                "rope__scaling__type": "yarn",
                "rope__scaling__factor": 4.0,
                "rope__scaling__yarn_log_multiplier": 1.0,
            },
            {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0},
        ),
    ],
)
def test_scaled_positions(tmp_path, keys, scaling):
    path = with_keys(tmp_path, **keys)
    assert config(path).get("rope_scaling") == scaling
    kind = type(zoo.load(path).recipe.layers[0].mixer.rope.scaling).__name__
    assert (
        kind
        == {None: "NoneType", "linear": "LinearScaling", "yarn": "YarnScaling"}[
            scaling and scaling["rope_type"]
        ]
    )


def divisors(theta, dims, factor, low, high, context):
    """What LLaMA 3.1's rule divides each frequency by, as its authors' code has it."""
    found = []
    for k in range(0, dims, 2):
        wavelength = 2 * math.pi * theta ** (k / dims)
        if wavelength < context / high:
            found.append(1.0)
        elif wavelength > context / low:
            found.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(found, np.float32)


@pytest.mark.parametrize(
    ("theta", "dims", "rule"),
    [
        (500000.0, 128, (8.0, 1.0, 4.0, 8192)),  # LLaMA 3.1 8B
        (500000.0, 64, (32.0, 1.0, 4.0, 8192)),  # LLaMA 3.2 1B
        (10000.0, 32, (4.0, 1.0, 4.0, 64)),
        (100000.0, 8, (8.0, 1.0, 4.0, 8192)),  # no factor between the extremes: the published rule
    ],
)
def test_llama_3s_rule_is_told_from_its_factors(theta, dims, rule):
    factors = divisors(theta, dims, *rule).tolist()
    found = factor_scaling(factors, theta, "file")
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    assert found == {"rope_type": "llama3", **dict(zip(names, rule, strict=True))}


@pytest.mark.parametrize("factors", [[1.0, math.inf], [1.0, math.nan], [-1.0, 8.0], [0.0, 1.0]])
def test_what_is_no_factor_is_refused(factors):
    with pytest.raises(ConfigError, match=r"file holds .*, which is no factor of a wavelength"):
        factor_scaling(factors, 10000.0, "file")


@pytest.mark.filterwarnings("error")
def test_any_factors_divide_the_frequencies(tmp_path):
    """A query at position p is rotated by p · theta^(−2k/d) ÷ factor k, at any length of the text."""
    factors = np.linspace(0.5, 3.0, 16).astype(np.float32)
    path = gguf_files.write(
        tmp_path / "model.gguf",
        POCKET,
        extra=lambda writer: gguf_files.add_tensor(writer, "rope_freqs.weight", factors),
    )
    loaded = zoo.load(path)
    rope = loaded.model.layers[0].mixer.rope
    assert not rope.depends_on_length
    assert np.allclose(rope.frequencies(), 10000.0 ** (-np.arange(16) / 16) / factors, rtol=1e-5)
    convert(path, tmp_path / "folder", layout="hf")
    folder = zoo.load(tmp_path / "folder")
    assert folder.recipe == loaded.recipe
    assert gguf_files.difference(folder, loaded, length=100) <= 1e-3  # the folder has half precision
    assert gguf_files.difference(zoo.load(POCKET), loaded) > 0.01


def test_factors_beside_another_scaling_are_refused_by_name(tmp_path):
    def extra(writer):
        gguf_files.add(writer, "llama.rope.scaling.factor", 2.0)
        gguf_files.add_tensor(writer, "rope_freqs.weight", np.full(16, 3.0, np.float32))

    path = gguf_files.write(tmp_path / "model.gguf", POCKET, extra=extra)
    with pytest.raises(ConfigError, match=r"rope_freqs\.weight beside scaling of the type linear"):
        zoo.load(path)


def test_a_model_with_llama_3s_positions(tmp_path):
    scaling = dict(
        rope_type="llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=64,
    )
    folder = gguf_files.random_folder(tmp_path / "model", "llama", rope_scaling=scaling, vocab_size=256)
    factors = divisors(10000.0, 32, 8.0, 1.0, 4.0, 64)
    path = gguf_files.write(
        tmp_path / "model.gguf",
        folder,
        extra=lambda writer: gguf_files.add_tensor(writer, "rope_freqs.weight", factors),
    )
    loaded, original = zoo.load(path), zoo.load(folder)
    assert loaded.recipe == original.recipe
    assert gguf_files.difference(loaded, original, length=100) <= 1e-5


def test_only_a_part_of_a_head_may_turn(tmp_path):
    folder = default_registry().architecture("qwen3").preset("pocket").folder
    path = gguf_files.write(
        tmp_path / "model.gguf",
        folder,
        extra=lambda writer: gguf_files.add(writer, "qwen3.rope.dimension_count", 16),
        drop=["rope.dimension_count"],
    )
    assert config(path)["partial_rotary_factor"] == 0.5
    assert zoo.load(path).recipe.layers[0].mixer.rope.dims == 16


def test_but_not_where_rows_stand_in_pairs(tmp_path):
    """A file of LLaMA's would pair other rows than its model does."""
    with pytest.raises(CheckpointError, match=r"attn_q\.weight: heads of which only a part turns"):
        zoo.load(with_keys(tmp_path, drop=["rope.dimension_count"], rope__dimension_count=16))


def test_gemmas_scores_are_scaled_by_the_width_of_a_head_but_in_the_largest():
    from zoo_gemma import score_scale

    assert score_scale(46)(dict(num_hidden_layers=26, head_dim=256), ()) == dict(query_pre_attn_scalar=256)
    largest = dict(num_hidden_layers=46, head_dim=128, hidden_size=4608, num_attention_heads=32)
    assert score_scale(46)(largest, ()) == dict(query_pre_attn_scalar=144)


def test_an_unknown_key_is_warned_of_by_name(tmp_path):
    with pytest.warns(UserWarning, match=r"model\.gguf: metadata unknown to llama, ignored: flux\.capacitor"):
        zoo.load(with_keys(tmp_path, flux__capacitor=1.21))


def test_no_experts_are_no_mixture(tmp_path, recwarn):
    assert zoo.load(with_keys(tmp_path, expert_count=0, expert_used_count=0)).architecture.name == "llama"
    assert not recwarn.list


@pytest.mark.parametrize(
    ("drop", "keys", "words"),
    [
        (["block_count"], {}, "model.gguf: llama.block_count is missing"),
        (["block_count"], {"block_count": 2**32 - 1}, "model.gguf: llama.block_count 4294967295 must lie in"),
        (
            ["embedding_length"],
            {"embedding_length": "wide"},
            "model.gguf: llama.embedding_length 'wide' expected a whole number",
        ),
        (["attention.head_count"], {"attention__head_count": 0}, "model.gguf: llama.attention.head_count 0"),
        (
            ["feed_forward_length"],
            {"feed_forward_length": [384, 384, 100, 384]},
            "feed_forward_length differs",
        ),
        ([], {"rope__scaling__type": "longrope"}, "rope.scaling.type 'longrope' is not implemented"),
        ([], {"rope__scaling__type": "yarn"}, "rope.scaling.factor is missing"),
        (
            [],
            {
                "rope__scaling__type": "yarn",
                "rope__scaling__factor": 2.0,
                "rope__scaling__yarn_ext_factor": 0.5,
            },
            "rope.scaling.yarn_ext_factor 0.5 is not implemented",
        ),
        ([], {"rope__scaling__attn_factor": 1.5}, "rope.scaling.attn_factor 1.5 is not implemented"),
        (
            [],
            {"rope__scaling__yarn_attn_factor": 1.5},
            "rope.scaling.yarn_attn_factor 1.5 is not implemented",
        ),
        ([], {"rope__freq_base_swa": 5.0}, "rope.freq_base_swa 5.0 is not rope.freq_base"),
        ([], {"expert_group_count": 2}, "expert_group_count 2 is not implemented"),
        ([], {"expert_gating_func": 2}, "expert_gating_func 2 is not implemented"),
        ([], {"attention__key_length": 32, "attention__value_length": 64}, "attention.value_length 64"),
    ],
)
def test_a_value_that_cannot_be_followed_is_refused_by_name(tmp_path, drop, keys, words):
    with pytest.raises(ConfigError) as caught:
        zoo.load(with_keys(tmp_path, drop, **keys))
    assert str(tmp_path) in str(caught.value) and words in str(caught.value)


def test_recommended_drawing_is_taken_over(tmp_path):
    def extra(writer):
        writer.add_float32("general.sampling.temp", 0.7)
        writer.add_int32("general.sampling.top_k", 20)
        writer.add_string("general.sampling.top_p", "most")

    loaded = zoo.load(gguf_files.write(tmp_path / "model.gguf", POCKET, extra=extra))
    assert loaded.generation_config == {"do_sample": True, "temperature": 0.7, "top_k": 20}
    assert zoo.load(with_keys(tmp_path)).generation_config == {}


def test_floats_are_read_as_they_were_written():
    assert decimal(float(np.float32(1e-5))) == 1e-5
    for value in (0.1, 1e300, 5, "0.1", math.inf, True):
        assert decimal(value) is value


def test_one_value_for_every_layer_is_one(tmp_path):
    path = with_keys(tmp_path, ["feed_forward_length"], feed_forward_length=[384] * 4)
    assert zoo.load(path).model(mx.array([[1]])).shape == (1, 1, 2048)
