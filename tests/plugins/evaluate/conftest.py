"""Files of data that models are judged on."""

import json

import pytest

import zoo

CAPITALS = [
    {"prompt": "The capital city of China is", "completion": " Beijing."},
    {"prompt": "The capital city of France is", "completion": " Paris."},
    {"prompt": "The capital city of Italy is", "completion": " Milan."},
    {"prompt": "中国的首都是", "completion": "北京。"},
]
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}<|endoftext|>{% endif %}{% endfor %}"
)


@pytest.fixture
def lines(tmp_path):
    """The function that writes records as JSON lines and gives the file."""

    def write(records, name="data.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def llama():
    return zoo.load("llama")


@pytest.fixture(scope="session")
def gpt2():
    return zoo.load("gpt2")


@pytest.fixture(scope="session")
def transformer():
    return zoo.load("transformer")
