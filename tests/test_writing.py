"""What is written is whole or not there, and nothing else is lost by it."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from zoo.errors import SourceError
from zoo.files import writing
from zoo.files.writing import (
    check_outputs,
    is_stream,
    locked,
    new_folder,
    output_file,
    replacing,
    swap,
    write_markup,
    write_output,
    write_record,
    write_text,
)


def run_in_subprocess(code, *arguments):
    """A process that runs `code` and prints a line when it is where the test wants it."""
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("data", [b"[1, 2, 3]", b"\x89PNG\r\n", b"one\ntwo\n", b"generator mlx-zoology"])
def test_a_file_of_someone_else_is_refused_and_left_alone(tmp_path, data):
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"x\.json: exists and is not .* `overwrite` replaces it"):
        write_record(path, {"a": 1})
    assert path.read_bytes() == data
    write_record(path, {"a": 1}, overwrite=True)
    assert path.read_text() == '{"generator": "mlx-zoo", "a": 1}\n'
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_file_that_the_zoo_wrote_and_an_empty_one_are_replaced(tmp_path):
    for write, first, second in (
        (write_record, {"a": 1}, {"a": 2}),
        (write_markup, "<svg></svg>", "<svg>2</svg>"),
        (write_markup, "<html>" + "x" * 10_000, "<html>2"),
    ):
        path = tmp_path / "file"
        path.write_text("")
        write(path, first)
        write(path, second)
        assert "2" in path.read_text()
        path.unlink()


def test_a_page_may_name_a_path_that_is_no_utf8(tmp_path):
    write_markup(tmp_path / "page", os.fsdecode(b"<html>m\xff"))
    assert (tmp_path / "page").read_text("utf-8").startswith("<html>m?")


def test_a_link_is_refused_and_its_target_left_alone(tmp_path):
    (tmp_path / "target").write_text("mine")
    for name, target in (("link", "target"), ("dangling", "nowhere")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(SourceError, match=f"{name}: is a link; give the path of the file itself"):
            write_output(tmp_path / name, b"x", overwrite=True)
        assert (tmp_path / name).is_symlink()
    assert (tmp_path / "target").read_text() == "mine" and not (tmp_path / "nowhere").exists()


def test_a_pipe_is_written_into(tmp_path):
    path = tmp_path / "pipe.json"
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    write_record(path, {"a": 1})
    reader.join()
    assert read == ['{"generator": "mlx-zoo", "a": 1}\n'] and stat.S_ISFIFO(path.stat().st_mode)


def test_devices_and_open_files_are_written_into():
    controller, terminal = os.openpty()
    assert all(map(is_stream, map(Path, ("/dev/null", "/dev/stdout", "/dev/fd/1", os.ttyname(terminal)))))
    write_output(Path(os.ttyname(terminal)), b"hello\n")
    assert os.read(controller, 100) == b"hello\r\n"
    for descriptor in (controller, terminal):
        os.close(descriptor)


def test_standard_output_in_a_file_is_written_into_and_not_replaced(tmp_path):
    code = "from pathlib import Path; from zoo.files.writing import write_output; write_output(Path('/dev/stdout'), b'text')"
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
        assert os.path.samestat(os.fstat(out.fileno()), (tmp_path / "out").stat())
    assert (tmp_path / "out").read_text() == "text"


def test_what_cannot_be_written_is_refused_before_long_work(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path, words in (
        (tmp_path / "none" / "x.json", "there is no folder"),
        (tmp_path, "is a folder, not a file"),
        (tmp_path / "file", "exists and is not"),
        (tmp_path / "file" / "x", "there is no folder"),
    ):
        with pytest.raises(SourceError, match=words):
            check_outputs([None, path])
    with pytest.raises(SourceError, match=r"a\.svg: is given for two files"):
        check_outputs([tmp_path / "a.svg", tmp_path / "a.svg"])
    (tmp_path / "link").symlink_to(tmp_path)
    for other in (tmp_path / "link" / "a.svg", tmp_path / ".." / tmp_path.name / "a.svg"):
        with pytest.raises(SourceError, match=r"a\.svg: is given for two files"):
            check_outputs([tmp_path / "a.svg", other])


def test_no_other_file_and_no_planted_link_is_written_meanwhile(tmp_path):
    (tmp_path / "secret").write_text("secret")
    for name in ("part-x.json", ".x.json.part", "x.json.tmp"):
        (tmp_path / name).symlink_to("secret")
    (tmp_path / "part-y.json").write_text("a person's own")
    for name in ("x.json", "y.json"):
        write_record(tmp_path / name, {"a": 1})
    assert (tmp_path / "secret").read_text() == "secret"
    assert (tmp_path / "part-y.json").read_text() == "a person's own"
    assert len(os.listdir(tmp_path)) == 7


def test_two_temporary_names_differ_and_keep_the_suffix(tmp_path):
    with replacing(tmp_path / "x.safetensors") as first, replacing(tmp_path / "x.safetensors") as second:
        assert first != second and first.suffix == second.suffix == ".safetensors"
        first.write_text("1")
        second.write_text("2")
    assert (tmp_path / "x.safetensors").read_text() == "1" and len(os.listdir(tmp_path)) == 1


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "x"
    write_text(path, "1")
    usual = path.stat().st_mode
    assert usual & 0o400 and not usual & 0o111
    path.chmod(0o640)
    write_text(path, "2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_an_error_leaves_what_was_there(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as part:
        part.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("write", [output_file, new_folder])
def test_a_file_system_on_which_no_file_can_be_locked_is_an_error(tmp_path, monkeypatch, write):
    monkeypatch.setattr(
        writing, "_is_at", lambda descriptor, path: False
    )  # it numbers its files anew each time
    with (
        pytest.raises(SourceError, match=r"new: cannot be written \(No locks available\)"),
        write(tmp_path / "new"),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".lock-")] == []


def test_a_folder_in_which_no_file_can_be_made_is_an_error(tmp_path, monkeypatch):
    def touch(path, **how):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    monkeypatch.setattr(Path, "touch", touch)  # as in /proc
    with pytest.raises(SourceError, match=r"new: cannot be written \(No such file or directory\)"):
        write_output(tmp_path / "new", b"new")


def test_a_full_disk_leaves_what_was_there(tmp_path):
    path = tmp_path / "x.json"
    write_record(path, {"old": 1})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(SourceError, match=r"x\.json: cannot be written \(File too large\)"):
            write_record(path, {"new": "x" * 2000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["x.json"]


KILLED = """
import sys, time
from pathlib import Path
from zoo.files.writing import new_folder, replacing
with (replacing if sys.argv[2] == "file" else new_folder)(Path(sys.argv[1])) as part:
    (part if part.is_file() else part / "half").write_text("half")
    print("ready", flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_is_removed_by_the_next_and_what_runs_is_not(tmp_path, kind):
    killed, running = (run_in_subprocess(KILLED, tmp_path / name, kind) for name in ("x", "y"))
    kill(killed)
    assert not (tmp_path / "x").exists()
    assert len(list(tmp_path.glob(".part-*"))) == 2
    write_text(tmp_path / "z", "z")
    assert len(list(tmp_path.glob(".part-*"))) == 1, "the one whose process runs is left"
    kill(running)


def test_one_process_at_a_time_writes_a_folder(tmp_path):
    out = tmp_path / "out"
    first = run_in_subprocess(KILLED, out, "folder")
    with pytest.raises(SourceError, match="out: another process is writing it"), new_folder(out):
        raise AssertionError
    kill(first)
    with new_folder(out) as part:
        (part / "whole").write_text("")
    assert os.listdir(tmp_path) == ["out"] and os.listdir(out) == ["whole"]


def test_a_lock_is_one_file_s_and_follows_no_link(tmp_path):
    with locked(tmp_path / "a"), locked(tmp_path / "b"):
        names = os.listdir(tmp_path)
        with pytest.raises(SourceError), locked(tmp_path / "sub" / ".." / "a"):
            raise AssertionError
    assert len(names) == 2 and os.listdir(tmp_path) == []
    (tmp_path / "target").write_text("mine")
    (tmp_path / names[0]).symlink_to("target")
    (tmp_path / names[1]).write_text("mine, too")
    for name in "ab":
        try:
            with locked(tmp_path / name):
                pass
        except OSError as error:
            assert "symbolic links" in str(error)
    assert (tmp_path / "target").read_text() == "mine"
    assert len(os.listdir(tmp_path)) == 3, "a file that is not empty is no lock of ours"


def test_a_folder_that_something_was_put_into_meanwhile_is_left_alone(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(SourceError, match="out: cannot be written"), new_folder(out) as part:
        (part / "new").write_text("new")
        out.mkdir()
        (out / "diary").write_text("dear diary")
    assert os.listdir(out) == ["diary"] and os.listdir(tmp_path) == ["out"]
    with pytest.raises(SourceError, match="out: exists already"), new_folder(out):
        raise AssertionError
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(SourceError, match="link: is a link"), new_folder(tmp_path / "link"):
        raise AssertionError


def test_two_folders_are_swapped_in_one_step(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("")
    swap(tmp_path / "a", tmp_path / "b")
    assert os.listdir(tmp_path / "a") == ["b"] and os.listdir(tmp_path / "b") == ["a"]
    with pytest.raises(OSError):
        swap(tmp_path / "a", tmp_path / "none")


def test_many_writers_of_one_file_leave_one_whole_file(tmp_path):
    code = (
        "import sys; from pathlib import Path; from zoo.files.writing import write_output\n"
        "print('ready', flush=True)\n"
        "for _ in range(100): write_output(Path(sys.argv[1]), sys.argv[2].encode() * 50_000, overwrite=True)"
    )
    path = tmp_path / "x"
    processes = [run_in_subprocess(code, path, letter) for letter in "abc"]
    while any(process.poll() is None for process in processes):
        if path.exists():
            data = path.read_bytes()
            assert len(data) == 50_000 and len(set(data)) == 1
        time.sleep(0.01)
    for process in processes:
        process.stdout.close()
        assert process.returncode == 0
    assert os.listdir(tmp_path) == ["x"]


def test_output_files_are_kept_by_the_zoo_s_own_kind(tmp_path):
    path = tmp_path / "cache"
    path.write_bytes(b"kind one")
    with output_file(path, None, own=lambda path: path.read_bytes().startswith(b"kind")) as part:
        part.write_bytes(b"kind two")
    assert path.read_bytes() == b"kind two"
    path.write_bytes(b"other")
    how = {"own": lambda path: path.read_bytes().startswith(b"kind")}
    with pytest.raises(SourceError, match="give another name"), output_file(path, None, **how):
        raise AssertionError
