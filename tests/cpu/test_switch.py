"""`ZOO_CPU` says what is used, and on a GPU nothing is."""

import os
import re
import subprocess
import sys

import pytest

from zoo import cpu

MEANS = re.findall(r"^\| `([\w-]+)`", cpu.__doc__, re.MULTILINE)
ANSWER = """
loaded = zoo.load("llama")
assert zoo.generate(loaded, "The capital city of China is" * 30, max_tokens=2).tokens
assert zoo.generate(loaded, "The capital city of China is", max_tokens=4).text == " Beijing."
print(*(name for name in sys.modules if name.startswith("zoo.cpu")))
"""
ON_A_MAC = """
import sys
sys.platform = "darwin"
import zoo, mlx.core as mx
from zoo.runtime import device
mx.compile = lambda function, **settings: function
device.on_gpu = lambda: True
"""


def modules_after(code, **environment):
    """The modules of `zoo.cpu` that a process with this environment has imported after an answer."""
    done = subprocess.run(
        [sys.executable, "-c", code + ANSWER],
        env={name: value for name, value in os.environ.items() if name != "ZOO_CPU"} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_means_is_used_unless_others_are_named(monkeypatch):
    assert MEANS and all(map(cpu.uses, MEANS))
    monkeypatch.setenv("ZOO_CPU", "blas,floats")
    assert [name for name in MEANS if cpu.uses(name)] == ["blas", "floats"]
    monkeypatch.setenv("ZOO_CPU", "plain")
    assert not any(map(cpu.uses, MEANS))


@pytest.mark.slow
def test_on_a_mac_with_a_gpu_nothing_is_imported():
    assert modules_after(ON_A_MAC) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "means", ["plain", *(pytest.param(name, marks=pytest.mark.nightly) for name in MEANS)]
)
def test_each_means_is_used_without_the_others(means):
    if sys.platform != "linux":
        return
    loading = {"zoo.cpu", *(f"zoo.cpu.{name}" for name in ("blas", "symbols", "vector_products"))}
    assert (modules_after("import sys, zoo", ZOO_CPU=means) > loading) == (
        means not in ("plain", "blas", "vectors")
    )
