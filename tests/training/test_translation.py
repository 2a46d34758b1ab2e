"""Teacher forcing for encoder-decoders: what is asked for, what is shown, what is ignored."""

from itertools import chain, islice

import mlx.core as mx
import pytest

from zoo.errors import ZooError
from zoo.loading import load
from zoo.testing import subject
from zoo.tokenizer import load_tokenizer
from zoo.training.corpora import corpus
from zoo.training.loop import TrainingSettings, initialise
from zoo.training.loss import IGNORED
from zoo.training.run import train_folder
from zoo.training.vocabulary import save_tokenizer, train_tokenizer
from zoo_translation.objective import sentences, translation_loss, translations


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    save_tokenizer(
        train_tokenizer(islice(corpus("phrasebook", "translate").sample(), 500), vocab=400), folder
    )
    return load_tokenizer(folder)


def pairs(count):
    return list(islice(corpus("phrasebook", "translate").training(0), count))


def test_a_batch_holds_each_pair_once_and_whole(words):
    told = pairs(40)
    found = []
    for sources, targets, mask in sentences(told, words, TrainingSettings(batch=4, length=32)):
        assert sources.shape == mask.shape and targets.shape[0] == sources.shape[0]
        assert max(sources.size, targets.size) <= 4 * 32 or sources.shape[0] == 1
        for source, target, seen in zip(sources.tolist(), targets.tolist(), mask.tolist(), strict=True):
            length = sum(seen)
            assert seen == [1] * length + [0] * (len(seen) - length)
            kept = [id for id in target if id != IGNORED]
            assert kept[-1] == words.id("<|endoftext|>") and target[: len(kept)] == kept
            found.append((words.decode(source[:length]), words.decode(kept)))
    assert sorted(found) == sorted(told)


def test_training_goes_round_in_the_same_order_for_a_seed(words):
    def some(seed):
        settings = TrainingSettings(batch=2, length=16, seed=seed)
        batches = islice(translations(corpus("phrasebook", "translate").training(seed), words, settings), 6)
        return [array.tolist() for array in chain.from_iterable(batches)]

    assert some(1) == some(1) != some(2)
    assert all(len(row) <= 16 for rows in some(1) for row in rows)


def test_the_loss_asks_for_each_target_after_those_before_it():
    model = subject("transformer").model
    sources, mask = mx.array([[5, 6, 7], [8, 9, 0]]), mx.array([[1, 1, 1], [1, 1, 0]])
    targets = mx.array([[11, 12, 3], [13, 3, IGNORED]])
    loss = translation_loss(model, sources, targets, mask)
    rows = [([5, 6, 7], [11, 12, 3]), ([8, 9], [13, 3])]
    total = 0.0
    for source, target in rows:
        given = mx.array([[model.spec.start, *target[:-1]]])
        logits = model(mx.array([source]), given)[0]
        chosen = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        total -= sum(chosen[place, token].item() for place, token in enumerate(target))
    assert loss.item() == pytest.approx(total / 5, rel=1e-4)


def test_what_fills_a_row_up_changes_nothing():
    model = subject("transformer").model
    one = mx.array([[5, 6]]), mx.array([[11, 3]]), mx.array([[1, 1]])
    wide = mx.array([[5, 6, 99]]), mx.array([[11, 3, IGNORED]]), mx.array([[1, 1, 0]])
    assert translation_loss(model, *one).item() == pytest.approx(
        translation_loss(model, *wide).item(), rel=1e-5
    )


@pytest.mark.slow
def test_a_few_steps_write_a_folder_that_loads(tmp_path):
    numbers = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2)
    numbers |= dict(decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, vocab_size=1)
    record = train_folder(
        "transformer", tmp_path / "out", TrainingSettings(steps=12, batch=4, length=32), config=numbers
    )
    assert record.settings["corpus"] == "phrasebook"
    assert record.losses[-1][1] < record.losses[0][1]
    loaded = load(tmp_path / "out")
    assert loaded.recipe.start == loaded.tokenizer.id("<|endoftext|>")
    again = translation_loss(loaded.model, mx.array([[5, 6]]), mx.array([[9, 0]]), mx.array([[1, 1]]))
    assert again.item() > 0


@pytest.mark.parametrize(("name", "texts"), [("transformer", "atlas"), ("llama", "phrasebook")])
def test_a_corpus_of_the_wrong_kind_is_refused(name, texts, tmp_path):
    with pytest.raises(ZooError, match=f"the corpus {texts} is not for models that do"):
        train_folder(name, tmp_path / "out", TrainingSettings(steps=1, corpus=texts))


def test_training_starts_from_matrices_of_the_width_s_own_size():
    model = subject("transformer", "pocket").model
    initialise(model, 0, 4)
    assert mx.std(model.encoder.embedding.tokens.weight).item() == pytest.approx(128**-0.5, rel=0.05)
    assert mx.std(model.decoder.layers[0].cross.query.weight).item() == pytest.approx(128**-0.5, rel=0.05)
    wide = model.encoder.layers[0].feedforward.up.weight
    assert mx.std(wide).item() == pytest.approx((2 / (128 + 384)) ** 0.5, rel=0.05)
    before = mx.array(wide)
    initialise(model, 0, 4)
    assert mx.array_equal(model.encoder.layers[0].feedforward.up.weight, before)
