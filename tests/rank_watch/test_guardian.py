"""Guardians of ranks: how ranks meet, what they take from a connection, and that strangers do not matter."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from tests.helpers.ranks import free_ports
from tests.helpers.waiting import PATIENCE
from zoo.rank_watch.guardian import FROM_FIRST, FROM_MAIN, FROM_RANK, MOST_BYTES, TO_MAIN, Peer

# A rank without MLX. It does what it reads, and says what happens.
RANK = """
import json, signal, sys, threading
from zoo.rank_watch import Watch
watch = Watch(**json.loads(sys.argv[1]))
watch.met.wait()
print("met", flush=True)
for line in sys.stdin:
    name, value = json.loads(line)
    if name == "wait":
        watch.wait()
        print("went", flush=True)
    else:
        watch.send(name, value)
    if [name, value] == ["done", 2]:
        break
    if name == "done":
        watch.done.wait()
        print("done", flush=True)
        break
"""


class Rank:
    """A rank, in a process, with its guardian in another."""

    def __init__(self, rank, port, size=2, start=PATIENCE, silence=60, stall=60, versions=("1", "2")):
        settings = dict(rank=rank, size=size, versions=versions)
        settings |= {"place": ["127.0.0.1", port], "seconds": [start, silence, stall]}
        self.process = subprocess.Popen(
            [sys.executable, "-c", RANK, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def says(self, word):
        """Whether the next line that it prints is this word."""
        return self.process.stdout.readline() == f"{word}\n"

    def send(self, name, value=1):
        self.process.stdin.write(json.dumps([name, value]) + "\n")
        self.process.stdin.flush()

    def end(self):
        """Its exit status, once it and its guardian have ended, and what both printed to the error stream."""
        self.process.wait(PATIENCE)
        return self.process.returncode, self.process.communicate(timeout=PATIENCE)[1]


@pytest.fixture
def port():
    return free_ports(1)  # below those that a client gets: it could reach itself at such a one


@pytest.fixture
def ranks():
    """Start ranks; none is left at the end."""
    started = []

    def start(*arguments, **settings):
        started.append(Rank(*arguments, **settings))
        return started[-1]

    yield start
    for rank in started:
        rank.process.kill()
        rank.process.communicate()


def come(port, said=b""):
    """A connection to rank 0 that says something."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "rank 0 does not listen"
            time.sleep(0.01)
        else:
            break
    with suppress(ConnectionError):  # rank 0 may close it first
        connection.sendall(said)
    return connection


def line(**message):
    return json.dumps(message).encode() + b"\n"


def hello(rank, *versions):
    return line(hello=[rank, *(versions or ("1", "2"))])


def works(*ranks):
    """Whether the ranks prove themselves, work and finish."""
    for rank in ranks:
        assert rank.says("met"), rank.end()
    for rank in ranks:
        rank.send("connecting", 100)
        rank.send("connecting", 0)
        rank.send("proof", "a secret")
        rank.send("collectives", 3)
    for rank in ranks[1:]:
        rank.send("wait")
    ranks[0].send("go")
    assert all(rank.says("went") for rank in ranks[1:])
    for rank in ranks:
        rank.send("done")
    assert all(rank.says("done") for rank in ranks)
    return [rank.end() for rank in ranks] == [(0, "")] * len(ranks)


def test_ranks_meet_work_and_finish(port, ranks):
    assert works(*(ranks(number, port, 3) for number in range(3)))


def test_a_rank_that_leaves_after_its_work_is_not_lost(port, ranks):
    """As a script ends, which calls no `finish`; rank 0 then does not wait for it."""
    first, second = ranks(0, port), ranks(1, port)
    assert first.says("met") and second.says("met")
    second.send("done", 2)
    assert second.end() == (0, "")
    first.send("done")
    assert first.says("done") and first.end() == (0, "")


def test_an_error_is_printed_whole_and_once(port, ranks):
    first, second = ranks(0, port), ranks(1, port)
    assert first.says("met") and second.says("met")
    message = "no room for 北京 \N{GRINNING FACE} " + "\N{GRINNING FACE}" * 3000
    second.send("error", [message, 7])
    assert (first.end(), second.end()) == ((7, f"zoo: rank 1: {message}\n"), (7, ""))


def test_a_port_that_rank_0_chose_is_read_from_its_file(tmp_path, ranks):
    file = str(tmp_path / "port")
    other = ranks(1, file)
    assert works(ranks(0, file), other)
    assert os.listdir(tmp_path) == ["port"]


def claims(process):
    """What no rank says; some claim to be rank 1, and that this process is it."""
    yield from (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\xff\n",
        b"\xff\xfe\n",
        b"\n",
        b"\x1b[2J\n",
    )
    yield from (
        b"[" * 20000 + b"\n",
        b"x" * (2 * MOST_BYTES),
        b"1" * 5000 + b"\n",
        b'{"hello": NaN}\n',
        b"{}\n",
        b"[]\n",
    )
    for value in (
        0,
        1,
        "1",
        None,
        [],
        {},
        [1],
        [1, 2, 3],
        ["1", "1", "2"],
        [True, "1", "2"],
        [1.0, "1", "2"],
    ):
        yield line(hello=value)
    yield from (hello(0), hello(-1), hello(10**30), hello(1, "\x1b[2J", "2"), hello(1, "1" * 41, "2"))
    yield line(rank=1, zoo="1", mlx="2", pid=process, process="here")
    yield line(hello=[1, "1", "2"], pid=process)
    yield from (line(pid=process), line(pid="one"), line(mail=1), line(done="x"), line(done=1, go=1))
    yield from (line(end=value) for value in (0, 1, "x", ["", 0], ["", 256], ["\x1b[2J", 1], ["x" * 4101, 1]))
    yield from (line(collectives=value) for value in (-1, "x", 1.5, None, 10**40, True, "\x1b[2J"))
    yield from (
        line(error=value) for value in ("x", ["x", 0], ["x", 256], ["x", "1"], [1, 1], ["\x1b]0;x\x07", 1])
    )
    yield from (line(proof=value) for value in (1, "x" * 65, "\n", None))


def strangers(process):
    """What connections say that are of no rank."""
    yield b""
    yield hello(7)
    yield hello(1)  # and then nothing, for ever
    yield hello(1) + line(done=1)
    yield hello(1) + line(proof="guessed")
    yield hello(1) + line(end=["x", 1])
    for claim in claims(process):
        yield claim
        yield hello(1) + claim


@pytest.mark.slow
@pytest.mark.parametrize("leave", [True, False])
def test_strangers_do_not_matter(port, ranks, leave):
    """Before rank 1 comes, and while MLX connects the ranks: they neither take its place, nor end anything."""
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        first = ranks(0, port, 3)
        came = []
        for said in strangers(bystander.pid):
            came.append(come(port, said))
            if leave:
                came[-1].close()
        second, third = ranks(1, port, 3), ranks(2, port, 3)
        assert first.says("met")
        for said in strangers(bystander.pid):
            came.append(come(port, said))
            if leave:
                came[-1].close()
        for rank in (second, third):
            assert rank.says("met")
        for rank in (first, second, third):
            rank.send("proof", "a secret")
        for rank in (first, second, third):
            rank.send("done")
        for rank in (first, second, third):
            assert rank.says("done") and rank.end() == (0, "")
        assert bystander.poll() is None
        bystander.kill()
    for connection in came:
        connection.close()


@pytest.mark.slow
def test_many_and_slow_strangers_do_not_keep_a_rank_out(port, ranks):
    first = ranks(0, port)
    many = [come(port) for _ in range(600)]
    slow = come(port)
    second = ranks(1, port)
    with suppress(ConnectionError):
        for letter in hello(1):
            slow.send(bytes([letter]))
            time.sleep(0.01)
    assert works(first, second)
    for connection in (*many, slow):
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("claim", [None, {"error": ["out of paint", 3]}, {"done": 1}])
def test_a_stranger_in_place_of_a_rank_ends_the_run_with_a_line(port, ranks, claim):
    """The rank itself never comes."""
    first = ranks(0, port)
    stranger = come(port, hello(1))
    assert first.says("met")
    first.send("connecting", 1)
    if claim:
        stranger.sendall(line(**claim))
    elif claim is None:
        stranger.close()
    said = {
        None: "error: rank 1 ended unexpectedly; all ranks end",
        "error": "rank 1: out of paint",
        "done": "error: the ranks were not connected in time; all ranks end",
    }[claim and next(iter(claim))]
    assert first.end() == (3 if claim and "error" in claim else 1, f"zoo: {said}\n")
    stranger.close()


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_named(port, ranks):
    first, second = ranks(0, port, 3, start=3), ranks(1, port, 3, start=PATIENCE)
    assert first.end() == (1, "zoo: error: rank 2 did not come; all ranks end\n")
    assert second.end() == (1, "")


@pytest.mark.slow
def test_rank_1_says_that_rank_0_did_not_come(port, ranks):
    second, third = ranks(1, port, 3, start=1), ranks(2, port, 3, start=1)
    line = f"zoo: error: rank 0 did not come at 127.0.0.1:{port}; all ranks end\n"
    assert (second.end(), third.end()) == ((1, line), (1, ""))


def test_a_rank_of_another_version_is_named_with_both(port, ranks):
    first, second = ranks(0, port), ranks(1, port, versions=("1", "3"))
    said = "zoo: error: rank 1 has the mlx version 3, rank 0 has 2; all ranks must have the same\n"
    assert (first.end(), second.end()) == ((1, said), (1, ""))


def test_a_port_that_is_taken_is_an_error(port, ranks):
    with socket.create_server(("127.0.0.1", port)):
        status, said = ranks(0, port).end()
    assert status == 1 and said.startswith(
        f"zoo: error: rank 0 cannot wait for the others at 127.0.0.1:{port} ("
    )
    assert said.endswith("); is another run there?\n")


def test_what_is_no_rank_0_is_left_alone(port, ranks):
    """Another server has the port for a while: rank 1 tries again."""
    with socket.create_server(("127.0.0.1", port)) as other:
        second = ranks(1, port)
        connection = other.accept()[0]
        connection.sendall(b"220 ready\r\n" + line(end=["x", 0]))
        connection.recv(100)
    connection.close()
    assert works(ranks(0, port), second)


def test_a_rank_whose_guardian_is_lost_ends(port, ranks):
    first, second = ranks(0, port), ranks(1, port)
    assert first.says("met") and second.says("met")
    [guardian] = subprocess.run(["pgrep", "-P", str(second.process.pid)], capture_output=True).stdout.split()
    os.kill(int(guardian), 9)
    assert second.end() == (
        1,
        "zoo: error: the process that watches over this rank has ended; all ranks end\n",
    )
    assert first.end() == (1, "zoo: error: rank 1 ended unexpectedly; all ranks end\n")


def test_a_message_is_bounded():
    ours, theirs = socket.socketpair()
    peer = Peer(ours, FROM_RANK)
    peer.silent = 1.0
    theirs.sendall(b'{"done": 1}\n{"do')
    assert peer.receive() == [("done", 1)] and peer.silent == 0
    theirs.sendall(b'ne": 2}\n')
    assert peer.receive() == [("done", 2)]
    with pytest.raises(ConnectionError):
        for _ in range(4):
            theirs.sendall(b"x" * (MOST_BYTES // 2))
            peer.receive()
    for connection in (ours, theirs):
        connection.close()


@pytest.mark.parametrize("takes", [FROM_FIRST, FROM_MAIN, FROM_RANK, TO_MAIN, frozenset({"hello"})])
def test_a_message_of_another_form_is_refused(takes):
    for claim in claims(1):
        ours, theirs = socket.socketpair()
        theirs.sendall(claim)
        peer = Peer(ours, takes)
        with pytest.raises(ConnectionError):
            for _ in range(4):
                assert peer.receive() == []
            raise AssertionError(claim)
        ours.close()
        theirs.close()
