"""What the pages say of their figures holds for what these compute; each speaks both languages in the page's colours."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

import zoo

DRAWN = (
    *(
        "tour_map",
        "tokens_merges",
        "tokens_vocabulary",
        "embeddings_lookup",
        "embeddings_map",
        "positions_tables",
    ),
    *("positions_pairs", "positions_scaling", "positions_rotary", "attention_steps", "attention_heads"),
    *("attention_masks", "variants_sharing", "variants_bytes", "variants_windows", "variants_sinks"),
    *("cache_growth", "cache_time", "experts_use", "feedforward_activations", "feedforward_neuron"),
    *("feedforward_share", "logits_temperature", "residuals_growth", "residuals_norm"),
    *("sampling_beams", "sampling_filters", "text_bytes"),
)
NARROW = (  # as a phone, so that letters keep their size
    *("training_shift", "training_step", "training_curve", "translation_map", "translation_beams"),
    *("bert_sides", "bert_sentences", "diffusion_passes", "diffusion_masks", "recurrence_kept"),
    "recurrence_memory",
)
COLOUR = r"none|transparent|var\(--|color-mix\(in srgb,var\(--"


@pytest.mark.parametrize("name", [*DRAWN, *NARROW])
def test_it_takes_its_colours_from_the_page_and_speaks_both_languages(figure, name):
    drawn = {language: figure(name).draw(language) for language in ("en", "zh")}
    assert re.search(r"[\u4e00-\u9fff]", drawn["zh"])
    for text in drawn.values():
        for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
            ElementTree.fromstring(svg)
        assert text.count("<svg") == text.count("</svg>") > 0
        colours = re.findall(r"(?:fill|stroke)[:=]\"?([^;\"}]+)", text)
        assert colours and all(re.match(COLOUR, colour) for colour in colours)
        if name in NARROW:
            assert max(map(float, re.findall(r'viewBox="0 0 ([\d.]+)', text))) <= 352
            assert min(map(float, re.findall(r'font-size="([\d.]+)"', text))) >= 12


def test_merges_end_with_the_token_of_the_pocket(figure):
    merges = figure("tokens_merges")
    states = merges.merged(merges.WORD)
    assert "".join(states[0][2]) == states[-1][2][0] == "Ġcapital"
    ranks = [rank for rank, _, _ in states[1:]]
    assert ranks == sorted(ranks)
    assert len(zoo.load("llama").tokenizer.encode(merges.WORD)) == len(states[-1][2]) == 1


def test_every_occurrence_of_a_pair_is_merged(figure):
    joined = figure("tokens_merges").joined
    assert joined(["a", "b", "a", "b", "c"], ("a", "b")) == ["ab", "ab", "c"]
    assert joined(["a", "a", "a"], ("a", "a")) == ["aa", "a"]


def test_the_rotary_score_is_that_of_the_model_and_depends_on_the_distance_only(figure):
    rotary, steps = figure("positions_rotary"), figure("attention_steps")
    _, scores, _ = steps.steps("en")
    assert steps.HEADS["en"] == (rotary.LAYER, rotary.HEAD)
    assert rotary.score(rotary.POSITION, rotary.DISTANCE) == pytest.approx(float(scores[-1, -2]), abs=1e-3)
    assert rotary.score(20, 1) == pytest.approx(rotary.score(0, 1), abs=1e-3)
    assert abs(rotary.score(0, 5) - rotary.score(0, 1)) > 0.1


def test_pairings_are_neighbours_and_halves(figure):
    pairs = figure("positions_pairs")
    assert pairs.partners(True) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert pairs.partners(False) == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_scalings_keep_or_slow_the_pairs_as_the_page_says(figure):
    scaling = figure("positions_scaling")
    speeds, slowest = scaling.speeds(), 1 / scaling.FACTOR
    assert speeds["linear"] == pytest.approx(slowest)
    assert np.all(np.diff(speeds["dynamic"]) < 0)
    for name in ("yarn", "llama3"):
        assert speeds[name][0] == pytest.approx(1) and speeds[name][-1] == pytest.approx(slowest)
        assert np.all(np.diff(speeds[name]) <= 1e-6)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_head_of_the_steps_looks_at_the_country(figure, language):
    names, scores, pattern = figure("attention_steps").steps(language)
    country = names.index(figure("attention_heads").COUNTRY[language])
    assert pattern[-1, country] > 0.9
    hidden = np.where(np.triu(np.ones_like(scores), 1) > 0, -np.inf, scores)
    shares = np.exp(hidden - hidden.max(axis=1, keepdims=True))
    assert pattern == pytest.approx(shares / shares.sum(axis=1, keepdims=True), abs=1e-4)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_habit_is_seen_in_its_head(figure, language):
    heads = figure("attention_heads")
    before, named, far = (pattern for _, _, pattern in heads.habits(language))
    names, patterns = heads.patterns(language)
    assert np.diagonal(before, -1).mean() > 0.4
    assert named[-1, names.index(heads.COUNTRY[language])] > 0.9
    assert heads.distance(far) == max(map(heads.distance, patterns.values()))


def test_countries_are_left_and_languages_above(figure):
    points, share = figure("embeddings_map").of_pocket()
    mean = {
        kind: np.mean([(point.x, point.y) for point in points if point.kind == kind], axis=0)
        for kind in ("country", "capital", "language")
    }
    assert mean["country"][0] < mean["language"][0] and mean["country"][0] < mean["capital"][0]
    assert mean["language"][1] < mean["capital"][1]
    assert 0.05 < share < 0.5


def test_fewer_key_value_heads_take_fewer_bytes(figure):
    bytes_of = figure("variants_bytes")
    found = [value for _, value, _ in bytes_of.rows("en")]
    assert found == sorted(found, reverse=True)
    assert found[0] == 4 * found[1] == 32 * found[2]
    latent = bytes_of.token_bytes(bytes_of.recipe_of("deepseek-v3:671b"))
    assert bytes_of.without_latents("deepseek-v3:671b") > 50 * latent


def test_the_axes_place_their_ends_at_the_frame(figure):
    plots = figure("plots")
    axes = plots.Axes(
        (1, 16), (0, 10), width=100, height=80, left=10, right=20, top=5, bottom=15, x_scale=plots.log2
    )
    assert axes.at(1, 0) == (10, 65)
    assert axes.at(16, 10) == (80, 5)
    assert axes.at(4, 5) == (45, 35)


def test_counts_are_written_in_either_language(figure):
    counted = figure("numbers").counted
    assert [counted(46_702_792_704, language) for language in ("en", "zh")] == ["46.7 billion", "467 亿"]
    assert [counted(671e9, "zh"), counted(63_082_496, "zh")] == ["6,710 亿", "6,310 万"]


def test_beam_search_finds_a_likelier_sentence_than_greedy_choice_from_a_less_likely_beginning(figure):
    beams = figure("sampling_beams")
    loaded = zoo.load("llama")
    steps, found = beams.searched(loaded, beams.BEAMS)
    _, greedy = beams.searched(loaded, 1)
    assert beams.total(loaded, found) > beams.total(loaded, greedy)
    assert beams.total(loaded, found[:1]) < beams.total(loaded, greedy[:1])
    assert beams.paths(steps)[0][0] == greedy[:1]
    assert {found[-1], greedy[-1]} == {loaded.tokenizer.id("<|endoftext|>")}


def test_a_character_is_split_over_two_tokens_and_shown_with_the_second(figure):
    bytes_of_text = figure("text_bytes")
    steps = list(zoo.stream(zoo.load("llama"), bytes_of_text.PROMPT, max_tokens=bytes_of_text.TOKENS))
    assert [step.text for step in steps[:3]] == ["金", "", "边"]


def test_only_post_ln_keeps_the_stream_level(figure):
    growth = figure("residuals_growth")
    for name in ("llama", "gemma2"):
        assert (np.diff(growth.lengths(name)) > 0).all()
    level = growth.lengths("gpt2-postln")
    assert np.ptp(level[1:4]) < 1 < level[4] - level[3]


def test_the_first_layer_uses_all_experts_and_later_ones_do_not(figure):
    use = figure("experts_use")
    kinds, chosen = use.tokens_and_choices()
    assert (chosen.sum(axis=-1) == 2).all()
    loads = chosen.mean(axis=1)
    assert loads[0].min() > 0.1
    assert (loads[1:].min(axis=-1) < 0.05).all()
    shares = np.stack([chosen[0, kinds == kind].mean(axis=0) for kind in use.KINDS])
    assert (np.ptp(shares, axis=0) > 0.15).all()  # each expert has kinds that it prefers


def test_the_feature_that_is_shown_is_largest_after_the_words_it_looks_for(figure):
    neuron = figure("feedforward_neuron")
    loaded = zoo.load("llama")
    feature, hidden = neuron.chosen(loaded)
    assert hidden == loaded.recipe.layers[0].feedforward.hidden
    found = neuron.largest(loaded, feature)
    assert sum("capital" in before for _, before, _ in found) > len(found) / 2


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
