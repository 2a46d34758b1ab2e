"""How ranks find each other, and what the watch takes from a connection."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from tests.helpers.ranks import free_ports
from tests.helpers.waiting import PATIENCE
from zoo.errors import RankError
from zoo.rank_watch.launcher import (
    LAUNCHED,
    launched,
    launched_rank,
    meeting_point,
    ranks_here,
    start_seconds,
)
from zoo.rank_watch.peers import MOST, Peer, accept, connect

FACTS = {"zoo": "1", "mlx": "2", "pid": 1, "process": "here"}


@pytest.fixture
def hosts(tmp_path):
    """The environment that `mlx.launch` gives a rank by these hosts."""

    def write(content):
        path = tmp_path / "hosts.json"
        path.write_text(content)
        return {"MLX_RANK": "1", "MLX_HOSTFILE": str(path)}

    return write


def test_ranks_meet_at_the_port_before_the_one_that_mlx_listens_on(hosts):
    environment = hosts('[["10.0.0.1:5000"], ["10.0.0.2:5001"]]')
    assert launched(environment) and launched_rank(environment) == 1
    assert meeting_point(environment) == ("10.0.0.1", 4999, 2)


def test_ranks_of_a_machine_are_counted_by_its_address(hosts):
    assert ranks_here({}) == 1
    assert ranks_here(hosts('[["10.0.0.1:5000"], ["10.0.0.2:5001"]]')) == 1
    assert ranks_here(hosts('[["10.0.0.1:5000"], ["10.0.0.2:5000"], ["10.0.0.2:5001"]]')) == 2
    assert ranks_here({"MLX_RANK": "0"}) == 1
    assert ranks_here(MPI) == ranks_here({"PMI_RANK": "0", "MPI_LOCALNRANKS": "2"}) == 2


@pytest.mark.parametrize("number", ["abc", "-1", "", "1.0"])
def test_a_rank_whose_number_is_none_is_refused(number):
    for name in LAUNCHED:
        environment = {name: number, "OMPI_COMM_WORLD_SIZE": "2"}
        assert launched_rank(environment) == 0
        with pytest.raises(RankError, match=f"{name} is '{number}', not the number of a rank"):
            meeting_point(environment)


def test_another_address_can_be_given(hosts):
    environment = hosts('[["10.0.0.1:5000"], ["10.0.0.2:5001"]]') | {"ZOO_RANKS_ADDRESS": "192.168.0.7:99"}
    assert meeting_point(environment) == ("192.168.0.7", 99, 2)


@pytest.mark.parametrize("address", ["foo", ":99", "host:", "host:0", "host:65536", "host:-1"])
def test_an_address_of_another_form_is_refused(address, hosts):
    environment = hosts('[["10.0.0.1:5000"], ["10.0.0.2:5001"]]') | {"ZOO_RANKS_ADDRESS": address}
    with pytest.raises(RankError, match=f"ZOO_RANKS_ADDRESS must be HOST:PORT, got '{address}'"):
        meeting_point(environment)


MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


def test_ranks_of_open_mpi_on_one_machine_meet_by_a_file(tmp_path):
    environment = MPI | {"PMIX_SERVER_TMPDIR": str(tmp_path)}
    assert launched(environment) and launched_rank(environment) == 1
    assert meeting_point(environment) == ("127.0.0.1", tmp_path / "zoo-ranks-port", 2)


@pytest.mark.parametrize(
    "ranks",
    [
        MPI,
        MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_SERVER_TMPDIR": "/tmp"},
        {"PMI_RANK": "1", "PMI_SIZE": "2"},
    ],
    ids=["no folder", "two machines", "another MPI"],
)
def test_other_ranks_of_mpi_meet_where_they_are_told(ranks):
    assert meeting_point(ranks) is None
    assert meeting_point(ranks | {"ZOO_RANKS_ADDRESS": "10.0.0.1:99"}) == ("10.0.0.1", 99, 2)


def test_one_rank_of_mpi_has_nobody_to_meet(tmp_path):
    environment = {
        "OMPI_COMM_WORLD_RANK": "0",
        "OMPI_COMM_WORLD_SIZE": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    }
    assert meeting_point(environment | {"PMIX_SERVER_TMPDIR": str(tmp_path)}) is None


def test_a_port_that_rank_0_chose_is_read_from_its_file(tmp_path):
    file, found = tmp_path / "port", []
    deadline = time.monotonic() + PATIENCE
    other = threading.Thread(
        target=lambda: found.append(connect("127.0.0.1", file, 1, deadline, FACTS)), daemon=True
    )
    other.start()
    meeting = Meeting(file, 2)
    for one in (meeting, other):
        one.join(PATIENCE)
    assert [peer.rank for peer in meeting.found] == [1] and [peer.rank for peer in found] == [0]
    assert os.listdir(tmp_path) == ["port"]


def test_one_rank_is_a_command_that_runs_alone(hosts):
    environment = hosts("\n")
    assert not launched(environment) and meeting_point(environment) is None
    assert not launched({}) and meeting_point({}) is None


@pytest.mark.parametrize("content", ["[", "{}", '[[], ["a:1"]]', '[[5], ["a:1"]]', '[["nowhere"], ["a:1"]]'])
def test_unreadable_hosts_are_an_error(hosts, content):
    environment = hosts(content)
    assert ranks_here(environment) == 1
    if content == "{}":
        assert not launched(environment)
        return
    with pytest.raises(RankError, match="the ranks' addresses cannot be read"):
        meeting_point(environment)


def test_a_variable_that_is_no_number_of_seconds_is_named(monkeypatch):
    monkeypatch.setenv("ZOO_RANKS_START", "soon")
    with pytest.raises(RankError, match="ZOO_RANKS_START must be a number of seconds, got 'soon'"):
        start_seconds()


@pytest.fixture
def port():
    return free_ports(1)  # below those that a client gets: it could reach itself at such a one


class Meeting(threading.Thread):
    """Rank 0 of `size`, which waits for the others; `found` is its peers or its error."""

    def __init__(self, port, size, seconds=PATIENCE):
        super().__init__(daemon=True)
        self.arguments, self.seconds = ("127.0.0.1", port, size), seconds
        self.start()

    def run(self):
        try:
            self.found = accept(*self.arguments, time.monotonic() + self.seconds, FACTS)
        except RankError as error:
            self.found = str(error)


def come(port, *lines):
    """A connection to rank 0 that says some lines."""
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
        connection.sendall(b"".join(lines))
    return connection


def hello(rank, **other):
    return json.dumps({"rank": rank, **FACTS, **other}).encode() + b"\n"


def test_strangers_neither_join_nor_hold_up_the_ranks(port):
    meeting = Meeting(port, 3)
    strangers = [
        come(port),  # says nothing
        come(port, b"GET / HTTP/1.1\r\n\r\n"),
        come(port, b"[" * 20000 + b"\n"),
        come(port, b"x" * (2 * MOST)),
        come(port, hello(0)),
        come(port, hello(7)),
        come(port, hello("1")),
    ]
    ranks = [come(port, hello(2)), come(port, hello(2)), come(port, hello(1))]
    meeting.join(PATIENCE)
    assert [peer.rank for peer in meeting.found] == [1, 2]
    for connection in (*strangers, *ranks):
        connection.close()


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_named(port):
    meeting = Meeting(port, 3, seconds=1.0)
    first = come(port, hello(1))
    meeting.join(PATIENCE)
    assert meeting.found == "rank 2 did not come; all ranks end"
    assert json.loads(first.makefile().readline()) == {"end": 1}


def test_a_rank_of_another_version_is_named_with_both(port):
    meeting = Meeting(port, 2)
    come(port, hello(1, mlx="3"))
    meeting.join(PATIENCE)
    assert meeting.found == "rank 1 has the mlx version 3, rank 0 has 2; all ranks must have the same"


def test_a_rank_that_reached_itself_is_not_taken_for_rank_0(port, monkeypatch):
    itself = socket.socket()
    itself.bind(("127.0.0.1", 0))
    itself.connect(itself.getsockname())
    real, first = socket.create_connection, [itself]
    monkeypatch.setattr(
        socket, "create_connection", lambda *given, **named: first.pop() if first else real(*given, **named)
    )
    meeting = Meeting(port, 2)
    peer = connect("127.0.0.1", port, 1, time.monotonic() + PATIENCE, FACTS)
    meeting.join(PATIENCE)
    assert [peer.rank for peer in meeting.found] == [1] and itself.fileno() < 0
    peer.connection.close()


def test_a_port_that_is_taken_is_an_error(port):
    with socket.create_server(("127.0.0.1", port)), pytest.raises(RankError, match="is another run there"):
        accept("127.0.0.1", port, 2, time.monotonic() + 1, FACTS)


def test_a_message_is_bounded():
    ours, theirs = socket.socketpair()
    peer = Peer.__new__(Peer)
    ours.setblocking(False)
    peer.connection, peer._received, peer.silent = ours, b"", 1.0
    theirs.sendall(b'\n{"mail": 1}\n{"ma')
    assert peer.receive() == [{"mail": 1}] and peer.silent == 0
    theirs.sendall(b'il": 2}\n')
    assert peer.receive() == [{"mail": 2}]
    with pytest.raises(ConnectionError):
        for _ in range(4):
            theirs.sendall(b"x" * (MOST // 2))
            peer.receive()
    ours.close()
    theirs.close()


def test_the_watch_imports_no_mlx():
    code = "import sys, zoo.rank_watch; sys.exit('mlx.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


LOST_WHILE_GUARDED = """
import socket, time
from zoo.rank_watch.peers import Peer
from zoo.rank_watch.watching import Watch
server = socket.create_server(("127.0.0.1", 0))
other = socket.create_connection(server.getsockname())
watch = Watch(0, [Peer(server.accept()[0], rank=1)], silence=60, stall=60)
with watch.guard():
    other.shutdown(socket.SHUT_RDWR)  # the child has the socket, too
    time.sleep(60)
"""


def test_a_lost_rank_is_named_once_while_a_child_watches_too():
    """Both the thread and the forked child see that the connection is closed, unless the thread waits for Python's lock."""
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", LOST_WHILE_GUARDED], capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.stderr == "zoo: error: rank 1 ended unexpectedly; all ranks end\n"
        assert done.returncode in (1, -9)
