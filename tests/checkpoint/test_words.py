"""Numbers of a few bits in words: unpacked, put in another order, their squares transposed."""

import mlx.core as mx
import numpy as np
import pytest

from zoo.checkpoint.formats.integers import reorder, repeated, transpose_nibbles, unpack

from .packers import bits_in_words

BITS = range(1, 9)


def numbers(bits, shape):
    return np.random.default_rng(bits).integers(0, 2**bits, shape)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("count", [96, 40, 7])
def test_unpacked(bits, count):
    given = numbers(bits, (5, count))
    found = np.array(unpack(mx.array(bits_in_words(given, bits)), bits))
    assert found.dtype == np.uint8
    assert np.array_equal(found[:, :count], given) and not found[:, count:].any()


def test_unpacked_in_an_order_of_each_run():
    given = numbers(4, (3, 16))
    found = unpack(mx.array(bits_in_words(given, 4)), 4, (7, 6, 5, 4, 3, 2, 1, 0))
    assert np.array_equal(np.array(found), given.reshape(3, 2, 8)[..., ::-1].reshape(3, 16))


@pytest.mark.parametrize("bits", BITS)
def test_put_in_another_order(bits):
    given, order = numbers(bits, (5, 96)), np.random.default_rng(0).permutation(96)
    found = reorder(mx.array(bits_in_words(given, bits).T), bits, mx.array(order))
    assert np.array_equal(np.array(found), bits_in_words(given[:, order], bits).T.view(np.uint32))


@pytest.mark.parametrize("bits", BITS)
def test_a_run_of_one_number(bits):
    for number in (0, 1, 2**bits - 1):
        run = repeated(number, bits)
        assert bits_in_words(np.full((1, 32), number), bits).view(np.uint32).reshape(
            -1, len(run)
        ).tolist() == [run] * (bits // len(run))


def test_squares_of_nibbles_are_transposed():
    given = numbers(4, (16, 24))  # rows of three words
    places = transpose_nibbles(mx.array(bits_in_words(given, 4)))
    for place, found in enumerate(places):
        # The eight rows' numbers at this place of each word, now in one word.
        expected = bits_in_words(given[:, place::8].T, 4).T
        assert np.array_equal(np.array(found), expected.view(np.uint32)), place
