"""Pairs of folders of one model: its matrices in a quantized format, and the numbers that those are."""

import json

import pytest

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.checkpoint.convert import save
from zoo.testing import subject

from .packers import read_safetensors, write_safetensors


@pytest.fixture
def pair(tmp_path):
    """Write the pair; gives the quantized folder, and a check that its logits are the plain one's.

    `make(name, shape)` gives what stands for a matrix, by the last part of the name, and the numbers; None leaves it.
    `kinds` are the header's dtypes of bytes by those parts.
    """

    def write(make, settings, architecture="llama", kinds=(), preset=None, changes=None):
        made = subject(architecture, preset)
        plain, quantized = tmp_path / "plain", tmp_path / "quantized"
        save(plain, made.model, made.architecture, made.recipe, made.numbers)
        tensors, dtypes = {}, {}
        numbers = read_safetensors(plain / "model.safetensors")
        for name, array in list(numbers.items()):
            owner = name.removesuffix(".weight")
            matrix = array.ndim == 2 and ("_proj" in name or ".experts." in name)
            done = make(name, array.shape) if matrix else None
            if done is None:
                tensors[name] = array
                continue
            parts, numbers[name] = done
            tensors |= {f"{owner}.{part}": value for part, value in parts.items()}
            of_bytes = [
                part for part, value in parts.items() if value.dtype.name == "uint8" and part in dict(kinds)
            ]
            dtypes |= {f"{owner}.{part}": dict(kinds)[part] for part in of_bytes}
        write_safetensors(plain / "model.safetensors", numbers)
        quantized.mkdir()
        write_safetensors(quantized / "model.safetensors", tensors, dtypes)
        config = json.loads((plain / "config.json").read_text()) | {"quantization_config": settings}
        (quantized / "config.json").write_text(json.dumps(config | (changes or {})))

        def check(loaded, tolerance=1e-5):
            expected = zoo.load(plain).model(made.tokens)
            worst = mx.abs(loaded.model(made.tokens) - expected).max() / (expected.max() - expected.min())
            assert worst.item() <= tolerance
            return loaded

        return quantized, check

    return write


@pytest.fixture
def silent(recwarn):
    """Assert, at the end, that nothing was warned of."""
    yield
    assert not [str(warning.message) for warning in recwarn.list]
