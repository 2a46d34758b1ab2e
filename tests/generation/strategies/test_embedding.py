"""Texts to vectors: pooling, what a folder's files say, and the command."""

import json
import shutil

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers.parameters import ordinary
from zoo.checkpoint.checkpoint import Pooling
from zoo.checkpoint.sentence_vectors import pooling_of, unit
from zoo.errors import CheckpointError, ConfigError, PromptError
from zoo.loading import Loaded
from zoo.testing import same, subject
from zoo.tokenizer import load_tokenizer

TEXTS = ["Paris", "The capital city of China is Beijing.", "法国的首都是巴黎。", "a"]


def test_vectors_of_halves_whose_squares_no_half_can_hold_get_length_1():
    same(unit(mx.full((1, 64), 300, mx.float16)), mx.full((1, 64), 1 / 8), "the vector", 1e-6)


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


def weighted_mean(x):
    weights = mx.arange(1, len(x) + 1)[:, None]
    return (x * weights).sum(axis=0) / weights.sum()


POOLED = {
    "mean": lambda x: x.mean(axis=0),
    "first": lambda x: x[0],
    "last": lambda x: x[-1],
    "max": lambda x: x.max(axis=0),
    "weighted-mean": weighted_mean,
    "mean-sqrt-length": lambda x: x.sum(axis=0) / len(x) ** 0.5,
}
JOINED = "first+weighted-mean+max"
POOLED[JOINED] = lambda x: mx.concatenate([POOLED[part](x) for part in JOINED.split("+")])


@pytest.mark.parametrize("name", ["bert", "llama", "llada", "prefix-lm"])
@pytest.mark.parametrize("pooling", ordinary(POOLED, "mean", JOINED))
def test_each_text_is_as_if_alone_in_its_batch(made, name, pooling):
    loaded = made(name)
    found = zoo.embed(loaded, TEXTS, pooling=pooling)
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
    folder,
    kinds=("Transformer", "Pooling", "Normalize"),
    pooling=(),
    settings=None,
    path="1_Pooling",
    prompts=None,
):
    """The files of sentence-transformers in a folder."""
    places = {"Pooling": path, "Dense": "2_Dense", "LayerNorm": "3_LayerNorm"}
    modules = [{"type": f"sentence_transformers.models.{k}", "path": places.get(k, "")} for k in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(dict(pooling)))
    if settings:
        (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    if prompts:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
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
        (dict(kinds=("Transformer", "Pooling", "WordWeights"), pooling=MEAN), "WordWeights"),
        (dict(pooling={"pooling_mode_new_tokens": True}), "pooling_mode_new_tokens"),
        (dict(pooling={"pooling_mode": "newest"}), "newest"),
        (dict(pooling=MEAN, settings={"do_lower_case": "no"}), "do_lower_case"),
        (dict(pooling=MEAN, settings={"transformer_task": "fill-mask"}), "transformer_task"),
        (dict(pooling=MEAN, prompts={"default_prompt_name": "query"}), "default_prompt_name"),
        (dict(pooling=MEAN, prompts={"prompts": ["query: "]}), "prompts"),
        (dict(pooling={}), "nothing"),
        (dict(pooling=MEAN, path="../1_Pooling"), "not a folder beside it"),
        (dict(pooling=MEAN, settings={"max_seq_length": "long"}), "max_seq_length"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(tmp_path, changes, word):
    with pytest.raises(ConfigError, match=word):
        written(tmp_path, **changes)


def module(folder, name, config, **tensors):
    (folder / name).mkdir()
    (folder / name / "config.json").write_text(json.dumps(config))
    if tensors:
        mx.save_safetensors(
            str(folder / name / "model.safetensors"), {k.replace("__", "."): v for k, v in tensors.items()}
        )


ACTIVATED = {"Tanh": np.tanh, "Identity": lambda x: x, "ReLU": lambda x: np.maximum(x, 0)}


@pytest.mark.parametrize("activation", ACTIVATED)
@pytest.mark.parametrize("residual", [False, True])
def test_the_modules_after_pooling_change_the_vectors(made, activation, residual):
    loaded = made()
    plain = np.array(zoo.embed(loaded, TEXTS))  # (N, D)
    dim = plain.shape[1]
    draw = np.random.default_rng(0)
    weight, bias, project = (draw.normal(size=s).astype("float32") for s in ((5, dim), (5,), (5, dim)))
    config = {"in_features": dim, "out_features": 5, "bias": True, "use_residual": residual}
    config["activation_function"] = f"torch.nn.modules.activation.{activation}"
    tensors = {"linear__weight": mx.array(weight), "linear__bias": mx.array(bias)}
    module(
        loaded.folder,
        "2_Dense",
        config,
        **tensors | ({"residual__weight": mx.array(project)} if residual else {}),
    )
    scale, shift = draw.normal(size=(2, 5)).astype("float32")
    module(
        loaded.folder,
        "3_LayerNorm",
        {"dimension": 5},
        norm__weight=mx.array(scale),
        norm__bias=mx.array(shift),
    )
    written(loaded.folder, ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize"), MEAN)
    dense = ACTIVATED[activation](plain @ weight.T + bias) + (plain @ project.T if residual else 0)
    normed = (dense - dense.mean(-1, keepdims=True)) / np.sqrt(dense.var(-1, keepdims=True) + 1e-5)
    expected = normed * scale + shift
    same(zoo.embed(loaded, TEXTS, normalise=False), mx.array(expected), "vectors", 1e-4)
    length = np.linalg.norm(expected, axis=-1, keepdims=True)
    same(zoo.embed(loaded, TEXTS), mx.array(expected / length), "vectors", 1e-4)
    written(
        loaded.folder, ("Transformer", "Pooling", "Dense", "LayerNorm"), MEAN, prompts={"truncate_dim": 3}
    )
    same(zoo.embed(loaded, TEXTS), mx.array(expected[:, :3]), "vectors", 1e-4)


def test_a_module_without_its_weights_or_with_others_is_refused(made):
    loaded = made()
    dim = loaded.recipe.dim
    config = {"in_features": dim, "out_features": 5, "bias": False, "activation_function": "torch.nn.Tanh"}
    module(loaded.folder, "2_Dense", config)
    (loaded.folder / "2_Dense" / "pytorch_model.bin").write_bytes(b"")
    written(loaded.folder, ("Transformer", "Pooling", "Dense"), MEAN)
    with pytest.raises(CheckpointError, match=r"2_Dense: has no model\.safetensors.*pytorch_model\.bin"):
        zoo.embed(loaded, TEXTS)
    weights = {"linear.weight": mx.zeros((5, dim)), "linear.bias": mx.zeros(5)}
    mx.save_safetensors(str(loaded.folder / "2_Dense" / "model.safetensors"), weights)
    with pytest.raises(CheckpointError, match=r"linear\.bias"):
        zoo.embed(loaded, TEXTS)
    for key, value in {
        "activation_function": "torch.nn.Mish",
        "module_input_name": "tokens",
        "heads": 2,
    }.items():
        (loaded.folder / "2_Dense" / "config.json").write_text(json.dumps(config | {key: value}))
        with pytest.raises(ConfigError, match=rf"2_Dense/config\.json: {key}"):
            zoo.embed(loaded, TEXTS)


def test_a_folder_s_prompts_stand_before_texts(made):
    loaded = made()
    plain = zoo.embed(loaded, ["query: " + text for text in TEXTS])
    prompts = {"prompts": {"query": "query: ", "document": None}, "default_prompt_name": "query"}
    written(loaded.folder, ("Transformer", "Pooling"), MEAN, prompts=prompts | {"similarity_fn_name": "dot"})
    same(zoo.embed(loaded, TEXTS), plain, "vectors", 1e-5)
    same(zoo.embed(loaded, TEXTS, prompt_name="query"), plain, "vectors", 1e-5)
    without = zoo.embed(loaded, TEXTS, prompt_name="document")
    assert not mx.allclose(without, plain, atol=1e-3)
    with pytest.raises(PromptError, match=r"`prompt_name` 'title'.* query, document"):
        zoo.embed(loaded, TEXTS, prompt_name="title")
    assert loaded.tokenizer is not None
    written(loaded.folder, ("Transformer", "Pooling"), MEAN, {"do_lower_case": True}, prompts=prompts)
    same(zoo.embed(loaded, ["PARIS"]), zoo.embed(loaded, ["paris"]), "vectors", 1e-5)


@pytest.mark.parametrize("pooling", ordinary(POOLED, "mean", JOINED))
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_a_prompt_is_left_out_of_the_pooling_where_the_folder_says_so(made, name, pooling):
    loaded = made(name)
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    written(loaded.folder, ("Transformer", "Pooling"), MEAN | {"include_prompt": False}, prompts=prompts)
    texts = TEXTS[1:3]  # shorter ones may be one token with the end of the prompt
    left_out = len(loaded.tokenizer.encode("query: "))
    found = zoo.embed(loaded, texts, pooling=pooling)
    states = [alone(loaded, "query: " + text) for text in texts]
    if "weighted" in pooling:  # the places of the tokens stay those after the prompt
        places = [mx.arange(1, len(x) + 1)[left_out:, None] for x in states]
        mean = [(x[left_out:] * p).sum(axis=0) / p.sum() for x, p in zip(states, places, strict=True)]
        split = loaded.recipe.dim if pooling == JOINED else 0
        same(found[:, split : split + loaded.recipe.dim], mx.stack(mean), "vectors", 1e-5)
    else:
        same(found, mx.stack([POOLED[pooling](x[left_out:]) for x in states]), "vectors", 1e-5)


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
    [
        ([], {}, "no text"),
        (["a", ""], {}, "empty"),
        (["a"], {"pooling": "mean+most"}, "most"),
        (["a"], {"prompt_name": "query"}, "query"),
    ],
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


def test_the_first_dimensions_are_kept_and_scaled_where_that_is_asked_for(made):
    loaded = made()
    whole = zoo.embed(loaded, TEXTS)
    assert mx.array_equal(zoo.embed(loaded, TEXTS, dimensions=5), whole[:, :5])
    same(zoo.embed(loaded, TEXTS, dimensions=5, normalise=True), unit(whole[:, :5]), "the vectors", 1e-5)
    for wrong in (0, whole.shape[1] + 1, True, "5"):
        with pytest.raises(PromptError, match="`dimensions` must be from 1 to"):
            zoo.embed(loaded, TEXTS, dimensions=wrong)
