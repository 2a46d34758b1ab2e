"""Models divided among ranks beside whole ones; `mlx.launch` starts it on each rank.

    python families_on_ranks.py WAY HOW SOURCE…

HOW are names of how a model writes, separated by commas, or "all".

Rank 0 prints a line of JSON a source: `off`, the largest difference of a logit in the range of all; `numbers`, how many each
of both models holds; and under `whole` and `divided` what both write, by the name of the way in which they do.
"""

import json
import sys

import mlx.core as mx
from mlx.utils import tree_flatten

import zoo
from zoo.generation.loop.engine import Engine
from zoo.runtime import ranks

PROMPT, TOKENS = "The capital of China is", 6
PROMPTS = [PROMPT, "Paris", "What is the largest city of Japan, and"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}


def logits_of(loaded):
    """The logits of one text; of an encoder-decoder, those of its own translation."""
    ids = mx.array([loaded.tokenizer.encode(PROMPT)])
    return loaded.model(ids, ids) if loaded.model.translates else loaded.model(ids)


def batch(loaded):
    """The tokens of several prompts that share the passes."""
    engine = Engine(loaded)
    owners = [engine.add(prompt, temperature=0.0, max_tokens=TOKENS) for prompt in PROMPTS]
    tokens = {owner: [] for owner in owners}
    for owner, step in engine.run():
        tokens[owner].append(step.token)
    return [tokens[owner] for owner in owners]


def texts_of(loaded, chosen):
    """What a model writes, by how it does: in each way that it can, or in those chosen."""

    def text(prompt=PROMPT, **settings):
        return zoo.generate(loaded, prompt, **{"max_tokens": TOKENS} | settings).text

    if loaded.architecture.task == "translate":
        return {"beams": text(beams=2)}
    if loaded.architecture.task != "generate":
        return {}
    cache = zoo.PromptCache(loaded)
    ways = {
        "greedy": lambda: text(temperature=0.0),
        "sampled": lambda: text(temperature=0.8, seed=3),
        "batch": lambda: batch(loaded),
        "cached": lambda: [
            text(prompt, temperature=0.0, prompt_cache=cache) for prompt in (PROMPT, PROMPT + " the")
        ],
        "beams": lambda: text(strategy="beam", beams=2),
        "json": lambda: text(temperature=0.0, json_schema=SCHEMA, max_tokens=40),
    }
    if loaded.model.plain_caches(loaded.model.make_cache()):
        ways["look-up"] = lambda: text(PROMPT + " " + PROMPT, temperature=0.0, prompt_lookup=4)
    return {name: write() for name, write in ways.items() if chosen == "all" or name in chosen.split(",")}


def main(way, chosen, *sources):
    for source in sources:
        whole, own = zoo.load(source), zoo.load(source, parallel=way)
        expected, found = logits_of(whole), logits_of(own)
        seen = {
            "source": source,
            "off": (mx.abs(found - expected).max() / (expected.max() - expected.min())).item(),
            "numbers": [
                sum(array.size for _, array in tree_flatten(each.model.parameters())) for each in (whole, own)
            ],
            "whole": texts_of(whole, chosen),
            "divided": texts_of(own, chosen),
        }
        if ranks.rank() == 0:
            print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
