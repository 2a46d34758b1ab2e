"""What is left behind when models and texts are dropped: no threads, and no memory that is not used again."""

import subprocess
import sys

import pytest

from tests.helpers.waiting import PATIENCE

CODE = """
import os, zoo

def now(what):
    text = open("/proc/self/status").read()
    return int(text.split(what)[1].split()[0])

loaded = zoo.load("llama")
zoo.generate(loaded, "The", max_tokens=2)
threads, before = now("Threads:"), now("VmRSS:")
for _ in range(4):
    zoo.load("llama", dtype="float16")
print(now("Threads:") - threads)
for _ in range(3):
    streams = []
    for _ in range(200):
        streams.append(zoo.stream(loaded, "The capital city of China is", max_tokens=500))
        next(streams[-1])
    print((now("VmRSS:") - before) // 1024)
    del streams
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_loads_leave_no_threads_and_the_memory_of_streams_is_used_again():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=PATIENCE)
    threads, first, *later = map(int, done.stdout.split())
    assert threads <= 1, done.stderr  # of four loads
    assert first > 150 and max(later) < first + 50
