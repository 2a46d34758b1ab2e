"""The tutorial's plugin, installed as its page says, against transformers' GPT-J."""

import os
import subprocess
import sys

import pytest
import torch
from transformers import GPTJConfig, GPTJForCausalLM

import zoo
from zoo.host.plugins import load_plugins
from zoo.host.registry import Registry

from .support import TOLERANCE, difference, reference, spelled_as_4, texts

import mlx.core as mx  # isort: skip (after zoo, which loads the fast BLAS)

VOCAB = 99


@pytest.fixture
def known(tutorial, monkeypatch):
    monkeypatch.syspath_prepend(str(tutorial[1].path))
    yield Registry(load_plugins({}))
    for name in [name for name in sys.modules if name.partition(".")[0] == "zoo_gptj"]:
        del sys.modules[name]


@pytest.mark.parametrize("heads, head_dim, rotary_dim", [(4, 8, 4), (3, 16, 16), (2, 12, 6)])
@pytest.mark.parametrize(
    "extra", [{}, dict(n_inner=50, activation_function="relu"), dict(layer_norm_epsilon=1e-3)]
)
def test_logits(known, tmp_path, heads, head_dim, rotary_dim, extra):
    config = GPTJConfig(
        vocab_size=VOCAB,
        n_embd=heads * head_dim,
        n_layer=2,
        n_head=heads,
        rotary_dim=rotary_dim,
        n_positions=64,
        **extra,
    )
    model = reference(GPTJForCausalLM, config, heads)
    model.save_pretrained(tmp_path)
    for spelled in (lambda folder: None, spelled_as_4):
        spelled(tmp_path)
        loaded = zoo.load(tmp_path, registry=known)
        assert loaded.architecture.name == "gptj"
        for length in (1, 17, 40):
            tokens = texts(VOCAB, 2, length)
            with torch.no_grad():
                expected = model(torch.tensor(tokens)).logits
            assert difference(loaded.model(mx.array(tokens)), expected) <= TOLERANCE


def test_the_pages_own_comparison(tutorial):
    where, site = tutorial
    environment = {**os.environ, **site.environment}
    subprocess.run([sys.executable, "reference.py"], cwd=where, env=environment, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "zoo", "test", "./reference", "--reference", "reference.npz"],
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2].startswith("  ok      logits equal the references")
