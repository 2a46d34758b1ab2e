"""Folders of a family that are written, named or divided otherwise than transformers writes them today."""

import mlx.core as mx
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import zoo
from zoo.errors import CheckpointError
from zoo.host.registry import default_registry

from .families import FAMILIES
from .family import VOCAB, edit
from .support import TOLERANCE, agrees, difference, texts


def with_experts(config):
    """As published, with keys that say nothing where no layer has a window."""
    return config | dict(
        num_experts=config.pop("num_local_experts"), max_window_layers=3, sliding_window=4096
    )


def without(*keys):
    """The config without these keys, whose defaults are what they said."""
    return lambda config: {key: value for key, value in config.items() if key not in keys}


GPT_OSS = "rope_parameters layer_types rms_norm_eps attention_bias swiglu_limit swiglu_alpha"


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.parametrize(
    "name, variant, change",
    [
        ("qwen3-moe", 0, with_experts),
        ("gemma2", 0, without("layer_types")),
        ("gpt-oss", 0, without(*GPT_OSS.split())),
        ("deepseek-v3", 3, lambda config: config | dict(model_type="kimi_k2")),
    ],
)
def test_another_spelling_of_config_means_the_same(tmp_path, name, variant, change):
    model = FAMILIES[name].make(variant)
    model.save_pretrained(tmp_path)
    edit(tmp_path, change)
    agrees(model, zoo.load(tmp_path), VOCAB, lengths=(17,))


def test_shards_written_by_transformers(tmp_path):
    model = FAMILIES["llama"].make()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    agrees(model, zoo.load(tmp_path), VOCAB)


def test_the_prediction_layer_is_left_out(tmp_path):
    model = FAMILIES["deepseek-v3"].make()
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    last = {name: array for name, array in tensors.items() if name.startswith("model.layers.2.")}
    extra = {name.replace("layers.2.", "layers.3."): array for name, array in last.items()}
    for part in ("eh_proj", "enorm", "hnorm", "embed_tokens", "shared_head.norm", "shared_head.head"):
        extra[f"model.layers.3.{part}.weight"] = np.zeros((4, 4), np.float32)
    save_file(tensors | extra, path, metadata={"format": "pt"})
    agrees(model, zoo.load(tmp_path), VOCAB, lengths=(9,))
    # Now layer 2 is no prediction layer, but one that the config forgot.
    edit(tmp_path, lambda config: config | dict(num_hidden_layers=2))
    with pytest.raises(CheckpointError, match=r"unexpected tensor model\.layers\.2\."):
        zoo.load(tmp_path)


def test_decoding_absorbs_the_projections_of_latents(tmp_path):
    FAMILIES["deepseek-v3"].make().save_pretrained(tmp_path)  # whose logits are compared with the others'
    assert zoo.load(tmp_path).model.layers[0].mixer.absorbs(1, 20)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2"])
def test_transformers_runs_the_pockets(name):
    folder = default_registry().architecture(name).preset("pocket").folder
    kind = type(FAMILIES[name].make())
    model = kind.from_pretrained(folder, dtype="float32", attn_implementation="eager").eval()
    agrees(model, zoo.load(name), model.config.vocab_size)


def post_ln(model, tokens):
    """The forward of a transformers GPT-2 with each LayerNorm moved behind its residual sum, and none at the end."""
    body, length = model.transformer, tokens.shape[1]
    x = body.wte(tokens) + body.wpe(torch.arange(length))
    mask = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)[None, None]
    for block in body.h:
        x = block.ln_1(x + block.attn(x, attention_mask=mask)[0])
        x = block.ln_2(x + block.mlp(x))
    return model.lm_head(x)


@pytest.mark.parametrize("shape", FAMILIES["gpt2"].shapes)
def test_gpt2_with_each_norm_behind_its_sum(tmp_path, shape):
    model = FAMILIES["gpt2"].make(0, shape)
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {name: array for name, array in load_file(path).items() if ".ln_f." not in name}
    save_file(tensors, path, metadata={"format": "pt"})
    loaded = zoo.load(tmp_path, architecture="gpt2-postln")
    for length in (1, 17, 40):
        tokens = texts(VOCAB, 2, length)
        with torch.no_grad():
            expected = post_ln(model, torch.tensor(tokens))
        assert difference(loaded.model(mx.array(tokens)), expected) <= TOLERANCE
