"""Every command that looks into a model works for a third party's architecture, with what its plugin says of its own block."""

import json
import re
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import zoo
from tests.helpers.example_plugins import example
from zoo.checkpoint.convert import save
from zoo.cli import cli
from zoo.host.registry import isolated, using
from zoo.testing import subject

PROMPT = "The capital city of China is"


@pytest.fixture(scope="module")
def registry():
    with using(isolated(example("zoo-linear-attention"))) as registry:
        yield registry


@pytest.fixture(scope="module")
def folder(registry, tmp_path_factory):
    """A checkpoint of random weights, with LLaMA's tokenizer."""
    out = tmp_path_factory.mktemp("third-party")
    made = subject("linear-llama", "pocket", registry=registry)
    save(out, made.model, made.architecture, made.recipe, made.numbers, registry=registry)
    pocket = registry.architecture("llama").preset("pocket").folder
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(pocket / name, out)
    return out


def said(*arguments):
    """What a command prints; it must succeed."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_show_has_its_box_its_fact_and_its_difference(registry, tmp_path):
    card = said("show", "linear-llama:tiny")
    assert "Linear attention" in card and "elu + 1" in card
    assert "state as a cache of" in card
    assert "without a softmax" in card.replace("\n  ", " ")
    said("show", "linear-llama:tiny", "--svg", tmp_path / "d.svg")
    assert "Linear attention" in (tmp_path / "d.svg").read_text("utf-8")
    facts = json.loads(said("show", "linear-llama:tiny", "--json"))["facts"]
    assert facts["state.tokens"]["value"] == 8 and facts["state.tokens"]["unit"] == "tokens"


def test_compare_and_its_page_put_it_beside_the_zoos_own(registry, tmp_path):
    compared = json.loads(said("compare", "llama:pocket", "linear-llama:tiny", "--json"))
    rows = {row["name"]: row for row in compared["rows"]}
    assert rows["state.tokens"]["values"] == [None, 8] and rows["mixer"]["differs"]
    said("compare", "llama:pocket", "linear-llama:tiny", "--html", tmp_path / "page.html")
    assert "state as a cache of" in (tmp_path / "page.html").read_text("utf-8")


def test_its_own_page_has_what_one_of_the_zoos_own_has(registry, tmp_path):
    said("compare", "linear-llama:tiny", "--html", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    one = json.loads(re.search(r"^zooCompare\.card\((.*)\);$", text, re.M)[1])
    code = json.loads(re.search(r"^zooCompare\.code = (.*);$", text, re.M)[1])
    assert one["base"]["name"] == "llama" and one["base"]["sentences"]
    assert one["weights"]["hf"] and one["stacks"] and one["run"]
    block = one["code"]["blocks"]["mixer/linear-attention"]["code"]
    assert code[block]["file"].endswith("zoo_linear_attention/block.py")
    assert "LinearAttention" in code[block]["html"]


def test_trace_shows_what_its_probe_notes(registry, folder, tmp_path):
    said("trace", folder, PROMPT, "--max-tokens", 2, "--npz", tmp_path / "trace.npz")
    with np.load(tmp_path / "trace.npz") as values:
        assert values["layers.0.mixer.queries"].min() > 0  # elu + 1
        keys, added = values["layers.1.mixer.keys"], values["layers.1.mixer.values"]
        state = values["layers.1.mixer.state"]
    # After the last token but one: the last was written, and not read.
    assert np.allclose(state, keys.swapaxes(1, 2) @ added, atol=1e-4)
    said("trace", folder, PROMPT, "--max-tokens", 2, "--html", tmp_path / "trace.html")
    assert "layers.1.mixer.state" in (tmp_path / "trace.html").read_text("utf-8")


def test_an_intervention_reaches_its_heads(registry, folder):
    loaded = zoo.load(folder)
    plain = zoo.trace(loaded, PROMPT, max_tokens=1)
    with zoo.intervene(loaded, {"layers.1.mixer.values": 0}):
        changed = zoo.trace(loaded, PROMPT, max_tokens=1)
    assert not changed["layers.1.mixer"].any() and plain["layers.1.mixer"].any()
    assert np.array_equal(changed["layers.0"], plain["layers.0"])


def test_texts_are_cut_and_measured_with_it(registry, folder, tmp_path):
    (cut,) = json.loads(said("tokenize", folder, PROMPT, "--json"))["tokenizers"]
    assert "".join(piece["text"] for piece in cut["pieces"]) == PROMPT
    (tmp_path / "text").write_text(PROMPT, "utf-8")
    measured = json.loads(said("perplexity", folder, tmp_path / "text", "--json"))
    assert 1 < measured["models"][0]["bits_per_byte"] < 20
