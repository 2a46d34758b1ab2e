"""A rank that fails ends all ranks in bounded time, with one line that names it, and leaves no process.

ZOO_FAULTS sets how often the nightly test repeats each fault (default 50).
"""

import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.helpers.ranks import Launched, exit_statuses, launch, zoo_lines

pytestmark = pytest.mark.slow
TIMES = int(os.environ.get("ZOO_FAULTS", "50"))
SOON = {"ZOO_RANKS_TIMEOUT": "3", "ZOO_RANKS_START": "20"}

# A rank that works with the others until `fault` happens to the last one.
WORK = """
import errno, os, signal, sys, time
from zoo.machine import launched_rank
fault, here = sys.argv[1], launched_rank() == int(sys.argv[2])
if here and fault == "absent": time.sleep(1000)
from zoo.cli.ranks import join_ranks
from zoo import rank_watch
from zoo.errors import ZooError
try:
    join_ranks()
    import mlx.core as mx
    from zoo.runtime import ranks
    if here and fault == "version": ranks.__version__ = "9.9"
    if here and fault == "start": mx.distributed.init = lambda **_: os.kill(os.getpid(), signal.SIGKILL)
    ranks.group()
    ranks.check_same({"the checkpoint": "b" if here and fault == "checkpoint" else "a"})
    for step in range(1000):
        if here and step == 5:
            if fault == "killed": os.kill(os.getpid(), signal.SIGKILL)
            if fault == "stopped": os.kill(os.getpid(), signal.SIGSTOP)
            if fault == "ended": os.kill(os.getpid(), signal.SIGTERM)
            if fault == "disk": raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        mx.eval(ranks.all_sum(mx.ones(1000)))
        time.sleep(0.01)
    print("done")
except (ZooError, OSError) as error:
    rank_watch.fail(f"error: {error}", 1)
"""

SAID = {
    "killed": r"zoo: error: rank {0} ended unexpectedly; all ranks end",
    "stopped": r"zoo: error: rank {0} has not answered for 3 s; all ranks end",
    "ended": r"zoo: rank {0}: error: ended by SIGTERM",
    "disk": r"zoo: rank {0}: error: \[Errno 28\] No space left on device",
    "start": r"zoo: error: (a rank ended while MLX connected the ranks|rank {0} ended unexpectedly); all ranks end",
    "absent": r"zoo: error: rank {0} did not come; all ranks end",
    "version": r"zoo: rank {0}: error: the zoo version is 9.9, rank 0 has .*; all ranks must have the same",
    "checkpoint": r"zoo: error: rank {0} has the checkpoint b, rank 0 has a; all ranks must have the same",
}


@pytest.fixture
def fails(tmp_path):
    """Run `WORK` with a fault of a rank; check how all ranks end."""
    script = tmp_path / "work.py"
    script.write_text(textwrap.dedent(WORK))

    def check(fault, size=2, rank=None, backend="ring"):
        rank = size - 1 if rank is None else rank
        finished = launch(size, script, fault, rank, env=SOON, backend=backend)
        lines = zoo_lines(finished)
        if (
            not lines and backend == "mpi" and fault == "start"
        ):  # Open MPI may end the ranks before they say it
            assert f"process rank {rank}" in finished.stderr
            return
        assert len(lines) == 1 and re.fullmatch(SAID[fault].format(rank), lines[0]), finished.stderr
        if backend == "ring":  # whose launcher says how each rank ended, and prints no more
            assert finished.stdout == ""
            assert sorted(exit_statuses(finished)) == [*range(size)], finished.stderr

    return check


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=[pytest.mark.nightly] if fault == "absent" else []) for fault in SAID],
)
def test_a_fault_of_one_rank_ends_all_with_one_line(fails, fault):
    fails(fault)


@pytest.mark.parametrize("fault", ["killed", pytest.param("stopped", marks=pytest.mark.nightly)])
def test_rank_1_names_rank_0_when_that_is_lost(fails, fault):
    fails(fault, rank=0)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=[] if fault in ("killed", "stopped") else [pytest.mark.nightly])
        for fault in SAID
    ],
)
def test_a_fault_of_a_rank_of_mpi_ends_all_with_one_line(fails, fault):
    fails(fault, size=3, backend="mpi")


def test_ranks_without_a_library_of_mpi_end_with_one_line(tmp_path):
    script = tmp_path / "work.py"
    script.write_text("import os\nos.environ['MLX_MPI_LIBNAME'] = 'none'\n" + textwrap.dedent(WORK))
    finished = launch(2, script, "none", 0, env=SOON, backend="mpi")
    [line] = zoo_lines(finished)
    assert line.startswith("zoo: error: MLX cannot connect the ranks ("), line


def test_a_rank_of_an_mpi_that_is_not_watched_does_not_run_alone():
    """As MPICH starts ranks: MLX does not find its library here, and no address is known for the watch."""
    command = [sys.executable, "-m", "zoo", "run", "llama", "Hello"]
    environment = os.environ | {"PMI_RANK": "0", "PMI_SIZE": "2", "MLX_MPI_LIBNAME": "none"}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert finished.returncode == 1 and not finished.stdout
    assert finished.stderr.startswith("zoo: error: "), finished.stderr
    assert "MLX cannot connect the ranks (" in finished.stderr and len(finished.stderr.splitlines()) == 1


def test_ranks_of_mpi_write_the_same_text():
    question = ("-m", "zoo", "run", "llama", "The capital city of China is", "--parallel", "tensor")
    finished = launch(2, *question, backend="mpi")
    assert finished.stdout == " Beijing.\n", finished.stderr


@pytest.mark.nightly
def test_ranks_that_are_no_neighbours_of_the_lost_one_end_too(fails):
    fails("killed", size=4, rank=2)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", SAID)
def test_a_fault_ends_all_ranks_each_time(fails, fault):
    for _ in range(TIMES):
        fails(fault)


def test_a_busy_rank_is_not_a_lost_one(tmp_path):
    script = tmp_path / "busy.py"
    script.write_text(
        textwrap.dedent("""
        import time
        import mlx.core as mx
        from zoo.runtime import ranks
        if ranks.rank() == 1:
            end = time.monotonic() + 3
            while time.monotonic() < end: sum(range(10000))
        mx.eval(ranks.all_sum(mx.ones(1000)))
        if ranks.rank() == 0: print("done")
        """)
    )
    finished = launch(2, script, env={"ZOO_RANKS_TIMEOUT": "1.5"})
    assert (finished.stdout, zoo_lines(finished), exit_statuses(finished)) == ("done\n", [], {})


def test_ranks_draw_the_same_seeds_and_gather_their_values(tmp_path):
    script = tmp_path / "seeds.py"
    script.write_text(
        "from zoo.runtime import ranks\n"
        "own = [ranks.random_seed(), ranks.random_seed(), ranks.shared({'rank': ranks.rank()})]\n"
        "found = ranks.gathered([own, 'é' * ranks.rank()])\n"
        "if ranks.rank() == 1: print(found[0][0] == found[1][0], own[0] == own[1], own[2], found[1][1])\n"
    )
    finished = launch(2, script)
    assert finished.stdout == "True False {'rank': 0} é\n", finished.stderr


def test_ctrl_c_ends_one_answer_on_all_ranks_and_the_conversation_goes_on():
    with Launched(2, "-m", "zoo", "chat", "llama", "--min-tokens", "20000", "--max-tokens", "20001") as run:
        run.type("The capital city of China is\n")
        seen = b""
        while b"Beijing" not in seen:
            seen += os.read(run.process.stdout.fileno(), 4096)
        os.kill(run.processes()[0], signal.SIGINT)
        run.type("/set min_tokens 1\nThe capital city of France is\n/exit\n")
        finished = run.wait()
    assert "(stopped)" in finished.stderr and "Paris." in finished.stdout
    assert exit_statuses(finished) == {}


def test_ctrl_c_while_no_text_is_generated_ends_all_ranks(tmp_path):
    script = tmp_path / "wait.py"
    script.write_text(
        "import sys, time\nfrom zoo.cli.ranks import join_ranks\njoin_ranks()\n"
        "from zoo.runtime import ranks\nranks.group()\nprint('ready', flush=True)\ntime.sleep(1000)\n"
    )
    with Launched(2, script) as run:
        assert run.process.stdout.readline() == "ready\n"
        os.kill(run.processes()[0], signal.SIGINT)
        finished = run.wait()
    found = exit_statuses(finished)
    assert set(found) == {0, 1} and {130} <= {*found.values()} <= {130, "killed"}
    assert zoo_lines(finished) == []
