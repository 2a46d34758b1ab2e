"""What the live comparisons share: a reference model with random parameters, its folder, and how far logits differ."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.checkpoint.convert import convert
from zoo.checkpoint.parameters import export

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
        config["rope_scaling"] = {"type": kind, **rope} if kind == "yarn" else {"rope_type": kind, **rope}
        if kind == "default":
            config["rope_scaling"] = None
    path.write_text(json.dumps(config))


def difference(found, expected):
    """The largest absolute difference, as a share of the expected range."""
    found, expected = np.array(found.astype(mx.float32)), expected.detach().numpy()
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / (expected.max() - expected.min()))


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


def decodes_as(model, loaded, vocab, prompt, length):
    """Assert that `prompt` tokens read at once, then one after the other up to `length`, get the reference's logits."""
    tokens, cache = texts(vocab, 2, length), loaded.model.make_cache()
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits
    pieces = [loaded.model(mx.array(tokens[:, :prompt]), cache)]
    pieces += [loaded.model(mx.array(tokens[:, i : i + 1]), cache) for i in range(prompt, length)]
    assert difference(mx.concatenate(pieces, axis=1), expected) <= TOLERANCE


def pads_as(model, folder, vocab, length=20, padded=6):
    """Assert that a row padded on the left by `padded` columns has the reference's logits of its own text."""
    model.save_pretrained(folder)
    loaded, tokens = zoo.load(folder), texts(vocab, 2, length)
    mask = mx.array([[1] * length, [0] * padded + [1] * (length - padded)])
    found = loaded.model(mx.array(tokens), loaded.model.make_cache(), mask)
    with torch.no_grad():
        for row, start in enumerate((0, padded)):
            expected = model(torch.tensor(tokens[row : row + 1, start:])).logits
            assert difference(found[row : row + 1, start:], expected) <= TOLERANCE


def loads_as_mlx(folder, theirs):
    """Rewrite a folder's tensors as mlx-lm's model `theirs` names them, give `theirs` the same; returns what the zoo loads."""
    path = folder / "model.safetensors"
    tensors = theirs.sanitize(dict(mx.load(str(path))))
    theirs.load_weights(list(tensors.items()))
    mx.eval(tensors)
    mx.save_safetensors(str(path), tensors, metadata={"format": "mlx"})
    return zoo.load(folder)


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


def exports_as_written(folder):
    """Assert that what the model in a folder is exported to are the tensors of the folder, to the bit."""
    loaded = zoo.load(folder)
    written = mx.load(str(folder / "model.safetensors"))
    exported = export(loaded.model, loaded.architecture, loaded.recipe)
    assert exported.keys() == written.keys()
    assert all(mx.array_equal(exported[name], written[name]) for name in written)


def package_folder(name):
    """The folder of an installed package that carries a model. It is not imported: its code may need more than is there."""
    found = importlib.util.find_spec(name)
    if found is None:
        pytest.fail(f"the package {name.replace('_', '-')} is not installed: `make parity` does it")
    return Path(found.origin).parent
