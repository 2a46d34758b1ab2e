"""In 16 bits the zoo's logits are about as near to those of float32 as transformers' are, on a pretended GPU."""

import copy

import numpy as np
import pytest
import torch

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from tests.helpers.pretended_gpu import PRETENDED

from .families import FAMILIES
from .family import VOCAB
from .support import texts

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not PRETENDED, reason="is about a GPU: ZOO_PRETEND_GPU=1"),
]
MOST = 1.5  # times transformers' error


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_rounding_is_about_that_of_transformers(tmp_path, name, dtype):
    model = FAMILIES[name].make()
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path, dtype=dtype)
    rounded = copy.deepcopy(model).to(getattr(torch, dtype))
    tokens = np.concatenate([texts(VOCAB, 8, 24, seed) for seed in range(3)])
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits.numpy()
        theirs = rounded(torch.tensor(tokens)).logits.float().numpy()
    ours = np.array(loaded.model(mx.array(tokens)).astype(mx.float32))
    # The median over tokens: rounding tips a router now and then, which changes all of one token's logits.
    found, allowed = (np.median(np.abs(logits - expected).mean(axis=-1)) for logits in (ours, theirs))
    assert found <= MOST * allowed, f"{found / allowed:.2f} times transformers' error"
