"""What the live comparisons share: a reference model with random parameters, its folder, and how far logits differ."""

import importlib.util
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.checkpoint.convert import convert

TOLERANCE = 1e-4  # of the range of the reference's logits


def reference(kind, config, seed=0):
    """A transformers model of `config` in float32, every parameter random: norms and biases too."""
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    model = kind(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            centre = 1.0 if parameter.ndim == 1 else 0.0
            parameter.copy_(centre + 0.15 * torch.randn_like(parameter))
    model.tie_weights()
    return model


def spelled_as_4(folder):
    """Rewrite a config.json of transformers 5 in the spelling of transformers 4, which most checkpoints have."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["torch_dtype"] = config.pop("dtype", "float32")
    rope = config.pop("rope_parameters", None)
    if rope:
        config["rope_theta"] = rope.pop("rope_theta", 10000.0)
        kind = rope.pop("rope_type", "default")
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        config["rope_scaling"] = {"type": kind, **rope} if kind == "yarn" else {"rope_type": kind, **rope}
        if kind == "default":
            config["rope_scaling"] = None
    path.write_text(json.dumps(config))


def difference(found, expected):
    """The largest absolute difference, as a share of the expected range."""
    found, expected = np.array(found.astype(mx.float32)), expected.detach().numpy()
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / (expected.max() - expected.min()))


def far(found, expected):
    """The largest difference of two of MLX's arrays, as a share of the expected range."""
    return difference(found, torch.tensor(np.array(expected.astype(mx.float32))))


def texts(vocab, batch, length, seed=0):
    """Random token ids, (B, T)."""
    return np.random.default_rng(seed).integers(0, vocab, (batch, length))


def agrees(model, loaded, vocab, lengths=(1, 17, 40), batch=2):
    """Assert that the loaded model's logits are the reference's, on texts of several lengths."""
    for length in lengths:
        tokens = texts(vocab, batch, length)
        with torch.no_grad():
            expected = model(torch.tensor(tokens)).logits
        worst = difference(loaded.model(mx.array(tokens)), expected)
        assert worst <= TOLERANCE, f"{length} tokens: {worst:.2g} of the range"


def agrees_from_folder(model, folder, vocab, **settings):
    """Save the reference, load its folder in both spellings of its config, and compare."""
    model.save_pretrained(folder)
    agrees(model, zoo.load(folder), vocab, **settings)
    spelled_as_4(folder)
    agrees(model, zoo.load(folder), vocab, **settings)


def decodes_as(model, loaded, vocab, length=24):
    """Assert that a text read in pieces, then token by token up to `length`, gets the reference's logits."""
    tokens, cache = texts(vocab, 2, length, seed=1), loaded.model.make_cache()
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits
    ends = (5, 8, 17, *range(18, length + 1))
    pieces = [loaded.model(mx.array(tokens[:, a:b]), cache) for a, b in pairwise((0, *ends))]
    assert difference(mx.concatenate(pieces, axis=1), expected) <= TOLERANCE


def pads_as(model, folder, vocab, length=20, padded=6, side="left"):
    """Assert that a row padded by `padded` columns has the reference's logits of its own text, with and without a cache."""
    model.save_pretrained(folder)
    loaded, tokens = zoo.load(folder), texts(vocab, 2, length)
    own = slice(padded, None) if side == "left" else slice(0, length - padded)
    mask = np.ones_like(tokens)
    mask[1] = 0
    mask[1, own] = 1
    with torch.no_grad():
        expected = [
            model(torch.tensor(tokens[row : row + 1, columns])).logits
            for row, columns in enumerate((slice(None), own))
        ]
    for cache in (None, loaded.model.make_cache()) if side == "left" else (None,):
        inputs = (
            (mx.array(tokens), mx.array(mask))
            if side == "right"
            else (mx.array(tokens), cache, mx.array(mask))
        )
        found = loaded.model(*inputs)
        for row, columns in enumerate((slice(None), own)):
            assert difference(found[row : row + 1, columns], expected[row]) <= TOLERANCE


def compared(model, folder, name, vocab, *, respelled=spelled_as_4, lengths=(1, 17, 40)):
    """Logits from the folder in both spellings, and each tensor back again as transformers wrote it."""
    model.save_pretrained(folder / "written")
    with torch.no_grad():
        for respell in (lambda folder: None, respelled):
            respell(folder / "written")
            loaded = zoo.load(folder / "written")
            assert loaded.architecture.name == name
            agrees(model, loaded, vocab, lengths=lengths)
    convert(folder / "written", folder / "back", layout="hf")
    written, back = (load_file(folder / where / "model.safetensors") for where in ("written", "back"))
    assert written.keys() == back.keys()
    for tensor, array in written.items():
        assert back[tensor].dtype == array.dtype and torch.equal(back[tensor], array), tensor
    # MLX's layout says all that its config must, packed as well as whole.
    convert(folder / "written", folder / "mlx")
    agrees(model, zoo.load(folder / "mlx"), vocab, lengths=lengths)


def package_folder(name):
    """The folder of an installed package that carries a model. It is not imported: its code may need more than is there."""
    found = importlib.util.find_spec(name)
    if found is None:
        pytest.fail(f"the package {name.replace('_', '-')} is not installed: `make parity` does it")
    return Path(found.origin).parent
