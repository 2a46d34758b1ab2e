"""A server that has answered many requests holds no more than one that has answered some."""

import gc
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.helpers.serving import PROMPT, serving
from tests.plugins.serve.test_faults import vanish

MEGABYTES = 20  # that may come and go


def resident_bytes():
    gc.collect()
    return 1024 * int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(os.getpid())]))


def ask_many(made, count):
    """Answers, streams, errors, and clients that vanish, of prompts of which few differ."""

    def one(number):
        body = {"prompt": PROMPT + " x" * (number % 5), "max_tokens": 8, "stream": number % 2 == 0}
        if number % 7 == 0:
            vanish(made.send(body))
        elif number % 11 == 0:
            assert made.ask({**body, "prompt": 1})[0] == 400
        else:
            assert made.ask(body)[0] == 200

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(count)))
    made.rest()


@pytest.mark.slow
def test_memory_and_files_after_500_requests_are_those_after_100():
    with serving(prompt_cache=2**20) as made:
        ask_many(made, 100)
        files, before = len(os.listdir("/dev/fd")), resident_bytes()
        ask_many(made, 400)
        assert len(os.listdir("/dev/fd")) <= files  # a connection may have been closing before
        assert resident_bytes() - before < MEGABYTES * 2**20
