"""Mamba-2 and Falcon-H1 against transformers and mlx-lm, their chunks crossed."""

import pytest
import torch
from transformers import FalconH1Config, FalconH1ForCausalLM, Mamba2Config, Mamba2ForCausalLM

import zoo
from zoo.checkpoint.convert import convert, save

from .support import TOLERANCE, difference, loads_as_mlx, reference, spelled_as_4, texts

import mlx.core as mx  # isort: skip (after zoo, which loads the fast BLAS)

VOCAB = 99
LENGTHS = (1, 9, 64, 65, 150)  # about chunks of 64, and beyond two of them


def spread(model):
    """The model with states that fade at very different speeds."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.uniform_(-3, 2)
            elif name.endswith("dt_bias"):
                parameter.uniform_(-4, 1)
    return model


def agrees(model, loaded):
    """The logits of whole texts, of prefill in pieces and of decoding from the cache."""
    for length in LENGTHS:
        tokens = texts(VOCAB, 2, length)
        with torch.no_grad():
            expected = model(torch.tensor(tokens)).logits
        worst = difference(loaded.model(mx.array(tokens)), expected)
        assert worst <= TOLERANCE, f"{length} tokens: {worst:.2g} of the range"
    tokens = texts(VOCAB, 2, 40, seed=1)
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits
    cache, pieces = loaded.model.make_cache(), []
    for start, end in ((0, 5), (5, 8), (8, 25), *((t, t + 1) for t in range(25, 40))):
        pieces.append(loaded.model(mx.array(tokens[:, start:end]), cache))
    assert difference(mx.concatenate(pieces, axis=1), expected) <= TOLERANCE
    vectors = loaded.model.embedding.vectors(mx.array(tokens))
    embeds = model.get_input_embeddings()(torch.tensor(tokens))
    embeds = embeds * getattr(model.config, "embedding_multiplier", 1.0)
    assert difference(vectors, embeds) <= TOLERANCE
    assert difference(loaded.model(inputs_embeds=vectors), expected) <= TOLERANCE


def from_folder(model, folder, name):
    model.save_pretrained(folder)
    for spelled in (lambda folder: None, spelled_as_4):
        spelled(folder)
        loaded = zoo.load(folder)
        assert loaded.architecture.name == name
        agrees(model, loaded)
    return loaded


MAMBA2 = [
    dict(),
    dict(n_groups=4, use_bias=True, tie_word_embeddings=True),
    dict(n_groups=1, use_conv_bias=False, conv_kernel=3, chunk_size=16),
    dict(expand=3, num_heads=12, residual_in_fp32=False, hidden_act="gelu", layer_norm_epsilon=1e-3),
]


@pytest.mark.filterwarnings("error:config.json")  # every key is read
@pytest.mark.parametrize("extra", MAMBA2)
def test_mamba2(tmp_path, extra):
    shape = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8, state_size=7)
    config = Mamba2Config(**(shape | dict(n_groups=2, chunk_size=8) | extra))
    from_folder(spread(reference(Mamba2ForCausalLM, config, 1)), tmp_path, "mamba2")


FALCON = [
    dict(),
    dict(mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_n_groups=4),
    dict(mamba_rms_norm=True, mamba_norm_before_gate=True, mamba_conv_bias=False, num_key_value_heads=1),
    dict(mamba_d_ssm=None, mamba_proj_bias=True, projectors_bias=True, attention_bias=True, mlp_bias=True),
    dict(tie_word_embeddings=True, mamba_d_head=6, mamba_d_conv=2, head_dim=12, rms_norm_eps=1e-3),
    dict(ssm_multipliers=None, mlp_multipliers=None, mamba_chunk_size=16, num_key_value_heads=None),
]
MULTIPLIERS = dict(
    **dict(embedding_multiplier=5.6, lm_head_multiplier=0.2, key_multiplier=0.4, attention_in_multiplier=1.3),
    **dict(attention_out_multiplier=0.9, ssm_in_multiplier=1.25, ssm_out_multiplier=0.3),
    **dict(mlp_multipliers=[0.9, 0.6], ssm_multipliers=[0.35, 0.25, 0.4, 0.5, 0.7]),
)


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize("extra", FALCON)
def test_falcon_h1(tmp_path, extra):
    shape = dict(
        **dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=40, num_hidden_layers=2),
        **dict(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256),
        **dict(mamba_d_ssm=48, mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=7, mamba_chunk_size=8),
    )
    config = FalconH1Config(**(shape | MULTIPLIERS | extra))
    from_folder(spread(reference(FalconH1ForCausalLM, config, 2)), tmp_path, "falcon-h1")


@pytest.mark.parametrize("kind", ["mamba2", "falcon-h1"])
def test_left_padding_and_what_the_zoo_writes(tmp_path, kind):
    if kind == "mamba2":
        shape = dict(num_heads=8, head_dim=8, state_size=6, n_groups=2, chunk_size=8)
        made, config = Mamba2ForCausalLM, Mamba2Config
    else:
        shape = dict(intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, mamba_d_ssm=48)
        shape |= dict(mamba_n_heads=8, mamba_d_state=7, mamba_chunk_size=8, **MULTIPLIERS)
        made, config = FalconH1ForCausalLM, FalconH1Config
    numbers = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2) | shape
    model = spread(reference(made, config(**numbers), 3))
    model.save_pretrained(tmp_path / "theirs")
    loaded = zoo.load(tmp_path / "theirs")
    tokens, mask = texts(VOCAB, 2, 20), [[1] * 20, [0] * 6 + [1] * 14]
    with torch.no_grad():
        expected = model(torch.tensor(tokens), attention_mask=torch.tensor(mask)).logits
    found = loaded.model(mx.array(tokens), mask=mx.array(mask))
    assert difference(found[:1], expected[:1]) <= TOLERANCE
    if kind == "mamba2":  # transformers' own positions begin at the padding unless they are given
        assert difference(found[1:, 6:], expected[1:, 6:]) <= TOLERANCE
    with torch.no_grad():
        alone = model(torch.tensor(tokens[1:, 6:])).logits
    assert difference(found[1:, 6:], alone) <= TOLERANCE
    save(tmp_path / "ours", loaded.model, loaded.architecture, loaded.recipe, loaded.config)
    again = made.from_pretrained(tmp_path / "ours", dtype="float32").eval()
    agrees(again, loaded)


def test_mlx_lms_conversions_of_falcon_h1_hold_the_multipliers_in_the_weights(tmp_path):
    from mlx_lm.models import falcon_h1 as theirs

    shape = dict(
        **dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=40, num_hidden_layers=2),
        **dict(num_attention_heads=4, num_key_value_heads=2, head_dim=8, mamba_d_ssm=48, mamba_n_heads=8),
        **dict(mamba_d_head=6, mamba_d_state=7, mamba_n_groups=2),
    )
    config = FalconH1Config(**shape | MULTIPLIERS | dict(attention_in_multiplier=1.0))
    model = spread(reference(FalconH1ForCausalLM, config, 5))
    model.save_pretrained(tmp_path / "model")
    network = theirs.Model(theirs.ModelArgs.from_dict(config.to_dict()))
    loaded = loads_as_mlx(tmp_path / "model", network)
    assert loaded.recipe.embedding.scale == 1.0 and loaded.recipe.layers[0].memory.scales == (1.0,) * 5
    for folder, settings in (("again", {}), ("hf", dict(layout="hf"))):
        convert(tmp_path / "model", tmp_path / folder, **settings)
    for folder in ("model", "again", "hf"):
        tokens = texts(VOCAB, 2, 40)
        with torch.no_grad():
            expected = model(torch.tensor(tokens)).logits
        assert difference(zoo.load(tmp_path / folder).model(mx.array(tokens)), expected) <= TOLERANCE


def test_mlx_lms_layout_of_mamba2(tmp_path):
    from mlx_lm.models import mamba2 as theirs

    shape = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8, state_size=6)
    config = Mamba2Config(**shape, n_groups=2, chunk_size=8)
    model = spread(reference(Mamba2ForCausalLM, config, 4))
    model.save_pretrained(tmp_path)
    network = theirs.Model(theirs.ModelArgs.from_dict(config.to_dict() | dict(intermediate_size=64)))
    agrees(model, loads_as_mlx(tmp_path, network))
