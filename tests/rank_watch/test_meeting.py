"""What the launcher says of the ranks."""

import subprocess
import sys

import pytest

from zoo.errors import RankError
from zoo.machine import LAUNCHED, launched, launched_rank, ranks_here
from zoo.rank_watch.meeting import meeting_point, start_seconds


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


def test_the_watch_imports_no_mlx():
    code = "import sys, zoo.rank_watch; sys.exit('mlx.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
