"""`zoo perplexity`: figures of one model or of several, and one line for what cannot be."""

import json

import pytest

from zoo.cli.perplexity import table_of
from zoo.inspect.perplexity import Perplexity

TEXT = "The capital city of China is Beijing. 中国的首都是北京。\n" * 12


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return "text.txt"


@pytest.mark.slow
def test_json_has_numbers_with_units_for_each_model(command, text):
    done = command("perplexity", "llama", "gru", text, "--context", "32", "--json")
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert [one["source"] for one in values["models"]] == ["llama", "gru"]
    for one in values["models"]:
        assert 0 < one["bits_per_byte"] < 4 and one["perplexity_per_token"] > 1
        assert one["context_tokens"] == 32 and one["stride_tokens"] == 16
        assert one["bytes"] < len(TEXT.encode("utf-8")) and one["tokens_per_second"] > 0
    assert values["versions"]["mlx"]


def test_several_models_are_side_by_side_and_one_is_in_rows(command, text):
    several = command("perplexity", "llama", "gru", text, "--limit", "50").stdout.splitlines()
    assert several[0].startswith("model") and "bits a byte" in several[0]
    assert [line.split()[0] for line in several[2:]] == ["llama", "gru"]
    one = command("perplexity", "llama", text, "--limit", "50").stdout.splitlines()
    assert one[0].split() == ["model", "llama"]
    rows = {line[:20].strip(): line[20:].strip() for line in one}
    assert rows["tokens"] == "50" and rows["bits a byte"] == several[2].split()[1]


def test_the_text_may_come_from_a_pipe(command):
    done = command("perplexity", "llama", "-", "--limit", "20", "--json", stdin=TEXT)
    assert json.loads(done.stdout)["models"][0]["tokens"] == 20


@pytest.mark.parametrize(
    ("name", "content", "options", "words"),
    [
        ("llama", b"", [], ["file", "is empty"]),
        ("llama", b"\x7fELF\0\0", [], ["binary file"]),
        ("llama", b"caf\xe9 au lait", [], ["not UTF-8", "byte 3"]),
        ("llama", b"a b c d", ["--stride", "500"], ["--stride", "128"]),
        ("gpt2", b"a b c d", ["--context", "500"], ["--context", "64"]),
        ("bert", b"a b c d", [], ["bert", "both sides"]),
        ("llada", b"a b c d", [], ["llada", "masked"]),
        ("transformer", b"a b c d", [], ["transformer", "translates"]),
        ("nope", b"a b c d", [], ["nope"]),
    ],
)
def test_what_cannot_be_is_one_line(command, tmp_path, name, content, options, words):
    (tmp_path / "file").write_bytes(content)
    done = command("perplexity", name, "file", *options)
    assert done.returncode != 0 and done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def test_a_model_that_cannot_be_measured_is_refused_before_any_is(command, text):
    done = command("perplexity", "llama", "bert", text, "--json")
    assert done.returncode != 0 and done.stdout == "" and "bert" in done.stderr


def test_different_tokenizers_are_compared_by_bytes():
    one = Perplexity(
        nats=10.0,
        tokens=5,
        bytes=20,
        read=5,
        seconds=1.0,
        context=None,
        stride=None,
        unknown=0,
        sees="all tokens before",
    )
    other = Perplexity(**{name: getattr(one, name) for name in one.__dataclass_fields__} | {"tokens": 4})
    assert "bits a byte compares" not in table_of({"a": one, "b": one})
    assert "bits a byte compares" in table_of({"a": one, "b": other})


def test_a_file_that_is_not_there_is_named(command):
    done = command("perplexity", "llama", "absent.txt")
    assert done.returncode != 0 and "absent.txt" in done.stderr
