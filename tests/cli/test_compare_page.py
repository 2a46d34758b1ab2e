"""`zoo compare --html`: one model or several, with its settings, and with what was measured."""

import json
import re

import pytest
from click.testing import CliRunner

from zoo.cli import cli
from zoo.inspect.measure import Measured


def page(tmp_path, *arguments):
    path = tmp_path / "page.html"
    done = CliRunner().invoke(cli, ["compare", *arguments, "--html", str(path)])
    assert done.exit_code == 0, done.output
    return path.read_text("utf-8")


def cards(text):
    return [json.loads(one) for one in re.findall(r"^zooCompare\.card\((.*)\);$", text, re.M)]


def test_one_name_works(tmp_path):
    (one,) = cards(page(tmp_path, "mistral"))
    assert one["name"] == "mistral:7b" and one["words"] == [[]]
    assert one["base"]["name"] == "llama"


def test_its_settings_are_those_of_the_page(tmp_path):
    text = page(tmp_path, "llama", "mistral", "--context", "2000", "--quantize", "4")
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', text, re.S)[1])
    assert (data["context"], data["weights"]) == (2000, "4")
    assert data["names"] == ["llama:8b", "mistral:7b"]


def test_what_was_measured_stands_in_the_page(tmp_path, monkeypatch):
    def measure(names, report=None):
        return [
            Measured(
                source=name,
                measured=f"{name}:pocket",
                architecture=name,
                task="generate",
                parameters=1_049_728,
                random=False,
                dtype="float32",
                prompt_tokens=96,
                new_tokens=32,
                prefill_tokens_per_second=4321.0,
                decode_tokens_per_second=765.0,
                first_token_seconds=0.02,
                peak_memory_bytes=5_000_000,
                runs=(),
            )
            for name in names
        ]

    monkeypatch.setattr("zoo.inspect.measure.measure", measure)
    for one in cards(page(tmp_path, "llama", "mistral", "--measure")):
        facts = {name: text for name, _, _, text, *_ in one["measured"]}
        assert facts["prefill"] == "4,321 tokens/s" and facts["decode"] == "765 tokens/s"


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    done = CliRunner().invoke(cli, ["compare", "llama", "--html", str(tmp_path / "none" / "page.html")])
    assert done.exit_code != 0 and "cannot be written" in str(done.exception)


@pytest.mark.parametrize("arguments", [("--context", "0"), ("--quantize", "five")])
def test_settings_that_cannot_be_write_nothing(tmp_path, arguments):
    path = tmp_path / "page.html"
    done = CliRunner().invoke(cli, ["compare", "llama", *arguments, "--html", str(path)])
    assert done.exit_code != 0 and not path.exists()
