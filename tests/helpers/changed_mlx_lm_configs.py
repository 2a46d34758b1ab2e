"""Configs of mlx-lm's architectures with a change or two, each tried in this process, which a fault in one may end.

Run as a script with the first seed and their number: a line of JSON before each, and one after, [seed, module, outcome].
"""

import copy
import json
import random
import resource
import sys
import tempfile
import warnings
from pathlib import Path

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
from mlx.utils import tree_flatten

from tests.helpers.mlx_lm_configs import small
from zoo.errors import ZooError
from zoo_mlx_lm import modules
from zoo_mlx_lm.block import make

VALUES = [
    *(
        None,
        True,
        0,
        0,
        0,
        1,
        -1,
        -2,
        2,
        3,
        5,
        7,
        64,
        -64,
        100,
        1000,
        4096,
        32768,
        65536,
        65537,
        10**5,
        10**6,
    ),
    *(10**9, 2**31 - 1, 2**31, 2**63, 10**12, -(10**18), 0.5, -0.5, 1e-30, 1e308, float("inf"), float("nan")),
    *("", "x", "silu", [], {}, [1], [0], [[]], [None], [-1, -1], {"a": 1}, {"rope_type": "yarn"}),
    {"type": "linear", "factor": 0.0},
]
MEMORY = 12 * 2**30  # bytes of address space: more is an error, and not the end of the machine


def changed(config, draw):
    """A copy of a config that differs in one place or two, at any depth."""
    config = json.loads(json.dumps(config))
    for _ in range(draw.choice([1, 1, 1, 2])):
        place = config
        while place:
            key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if isinstance(place[key], dict | list) and place[key] and draw.random() < 0.6:
                place = place[key]
                continue
            if key != "model_type" and isinstance(place, dict) and draw.random() < 0.1:
                del place[key]
            elif key != "model_type":
                place[key] = copy.deepcopy(draw.choice(VALUES))  # which the next change may go into
            break
    return config


def bases(names):
    """A folder of random weights for each module, and its config; those that cannot be made so small are left out."""
    for name in names:
        try:
            config = small(name)
            network = make(name, json.loads(json.dumps(config)))
        except (Exception, SystemExit):
            continue
        folder = Path(tempfile.mkdtemp())
        tensors = dict(tree_flatten(network.parameters()))
        mx.save_safetensors(str(folder / "model.safetensors"), tensors, {"format": "mlx"})
        yield name, folder, config


def outcome(name, folder, config):
    """What became of a changed config: "runs", "refused", or what went wrong."""
    (folder / "config.json").write_text(json.dumps(config))
    try:
        mx.enable_compile()  # shapes are told by a function that is being compiled, and never is
        loaded = zoo.load(folder, architecture=f"mlx-lm::{name}")
        mx.disable_compile()  # here each kernel would call the C++ compiler
        list(zoo.stream(loaded, [1, 2, 3, 4, 5, 6, 7], max_tokens=3, prefill_chunk=3))
    except ZooError as error:
        return "refused" if str(error) and "\n" not in str(error) else f"not one line: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "runs"


def main(first, count, *names):
    """Try `count` changes, of these modules or of all."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    made = list(bases(names or modules()))
    for seed in range(first, first + count):
        draw = random.Random(seed)
        name, folder, config = draw.choice(made)
        other = changed(config, draw)
        print(json.dumps([seed, name, None]), flush=True)
        print(json.dumps([seed, name, outcome(name, folder, other)]), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
