"""Texts of a request for embeddings, encoded as the folder says."""

import json

import pytest

from zoo.errors import PromptError
from zoo.loading import Loaded
from zoo.testing import subject
from zoo.tokenizer import load_tokenizer
from zoo_serve.embeddings import encoded
from zoo_serve.requests import EmbeddingRequest, RequestError


@pytest.fixture
def prompted(tokenizer_folder, tmp_path):
    """A function from the settings of the Pooling module to a model whose folder has a default prompt."""

    def make(**pooling):
        one = subject("bert", "pocket")
        prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
        modules = [
            {"type": "models.Transformer", "path": ""},
            {"type": "models.Pooling", "path": "1_Pooling"},
        ]
        (tmp_path / "modules.json").write_text(json.dumps(modules))
        (tmp_path / "1_Pooling").mkdir()
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"} | pooling))
        return Loaded(one.model, load_tokenizer(tokenizer_folder), one.architecture, one.recipe, {}, tmp_path)

    return make


def test_the_folder_s_default_prompt_stands_before_texts_and_not_before_ids(prompted):
    loaded = prompted()
    assert encoded(loaded, EmbeddingRequest(texts=("Paris", (5, 6)))) == [
        loaded.tokenizer.encode("query: Paris"),
        [5, 6],
    ]


def test_a_prompt_that_is_not_pooled_is_refused(prompted):
    with pytest.raises(PromptError, match="include_prompt"):
        encoded(prompted(include_prompt=False), EmbeddingRequest(texts=("Paris",)))


def test_an_empty_text_of_several_is_numbered(prompted):
    loaded = prompted()
    with pytest.raises(RequestError, match=r"`input\[1\]` is empty"):
        encoded(loaded, EmbeddingRequest(texts=("Paris", "")))
    with pytest.raises(RequestError, match="`input` is empty"):
        encoded(loaded, EmbeddingRequest(texts=("",)))
