"""The threads of a process on one core."""

import json
import os
import subprocess
import sys

import pytest

from zoo import runtime


@pytest.mark.parametrize(("cores", "ring", "batch"), [(1, False, True), (2, False, False), (1, True, False)])
def test_threads_take_turns_on_one_core_but_for_those_of_the_ring(tmp_path, cores, ring, batch):
    """Their policy is SCHED_BATCH; threads that had another policy than the default keep theirs."""
    if sys.platform != "linux" or runtime.on_gpu():
        return
    code = f"""
import os, threading
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{cores}])
os.sched_getaffinity = lambda process: set(range({cores}))
import zoo
from zoo import runtime
import mlx.core as mx
done = threading.Event()
def idle():
    os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
    ready.release()
    done.wait()
ready = threading.Semaphore(0)
other = threading.Thread(target=idle)
other.start()
ready.acquire()
runtime.set_up_device()
mx.eval(mx.ones(4) + 1)
policies = {{int(t): os.sched_getscheduler(int(t)) for t in os.listdir("/proc/self/task")}}
assert policies.pop(other.native_id) == os.SCHED_IDLE
done.set()
assert set(policies.values()) == {{os.SCHED_BATCH if {batch} else os.SCHED_OTHER}}, policies
"""
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps([["127.0.0.1:5000"], ["127.0.0.1:5001"]]))
    launched = {"MLX_RANK": "0", "MLX_HOSTFILE": str(hosts)} if ring else {}
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | launched)
