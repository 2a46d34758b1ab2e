"""Log-probabilities of targets: the model's own, whatever is beside a row in its batch."""

import mlx.core as mx
import pytest

import zoo
from zoo.generation.sampling.logits import logprobs
from zoo.training.loss import IGNORED
from zoo_evaluate.likelihood import TargetRow, likelihoods

TEXTS = [
    "The capital city of China is Beijing.",
    "中国的首都是北京。",
    "The capital city of France is Paris, and the longest river of Africa is the Nile.",
]


def row(ids, prompt):
    """Ids of which those after the first `prompt` are targets."""
    return TargetRow(ids[:-1], [*[IGNORED] * (prompt - 1), *ids[prompt:]])


def expected(logits, ids, prompt):
    """The log-probabilities of those targets by logits (T, V) of the whole row."""
    scores = logprobs(logits)[prompt - 1 : len(ids) - 1]
    return [scores[place, id].item() for place, id in enumerate(ids[prompt:])]


@pytest.mark.parametrize("name", ["llama", "gpt2", "mamba", "mixtral"])
def test_rows_of_a_batch_have_the_log_probabilities_of_the_model_itself(name):
    loaded = zoo.load(name)
    ids = [loaded.tokenizer.encode(text) for text in TEXTS]
    found = likelihoods(loaded, [row(each, 3) for each in ids])
    for each, own in zip(ids, found, strict=True):
        logits = loaded.model(mx.array([each[:-1]]))[0]
        assert own.logprobs == pytest.approx(expected(logits, each, 3), abs=2e-4)
        assert own.likeliest == (logits.argmax(axis=-1)[2:] == mx.array(each[3:])).tolist()
        assert own.total == pytest.approx(sum(own.logprobs))
        assert own.per_token == pytest.approx(sum(own.logprobs) / len(own.logprobs))


def test_a_long_row_is_read_in_chunks_and_its_targets_are_scored_in_parts(llama, monkeypatch):
    ids = llama.tokenizer.encode(TEXTS[2])
    (whole,) = likelihoods(llama, [row(ids, 2)])
    monkeypatch.setattr("zoo.runtime.prefill_chunk", lambda: 5)
    monkeypatch.setattr("zoo_evaluate.likelihood.HEAD", 3)
    (parted,) = likelihoods(llama, [row(ids, 2)])
    assert parted.logprobs == pytest.approx(whole.logprobs, abs=1e-4)
    assert parted.likeliest == whole.likeliest


def test_choices_after_one_question_are_read_once(llama, monkeypatch):
    ids = llama.tokenizer.encode(TEXTS[0])
    read = []
    backbone = type(llama.model).backbone
    monkeypatch.setattr(
        type(llama.model),
        "backbone",
        lambda model, x, *more: read.append(x.shape) or backbone(model, x, *more),
    )
    choices = [row([*ids, id], len(ids)) for id in (5, 6, 7)]
    found = likelihoods(llama, choices)
    logits = llama.model(mx.array([ids]))[0]
    assert read[0] == (1, len(ids))
    for id, own in zip((5, 6, 7), found, strict=True):
        assert own.logprobs == pytest.approx(expected(logits, [*ids, id], len(ids)), abs=1e-4)


def test_an_encoder_decoder_scores_a_target_after_its_source(transformer):
    pairs = [("I love NLP", "我爱NLP"), ("She drinks a cup of tea.", "她喝一杯茶。")]
    start = transformer.recipe.start
    rows, alone = [], []
    for source, target in pairs:
        read, said = (transformer.tokenizer.encode(text) for text in (source, target))
        rows.append(TargetRow([start, *said[:-1]], said, read))
        logits = transformer.model(mx.array([read]), mx.array([[start, *said[:-1]]]))[0]
        alone.append(expected(logits, [start, *said], 1))
    for own, wanted in zip(likelihoods(transformer, rows), alone, strict=True):
        assert own.logprobs == pytest.approx(wanted, abs=1e-3)


def test_a_prefix_language_model_sees_the_prompt_both_ways():
    loaded = zoo.load("prefix-lm")
    ids = loaded.tokenizer.encode(TEXTS[0])
    (found,) = likelihoods(loaded, [row(ids, 4)])
    both = loaded.model.head(loaded.model.backbone(mx.array([ids[:-1]]), prefix=4))[0]
    causal = loaded.model.head(loaded.model.backbone(mx.array([ids[:-1]]), prefix=1))[0]
    assert found.logprobs == pytest.approx(expected(both, ids, 4), abs=1e-4)
    assert found.logprobs != pytest.approx(expected(causal, ids, 4), abs=1e-3)


def test_progress_counts_rows(llama):
    ids = llama.tokenizer.encode(TEXTS[0])
    seen = []
    likelihoods(llama, [row(ids, 3), row(ids[:-1], 3)], lambda *done: seen.append(done))
    assert seen == [(1, 2), (2, 2)]
