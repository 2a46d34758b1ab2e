"""What tests of the live pages' engine share: the zoo's side of each comparison, and how near is equal.

Axes: T tokens, V vocabulary.
"""

import functools

import mlx.core as mx
import numpy as np

import zoo

DECODERS = ("gpt2", "gpt2-postln", "llama", "qwen3", "mixtral")
MODELS = (*DECODERS, "bert", "transformer", "llada")
TOLERANCE = 1e-4  # of the range of the zoo's numbers; the pages promise 1e-3
PROMPT = "The capital city of China is"
LOGITS = "const run = model.run(given.ids, given); return {logits: run.logits, T: run.T, V: run.V, computed: run.computed}"


@functools.cache
def loaded(name):
    """A pocket, in float32."""
    return zoo.load(name)


def ids_of(name, text=PROMPT):
    return loaded(name).tokenizer.encode(text)


def inputs(name, text=PROMPT):
    """What a run is given for a text: its ids, or, of a translator, the start of a target with the text as the source."""
    ids = ids_of(name, text)
    return dict(ids=[0, 5, 300], source=ids) if name == "transformer" else dict(ids=ids, source=None)


def logits_of(name, ids, source):
    """The zoo's logits (T, V)."""
    model, tokens = loaded(name).model, mx.array([ids])
    return np.array((model(tokens) if source is None else model(mx.array([source]), tokens))[0])


def assert_near(found, wanted, where=""):
    """Numbers equal the zoo's within the tolerance of their range, or of their size where they are nearly all the same."""
    wanted = np.asarray(wanted, np.float64)
    found = np.asarray(found, np.float64).reshape(wanted.shape)
    span = max(np.ptp(wanted), np.abs(wanted).max())
    assert np.abs(found - wanted).max() <= TOLERANCE * span, where
