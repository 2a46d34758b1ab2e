"""JavaScript clients: Ollama's package, and the AI SDK by each of its providers. One process asks all of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients import chat_model

FOLDER = Path(sys.prefix) / "javascript"  # `make clients` installs its packages
NODE = Path(sys.prefix) / "bin" / "node"
CITIES = chat_model.CITY["enum"]
PROVIDERS = ("compatible", "chat", "responses", "anthropic")
pytestmark = pytest.mark.skipif(
    not (FOLDER / "node_modules").is_dir(),
    reason="npm could not install the clients: `make clients` says why",
)


@pytest.fixture(scope="module")
def seen(chatter):
    """What each client got."""
    program = FOLDER / "clients.mjs"
    program.write_bytes((Path(__file__).parent / "javascript" / "clients.mjs").read_bytes())
    asked = {
        "url": chatter.url,
        "river": chat_model.RIVER,
        "question": chat_model.QUESTION,
        "weather": chat_model.TOOL,
        "schema": chat_model.PARAMETERS,
        "result": chat_model.RESULT["content"],
    }
    done = subprocess.run([NODE, program, json.dumps(asked)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ollamas_package_has_text_thinking_parts_tools_and_objects(seen):
    got = seen["ollama"]
    assert got["text"] == got["streamed"] == chat_model.RIVER_ANSWER and got["parts"] > 2
    assert got["thinking"] == chat_model.RIVER_THOUGHT
    assert got["calls"] == [chat_model.ARGUMENTS] and got["afterTool"] == chat_model.FORECAST
    assert got["object"]["city"] in CITIES and got["models"] == ["chatter"]


def test_ollamas_package_has_the_status_of_an_error(seen):
    status, message = seen["ollama"]["error"]
    assert status == 404 and "model 'other' not found" in message


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_ai_sdk_has_text_whole_and_in_parts(seen, provider):
    assert seen[provider]["text"] == seen[provider]["streamed"] == chat_model.RIVER_ANSWER


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_ai_sdk_calls_tools_and_reads_their_results(seen, provider):
    assert seen[provider]["calls"] == [chat_model.ARGUMENTS]
    assert seen[provider]["afterTool"] == chat_model.FORECAST
    assert [call["city"] in CITIES for call in seen[provider]["forced"]] == [True]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_ai_sdk_has_structured_output(seen, provider):
    assert seen[provider]["object"]["city"] in CITIES
