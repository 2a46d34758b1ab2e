"""A prompt cache on disk: what comes back, what is refused, and what is a miss."""

import os
from types import SimpleNamespace

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zoo
from tests.helpers.fake_caches import Columns, State, fake_loaded, read
from tests.helpers.parameters import ordinary
from zoo.cache import CachePolicy
from zoo.errors import PromptError
from zoo.generation.prefix_cache import PromptCache, disk

TEXTS = ([5, 3, 8, 1, 9, 2], [5, 3, 8, 4], [7, 7])


@pytest.fixture
def held():
    cache = PromptCache(fake_loaded(Columns, State))
    for ids in TEXTS:
        read(cache, ids)
    read(cache, [1, 2, 3], CachePolicy(reserve=9))
    return cache


def test_what_was_held_is_held_again(held, tmp_path):
    path = tmp_path / "talk.cache"
    held.save(path)
    again = PromptCache.load(path, held.loaded)
    assert again.nbytes == held.nbytes
    for ids in (*TEXTS, [5, 3, 8, 4, 1], [5, 3, 9]):
        match = read(again, ids)
        assert (match.length, match.miss_reason) == (lambda m: (m.length, m.miss_reason))(read(held, ids))
    assert [path.name for path in tmp_path.iterdir()] == ["talk.cache"]
    held.save(path)  # what is there is replaced
    assert PromptCache.load(path, held.loaded).nbytes == held.nbytes


def test_what_does_not_fit_the_budget_is_dropped_oldest_first(held, tmp_path):
    held.match([7, 7])
    held.save(tmp_path / "cache")
    small = PromptCache.load(tmp_path / "cache", held.loaded, budget=held.nbytes // 2)
    assert 0 < small.nbytes <= held.nbytes // 2
    assert small.match(TEXTS[0]).length == 0
    assert small.match([7, 7]).length == 1


def test_without_a_file_it_is_empty(held, tmp_path):
    assert PromptCache.load(tmp_path / "none", held.loaded).nbytes == 0
    PromptCache(held.loaded).save(tmp_path / "empty")
    assert PromptCache.load(tmp_path / "empty", held.loaded).match([1]).length == 0


def test_every_dtype_comes_back(tmp_path):
    class Wide(Columns):
        def snapshot(self, row=0):
            snapshot = super().snapshot()
            column = snapshot.arrays[0].astype(mx.float32) / 3
            arrays = [
                column.astype(dtype) for dtype in (mx.bfloat16, mx.float16, mx.uint8, mx.uint32, mx.float32)
            ]
            return type(snapshot)("wide", snapshot.length, tuple(arrays), True)

        def restore(self, snapshot):
            self.arrays = snapshot.arrays
            self.ids = [0] * snapshot.length

    cache = PromptCache(fake_loaded(Wide))
    caches = cache.loaded.model.make_cache()
    caches[0].take([1, 2, 3])
    cache.keep([1, 2, 3], caches)
    cache.save(tmp_path / "cache")
    fresh = cache.loaded.model.make_cache()
    PromptCache.load(tmp_path / "cache", cache.loaded).match([1, 2, 3, 4]).restore(fresh)
    for found, expected in zip(fresh[0].arrays, caches[0].snapshot().arrays, strict=True):
        assert found.dtype == expected.dtype and mx.array_equal(found, expected).item()


def test_another_models_file_is_refused_by_name(held, tmp_path):
    path = tmp_path / "cache"
    held.save(path)
    other = fake_loaded(Columns, State, name="other")
    with pytest.raises(PromptError, match="cache: is the prompt cache of another model, fake from somewhere"):
        PromptCache.load(path, other)
    trained = fake_loaded(Columns, State)
    trained.model.parameters = lambda: {
        "weight": mx.arange(6).reshape(2, 3) + 1,
        "layers": [{"bias": mx.ones(3, dtype=mx.bfloat16)}],
    }
    with pytest.raises(PromptError, match="of another model"):
        PromptCache.load(path, trained)


def test_one_other_number_makes_another_model(tmp_path):
    loaded = zoo.load("llama")
    PromptCache(loaded).save(tmp_path / "cache")
    other = zoo.load("llama")
    PromptCache.load(tmp_path / "cache", other)
    weight = other.model.embedding.tokens.weight
    weight[-2, 1] = weight[-2, 1] + 1
    with pytest.raises(PromptError, match="of another model"):
        PromptCache.load(tmp_path / "cache", other)


def test_another_tokenizers_file_is_refused(held, tmp_path):
    def tokenizer(words):
        return SimpleNamespace(
            vocab_size=len(words),
            kind="BPE",
            special_tokens={},
            eos_ids=frozenset({1}),
            decode=lambda ids, skip_special_tokens: " ".join(words[id] for id in ids),
            encode=lambda text: [0],
        )

    held.loaded.tokenizer = tokenizer(["a", "b", "c"])
    held.save(tmp_path / "cache")
    assert PromptCache.load(tmp_path / "cache", held.loaded).nbytes == held.nbytes
    held.loaded.tokenizer = tokenizer(["a", "c", "b"])
    with pytest.raises(PromptError, match="or was written with another tokenizer"):
        PromptCache.load(tmp_path / "cache", held.loaded)


def test_a_file_of_another_kind_is_neither_read_nor_replaced(held, tmp_path):
    essay, weights, image = (tmp_path / name for name in ("essay.txt", "model.safetensors", "disk.img"))
    essay.write_text("Once upon a time")
    mx.save_safetensors(str(weights), {"weight": mx.ones((2, 2))})
    image.write_bytes(bytes(4096))
    for path in (essay, weights, image):
        before = path.read_bytes()
        with pytest.raises(PromptError, match="is not a file of this kind that the zoo wrote"):
            PromptCache.load(path, held.loaded)
        with pytest.raises(PromptError, match="is not a file of this kind that the zoo wrote"):
            held.save(path)
        assert path.read_bytes() == before
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(PromptError, match=f"{path}: is (not a file|a folder)"):
            PromptCache.load(path, held.loaded)
    for use in (held.save, lambda path: PromptCache.load(path, held.loaded)):
        with pytest.raises(PromptError, match="none/cache: cannot be written, there is no folder"):
            use(tmp_path / "none" / "cache")


@given(st.data())
@settings(max_examples=50)
def test_a_torn_file_is_a_miss_that_is_told_and_replaced(tmp_path_factory, data):
    held = PromptCache(fake_loaded(Columns, State))
    for ids in TEXTS:
        read(held, ids)
    path = tmp_path_factory.mktemp("torn") / "cache"
    held.save(path)
    whole = path.read_bytes()
    start = data.draw(st.integers(200, len(whole) - 1))
    if data.draw(st.booleans()):
        torn = whole[:start]
    else:
        torn = whole[:start] + bytes([whole[start] ^ data.draw(st.integers(1, 255))]) + whole[start + 1 :]
    path.write_bytes(torn)
    with pytest.warns(UserWarning, match="the prompt cache is not used and will be replaced"):
        assert PromptCache.load(path, held.loaded).nbytes == 0
    held.save(path)
    assert PromptCache.load(path, held.loaded).nbytes == held.nbytes


def test_an_empty_file_is_a_miss(held, tmp_path):
    path = tmp_path / "cache"
    path.write_bytes(b"")
    assert PromptCache.load(path, held.loaded).nbytes == 0
    held.save(path)
    assert PromptCache.load(path, held.loaded).nbytes == held.nbytes


def forged(path, change):
    """Write a prompt cache again with other arrays, by a `change` of name and array, and a checksum that is right."""
    _, metadata = disk.read_header(path)
    tensors = {}
    for name, array in mx.load(str(path), format="safetensors").items():
        if (other := change(name, array)) is not None:
            tensors[name] = other
    del metadata["sum"]
    metadata["sum"] = disk.checksum(tensors, metadata)
    with path.open("wb") as file:
        mx.save_safetensors(file, tensors, metadata=metadata)


FORGERIES = {
    "integers": lambda array: array.astype(mx.int32),
    "booleans": lambda array: array > 0,
    "another dtype": lambda array: array.astype(mx.float16 if array.dtype == mx.float32 else mx.float32),
    "fewer columns": lambda array: array[:, :, :-1],
    "more columns": lambda array: mx.concatenate([array, array], axis=2),
    "fewer heads": lambda array: array[:, :-1],
    "wider heads": lambda array: mx.concatenate([array, array], axis=3),
    "two rows": lambda array: mx.concatenate([array, array]),
    "another rank": lambda array: array[0],
    "none": lambda array: None,
}
POLICIES = {"whole": {}, "bounded": {"max_size": 6, "keep": 2}, "packed": {"key_bits": 8, "value_bits": 8}}


@pytest.mark.parametrize("policy", ordinary(POLICIES, "bounded"))
def test_arrays_that_the_model_cannot_have_computed_are_not_used(policy, tmp_path):
    loaded, policy = zoo.load("llama"), CachePolicy(**POLICIES[policy])
    ids = loaded.tokenizer.encode("The capital city of China is Beijing.")
    held, caches = PromptCache(loaded), loaded.model.make_cache(policy)
    loaded.model(mx.array([ids]), cache=caches)
    held.keep(ids, caches, policy)
    path = tmp_path / "cache"
    held.save(path)
    whole = path.read_bytes()
    assert PromptCache.load(path, loaded).nbytes == held.nbytes
    last = [name for name in disk.read_header(path)[0] if not name.startswith("ids")][-1]
    for said, change in FORGERIES.items():
        path.write_bytes(whole)
        forged(path, lambda name, array, change=change: change(array) if name == last else array)
        with pytest.warns(UserWarning, match="the prompt cache is not used and will be replaced"):
            assert PromptCache.load(path, loaded).nbytes == 0, said


def test_ids_that_are_no_ids_are_not_used(held, tmp_path):
    held.save(tmp_path / "cache")
    forged(tmp_path / "cache", lambda name, a: a.astype(mx.float32) if name.startswith("ids") else a)
    with pytest.warns(UserWarning, match="the ids of a text"):
        assert PromptCache.load(tmp_path / "cache", held.loaded).nbytes == 0


def test_a_model_that_can_have_none_is_refused(tmp_path):
    with pytest.raises(PromptError, match="`prompt_cache`: the tokens of a prompt see each other both ways"):
        PromptCache.load(tmp_path / "cache", fake_loaded(Columns, causality="prefix"))
