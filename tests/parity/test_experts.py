"""The experts of each mixture in the forms in which folders hold them: released, transformers 5's, mlx-lm's."""

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import load_file

import zoo
from zoo.checkpoint.convert import convert

from .families import FAMILIES
from .family import VOCAB
from .support import agrees, texts

MIXTURES = [
    name
    for name, family in FAMILIES.items()
    if any("experts" in key for key in family.settings | family.variants[0])
]
STACKED_AS_RELEASED = ("granite-hybrid", "gpt-oss", "llama4", "mistral4")


def logits(folder):
    return np.array(zoo.load(folder).model(mx.array(texts(VOCAB, 2, 17))))


@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_has_equal_logits_in_each_form_of_its_experts(tmp_path, name):
    model = FAMILIES[name].make()
    written = {}
    for form, released in (("released", True), ("held", False)):
        model.save_pretrained(tmp_path / form, save_original_format=released)
        FAMILIES[name].respelled(tmp_path / form)
        written[form] = load_file(tmp_path / form / "model.safetensors")
    alone = any(".experts.0." in tensor for tensor in written["released"])
    assert alone == (name not in STACKED_AS_RELEASED)
    assert any(tensor.endswith("experts.gate_up_proj") for tensor in written["held"])
    convert(tmp_path / "released", tmp_path / "mlx", layout="mlx")
    stacked = "experts.gate_proj." if name in ("gpt-oss", "dots1", "llama4") else "switch_mlp.gate_proj."
    assert any(stacked in tensor for tensor in load_file(tmp_path / "mlx" / "model.safetensors"))
    agrees(model, zoo.load(tmp_path / "released"), VOCAB, lengths=(17,))
    expected = logits(tmp_path / "released")
    for form in ("held", "mlx"):
        np.testing.assert_array_equal(logits(tmp_path / form), expected, err_msg=form)
