"""Texts whose caches are merged into one batch: each goes on as it would alone, for every architecture with a cache."""

from functools import cache

import mlx.core as mx
import pytest

from zoo.cache import Cache, can_merge, flatten_caches, merged_caches
from zoo.host.registry import default_registry
from zoo.testing import same
from zoo.testing.subjects import streams, subject

REGISTRY = default_registry()
ARCHITECTURES = [REGISTRY.architecture(name) for name in sorted(REGISTRY.architectures)]
TRANSLATORS = [a.name for a in ARCHITECTURES if a.task == "translate"]
WRITERS = [a.name for a in ARCHITECTURES if a.task == "generate" and a.causality != "full"]
LENGTHS = (9, 2, 5)


@cache
def small(name):
    """The small model of an architecture, made once."""
    return subject(name)


def read(model, text, prefix):
    """Caches after the text, (1, T)."""
    caches = model.make_cache()
    more = {"prefix": text.shape[1]} if prefix else {}
    return caches, model(text, caches, **more)[:, -1:]


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_rows_of_a_merged_batch_go_on_as_alone(name):
    made = small(name)
    assert streams(made)
    prefix = made.architecture.causality == "prefix"
    tokens = mx.random.randint(0, made.vocab, (3, 20), key=mx.random.key(3))
    alone = [
        read(made.model, tokens[row : row + 1, :length], prefix)[0] for row, length in enumerate(LENGTHS)
    ]
    assert all(map(can_merge, alone))
    batch = merged_caches(alone)
    for step in range(2):
        new = mx.stack([tokens[row, length + step] for row, length in enumerate(LENGTHS)])[:, None]
        found = made.model(new, batch)
        for row, caches in enumerate(alone):
            same(found[row : row + 1], made.model(new[row : row + 1], caches), f"row {row}, step {step}")
    # The first, longest text leaves; another comes.
    for kept in batch:
        kept.select(mx.array([2, 1]))
        kept.compact()
        if kept.state:  # a layer that reads another's keys keeps none
            assert kept.length == 7 and kept.offset.tolist() == [7, 4]
    late = read(made.model, tokens[:1, :4], prefix)[0]
    batch = merged_caches([batch, late])
    found = made.model(tokens[:, :1], batch)
    for row, caches in enumerate((alone[2], alone[1], late)):
        same(found[row : row + 1], made.model(tokens[row : row + 1, :1], caches), f"row {row} after a change")


@pytest.mark.parametrize("name", WRITERS)
def test_a_snapshot_is_what_it_was(name):
    made = small(name)
    prefix = made.architecture.causality == "prefix"
    tokens = mx.random.randint(0, made.vocab, (1, 20), key=mx.random.key(3))
    caches, _ = read(made.model, tokens[:, :7], prefix)
    kept = [leaf.snapshot() for leaf in flatten_caches(caches)]
    expected = made.model(tokens[:, 7:12], caches)
    for _ in range(2):  # a second time from the same snapshots
        restored = made.model.make_cache()
        for leaf, snapshot in zip(flatten_caches(restored), kept, strict=True):
            assert isinstance(leaf, Cache) and leaf.restores
            assert snapshot.length == 7 and snapshot.kind == leaf.kind
            assert not snapshot.by_column or all(array.shape[2] == 7 for array in snapshot.arrays)
            leaf.restore(snapshot)
        same(made.model(tokens[:, 7:12], restored), expected, "logits")


@pytest.mark.parametrize("name", TRANSLATORS)
def test_targets_of_sources_of_unequal_length_share_a_batch(name):
    made = small(name)
    model, text = made.model, mx.random.randint(3, made.vocab, (3, 12), key=mx.random.key(4))
    alone = []
    for row, length in enumerate((4, 9, 7)):
        caches = model.make_cache()
        source = text[row : row + 1, :length]
        masks = {"mask": mx.array([[0, *[1] * (length - 1)]])} if row == 2 else {}  # one padded source
        memory = model.encode(source, **masks)
        model.decode(text[row : row + 1, : row + 1], memory, caches, memory_mask=masks.get("mask"))
        alone.append(caches)
    assert all(map(can_merge, alone))
    batch = merged_caches(alone)
    for step in range(2):
        new = text[:, 10 + step : 11 + step]
        found = model.decode(new, None, batch)
        for row, caches in enumerate(alone):
            same(found[row : row + 1], model.decode(new[row : row + 1], None, caches), f"row {row}")
    for kept in batch:
        kept.select(mx.array([2, 0]))
        kept.compact()
    found = model.decode(new[:2], None, batch)
    for row, before in enumerate((2, 0)):
        same(
            found[row : row + 1], model.decode(new[row : row + 1], None, alone[before]), f"row {before} after"
        )
