"""A script that answers a file of prompts on several ranks, the last of which is killed after some exchanges of answers.

`python prompts_on_ranks.py PROMPTS OUTPUT`
"""

import os
import signal
import sys
from pathlib import Path

import zoo
from zoo.generation import prompts_file
from zoo.runtime import ranks

EXCHANGES = 4  # one after each step of the engine


def killed(gathered):
    """`ranks.gathered`, whose last call on the last rank kills it."""
    calls = []

    def call(value):
        calls.append(value)
        if len(calls) > EXCHANGES and ranks.rank() == ranks.size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return gathered(value)

    return call


if __name__ == "__main__":
    loaded = zoo.load("llama")
    lines = prompts_file.read_prompts(loaded, Path(sys.argv[1]), {})
    prompts_file.EXCHANGE, prompts_file.EXCHANGE_STEPS = 0.0, 1
    ranks.gathered = killed(ranks.gathered)
    for _ in prompts_file.answer_prompts(loaded, lines, Path(sys.argv[2]), divided=True):
        pass
