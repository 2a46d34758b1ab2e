"""What mlx-lm makes of transformers' tensors, where its own logits are others: it is loaded all the same."""

from importlib import import_module

import mlx.core as mx
import pytest
import torch

import zoo
from zoo.checkpoint.convert import convert

from .families import FAMILIES
from .family import VOCAB
from .support import TOLERANCE, agrees, decodes_as, difference, texts


def loads_as_mlx(model, folder, module, **arguments):
    """Save the reference, and rewrite its tensors as mlx-lm's module names them; returns what the zoo loads."""
    model.save_pretrained(folder)
    module = import_module(f"mlx_lm.models.{module}")
    theirs = module.Model(module.ModelArgs.from_dict(model.config.to_dict() | arguments))
    path = folder / "model.safetensors"
    tensors = theirs.sanitize(dict(mx.load(str(path))))
    theirs.load_weights(list(tensors.items()))
    mx.eval(tensors)
    mx.save_safetensors(str(path), tensors, metadata={"format": "mlx"})
    return zoo.load(folder)


@pytest.mark.parametrize(
    "name, arguments", [("jamba", {}), ("mamba2", dict(intermediate_size=64))], ids=["jamba", "mamba2"]
)
def test_the_layout_of_mlx_conversions(tmp_path, name, arguments):
    model = FAMILIES[name].make()
    loaded = loads_as_mlx(model, tmp_path, name, **arguments)
    agrees(model, loaded, VOCAB)
    decodes_as(model, loaded, VOCAB)


def test_conversions_of_falcon_h1_hold_the_multipliers_in_the_weights(tmp_path):
    model = FAMILIES["falcon-h1"].make(dict(attention_in_multiplier=1.0, mamba_d_head=6, head_dim=8))
    loaded = loads_as_mlx(model, tmp_path / "model", "falcon_h1")
    assert loaded.recipe.embedding.scale == 1.0 and loaded.recipe.layers[0].memory.scales == (1.0,) * 5
    for folder, settings in (("again", {}), ("hf", dict(layout="hf"))):
        convert(tmp_path / "model", tmp_path / folder, **settings)
    tokens = texts(VOCAB, 2, 40)
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits
    for folder in ("model", "again", "hf"):
        assert difference(zoo.load(tmp_path / folder).model(mx.array(tokens)), expected) <= TOLERANCE
