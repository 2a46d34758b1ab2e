"""What a prompt cache reuses, why it reuses no more, and what it counts."""

import mlx.core as mx
import pytest

import zoo
from tests.helpers.fake_caches import Columns, State, fake_loaded, read
from zoo.cache import CachePolicy, merged_caches
from zoo.errors import PromptError
from zoo.generation.prefix_cache import CacheStatistics, PromptCache

TEXT = [5, 3, 8, 1, 9, 2]


@pytest.fixture
def columns():
    return PromptCache(fake_loaded(Columns))


@pytest.fixture
def mixed():
    return PromptCache(fake_loaded(Columns, State))


def why(cache, ids, policy=None):
    match = cache.match(ids, policy)
    return match.length, match.miss_reason


def test_columns_are_used_up_to_any_token(columns):
    assert why(columns, TEXT) == (0, "first request")
    read(columns, TEXT)
    assert why(columns, [5, 3, 7, 7]) == (2, "differs from token 2 on from all that is held")
    assert why(columns, [*TEXT, 4]) == (6, "new from token 6 on, where what is held of it ends")
    assert why(columns, [7]) == (0, "differs from token 0 on from all that is held")


def test_the_last_token_is_always_left_to_compute(columns, mixed):
    for cache in (columns, mixed):
        read(cache, TEXT)
        length, words = why(cache, TEXT)
        assert length == 5 and words.startswith("the whole prompt is held")
    assert columns.match([5]).length == mixed.match([5]).length == 0


def test_states_are_used_where_a_snapshot_was_left(mixed):
    assert mixed.match(TEXT, checkpoints=[3, 6, 99]).checkpoints == (3, 5)  # and one before the last token
    read(mixed, TEXT)
    assert why(mixed, [5, 3, 7]) == (
        0,
        "no snapshot at token 2, up to which it is held: the last one is at 0",
    )


def test_where_texts_part_a_snapshot_is_left_for_the_third(mixed):
    read(mixed, [5, 3, 8, 1])
    assert read(mixed, [5, 3, 7, 7]).checkpoints == (2, 3)
    assert read(mixed, [5, 3, 9, 9]).length == 2


def test_texts_that_begin_alike_hold_their_columns_once(columns):
    read(columns, TEXT)
    assert columns.nbytes == 6 * (4 + 4)
    read(columns, [*TEXT[:4], 7, 7, 7])
    assert columns.nbytes == 9 * (4 + 4)
    read(columns, TEXT[:2])
    assert columns.nbytes == 9 * (4 + 4)


def test_each_policy_has_texts_of_its_own_and_reserved_room_is_no_policy(columns):
    read(columns, TEXT, CachePolicy(reserve=4096))
    assert columns.match(TEXT, CachePolicy(reserve=1)).length == 5

    class Other(CachePolicy):
        pass

    assert why(columns, TEXT, Other())[1].startswith("another cache policy")


def test_what_was_not_used_for_longest_is_dropped_first():
    cache = PromptCache(fake_loaded(Columns), budget=2 * 6 * 8)
    read(cache, TEXT)
    read(cache, [1, 1, 1, 1, 1, 1])
    cache.match(TEXT)
    read(cache, [2, 2, 2])
    assert cache.match(TEXT).length == 5
    assert cache.match([1, 1, 1]).length == 0
    assert cache.statistics.evictions == 1
    assert cache.nbytes == 9 * 8


def test_of_a_text_that_does_not_fit_the_beginning_is_held():
    cache = PromptCache(fake_loaded(Columns), budget=20)
    read(cache, TEXT)
    assert cache.nbytes == 16
    assert why(cache, TEXT) == (2, "new from token 2 on, where what is held of it ends")


def test_a_state_that_does_not_fit_is_not_held():
    cache = PromptCache(fake_loaded(State), budget=20)
    read(cache, TEXT)
    assert cache.nbytes == 0
    assert why(cache, TEXT)[1].startswith("all texts before were dropped")


def test_of_a_chain_of_states_the_newest_stay():
    cache = PromptCache(fake_loaded(State), budget=200)
    for length in range(2, 40, 3):
        ids = list(range(length))
        assert read(cache, ids).length == max(0, length - 3)
        assert cache.nbytes <= 200


def test_counts_tell_what_was_reused(columns):
    read(columns, TEXT)
    read(columns, [*TEXT, 4, 4])
    read(columns, [9])
    assert columns.statistics == CacheStatistics(
        requests=3, hits=1, misses=2, tokens=15, tokens_reused=6, evictions=0, nbytes=9 * 8
    )


def test_what_is_held_does_not_change_when_caches_go_on():
    class Written(State):
        """A state that is written in place."""

        def __init__(self, policy=None):
            super().__init__(policy)
            self.array = mx.zeros((1, 4))

        def snapshot(self, row=0):
            snapshot = super().snapshot()
            return type(snapshot)("written", len(self.ids), (self.array,), False)

        def restore(self, snapshot):
            (self.array,) = snapshot.arrays

    cache = PromptCache(fake_loaded(Written))
    caches = cache.loaded.model.make_cache()
    caches[0].take([1, 2])
    cache.keep([1, 2], caches)
    caches[0].array[:, 1] = 7.0
    for _ in range(2):
        fresh = cache.loaded.model.make_cache()
        cache.match([1, 2, 3]).restore(fresh)
        assert not fresh[0].array.any().item()
        fresh[0].array[:, 2] = 9.0


def test_a_row_of_a_batch_is_held_as_if_it_had_been_alone():
    loaded = zoo.load("llama")
    texts, caches = ([5, 3, 8], [5, 3, 8, 1, 9, 2]), []
    held = {how: PromptCache(loaded) for how in ("alone", "in a batch")}
    for ids in texts:
        caches.append(loaded.model.make_cache())
        mx.eval(loaded.model(mx.array([ids]), caches[-1]))
        held["alone"].keep(ids, caches[-1])
    batch = merged_caches(caches)
    for row, ids in enumerate(texts):
        held["in a batch"].keep(ids, batch, row=row)
    alone, beside = (cache.match([*texts[1], 4]).snapshots for cache in held.values())
    assert alone and [one.length for one in alone] == [one.length for one in beside] == [6] * len(alone)
    for one, other in zip(alone, beside, strict=True):
        assert all(map(mx.array_equal, one.arrays, other.arrays))


def test_caches_that_took_in_other_tokens_are_refused(columns, mixed):
    for cache, text in ((columns, TEXT), (mixed, TEXT[:2])):
        caches = cache.loaded.model.make_cache()
        for held in caches:
            held.take(TEXT[:4])
        with pytest.raises(ValueError, match=f"{len(text)} ids for a cache that has taken in 4 tokens"):
            cache.keep(text, caches)
    mixed.keep(TEXT[:4], caches)
    with pytest.raises(ValueError, match="the caches of one model"):
        mixed.keep([7, 7, 7, 7], [caches[0], caches[0]])


@pytest.mark.parametrize("budget", [-1, 1.5, True, "1"])
def test_a_budget_is_a_number_of_bytes(budget):
    with pytest.raises(PromptError, match="`budget` must be a number of bytes"):
        PromptCache(fake_loaded(Columns), budget)


def test_a_prompt_that_is_read_both_ways_is_never_reused():
    cache = PromptCache(fake_loaded(Columns, causality="prefix"))
    read(cache, TEXT)
    length, words = why(cache, TEXT)
    assert length == 0 and "each other both ways" in words
