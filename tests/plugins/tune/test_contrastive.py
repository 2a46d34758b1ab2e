"""Pairs of sentences: the loss, its negatives, the vectors of `zoo embed`, and learning."""

import json

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers.tuning import batch_of, check_ranks_divide_a_batch, loss_of, losses_of_steps, rows_of
from zoo.checkpoint.sentence_vectors import save_pooling
from zoo.errors import PromptError, ZooError
from zoo.training.examples import SentencePair
from zoo.training.objective import example_objective
from zoo_tune.objectives.contrastive import info_nce

PAIRS = [
    ("Paris is in France.", "France has a city called Paris.", "The cat sleeps all day on the warm roof."),
    ("Two and two are four.", "2 + 2 = 4", None),
    ("北京是首都。", "首都是北京。", "猫在睡觉。"),
]


def examples():
    return [SentencePair(f"line {n}", *pair) for n, pair in enumerate(PAIRS, 1)]


@pytest.fixture
def loaded(folder):
    return zoo.load(folder("llama"))


def entropy(scores, right):
    return -np.log(np.exp(scores[right]) / np.exp(scores).sum())


def test_the_loss_is_the_mean_of_both_directions():
    draw = np.random.default_rng(0)
    anchors, candidates = draw.normal(size=(2, 4)), draw.normal(size=(3, 4))  # two positives, one negative
    unit = [v / np.linalg.norm(v, axis=-1, keepdims=True) for v in (anchors, candidates)]
    scores = unit[0] @ unit[1].T / 0.1
    forward = np.mean([entropy(scores[row], row) for row in range(2)])
    backward = np.mean([entropy(scores[:, row], row) for row in range(2)])
    found = info_nce(mx.array(np.concatenate([anchors, candidates])), mx.arange(2), 0.1)
    assert found.item() == pytest.approx((forward + backward) / 2, rel=1e-4)


def test_a_batch_has_the_anchors_then_all_positives_then_the_negatives_that_are_given(loaded, monkeypatch):
    objective = example_objective(loaded, "contrastive")
    rows = rows_of(objective, loaded, examples())
    tokens, targets, mask = batch_of(objective, loaded, rows)
    texts = [
        loaded.tokenizer.decode([id for id, kept in zip(ids, seen, strict=True) if kept])
        for ids, seen in zip(tokens.tolist(), mask.tolist(), strict=True)
    ]
    anchors, positives, negatives = zip(*PAIRS, strict=True)
    assert texts == [*anchors, *positives, *filter(None, negatives)]
    assert targets.tolist() == [0, 1, 2] and objective.weight((tokens, targets, mask)) == 3
    check_ranks_divide_a_batch(objective, loaded, rows, monkeypatch)


@pytest.mark.parametrize(
    ("name", "mode"), [("llama", "last"), ("llama", "mean"), ("bert", "first"), ("prefix-lm", "mean")]
)
def test_vectors_are_those_of_embed_pooled_as_the_folder_says_whatever_the_padding(folder, name, mode):
    path = folder(name)
    save_pooling(path, mode, None)
    loaded = zoo.load(path)
    objective = example_objective(loaded, "contrastive", {"temperature": 0.2})
    rows = rows_of(objective, loaded, examples())
    texts = [text for column in zip(*PAIRS, strict=True) for text in column if text]
    vectors = zoo.embed(loaded, texts, pooling=mode)
    expected = info_nce(vectors, mx.arange(3), 0.2).item()
    assert loss_of(objective, loaded, rows) == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "llama", "llada"])
def test_pairs_are_learned(name):
    loaded = zoo.load(name)
    objective = example_objective(loaded, "contrastive")
    losses = losses_of_steps(objective, loaded, rows_of(objective, loaded, examples()), steps=5, rate=3e-4)
    assert losses[-1] < 0.8 * losses[0]


def test_a_long_sentence_is_cut_to_the_folders_limit_or_the_rows(folder):
    path = folder("bert")
    save_pooling(path, "mean", None)
    (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 5}))
    loaded = zoo.load(path)
    objective = example_objective(loaded, "contrastive")
    for length, most in ((64, 5), (3, 3)):
        (row,) = objective.encode(examples()[0], loaded, length)
        whole = sum(len(loaded.tokenizer.encode(text)) for text in PAIRS[0])
        assert row.length == most and row.cut == whole - sum(map(len, row.texts)) > 0


def test_what_cannot_be_is_one_line(folder, loaded):
    with pytest.raises(PromptError, match="`temperature` must be a number of more than 0, got 0"):
        example_objective(loaded, "contrastive", {"temperature": 0})
    loaded.model.padding = frozenset()
    with pytest.raises(ZooError, match="objective contrastive: llama cannot read padded rows"):
        example_objective(loaded, "contrastive")
