"""The operations and kernels of a decode step are those of its graph, as on a GPU."""

import json

import mlx.core as mx
import pytest

from zoo.errors import ZooError
from zoo_bench.benchmark import benchmark
from zoo_bench.graph import count


def test_views_are_no_kernels_and_a_concatenation_is_one_for_each_input():
    x = mx.ones((2, 3))
    mx.eval(x)
    wide = mx.concatenate([x * 2, x.T.reshape(2, 3)], axis=1)[:, None]
    assert count(wide)["kernels"] == 3


def test_what_is_computed_already_is_not_counted():
    x = mx.exp(mx.ones((2, 3)))
    mx.eval(x)
    assert count(mx.exp(x)) == {"operations": 1, "kernels": 1}


def test_a_graph_is_counted_alone():
    with pytest.raises(ZooError, match="alone"):
        benchmark("llama", only=["graph", "host"])


@pytest.mark.slow
def test_a_norm_is_one_kernel_whatever_this_machine_has(command):
    done = command("bench", "llama", "--only", "graph", "--runs", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["engines"]["zoo"]
    assert found["graph_seconds"] > 0 and found["operations"] > found["kernels"]
    # 13 a layer, and the embedding, the last norm, the head and the choice
    assert found["kernels"] == 13 * 4 + 5
