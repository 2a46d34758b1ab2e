"""Configs of bridged models with something changed: the model runs, or one line says why not; the process lives.

ZOO_FUZZ=5000 tries so many of them, of all of mlx-lm's modules, others each time.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.mlx_lm_configs import write

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)

from zoo.errors import ConfigError, ZooError

HELPER = Path(__file__).parent.parent / "helpers" / "changed_mlx_lm_configs.py"
MODULES = ["nanochat", "dots1", "gemma3_text", "olmo_hybrid", "rwkv7"]
pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.mark.parametrize(
    ("module", "change", "words"),
    [
        ("nanochat", {"num_key_value_heads": 0}, "num_key_value_heads 0 must be at least 1"),
        ("nanochat", {"num_attention_heads": -4}, "num_attention_heads -4 must be at least 1"),
        ("dots1", {"n_group": 0}, "n_group 0 must be at least 1"),
        ("olmo2", {"hidden_size": 32768}, "hidden_size 32768 must be at most 6144"),
        ("olmo2", {"intermediate_size": 2**40}, "intermediate_size 1099511627776 must be at most"),
        ("olmo2", {"vocab_size": 10**9}, "vocab_size 1000000000 must be at most"),
        ("dbrx", {"d_model": 32768}, "d_model 32768 must be at most"),
        ("dbrx", {"attn_config": {"kv_n_heads": 0}}, "attn_config.kv_n_heads 0 must be at least 1"),
        ("openelm", {"num_kv_heads": [2, 0, 2, 2]}, "num_kv_heads 0 must be at least 1"),
    ],
)
def test_what_would_end_the_process_is_refused_before_anything_is_built(module, change, words, tmp_path):
    write(tmp_path, module)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError) as caught:
        zoo.load(tmp_path, architecture=f"mlx-lm::{module}")
    assert words in str(caught.value)


def test_a_size_of_another_kind_than_the_tensors_is_no_matter(tmp_path):
    write(tmp_path, "gemma3n")
    loaded = zoo.load(tmp_path, architecture="mlx-lm::gemma3n")  # whose vocabulary a layer is large
    assert loaded.recipe.vocab == 96


def test_what_mlx_lm_raises_while_it_runs_is_one_line(tmp_path):
    write(tmp_path, "gemma3_text")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sliding_window": 0}))
    loaded = zoo.load(tmp_path, architecture="mlx-lm::gemma3_text")
    with pytest.raises(
        ZooError, match=r"mlx-lm::gemma3_text does not run with these settings \(ValueError: "
    ):
        zoo.generate(loaded, [1, 2, 3, 4, 5, 6, 7], max_tokens=3, prefill_chunk=3)


@pytest.mark.slow
def test_a_changed_config_runs_or_is_refused():
    count = int(os.environ.get("ZOO_FUZZ", 40))
    first = random.randrange(10**9) if "ZOO_FUZZ" in os.environ else 0
    names = () if "ZOO_FUZZ" in os.environ else MODULES
    tried, outcomes = 0, []
    while tried < count:
        command = [sys.executable, str(HELPER), str(first + tried), str(count - tried), *names]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        assert lines, done.stderr
        outcomes += [line for line in lines if line[2] is not None]
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            outcomes.append([*lines[-1][:2], f"the process ended with {done.returncode}: {last}"])
        tried = outcomes[-1][0] - first + 1
    assert [line for line in outcomes if line[2] not in ("runs", "refused")] == []
    assert {line[2] for line in outcomes} == {"runs", "refused"}
