"""Hub ids: what is asked of a hub, and what is said when it does not give it."""

import errno
import json
import re
import shutil
import socket

import mlx.core as mx
import pytest

import zoo
from tests.helpers import gguf_files
from tests.helpers.loopback_hub import ID, Repository, answers
from zoo.checkpoint import hub as hub_module
from zoo.checkpoint.folder import pooling_of
from zoo.checkpoint.safetensors import INDEX
from zoo.errors import CheckpointError, SourceError
from zoo.host.registry import default_registry

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
        "additional_chat_templates/tool_use.jinja": b"T",
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


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model_says_where_to_accept_its_licence(hub, repository, status):
    repository.gated = status
    refused(SourceError, "is gated: accept its licence at", f"{hub.url}/{ID}", "hf auth login", "HF_TOKEN")


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_without_a_reason_says_what_may_help(hub, repository, status):
    hub.status = status
    refused(SourceError, f"status {status}", f"accept its licence at {hub.url}/{ID}", "hf auth login")


@pytest.mark.parametrize("source", ["mlx-community/pokcet", "a b/c", "owner/" + "x" * 200])
def test_an_id_that_is_none(hub, repository, source):
    refused(SourceError, "no folder of this name", source=source)


def test_a_preset_asks_for_its_id(hub):
    preset = default_registry().architecture("qwen3").full_size
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


PULL = ("SFconvertbot", "Adding `safetensors` variant of this model")


def test_of_a_repository_of_pickles_the_hubs_conversion_serves(hub, repository, pocket):
    pickles = {name: data for name, data in pocket.items() if name != "model.safetensors"}
    repository.commit({**pickles, "pytorch_model.bin": b""})
    commit = repository.commit({**pocket, "pytorch_model.bin": b""}, "refs/pr/2")
    repository.pull_requests = [("somebody", PULL[1]), PULL]
    with pytest.warns(UserWarning, match="revision refs/pr/2, serves"):
        loaded = zoo.load(ID)
    assert answers(loaded) and loaded.folder.name == commit
    assert "pytorch_model.bin" not in hub.asked("HEAD") + hub.asked()


def test_a_conversion_by_anybody_else_does_not_serve(hub, repository, pocket):
    pickles = {name: data for name, data in pocket.items() if name != "model.safetensors"}
    repository.commit({**pickles, "pytorch_model.bin": b""})
    repository.commit(pocket, "refs/pr/1")
    repository.pull_requests = [("somebody", PULL[1])]
    refused(CheckpointError, "pytorch_model.bin", "pickle", "never")


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
    path = hub_module.download_file(ID, "original/params.json", None, (".gguf",))
    assert path.read_bytes() == b"no need of this" and path.parts[-2:] == ("original", "params.json")
    assert hub.asked() == ["original/params.json"]
    hub.requests.clear()
    assert hub_module.download_file(ID, "original/params.json", None, (".gguf",)) == path
    assert len(hub.requests) == 1
    with pytest.raises(SourceError, match=r"model\.gguf; it has model\.Q4_K_M\.gguf"):
        hub_module.download_file(ID, "model.gguf", None, (".gguf",))


def test_a_gguf_file_is_named_in_its_repository(hub, tmp_path):
    folder = default_registry().architecture("llama").preset("pocket").folder
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


def test_a_page_of_the_hub_stands_for_its_repository(hub, repository, pocket, tmp_path):
    other = json.dumps(json.loads(pocket["config.json"]) | {"rope_theta": 500.0}).encode()
    commit = repository.commit({**pocket, "config.json": other}, "v2")
    for page in (
        f"https://huggingface.co/{ID}",
        f"hf.co/{ID}/",
        f"huggingface.co/{ID}/tree/main?x=1",
        f"hf://{ID}",
    ):
        assert zoo.load(page).folder == zoo.load(ID).folder
    assert zoo.load(f"https://huggingface.co/{ID}/tree/v2").folder.name == commit
    folder = default_registry().architecture("llama").preset("pocket").folder
    files = Repository()
    path = gguf_files.write(tmp_path / "model.Q8_0.gguf", folder, "Q8_0")
    files.commit({"model.Q8_0.gguf": path.read_bytes()})
    hub.repositories["owner/model-GGUF"] = files
    assert answers(zoo.load("https://hf.co/owner/model-GGUF/blob/main/model.Q8_0.gguf?download=true"))
    assert answers(zoo.load("hf://owner/model-GGUF/model.Q8_0.gguf"))
    for other in (
        f"https://huggingface.co/datasets/{ID}",
        "https://example.org/model.gguf",
        "ollama://llama3",
    ):
        refused(SourceError, "not the address of a model on the hub, https", source=other)
