"""Measure what cache policies cost: the perplexity of held-out text beside the bytes of the cache, for the docs.

    python tools/measure_cache_policies.py

Each model reads the atlas' held-out documents one after the other, as in training, in windows of two lengths, and
predicts the second half of each.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from zoo.describe.facts.memory import policy_bytes
from zoo.files.writing import write_text
from zoo.inspect.perplexity import perplexity
from zoo.loading import load
from zoo.recipe.policy import CachePolicy
from zoo.runtime import versions
from zoo.training.objective import END
from zoo_lab.experiments.common import held_out

RECORD = Path(__file__).parent.parent / "docs" / "records" / "cache_policies.json"
MODELS = ("llama", "gemma2")  # one of full attention, one with windows in every other layer
POLICIES: dict[str, dict[str, int]] = {
    "plain": {},
    "k8v8": {"kv_bits": 8},
    "k8v4": {"key_bits": 8, "value_bits": 4},
    "k4v4": {"kv_bits": 4},
    "64, keep 4": {"max_kv_size": 64, "keep": 4},
    "16, keep 4": {"max_kv_size": 16, "keep": 4},
}
CONTEXTS = (64, 128)  # tokens of a window
TOKENS = 10_000  # that are predicted


def measured(name: str) -> list[dict[str, Any]]:
    """The figures of one model: by context and policy the perplexity, and the bytes of a cache of one window in 16 bits."""
    loaded, text = load(name, dtype="float32"), END.join(held_out())
    found = []
    for context in CONTEXTS:
        for label, settings in POLICIES.items():
            policy = CachePolicy.of(**settings)
            if policy.max_size is not None and policy.max_size >= context:
                continue
            cost = perplexity(
                loaded, text, context=context, stride=context // 2, limit=TOKENS, batch=8, policy=policy
            )
            figures = {"perplexity": round(cost.perplexity, 4), "tokens": cost.tokens}
            size = policy_bytes(loaded.recipe, context, policy)
            found.append(
                {"context": context, "policy": label, "settings": settings, "cache_bytes": size} | figures
            )
    return found


def main() -> None:
    """Measure the models and write the record."""
    record = {
        "versions": versions(),
        "date": time.strftime("%Y-%m-%d"),
        "corpus": "atlas, held out",
        "models": {name: measured(name) for name in MODELS},
    }
    write_text(RECORD, json.dumps(record, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
