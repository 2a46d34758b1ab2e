"""Small model folders that the tests load, run and damage."""

import json
import os
import subprocess
import sys
import tempfile

import pytest

import zoo  # noqa: F401 (before mlx, so that the fast BLAS is loaded)
from zoo.checkpoint.save import save
from zoo.registry import registry
from zoo.testing import subject

# Before huggingface_hub is imported, which reads them once: no test may see, or fill, the cache of who runs it.
_HOME = tempfile.TemporaryDirectory(prefix="zoo-tests-")
os.environ["HF_HOME"] = _HOME.name
for _name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
    os.environ.pop(_name, None)


@pytest.fixture
def command(tmp_path):
    """Run `zoo …` as a user would; gives the finished process, output as text."""

    def call(*arguments, stdin="", environment=None, timeout=120):
        return subprocess.run(
            [sys.executable, "-m", "zoo", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout,
            cwd=tmp_path,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})},
        )

    return call


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory):
    """A folder with a small tokenizer, trained now: nothing embedded is needed for it."""
    from itertools import islice

    from zoo.training.atlas import documents
    from zoo.training.vocabulary import save_tokenizer, train_tokenizer

    path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(train_tokenizer(islice(documents("train"), 300), 400), path)
    return path


@pytest.fixture
def folder(tmp_path):
    """Write a small random model as a Hugging Face folder; gives its path. Extra keys change its config.json."""

    def write(name="llama", changes=None, tokenizer=True, where="model"):
        made = subject(name)
        path = tmp_path / where
        save(path, made.model, made.architecture, made.recipe, made.numbers)
        if changes:
            config = json.loads((path / "config.json").read_text())
            config |= changes
            (path / "config.json").write_text(json.dumps(config))
        if tokenizer:
            pocket = registry().architecture("llama").preset("pocket").folder
            for file in ("tokenizer.json", "tokenizer_config.json"):
                (path / file).write_bytes((pocket / file).read_bytes())
        return path

    return write
