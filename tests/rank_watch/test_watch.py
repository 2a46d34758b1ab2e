"""How ranks meet, what they take from a connection, and that strangers end nothing but perhaps the run."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from tests.helpers.ranks import free_ports
from tests.helpers.waiting import PATIENCE
from zoo.rank_watch.peer import FORMS, MOST_BYTES, Peer

# A rank without MLX. It does what it reads, and says what happens.
RANK = """
import json, sys, time
from pathlib import Path
from zoo.rank_watch.watch import Watch
rank, port, settings = json.loads(sys.argv[1])
watch = Watch(rank, "127.0.0.1", port if isinstance(port, int) else Path(port), **settings)
watch.met.wait()
print("met", flush=True)
for line in sys.stdin:
    name, *values = json.loads(line)
    if name == "wait":
        watch.wait()
        print("went", flush=True)
    elif name == "connect":
        with watch.connecting():
            time.sleep(0.2)
    elif name == "finish":
        watch.finish()
        watch.done.wait()
        print("done", flush=True)
        break
    else:
        getattr(watch, name)(*values)
        if values == ["done"]:
            break
"""


class Rank:
    """A rank, in a process, with the process that watches over it."""

    def __init__(self, rank, port, size=2, start=PATIENCE, silence=60):
        settings = dict(size=size, start=start, silence=silence)
        self.process = subprocess.Popen(
            [sys.executable, "-c", RANK, json.dumps([rank, port, settings])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def says(self, word):
        """Whether the next line that it prints is this word."""
        return self.process.stdout.readline() == f"{word}\n"

    def does(self, name, *values):
        self.process.stdin.write(json.dumps([name, *values]) + "\n")
        self.process.stdin.flush()

    def end(self):
        """Its exit status, once it and its watchdog have ended, and what both printed to the error stream."""
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


@pytest.fixture
def pair(port, ranks):
    """Two ranks that have met."""
    both = ranks(0, port), ranks(1, port)
    assert all(rank.says("met") for rank in both)
    return both


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


def line(*message):
    return json.dumps(message).encode() + b"\n"


def works(*ranks):
    """Whether the ranks connect, work and finish."""
    for rank in ranks:
        assert rank.says("met"), rank.end()
        rank.does("connect")
    for rank in ranks[1:]:
        rank.does("wait")
    ranks[0].does("release")
    assert all(rank.says("went") for rank in ranks[1:])
    for rank in ranks:
        rank.does("finish")
    assert all(rank.says("done") for rank in ranks)
    return [rank.end() for rank in ranks] == [(0, "")] * len(ranks)


def test_ranks_meet_work_and_finish(port, ranks):
    assert works(*(ranks(number, port, 3) for number in range(3)))


def test_a_rank_that_leaves_after_its_work_is_not_lost(pair):
    """As a script ends, which calls no `finish`; rank 0 then does not wait for it."""
    first, second = pair
    second.does("tell", "done")
    assert second.end() == (0, "")
    first.does("finish")
    assert first.says("done") and first.end() == (0, "")


@pytest.mark.slow
def test_an_error_is_printed_whole_and_once(pair):
    first, second = pair
    message = "no room for 北京 \N{GRINNING FACE} " + "\N{GRINNING FACE}" * 3000
    second.does("fail", message, 7)
    assert (first.end(), second.end()) == ((7, f"zoo: rank 1: {message}\n"), (7, ""))


@pytest.mark.slow
def test_the_cause_is_printed_and_not_that_a_neighbour_lost_it(port, ranks):
    first, *others = [ranks(number, port, 3) for number in range(3)]
    assert all(rank.says("met") for rank in (first, *others))
    others[0].does("fail", "[ring] connection to a peer was lost", 1)
    time.sleep(0.3)
    others[1].does("fail", "no room", 3)
    assert first.end() == (3, "zoo: rank 2: no room\n")
    assert [rank.end() for rank in others] == [(3, "")] * 2


def test_a_port_that_rank_0_chose_is_read_from_its_file(tmp_path, ranks):
    file = str(tmp_path / "port")
    other = ranks(1, file)
    assert works(ranks(0, file), other)
    assert os.listdir(tmp_path) == ["port"]


# What no rank says.
JUNK = [
    *(b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\xff\n", b"\xff\xfe\n", b"\n", b"\x1b[2J\n"),
    *(b"[" * 20000 + b"\n", b"x" * (2 * MOST_BYTES), b"1" * 5000 + b"\n", b'["hello", NaN]\n', b"{}\n", b"[]\n"),
    *(line("hello", value) for value in ("1", None, [], {}, [1], True, 1.0, -1, 10**30)),
    *(line("hello"), line("hello", 1, 2), line("pid", 1), line(["hello"], 1), line("done", 1), line("beat", 1)),
    *(line("end", value) for value in (0, 256, "1", -1, None)),
    *(line("connecting", value) for value in (-1, 10**7, 1.5, "1")),
    *(line("error", *values) for values in ((), ("x",), ("x", 0), ("x", 256), (1, 1), ("\x1b]0;x\x07", 1), ("x" * 4001, 1))),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("leave", [True, False])
def test_strangers_that_claim_no_rank_do_not_matter(port, ranks, leave):
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        first = ranks(0, port, 3)
        strangers = [b"", line("hello", 0), line("hello", 7), line("beat"), line("end", 1), *JUNK]
        strangers += [line("pid", bystander.pid), line("hello", bystander.pid)]
        came = [come(port, said) for said in strangers] if not leave else []
        for said in strangers if leave else ():
            come(port, said).close()
        assert works(first, ranks(1, port, 3), ranks(2, port, 3))
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
        for letter in line("hello", 5):
            slow.send(bytes([letter]))
            time.sleep(0.01)
    assert works(first, second)
    for connection in (*many, slow):
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claim", "status", "said"),
    [
        (None, 1, "error: rank 1 ended unexpectedly; all ranks end"),
        (line("error", "out of paint", 3), 3, "rank 1: out of paint"),
        (line("end", 9), 1, "error: rank 1 ended unexpectedly; all ranks end"),
        (b"", 1, "error: rank 1 has not answered for 4 s; all ranks end"),
        (
            line("connecting", 100) + line("beat"),  # in one piece
            1,
            "error: rank 1 has not answered for 4 s; all ranks end",
        ),
    ],
)
def test_a_stranger_in_place_of_a_rank_ends_the_run_with_a_line(port, ranks, claim, status, said):
    """The rank itself is refused from then on."""
    first = ranks(0, port, silence=4)
    stranger = come(port, line("hello", 1))
    assert first.says("met")
    if claim is None:
        stranger.close()
    else:
        stranger.sendall(claim)
    assert first.end() == (status, f"zoo: {said}\n")
    stranger.close()


@pytest.mark.slow
def test_a_rank_that_has_come_keeps_its_place(port, ranks):
    first, second = ranks(0, port, 3), ranks(1, port, 3)
    time.sleep(1)  # for rank 1 to come, most likely
    stranger = come(port, line("hello", 1))
    assert works(first, second, ranks(2, port, 3))
    stranger.close()


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_named(port, ranks):
    first, second = ranks(0, port, 3, start=3), ranks(1, port, 3, start=PATIENCE)
    assert first.end() == (1, "zoo: error: rank 2 did not come; all ranks end\n")
    second.process.kill()


@pytest.mark.slow
def test_without_rank_0_rank_1_says_so(port, ranks):
    second, third = ranks(1, port, 3, start=1), ranks(2, port, 3, start=1)
    said = f"zoo: error: rank 0 did not come at 127.0.0.1:{port}; all ranks end\n"
    assert (second.end(), third.end()) == ((1, said), (1, ""))


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
        connection.sendall(b"220 ready\r\n" + line("end", 0))
        connection.recv(100)
    connection.close()
    assert works(ranks(0, port), second)


@pytest.mark.slow
def test_a_rank_whose_watchdog_is_lost_ends(pair):
    first, second = pair
    [watchdog] = subprocess.run(["pgrep", "-P", str(second.process.pid)], capture_output=True).stdout.split()
    os.kill(int(watchdog), 9)
    said = "error: the process that watches over rank 1 has ended; all ranks end"
    assert second.end() == (1, f"zoo: {said}\n")
    assert first.end()[0] == 1


@pytest.mark.slow
def test_ranks_that_are_frozen_together_go_on(port, ranks):
    """As by Ctrl-Z, or when a machine sleeps."""
    both = [ranks(number, port, silence=1) for number in range(2)]
    assert all(rank.says("met") for rank in both)
    watchdogs = [
        int(subprocess.run(["pgrep", "-P", str(rank.process.pid)], capture_output=True).stdout)
        for rank in both
    ]
    everyone = [*watchdogs, *(rank.process.pid for rank in both)]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in everyone:
            os.kill(process, number)
        time.sleep(7 if number == signal.SIGSTOP else 0)
    for rank in both:
        rank.does("finish")
    assert all(rank.says("done") for rank in both)


@pytest.fixture
def connection():
    """The two ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs = server.accept()[0]
    yield ours, theirs
    ours.close()
    theirs.close()


def receive(peer):
    """The messages of a peer, once there are some."""
    while not (messages := peer.receive()):
        time.sleep(0.001)
    return messages


def test_a_message_is_bounded(connection):
    peer = Peer(connection[0], 15)
    peer.silent = 1.0
    connection[1].sendall(b'["done"]\n["be')
    assert receive(peer) == [["done"]] and peer.silent == 0
    connection[1].sendall(b'at"]\n')
    assert receive(peer) == [["beat"]]
    with pytest.raises(ConnectionError):
        while True:
            connection[1].sendall(b"x" * 100)
            peer.receive()


@pytest.mark.parametrize("said", JUNK, ids=range(len(JUNK)))
def test_a_message_of_another_form_is_refused(said, connection):
    peer = Peer(connection[0], 15)
    with suppress(ConnectionError):
        connection[1].sendall(said)
    with pytest.raises(ConnectionError):
        receive(peer)


def test_each_form_is_taken(connection):
    messages = [[name, *({int: 1, str: "é"}[kind] for kind in FORMS[name])] for name in FORMS]
    sender, receiver = (Peer(end, 15) for end in connection)
    for message in messages:
        sender.send(*message)
    received = []
    while len(received) < len(messages):
        received += receive(receiver)
    assert received == messages
