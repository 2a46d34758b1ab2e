"""Adapters of one model in the server: requests choose one by the model's name, or by the setting."""

import mlx.core as mx
import pytest

import zoo
from tests.generation.test_adapters import write
from tests.helpers.serving import PROMPT, Serving
from zoo_serve.models import Source


@pytest.fixture
def folders(tmp_path):
    return {name: write("llama", tmp_path / name) for name in ("a", "b")}


@pytest.fixture
def server(folders):
    made = Serving(load=lambda name: zoo.load(name, adapters=folders), prompt_cache=10**8)
    base = made.table.sources["llama"]
    for name in folders:
        made.table.sources[f"llama:{name}"] = Source(
            f"llama:{name}", base.load, base.settings, {}, base="llama", adapter=name
        )
    made.start()
    yield made
    made.stop()


def ask(server, path, body):
    status, _, answer = server.ask(body, path)
    assert status == 200, answer
    return answer


def test_a_request_uses_the_adapter_that_it_names(server, folders):
    expected = {None: zoo.generate(zoo.load("llama"), PROMPT, max_tokens=8).text}
    for name, folder in folders.items():
        expected[name] = zoo.generate(zoo.load("llama", adapter=folder), PROMPT, max_tokens=8).text
    assert len(set(expected.values())) == 3
    for name, text in expected.items():
        model = "llama" if name is None else f"llama:{name}"
        body = {"prompt": PROMPT, "max_tokens": 8}
        by_model = ask(server, "/v1/completions", {**body, "model": model})
        assert (by_model["model"], by_model["choices"][0]["text"]) == (model, text)
        if name is not None:
            by_setting = ask(server, "/v1/completions", {**body, "model": "llama", "adapter": name})
            assert by_setting["choices"][0]["text"] == text
    assert len(server.table.served) == 1


def test_vectors_are_those_of_the_adapter(server, folders):
    expected = zoo.embed(zoo.load("llama", adapter=folders["a"]), [PROMPT])[0]
    found = ask(server, "/v1/embeddings", {"model": "llama:a", "input": PROMPT})["data"][0]["embedding"]
    assert mx.allclose(mx.array(found), expected, atol=0.02)
    plain = ask(server, "/v1/embeddings", {"model": "llama", "input": PROMPT})["data"][0]["embedding"]
    assert mx.abs(mx.array(plain) - expected).max() > 0.1
