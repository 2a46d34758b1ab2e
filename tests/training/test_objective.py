"""Objectives: what is hidden, what is asked for, and how it is weighed."""

from itertools import islice
from types import SimpleNamespace

import mlx.core as mx
import pytest

from zoo.errors import ZooError
from zoo.registry import registry
from zoo.training.data import IGNORED
from zoo.training.loop import Settings
from zoo.training.loss import cross_entropy
from zoo.training.objective import (
    alike,
    answers,
    hidden_words,
    noised,
    objective_of,
    second_halves,
    weighted_loss,
)
from zoo.training.pocket import settings_of, train_folder
from zoo_corpora.atlas import documents as atlas

END, MASK, VOCAB = 0, 2, 60
SETTINGS = Settings(batch=16, length=32)


class Words:
    """A tokenizer of one id a letter: 5 and on."""

    vocab_size = VOCAB

    def __init__(self):
        self.special_tokens = {"mask_token": "[MASK]"}

    def encode(self, text):
        return [5 + (ord(letter) - ord("a")) for letter in text]

    def id(self, token):
        return {"<|endoftext|>": END, "[MASK]": MASK}.get(token)


def texts():
    while True:
        yield from ("abcdefghij", "klmno", "pqrstuvwxyzpqrstuvwxyz")


def taken(make, count=60, settings=SETTINGS):
    return list(islice(make(texts(), Words(), settings), count))


def test_bert_is_asked_for_fifteen_percent_hidden_in_its_three_ways():
    asked = kept = masked = total = 0
    for inputs, targets in taken(hidden_words):
        chosen = targets != IGNORED
        asked += chosen.sum().item()
        masked += (chosen & (inputs == MASK)).sum().item()
        kept += (chosen & (inputs == targets)).sum().item()
        total += ((targets != IGNORED) | (inputs != END)).sum().item()
        assert not ((targets == END) | (targets == MASK)).any().item()
    assert asked / total == pytest.approx(0.15, abs=0.01)
    assert masked / asked == pytest.approx(0.80, abs=0.03)
    assert kept / asked == pytest.approx(0.10 + 0.10 / VOCAB, abs=0.02)


def test_what_is_not_asked_for_is_left_alone():
    plain = [ids for _, ids, _ in taken(noised, 20)]
    for (inputs, targets), ids in zip(taken(hidden_words, 20), plain, strict=True):
        assert mx.array_equal(mx.where(targets == IGNORED, inputs, targets), ids)


def test_a_row_is_one_document_among_others_of_its_length():
    found = list(alike((text for text, _ in zip(texts(), range(1000), strict=False)), Words(), SETTINGS))
    rows = [row for batch in found for row in batch.tolist()]
    documents = {tuple(Words().encode(text)) for text, _ in zip(texts(), range(3), strict=False)}
    for row in rows:
        document = tuple(id for id in row if id != END)
        assert document in documents and row[: len(document)] == list(document)
        assert row[len(document) :] == [END] * (len(row) - len(document)) and row[-1] == END
    assert len(rows) == 1000
    assert all(batch.size <= SETTINGS.batch * SETTINGS.length for batch in found)
    padding = sum(len(row) for row in rows) - sum(len([id for id in row if id != END]) + 1 for row in rows)
    assert padding / sum(map(len, rows)) < 0.05


def test_a_long_document_is_cut_and_all_come_when_the_stream_ends_with_a_pool():
    one = list(alike(iter(["a" * 100] * 512), Words(), SETTINGS))
    assert {batch.shape[1] for batch in one} == {32}
    assert sum(batch.shape[0] for batch in one) == 512


def test_a_diffusions_rows_have_every_share_of_masks_and_its_inverse_as_weight():
    shares = []
    for inputs, targets, weights in taken(noised):
        masked = inputs == MASK
        assert mx.array_equal(mx.where(masked, targets, inputs), targets)
        assert mx.array_equal(weights > 0, masked)
        for row in range(inputs.shape[0]):
            if masked[row].any().item():
                assert weights[row].max().item() >= 1
                shares.append(1 / weights[row].max().item())
    assert min(shares) < 0.1 and max(shares) > 0.9
    assert sum(shares) / len(shares) == pytest.approx(0.5, abs=0.05)


def test_the_diffusion_loss_is_unbiased():
    """Each target's weight is 1 on average, so that a constant loss a token is its own estimate."""
    logits = mx.zeros((1, 1, VOCAB))
    found = [
        weighted_loss(lambda x: mx.broadcast_to(logits, (*x.shape, VOCAB)), *batch).item()
        for batch in taken(noised, 150)
    ]
    assert sum(found) / len(found) == pytest.approx(mx.log(mx.array(float(VOCAB))).item(), rel=0.05)


def test_an_answer_is_asked_for_from_the_prompts_end_on():
    seen = set()
    for inputs, targets, prefix in taken(answers):
        assert prefix.min().item() >= 1 and prefix.max().item() <= 16
        seen |= set(prefix.tolist())
        for row, end in enumerate(prefix.tolist()):
            asked = (targets[row] != IGNORED).tolist()
            assert asked == [place >= end - 1 for place in range(32)]
            assert mx.array_equal(targets[row, end - 1 : -1], inputs[row, end:])
    assert {1, 16} <= seen


def test_a_document_is_measured_on_its_second_half():
    inputs, targets, prefix = next(second_halves(iter(["abcdefgh", "abc"]), Words(), SETTINGS))
    assert prefix.tolist() == [4, 1]
    assert [place for place, target in enumerate(targets[0].tolist()) if target != IGNORED] == [3, 4, 5, 6, 7]
    assert [place for place, target in enumerate(targets[1].tolist()) if target != IGNORED] == [0, 1, 2]
    assert inputs.shape == targets.shape


@pytest.mark.parametrize("make", [answers, hidden_words, noised])
def test_the_seed_makes_the_batches(make):
    def first(seed):
        return taken(make, 3, Settings(batch=4, length=16, seed=seed))

    for one, two in zip(first(1), first(1), strict=True):
        assert all(mx.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert any(
        a.shape != b.shape or not mx.array_equal(a, b)
        for one, two in zip(first(1), first(2), strict=True)
        for a, b in zip(one[1:], two[1:], strict=True)
    )


def test_ignored_targets_cost_nothing():
    logits = mx.random.normal((2, 3, 7), key=mx.random.key(0))
    targets = mx.array([[1, IGNORED, 2], [IGNORED, IGNORED, 3]])
    chosen = mx.stack([logits[0, 0], logits[0, 2], logits[1, 2]])[None]
    assert cross_entropy(logits, targets).item() == pytest.approx(
        cross_entropy(chosen, mx.array([[1, 2, 3]])).item(), rel=1e-5
    )


def test_the_objective_follows_task_and_causality():
    known = registry()
    kinds = {name: objective_of(known.architecture(name)).training for name in ("bert", "llada", "prefix-lm")}
    assert kinds == {"bert": hidden_words, "llada": noised, "prefix-lm": answers}
    nothing = SimpleNamespace(name="x", task="encode", causality="full")
    with pytest.raises(ZooError, match="x: training to encode"):
        objective_of(nothing)


@pytest.mark.parametrize("name", ["bert", "llada", "prefix-lm"])
def test_a_few_steps_write_a_folder_that_loads(name, tmp_path, tokenizer_folder, monkeypatch):
    import zoo

    monkeypatch.setattr(
        "zoo_corpora.atlas.documents",
        lambda split, seed: islice(atlas(split, seed), 100 + 900 * (split == "train")),
    )
    record = train_folder(
        name, tmp_path / "out", Settings(steps=2, batch=2, length=16), tokenizer=tokenizer_folder
    )
    assert len(record.validation) == 1
    assert record.validation[0][1] == pytest.approx(6.0, abs=0.8)  # about the log of 400 tokens
    assert zoo.load(tmp_path / "out").architecture.name == name


def test_what_hides_most_of_its_text_is_trained_for_longer():
    assert settings_of("bert", {}).steps > settings_of("llama", {}).steps == Settings().steps
    assert settings_of("bert", {"steps": 3}).steps == 3
    with pytest.raises(ZooError, match="nothing-like-it"):
        settings_of("nothing-like-it", {})
