"""What `{trace}` puts on a page: the same run in both languages, small."""

import json
import re

import pytest
from building.trace import embeddings

import zoo

PROMPT = "The capital city of China is"


@pytest.fixture(scope="module")
def made():
    return embeddings("llama", PROMPT, ["layers", "choice"], [1], {"max_tokens": 2})


def data_of(html):
    return json.loads(
        re.search(r'<script type="application/json" class="data">(.*?)</script>', html, re.DOTALL)[1]
    )


def test_both_languages_have_the_same_numbers(made):
    english, chinese = (data_of(made[language]) for language in ("en", "zh"))
    for part in ("tracks", "decisions", "passes", "vocabulary"):
        assert english[part] == chinese[part] and english[part]
    assert 'lang="en"' in made["en"] and 'lang="zh-CN"' in made["zh"]


def test_numbers_are_those_of_the_run(made):
    data, trace = data_of(made["en"]), zoo.trace(zoo.load("llama"), PROMPT, max_tokens=2)
    assert [decision["token"] for decision in data["decisions"]] == trace.tokens
    (pattern,) = data["layers"][0]["patterns"]
    looked = [head["attends_to"] for head in pattern["heads"]]
    assert looked == trace["layers.1.mixer.pattern"].argmax(axis=-1).tolist()


def test_trace_is_small(made):
    assert all(len(html.encode()) < 40_000 for html in made.values())
