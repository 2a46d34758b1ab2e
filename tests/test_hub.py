"""Hub ids, against a hub that this file serves on loopback."""

import errno
import hashlib
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import termios
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import gguf_files
import mlx.core as mx
import pytest
from click.testing import CliRunner

import zoo
from zoo.checkpoint import hub as hub_module
from zoo.checkpoint.safetensors import INDEX
from zoo.cli.cache import cache
from zoo.cli.show import show
from zoo.errors import CheckpointError, SourceError
from zoo.registry import registry
from zoo.sentences import pooling_of

ID = "mlx-community/pocket"
PROMPT = "The capital city of China is"


@dataclass
class Repository:
    """What the hub serves under one id: commits by name of revision, files by commit."""

    commits: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: bool = False
    token: str | None = None

    def commit(self, files, name="main"):
        """Make `name` stand for a new commit of these files."""
        digest = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.files[digest] = dict(files)
        self.commits[name] = digest
        return digest

    def find(self, revision):
        return self.commits.get(revision, revision if revision in self.files else None)


class Hub(ThreadingHTTPServer):
    """Serves repositories as the hub does; `requests` are those it got, `cut` the bytes before it hangs up, once."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.cut: dict[str, list[int]] = {}
        self.status: int | None = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def asked(self, method="GET"):
        """The names of files that were asked for."""
        return [
            path.split("/", 5)[5] for how, path, _ in self.requests if how == method and "/resolve/" in path
        ]

    def handle_error(self, request, client_address):
        pass  # a client that hangs up is no matter


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        path = urlsplit(self.path).path
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.command, path, headers))
        if self.server.status:
            return self.refuse(self.server.status)
        found = re.fullmatch(
            r"/api/models/(?P<id>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/]+))?", path
        ) or re.fullmatch(r"/(?P<id>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)", path)
        part = {key: unquote(text) for key, text in found.groupdict().items() if text} if found else {}
        repository, name = self.server.repositories.get(part.get("id")), part.get("file")
        if repository is None:
            return self.refuse(404, "RepoNotFound")
        if repository.token and headers.get("authorization") != f"Bearer {repository.token}":
            return self.refuse(401, "RepoNotFound")
        commit = repository.find(part.get("revision", "main"))
        if commit is None:
            return self.refuse(404, "RevisionNotFound")
        files = repository.files[commit]
        if name is None:
            blobs = "blobs" in parse_qs(urlsplit(self.path).query)
            return self.send(json.dumps(self.told(part["id"], commit, files, blobs)).encode())
        if repository.gated:
            return self.refuse(403, "GatedRepo")
        if name not in files:
            return self.refuse(404, "EntryNotFound")
        etag = hashlib.sha256(files[name]).hexdigest()
        self.send(files[name], {"ETag": f'"{etag}"', "X-Repo-Commit": commit}, name)

    def told(self, name, commit, files, blobs):
        def size(data):
            return {"size": len(data), "blobId": hashlib.sha256(data).hexdigest()} if blobs else {}

        files = [{"rfilename": path, **size(data)} for path, data in files.items()]
        return {"id": name, "sha": commit, "siblings": files}

    def send(self, data, headers=None, name=None):
        first = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range") or "")
        if asked:
            first = int(asked[1])
        self.send_response(206 if asked else 200)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        if self.command == "HEAD":
            return
        cuts = self.server.cut.get(name)
        if cuts:
            self.wfile.write(data[first : first + cuts.pop(0)])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            self.wfile.write(data[first:])

    def refuse(self, status, code=None):
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with nothing in it, an empty cache, and this process's huggingface_hub pointed at both."""
    from huggingface_hub import constants

    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "home" / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the pauses between tries
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    server.environment = {
        "HF_ENDPOINT": server.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_CACHE": str(tmp_path / "home" / "hub"),
        "HF_HUB_OFFLINE": "0",
    }
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def pocket():
    """The files of a small model, by name."""
    folder = registry().architecture("llama").preset("pocket").folder
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def repository(hub, pocket):
    """The small model on the hub, among files that nobody needs."""
    made = Repository()
    noise = {
        name: b"no need of this"
        for name in (
            *(
                "README.md",
                ".gitattributes",
                "pytorch_model.bin",
                "consolidated.safetensors",
                "model.fp16.safetensors",
            ),
            *("original/consolidated.00.pth", "original/params.json", "onnx/model.onnx", "model.Q4_K_M.gguf"),
            *("vocab.json", "merges.txt", "tokenizer.model", "training_args.bin", "modeling.py"),
        )
    }
    made.commit({**noise, **pocket})
    hub.repositories[ID] = made
    return made


NEEDED = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}


def shards(pocket, folder):
    """The small model as two shards with an index."""
    (folder / "whole.safetensors").write_bytes(pocket["model.safetensors"])
    tensors = mx.load(str(folder / "whole.safetensors"))
    names, files, places = sorted(tensors), {}, {}
    for number in (1, 2):
        file = f"model-{number:05}-of-00002.safetensors"
        part = {name: tensors[name] for name in names[number - 1 :: 2]}
        mx.save_safetensors(str(folder / file), part, metadata={"format": "pt"})
        files[file] = (folder / file).read_bytes()
        places |= dict.fromkeys(part, file)
    return {**files, INDEX: json.dumps({"metadata": {}, "weight_map": places}).encode()}


def answers(loaded):
    return zoo.generate(loaded, PROMPT, max_tokens=4).text.startswith(" Beijing")


def refused(error, *words, source=ID, **options):
    with pytest.raises(error) as caught:
        zoo.load(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in (source, *words):
        assert word in message, f"{word!r} is not in {message!r}"


def test_only_what_is_needed_is_fetched(hub, repository):
    assert answers(zoo.load(ID))
    assert sorted(hub.asked()) == sorted(NEEDED)
    assert set(hub.asked("HEAD")) == NEEDED


def test_of_several_layouts_of_the_weights_one_is_fetched(hub, repository, pocket, tmp_path):
    sharded = shards(pocket, tmp_path)
    repository.commit({**pocket, **sharded, "consolidated.safetensors": b"", "README.md": b""})
    assert answers(zoo.load(ID))
    assert sorted(hub.asked()) == sorted(NEEDED - {"model.safetensors"} | sharded.keys())


def test_the_files_beside_the_weights_that_loading_reads_are_fetched(hub, repository, pocket):
    more = {
        "modules.json": b'[{"type": "models.Pooling", "path": "1_Pooling"}]',
        "1_Pooling/config.json": b'{"pooling_mode": "lasttoken"}',
        "sentence_bert_config.json": b'{"max_seq_length": 8}',
        "chat_template.jinja": b"{{ messages[0].content }}",
        "special_tokens_map.json": b"{}",
        "quantize_config.json": b"{ }",
    }
    repository.commit({**pocket, **more, "2_Dense/config.json": b"{}"})
    loaded = zoo.load(ID)
    assert set(hub.asked()) == NEEDED | more.keys()
    assert loaded.tokenizer.chat_template == more["chat_template.jinja"].decode()
    assert pooling_of(loaded.folder).mode == "last"


def test_a_second_load_asks_once_and_fetches_nothing(hub, repository, monkeypatch):
    zoo.load(ID)
    hub.requests.clear()
    assert answers(zoo.load(ID))
    assert [path for _, path, _ in hub.requests] == [f"/api/models/{ID}"]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert answers(zoo.load(ID))
    assert len(hub.requests) == 1


def test_a_new_commit_fetches_what_changed(hub, repository, pocket):
    first = zoo.load(ID).folder
    hub.requests.clear()
    commit = repository.commit({**pocket, "generation_config.json": b'{"max_new_tokens": 3}'})
    loaded = zoo.load(ID)
    assert loaded.folder == first.parent / commit
    assert hub.asked() == ["generation_config.json"]


def test_a_download_goes_on_where_the_connection_was_cut(hub, repository, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    hub.cut["model.safetensors"] = [1_000_000, 300_000]
    assert answers(zoo.load(ID))
    ranges = [
        headers.get("range") or headers.get("Range")
        for how, path, headers in hub.requests
        if how == "GET" and path.endswith("/model.safetensors")
    ]
    assert ranges == [None, "bytes=1000000-", "bytes=1300000-"]


def test_what_was_fetched_before_the_hub_went_away_is_kept(hub, repository):
    hub.cut["model.safetensors"] = [0] * 10
    refused(SourceError, "cannot be reached", hub.url, "kept")
    hub.cut.clear()
    hub.requests.clear()
    assert answers(zoo.load(ID))
    assert hub.asked() == ["model.safetensors"]


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub, repository, pocket):
    other = json.dumps(json.loads(pocket["config.json"]) | {"rope_theta": 500.0}).encode()
    commit = repository.commit({**pocket, "config.json": other}, "refs/pr/1")
    for revision in ("refs/pr/1", commit):
        assert zoo.load(ID, revision=revision).folder.name == commit
    assert zoo.load(ID).folder.name == repository.commits["main"]
    refused(SourceError, "'v9'", "branches", revision="v9")


def test_a_revision_is_of_a_hub_id_alone(folder, tmp_path):
    path = folder()
    for source in ("llama", str(path)):
        refused(SourceError, "revision 'v9'", source=source, revision="v9")


def test_a_token_is_sent_and_never_told(hub, repository, monkeypatch):
    repository.token = "hf_secret"
    refused(SourceError, "no such model", "HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(SourceError) as caught:
        zoo.load(ID)
    assert "hf_wrong" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.requests.clear()
    assert answers(zoo.load(ID))
    assert {headers["authorization"] for _, _, headers in hub.requests} == {"Bearer hf_secret"}


def test_a_gated_model_says_where_to_ask(hub, repository):
    repository.gated = True
    refused(SourceError, "gated", f"{hub.url}/{ID}", "HF_TOKEN")


@pytest.mark.parametrize("source", ["mlx-community/pokcet", "a b/c", "owner/" + "x" * 200])
def test_an_id_that_is_none(hub, repository, source):
    refused(SourceError, "no folder of this name", source=source)


def test_a_preset_asks_for_its_id(hub):
    preset = registry().architecture("qwen3").full_size
    with pytest.raises(SourceError, match=re.escape(preset.hub)):
        zoo.load(f"qwen3:{preset.name}")


@pytest.mark.parametrize(("status", "word"), [(429, "too many"), (500, "500"), (403, "HF_TOKEN")])
def test_a_hub_that_refuses_everything(hub, repository, status, word):
    hub.status = status
    refused(SourceError, word)


def test_without_a_network_the_cache_serves(hub, repository, monkeypatch):
    zoo.load(ID)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    with pytest.warns(UserWarning, match=f"{ID}.*cannot be reached.*cache serves"):
        assert answers(zoo.load(ID))
    refused(SourceError, "cannot be reached", "network", source="other/model")


def test_a_hub_that_never_answers_is_given_up(hub, monkeypatch):
    monkeypatch.setattr(hub_module, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(
            "huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        refused(SourceError, "cannot be reached")


def test_offline_half_a_model_is_none(hub, repository, monkeypatch):
    hub.cut["model.safetensors"] = [0] * 10
    refused(SourceError, "cannot be reached")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused(SourceError, "HF_HUB_OFFLINE", "cache")


def test_a_repository_of_pickles(hub, repository, pocket):
    files = {name: data for name, data in pocket.items() if name != "model.safetensors"}
    repository.commit({**files, "pytorch_model.bin": b"", "tf_model.h5": b""})
    refused(CheckpointError, "pytorch_model.bin", "pickle", "never")
    assert "pytorch_model.bin" not in hub.asked("HEAD") + hub.asked()


def test_a_repository_without_a_model(hub, repository):
    repository.commit({"README.md": b"", "model.Q4_K_M.gguf": b"GGUF"})
    refused(SourceError, "config.json", "model.Q4_K_M.gguf")


@pytest.mark.parametrize("shard", ["missing.safetensors", "../../blobs/x.safetensors"])
def test_an_index_that_names_what_the_repository_lacks(hub, repository, pocket, shard):
    repository.commit({**pocket, INDEX: json.dumps({"weight_map": {"a": shard}}).encode()})
    refused(CheckpointError, INDEX, shard)


def test_a_disk_without_room(hub, repository, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 10**6))
    refused(SourceError, "0.0 GB", "zoo cache remove", "HF_HOME")
    assert "model.safetensors" not in hub.asked()


def test_a_disk_that_runs_full(hub, repository, monkeypatch):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", full)
    refused(SourceError, "is full", "zoo cache remove")


def test_one_file_by_its_name(hub, repository):
    path = hub_module.download_file(ID, "original/params.json")
    assert path.read_bytes() == b"no need of this" and path.parts[-2:] == ("original", "params.json")
    assert hub.asked() == ["original/params.json"]
    hub.requests.clear()
    assert hub_module.download_file(ID, "original/params.json") == path
    assert len(hub.requests) == 1
    with pytest.raises(SourceError, match=r"model\.gguf; it has model\.Q4_K_M\.gguf"):
        hub_module.download_file(ID, "model.gguf")


def test_a_gguf_file_is_named_in_its_repository(hub, tmp_path):
    folder = registry().architecture("llama").preset("pocket").folder
    path = gguf_files.write(tmp_path / "model.Q8_0.gguf", folder, "Q8_0")
    files = Repository()
    files.commit({"model.Q8_0.gguf": path.read_bytes(), "sub/model.F32.gguf": b"GGUF", "README.md": b""})
    hub.repositories["owner/model-GGUF"] = files
    refused(SourceError, "owner/model-GGUF/model.Q8_0.gguf", source="owner/model-GGUF")
    assert answers(zoo.load("owner/model-GGUF/model.Q8_0.gguf"))
    assert hub.asked() == ["model.Q8_0.gguf"]
    with pytest.raises(
        SourceError, match=r"has no file model\.gguf; it has model\.Q8_0\.gguf, sub/model\.F32\.gguf"
    ):
        zoo.load("owner/model-GGUF/model.gguf")
    (tmp_path / "here").mkdir()
    with pytest.raises(SourceError, match="no such file"):
        zoo.load(f"{tmp_path}/here/model.gguf")


def test_what_a_model_is_made_of_is_told_by_its_config_alone(hub, repository):
    shown = CliRunner().invoke(show, [ID, "--json"])
    assert json.loads(shown.stdout)["facts"]["parameters"] == "1.05 M"
    assert hub.asked() == ["config.json"]
    assert "revision" in str(CliRunner().invoke(show, ["llama", "--revision", "v9"]).exception)


def test_the_command_downloads_resumes_and_runs(hub, repository, pocket, command, tmp_path):
    # huggingface_hub writes pieces of 10 MB: what is cut after less begins anew.
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "plain.safetensors").write_bytes(pocket["model.safetensors"])
    tensors = mx.load(str(tmp_path / "large" / "plain.safetensors"))
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = mx.zeros((4_000_000,))
    mx.save_safetensors(str(tmp_path / "large" / "model.safetensors"), tensors, {"format": "pt"})
    repository.commit({**pocket, "model.safetensors": (tmp_path / "large/model.safetensors").read_bytes()})
    hub.cut["model.safetensors"] = [15_000_000]
    done = command("run", ID, PROMPT, "--max-tokens", "4", environment=hub.environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" Beijing")
    assert len(done.stderr.splitlines()) == 1, done.stderr  # the statistics: no bars where no terminal is
    ranges = [h["range"] for how, path, h in hub.requests if how == "GET" and "range" in h]
    assert len(ranges) == 1 and int(ranges[0][6:-1]) >= 10_000_000


def test_a_terminal_shows_progress(hub, repository):
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    arguments = [sys.executable, "-m", "zoo", "run", ID, PROMPT, "--max-tokens", "4"]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=follower, env={**os.environ, **hub.environment}
    )
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 4096):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    assert process.stdout.read().startswith(b" Beijing") and process.wait() == 0
    assert b"\rmodel.safetensors: " in shown and b"2.10M" in shown


def test_the_command_says_in_one_line_what_is_wrong(hub, repository, command):
    repository.gated = True
    hub.repositories["mlx-community/plain"] = Repository()
    for arguments, words in (
        ((ID,), ("gated", "HF_TOKEN")),
        ((ID, "--revision", "v9"), ("v9",)),
        (("mlx-community/nothing",), ("no such model", "spelling")),
    ):
        done = command("run", *arguments, PROMPT, environment=hub.environment)
        assert done.returncode == 1 and done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        for word in (arguments[0], *words):
            assert word in done.stderr


def test_the_cache_is_listed_and_emptied(hub, repository, pocket):
    def run(*arguments, said=None):
        done = CliRunner().invoke(cache, arguments, input=said)
        return done.exit_code, done.stdout, done.stderr, done.exception

    place = hub.environment["HF_HUB_CACHE"]
    assert run()[:2] == (0, f"no model is in the cache {place}\n")
    folders = [zoo.load(ID).folder]
    repository.commit({**pocket, "generation_config.json": b"{}"})
    folders.insert(0, zoo.load(ID).folder)
    _, listed, _, _ = run()
    assert listed.count(ID) == 2 and all(str(folder) in listed for folder in folders) and "2.2" in listed
    rows = json.loads(run("--json")[1])
    assert [row["path"] for row in rows] == list(map(str, folders))
    assert rows[0]["names"] == ["main"] and rows[0]["bytes"] == sum(
        path.stat().st_size for path in folders[0].iterdir()
    )

    status, _, _, error = run("remove", "mlx-community/pokcet")
    assert status == 1 and f"did you mean {ID}?" in str(error)
    for said in ("n\n", ""):
        status, out, err, _ = run("remove", ID, said=said)
        assert status == 1 and out == "" and "nothing was removed" in err and folders[0].exists()
    assert run("remove", rows[1]["revision"][:8], said="y\n")[0] == 0
    assert not folders[1].exists() and folders[0].exists() and answers(zoo.load(ID))
    assert run("remove", ID, "--yes")[0] == 0
    assert not folders[0].exists() and json.loads(run("--json")[1]) == []
