"""Texts to vectors: pooling, what a folder's files say, and the command."""

import json
import shutil

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers.parameters import ordinary
from zoo.checkpoint.checkpoint import Pooling
from zoo.checkpoint.folder import pooling_of
from zoo.errors import ConfigError, PromptError
from zoo.loading import Loaded
from zoo.testing import same, subject
from zoo.tokenizer import load_tokenizer

TEXTS = ["Paris", "The capital city of China is Beijing.", "法国的首都是巴黎。", "a"]


@pytest.fixture
def made(tokenizer_folder, tmp_path):
    """A small random model of an architecture, its tokenizer trained now."""

    def make(name="bert"):
        one = subject(name, "pocket")
        return Loaded(one.model, load_tokenizer(tokenizer_folder), one.architecture, one.recipe, {}, tmp_path)

    return make


def alone(loaded, text):
    """The hidden states (S, D) of one text by itself."""
    tokens = mx.array([loaded.tokenizer.encode(text)])
    if loaded.architecture.causality == "prefix":
        return loaded.model.backbone(tokens, prefix=tokens.shape[1])[0]
    model = loaded.model
    return (model.encode(tokens) if hasattr(model, "encode") else model.backbone(tokens))[0]


POOLED = {"mean": lambda x: x.mean(axis=0), "first": lambda x: x[0], "last": lambda x: x[-1]}


@pytest.mark.parametrize("name", ["bert", "llama", "llada", "prefix-lm"])
@pytest.mark.parametrize("pooling", ordinary(POOLED, "mean"))
def test_each_text_is_as_if_alone_in_its_batch(made, name, pooling):
    loaded = made(name)
    found = zoo.embed(loaded, TEXTS, pooling=pooling)
    assert found.shape == (4, loaded.recipe.dim)
    expected = mx.stack([POOLED[pooling](alone(loaded, text)) for text in TEXTS])
    same(found, expected, "vectors", 1e-5)


@pytest.mark.slow
def test_more_texts_than_a_batch_keep_their_order(made):
    loaded = made()
    many = [f"{'text ' * (n % 7)}{n}" for n in range(70)]
    found = zoo.embed(loaded, many)
    for n in (0, 33, 69):
        same(found[n], zoo.embed(loaded, [many[n]])[0], f"text {n}", 1e-5)


def test_normalised_vectors_have_length_one(made):
    plain = zoo.embed(made(), TEXTS)
    unit = zoo.embed(made(), TEXTS, normalise=True)
    assert mx.allclose(mx.linalg.norm(unit, axis=-1), mx.ones(4), atol=1e-5)
    same(unit * mx.linalg.norm(plain, axis=-1, keepdims=True), plain, "vectors", 1e-5)


def written(
    folder, kinds=("Transformer", "Pooling", "Normalize"), pooling=(), settings=None, path="1_Pooling"
):
    """The files of sentence-transformers in a folder."""
    places = {"Pooling": path}
    modules = [{"type": f"sentence_transformers.models.{k}", "path": places.get(k, "")} for k in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(dict(pooling)))
    if settings:
        (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    return pooling_of(folder)


MEAN = {"word_embedding_dimension": 8, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


def test_a_folder_says_how_it_pools(tmp_path):
    assert pooling_of(tmp_path) == Pooling("mean", normalise=False, length=None)
    assert written(tmp_path, pooling=MEAN) == Pooling("mean", normalise=True)
    assert written(tmp_path, ("Transformer", "Pooling"), {"pooling_mode_cls_token": True}) == Pooling("first")
    assert written(tmp_path, pooling={"pooling_mode": "lasttoken"}).mode == "last"
    assert written(tmp_path, pooling=MEAN, settings={"max_seq_length": 8}).length == 8


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (dict(kinds=("Transformer", "Pooling", "Dense"), pooling=MEAN), "Dense"),
        (dict(pooling={"pooling_mode_max_tokens": True}), "pooling_mode_max_tokens"),
        (dict(pooling=MEAN | {"pooling_mode_cls_token": True}), "first and mean|mean and first"),
        (dict(pooling={}), "nothing"),
        (dict(pooling=MEAN, path="../1_Pooling"), "not a folder beside it"),
        (dict(pooling=MEAN, settings={"max_seq_length": "long"}), "max_seq_length"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(tmp_path, changes, word):
    with pytest.raises(ConfigError, match=word):
        written(tmp_path, **changes)


def test_modules_that_are_no_list(tmp_path):
    (tmp_path / "modules.json").write_text('{"type": 1}')
    with pytest.raises(ConfigError, match="modules"):
        pooling_of(tmp_path)


def test_a_long_text_is_cut_between_the_tokens_around_it(made):
    loaded = made()
    written(loaded.folder, ("Transformer", "Pooling"), MEAN, {"max_seq_length": 6})
    plain = loaded.tokenizer.encode
    loaded.tokenizer.encode = lambda text, special_tokens=True: (
        [3, *plain(text, False), 4] if special_tokens else plain(text, False)
    )
    own = plain("one two three four five", False)
    with pytest.warns(UserWarning, match="longer than 6"):
        found = zoo.embed(loaded, ["one two three four five"])[0]
    states = loaded.model.encode(mx.array([[3, *own[:4], 4]]))[0]
    same(found, states.mean(axis=0), "the vector", 1e-5)


@pytest.mark.parametrize(
    ("texts", "settings", "word"),
    [([], {}, "no text"), (["a", ""], {}, "empty"), (["a"], {"pooling": "max"}, "max")],
)
def test_bad_input_is_refused(made, texts, settings, word):
    with pytest.raises(PromptError, match=word):
        zoo.embed(made(), texts, **settings)


def test_the_command_prints_lines_or_writes_a_file(command, folder, tokenizer_folder, tmp_path):
    path = folder("bert", tokenizer=False, preset="pocket")
    shutil.copytree(tokenizer_folder, path, dirs_exist_ok=True)
    expected = np.array(zoo.embed(zoo.load(path), TEXTS))
    lines = [json.loads(line) for line in command("embed", path, *TEXTS).stdout.splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    assert np.allclose([line["embedding"] for line in lines], expected, atol=1e-5)
    assert command("embed", path, "--out", "x.npy", stdin="\n".join(TEXTS)).stdout == ""
    assert np.allclose(np.load(tmp_path / "x.npy"), expected, atol=1e-5)
    command("embed", path, *TEXTS, "--out", "x.json")
    assert [row["text"] for row in json.loads((tmp_path / "x.json").read_text())] == TEXTS
    for arguments, word in (([path, "a", "--out", "x.txt"], ".npy"), ([path], "no text")):
        done = command("embed", *arguments)
        assert done.returncode != 0 and word in done.stderr and done.stdout == ""
