"""The options of `zoo serve`: which models are offered, under which names, with which defaults."""

import re
import threading
from pathlib import Path
from types import SimpleNamespace

import click
import mlx.core as mx
import pytest

from tests.checkpoint.test_adapter import adapter
from tests.helpers.invoked import invoke
from tests.helpers.serving import serving
from zoo.cli.setting_options import CommandSettings
from zoo.cli.source_options import ModelOptions
from zoo.host.registry import default_registry
from zoo.loading import load
from zoo_serve import command
from zoo_serve.command import ByteCount, announce, model_name, serve, sources_of
from zoo_serve.log import say


def offered(sources, adapters=(), settings=None):
    with click.Context(serve):
        return sources_of(sources, adapters, ModelOptions(), CommandSettings(settings or {}))


def test_an_adapter_is_a_model_of_its_own_name(tmp_path):
    adapter(tmp_path / "a")
    plain, changed = offered(("llama",), (f"poet={tmp_path / 'a'}",))
    assert (plain.name, changed.name) == ("llama", "llama:poet")
    tokens, expected = mx.array([[1, 2, 3]]), load("llama", adapter=tmp_path / "a")
    assert (changed.holder, changed.adapter) == ("llama", "poet")
    loaded = plain.load()
    assert not mx.allclose(loaded.model(tokens), expected.model(tokens), atol=1e-3)
    with loaded.adapters.use("poet"):
        assert mx.allclose(loaded.model(tokens), expected.model(tokens), atol=1e-4)


def test_an_adapter_of_whole_weights_is_a_model_of_its_own(tmp_path):
    adapter(tmp_path / "a", {"model.norm.weight": mx.zeros((128,))}, fine_tune_type="full")
    _, changed = offered(("llama",), (f"poet={tmp_path / 'a'}",))
    assert changed.holder == "llama:poet"
    assert not changed.load().model(mx.array([[1, 2, 3]])).any()


def test_an_adapter_without_a_name_is_refused(tmp_path):
    with pytest.raises(click.BadParameter, match="NAME=FOLDER"):
        offered(("llama",), (str(tmp_path),))


def test_a_folder_is_called_by_its_name_and_two_of_a_name_are_refused(tmp_path):
    pocket = default_registry().architecture("llama").preset("pocket").folder
    assert model_name(str(pocket)) == Path(pocket).name
    assert model_name("org/model") == "org/model"
    with pytest.raises(click.UsageError, match="two models"):
        offered((str(pocket), str(pocket)))


def test_settings_are_defaults_and_are_read_in_another_thread():
    (source,) = offered(("llama",), settings={"max_tokens": 3})
    found = []
    thread = threading.Thread(target=lambda: found.append(source.settings(source.load())))
    thread.start()
    thread.join()
    assert found == [{"max_tokens": 3}]


def test_what_is_known_of_a_model_is_known_before_it_is_loaded():
    (source,) = offered(("transformer",))
    recipe = load("transformer").recipe
    assert source.about["task"] == "translate" and source.about["parameters"] == recipe.parameters(recipe.dim)
    assert source.about["chat"] is False


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("500M", 500_000_000), ("4g", 4 * 10**9), ("2KB", 2000)]
)
def test_a_number_of_bytes(text, number):
    assert ByteCount().convert(text, None, None) == number


@pytest.mark.parametrize("text", ["", "-1", "4T", "1.5G", "G"])
def test_what_is_no_number_of_bytes_is_refused(text):
    with pytest.raises(click.BadParameter, match="500M"):
        ByteCount().convert(text, None, None)


def test_a_library_that_is_missing_is_named_with_what_installs_it(tmp_path, monkeypatch):
    find = command.find_spec
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "starlette" else find(name))
    result = invoke(tmp_path, ["serve", "llama"])
    assert result.returncode == 2 and result.stdout == ""
    [line] = [line for line in result.stderr.splitlines() if "mlx-zoo" in line]
    assert "it needs starlette, which the extra `serve` installs: pip install 'mlx-zoo[serve]'" in line


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0", "x"])
@pytest.mark.parametrize("option", ["--timeout", "--unload-after"])
def test_a_time_is_a_finite_number_of_seconds(tmp_path, option, value):
    if (option, value) == ("--unload-after", "0"):
        return
    result = invoke(tmp_path, ["serve", "llama", option, value])
    assert result.returncode == 2 and option in result.stderr


@pytest.mark.parametrize("key", ["", " x", "x\n", "a\tb", "half \udcff"])
def test_a_key_that_no_client_could_send_is_refused_without_showing_it(tmp_path, key):
    result = invoke(tmp_path, ["serve", "llama", "--api-key", key])
    assert result.returncode == 2 and "--api-key" in result.stderr and "half" not in result.stderr


def test_an_empty_variable_is_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_API_KEY", "")
    result = invoke(tmp_path, ["serve", "llama"])
    assert result.returncode == 2 and "ZOO_API_KEY is empty" in result.stderr


def test_an_adapter_whose_name_breaks_a_line_is_refused(tmp_path):
    with pytest.raises(click.BadParameter, match="NAME=FOLDER"):
        offered(("llama",), (f"a\nb={tmp_path}",))


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("a\u2028b", "a\\u2028b"), ("é 模", "é 模")],
)
def test_what_is_logged_is_one_line(capsys, text, shown):
    say(text)
    assert capsys.readouterr().err == f"{shown}\n"


@pytest.mark.parametrize(("model", "path"), [("llama", "completions"), ("bert", "embeddings")])
def test_the_request_that_is_printed_is_one_that_the_model_answers(capsys, model, path):
    (source,) = offered((model,))
    with serving([model], load=load) as made:
        options = SimpleNamespace(api_key=None, host="127.0.0.1")
        announce(source, options, f"http://127.0.0.1:{made.port}")
        printed = capsys.readouterr().err
        [asked] = re.findall(r"-d '(.*)'", printed)
        assert f"/v1/{path} " in printed and f"ANTHROPIC_MODEL={model} " in printed
        assert made.ask(asked, f"/v1/{path}")[0] == 200
