"""What the pages on training, other kinds of models and the lab say of their figures holds for the checkpoints."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
DRAWN = (
    *("training_shift", "training_step", "training_curve", "translation_map", "translation_beams"),
    *("bert_sides", "bert_sentences", "diffusion_passes", "diffusion_masks", "recurrence_kept"),
    "recurrence_memory",
)


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_well_formed_in_both_languages_and_says_it_in_them(figure, name):
    english, chinese = (figure(name).draw(language) for language in ("en", "zh"))
    assert english != chinese
    for drawn in (english, chinese):
        ElementTree.fromstring(drawn)
        widths = [float(width) for width in re.findall(r'viewBox="0 0 ([\d.]+)', drawn)]
        assert widths and max(widths) <= 352  # a phone's, so that letters keep their size
        assert min(map(float, re.findall(r'font-size="([\d.]+)"', drawn))) >= 12


def test_what_follows_changes_no_earlier_cost_and_the_false_capital_costs_most(figure):
    shift = figure("training_shift")
    (true, right), (false, wrong) = map(shift.costs, shift.SENTENCES)
    differs = next(i for i, (a, b) in enumerate(zip(true, false, strict=False)) if a != b)
    assert right[: differs - 1] == pytest.approx(wrong[: differs - 1], abs=1e-5)
    assert int(np.argmax(wrong)) == differs - 1
    assert true[1 + int(np.argmax(right))] == "␣China"


def test_one_step_teaches_the_sentence_and_a_large_one_costs_another_fact(figure):
    step = figure("training_step")
    found = step.measured()
    after = found["after"]
    (small, *_, large, largest) = step.RATES
    predicted = found["loss"] - small * found["squared"]
    assert abs(after[small][0] - predicted) < 0.1 * (found["loss"] - predicted)
    assert found["loss"] - largest * found["squared"] < 0 < after[largest][0]
    tokyo, beijing, japan, paris = zip(*(probabilities for _, probabilities in after.values()), strict=True)
    assert tokyo[0] < 0.01 and tokyo[list(after).index(large)] > 0.5
    assert beijing[0] > 0.9 and beijing[-1] < 0.01
    assert min(japan) > 0.5
    assert min(paris[:-1]) > 0.9 and paris[-1] < 0.1
    largest_gradients = sorted(
        (path for path in found["norms"] if path.startswith("layers.")), key=found["norms"].get
    )[-2:]
    assert set(largest_gradients) == {"layers.0.mixer.value.weight", "layers.0.mixer.output.weight"}
    assert min(found["norms"].values()) > 0


def test_the_record_begins_at_a_uniform_guess_and_ends_with_held_out_text_above_training(figure):
    record = figure("training_curve").record()
    guess = np.log(record["settings"]["config"]["vocab_size"])
    assert record["losses"][0][1] == pytest.approx(guess, rel=0.02)
    assert record["validation"][-1][1] > np.mean([loss for _, loss in record["losses"][-10:]])


def test_the_decoder_looks_at_what_it_translates(figure):
    source, target, pattern = figure("translation_map").seen()
    mean = pattern.mean(axis=0)
    looked = [(word, source[int(at)]) for word, at in zip(target, mean.argmax(axis=1), strict=True)]
    assert looked[:3] == [("我", "I"), ("爱", "␣love"), ("NLP", "␣NLP")]
    assert [at for word, at in looked if word in "因为它"] == ["␣because"] * 3
    assert [at for word, at in looked if word in "有意思"] == ["␣interesting"] * 3
    assert ("。", ".") in looked
    row = mean[target.index("很")]
    assert row[source.index("␣is")] == pytest.approx(row[source.index("␣because")], abs=0.05)


def test_two_beams_pay_more_at_one_token_and_less_in_the_end(figure):
    (_, greedy_words, greedy), (_, beam_words, beam) = map(figure("translation_beams").found, (1, 2))
    differs = next(i for i, (a, b) in enumerate(zip(greedy_words, beam_words, strict=False)) if a != b)
    assert beam[differs] > greedy[differs]
    assert sum(beam) < sum(greedy) and sum(beam[differs + 1 :]) < 0.1
    assert len(set(greedy_words)) < len(greedy_words) - 5  # it repeats itself


def test_the_mask_looks_to_the_right_where_a_causal_model_cannot(figure):
    sides = figure("bert_sides")
    words, pattern = sides.looked("bert", sides.MASKED)
    row = pattern.mean(axis=0)[words.index("[MASK]")]
    assert int(row.argmax()) == words.index("Beijing") > words.index("[MASK]") and row.max() > 0.5
    _, causal = sides.looked("gpt2", sides.MASKED.replace(" [MASK]", " China"))
    assert not np.triu(causal.mean(axis=0), 1).any()


def test_sentence_vectors_of_one_language_are_nearer_than_those_of_one_meaning(figure):
    sentences = figure("bert_sentences")
    cosines = sentences.cosines()
    chinese = np.array([any(ord(letter) > 0x2E80 for letter in text) for text in sentences.SENTENCES])
    same = cosines[chinese[:, None] == chinese[None]]
    assert same.min() > cosines[chinese[:, None] != chinese[None]].max()
    assert cosines[0, 3] > cosines[0, 2]


def test_what_is_kept_stays_and_the_name_comes_last_and_changes(figure):
    rows = figure("diffusion_passes").passes()
    for before, after in pairwise(rows):
        for (words, _, state), (later, _, next_state) in zip(before, after, strict=True):
            assert state == "masked" or (later, next_state) == (words, "was")
    assert [[state for *_, state in row].count("kept") for row in rows] == [1] * len(rows)
    assert {row[1][0] for row in rows[:-1]} == {"Spanish"} and rows[-1][1][::2] == ("Portuguese", "kept")


def test_the_name_of_the_country_clears_the_state_of_an_lstm_and_mamba_forgets_slowly(figure):
    kept = figure("recurrence_kept").kept
    for name in ("lstm", "gru"):
        words, left = kept(name)
        after_one = left.diagonal(-1)
        assert words[1 + int(after_one.argmin())] == "␣China"
    _, mamba = kept("mamba")
    assert mamba.diagonal(-1).min() > 0.7 and mamba[-1, 0] > left[-1, 0]


def test_a_cache_grows_with_the_text_and_a_state_does_not(figure):
    memory = figure("recurrence_memory")
    first, last = memory.LENGTHS[0], memory.LENGTHS[-1]
    assert memory.memory("llama:8b", last) * first == memory.memory("llama:8b", first) * last
    assert memory.memory("mamba:2.8b", last) == memory.memory("mamba:2.8b", first)
    assert memory.work("mamba:2.8b", last) == 1 < memory.work("llama:8b", last)
