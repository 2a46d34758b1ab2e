"""The parts of drafting: what is accepted, what look-up finds, when drafting pays."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.chi_square import deviation
from zoo.generation.sampling.draw import draw_processors
from zoo.generation.settings import Settings
from zoo.generation.speculative import DraftThrottle
from zoo.generation.speculative.drafters import DraftSampler, PromptLookup, match_vocab
from zoo.generation.speculative.verification import accept, residual

DRAWS = 20_000
DRAWN = draw_processors(Settings(temperature=1.0))


def law(seed, vocab=6, peaked=1.0):
    return mx.softmax(peaked * mx.random.normal((vocab,), key=mx.random.key(seed)))


@pytest.mark.parametrize("seed", range(3))
def test_an_accepted_or_replaced_token_has_the_law_of_the_target(seed):
    p, q = law(seed, peaked=2.0), law(seed + 100, peaked=2.0)
    p = mx.where(mx.arange(6) == seed, 0, p)  # one that must never come
    p = p / p.sum()
    drawing, testing = mx.random.split(mx.random.key(seed))
    drafts = mx.random.categorical(mx.log(q), num_samples=DRAWS, key=drawing)
    stands, tokens = mx.vmap(accept, in_axes=(None, None, 0, 0))(
        p, q, drafts, mx.random.split(testing, DRAWS)
    )
    assert deviation(np.bincount(np.array(tokens), minlength=6), p) < 4
    # The chance that a draft stands is the mass that both laws share.
    assert stands.mean().item() == pytest.approx(mx.minimum(p, q).sum().item(), abs=0.02)
    assert (
        deviation(np.bincount(np.array(drafts), minlength=6)[np.array(p) > 0], np.array(q)[np.array(p) > 0])
        < 4
    )
    assert (
        deviation(np.bincount(np.array(drafts), minlength=6), p) > 10
    )  # who takes all drafts fails the test


def test_what_takes_the_place_of_a_rejected_token():
    p, q = mx.array([0.5, 0.3, 0.2, 0.0]), mx.array([0.1, 0.4, 0.1, 0.4])
    assert residual(p, q).tolist() == pytest.approx([0.8, 0.0, 0.2, 0.0])
    assert residual(p, p).tolist() == pytest.approx(p.tolist())


def naive(text, count, longest=3):
    """Look-up by its definition."""
    for size in range(min(longest, len(text)), 0, -1):
        for start in range(len(text) - size - 1, -1, -1):
            if text[start : start + size] == text[-size:]:
                whole = list(text)
                for place in range(start + size, start + size + count):
                    whole.append(whole[place])
                return tuple(whole[len(text) :])
    return ()


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 8))
def test_look_up_finds_the_latest_place_of_the_longest_end(text, count):
    drafter = PromptLookup()
    drafter.add_tokens(text[: len(text) // 2])
    drafter.add_tokens(text[len(text) // 2 :])
    assert drafter.propose(count).tokens == naive(text, count)


def test_a_text_without_repetition_has_no_drafts():
    drafter = PromptLookup()
    drafter.add_tokens(range(100))
    assert drafter.propose(5).tokens == ()


def test_logits_of_a_padded_vocabulary_are_cut_or_filled():
    logits = mx.array([[1.0, 2.0, 3.0]])
    assert match_vocab(logits, 2).tolist() == [[1.0, 2.0]]
    assert match_vocab(logits, 4).tolist() == [[1.0, 2.0, 3.0, -float("inf")]]
    token, known = DraftSampler(4, DRAWN, seed=0).sample(logits)
    assert token.item() < 3 and known[0, 3].item() == 0 and known.sum().item() == pytest.approx(1)


def test_drafts_of_a_seed_repeat():
    logits = mx.zeros((1, 1000))
    assert (
        DraftSampler(1000, DRAWN, seed=3).sample(logits)[0].item()
        == DraftSampler(1000, DRAWN, seed=3).sample(logits)[0].item()
    )
    assert (
        DraftSampler(1000, DRAWN, seed=3).sample(logits)[0].item()
        != DraftSampler(1000, DRAWN, seed=4).sample(logits)[0].item()
    )


def simulated(passes, drafted_seconds, tokens, pays=None):
    """Which of so many passes had drafts, where one without takes a second."""
    pays, wanted = pays or DraftThrottle(), []
    for _ in range(passes):
        wants = pays.should_draft()
        wanted.append(wants)
        pays.update(drafted_seconds if wants else 1.0, tokens if wants else 1, 4 if wants else 0)
    return wanted


def test_drafting_goes_on_while_it_pays():
    wanted = simulated(400, drafted_seconds=1.5, tokens=2)
    # But for the passes that measure the time without drafts.
    assert 1 <= wanted.count(False) <= 6


def test_drafting_pauses_when_a_token_takes_longer_with_it_and_comes_back_for_trials():
    wanted = simulated(400, drafted_seconds=2.5, tokens=2)
    runs = []
    for want in wanted[10:]:
        if not runs or runs[-1][0] != want:
            runs.append([want, 0])
        runs[-1][1] += 1
    assert [length for want, length in runs if not want][:3] == [32, 64, 128]
    assert {length for want, length in runs[1:-1] if want} == {8}


def test_a_trial_that_pays_ends_the_pause():
    pays = DraftThrottle()
    simulated(100, drafted_seconds=3.0, tokens=2, pays=pays)
    assert pays.pause > 32
    wanted = simulated(200, drafted_seconds=1.2, tokens=2, pays=pays)
    assert all(wanted[-50:]) and pays.pause == 32 and not pays.paused


def test_the_first_pass_of_a_text_is_not_measured():
    pays = DraftThrottle()
    pays.update(100.0, 1, 0)
    assert not pays.undrafted
    simulated(40, drafted_seconds=1.5, tokens=2, pays=pays)
    assert max(pays.undrafted) == 1.0


def test_no_clock_turns_off_what_must_be_repeatable():
    assert all(simulated(100, drafted_seconds=50.0, tokens=1, pays=DraftThrottle(always=True)))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 10), st.integers(1, 5)), max_size=300))
def test_whatever_the_times_are_drafting_comes_back(passes):
    pays = DraftThrottle()
    for drafts, seconds, tokens in passes:
        drafts = drafts and pays.should_draft()
        pays.update(seconds, tokens if drafts else 1, 3 if drafts else 0)
    for _ in range(513):
        if pays.should_draft():
            break
        pays.update(1.0, 1, 0)
    assert pays.should_draft()
