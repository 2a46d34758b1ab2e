"""LiteLLM and HTTP's plain form as clients of reranking and scoring."""

import json
import os
import urllib.request

import pytest

import zoo
from tests.helpers.classifier_folders import write_classifier
from tests.helpers.server_process import Server
from zoo_classify.rerank import rerank, score_pairs

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # read as it is imported: else it asks the network
import litellm

QUERY, DOCUMENTS = "who is it", ["the cat", "a bad dog", "it is a good film", "the dog sat on a mat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random cross-encoder."""
    return write_classifier(tmp_path_factory.mktemp("models") / "ranker", id2label={"0": "LABEL_0"})


@pytest.fixture(scope="module")
def ranker(folder):
    """A server of the cross-encoder."""
    server = Server(folder)
    yield server
    server.stop()


@pytest.mark.parametrize("provider", ["cohere", "jina_ai", "hosted_vllm"])
def test_documents_come_sorted_as_the_library_sorts_them(ranker, folder, provider):
    path = {"cohere": "/v2/rerank", "jina_ai": "/v1/rerank", "hosted_vllm": ""}[provider]
    answer = litellm.rerank(
        f"{provider}/ranker",
        query=QUERY,
        documents=DOCUMENTS,
        top_n=3,
        api_base=ranker.url + path,
        api_key="none",
    )
    expected = rerank(zoo.load(folder), QUERY, DOCUMENTS, top_n=3)
    assert [one["index"] for one in answer.results] == [one.index for one in expected]
    assert [one["relevance_score"] for one in answer.results] == pytest.approx(
        [one.score for one in expected]
    )


def test_scores_are_the_librarys(ranker, folder):
    body = json.dumps({"text_1": QUERY, "text_2": DOCUMENTS}).encode()
    request = urllib.request.Request(f"{ranker.v1}/score", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as response:
        answer = json.load(response)
    expected = score_pairs(zoo.load(folder), [(QUERY, document) for document in DOCUMENTS])
    assert [one["score"] for one in answer["data"]] == pytest.approx(expected)
