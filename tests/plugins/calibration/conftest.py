"""Texts to calibrate by: the atlas' for models that write or fill, the phrasebook's pairs for translators."""

import json
from itertools import islice

import pytest

from zoo.architecture import Corpus
from zoo.checkpoint.calibration import Calibration
from zoo.host.registry import default_registry


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A function from a task, and a split, to the file of its text."""
    folder = tmp_path_factory.mktemp("texts")

    def write(task, split="train"):
        parallel = task == "translate"
        corpus = default_registry().table(Corpus).require("phrasebook" if parallel else "atlas")
        path = folder / f"{corpus.name}-{split}.jsonl"
        if not path.exists():
            documents = list(islice(corpus.load()(split, 0), 200))
            lines = [dict(source=d[0], target=d[1]) if parallel else dict(text=d) for d in documents]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


@pytest.fixture(scope="session")
def calibration(texts):
    """A function from a method to a small calibration."""

    def make(method, task="generate", **more):
        return Calibration(texts(task), method, **{"rows": 16, "length": 48} | more)

    return make
