"""Folders that `zoo convert --calibrate` writes, read by mlx-lm."""

from itertools import islice

import mlx_lm.utils as mlx_lm
import pytest

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.checkpoint.calibration import Calibration
from zoo.checkpoint.convert import convert
from zoo.testing import same
from zoo_corpora.atlas import documents

METHODS = ("gptq", "awq", "sensitivity")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "atlas.txt"
    path.write_text("\n".join(islice(documents("train"), 200)))
    return path


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["llama", "mixtral", "gemma2", "mamba"])
def test_mlx_lm_computes_the_same_logits_from_a_calibrated_folder(name, method, text, tmp_path):
    calibration = Calibration(text, method, rows=4, length=32)
    convert(name, tmp_path / "out", quantize="4", group_size=32, dtype="float32", calibration=calibration)
    tokens = mx.arange(5, 45)[None]
    theirs, _ = mlx_lm.load_model(tmp_path / "out")
    ours = zoo.load(tmp_path / "out", dtype="float32").model(tokens)
    same(ours, theirs(tokens), "logits")
