"""The memory that the largest step of a training takes, estimated before the first step.

Axes: B rows, T tokens a row, D width, H heads, V vocabulary.
"""

from __future__ import annotations

from mlx.utils import tree_flatten

from zoo import runtime
from zoo.errors import ZooError
from zoo.loading import Loaded, shortage
from zoo.recipe import Spec
from zoo.training.record import TrainingSettings

# What a step holds, as multiples: of the inputs and outputs of the matrices of a layer, (B, T, ·); of the scores of
# attention, (B, H, T, T); of the logits, (B, T, V). Fitted to the peak of steps of LLaMA's pocket and SmolLM2-135M.
MATRICES, SCORES, LOGITS = 1.25, 1.5, 3.0
AGAIN = 2.5  # layers that hold their activations at a time where these are computed again


def check_step(loaded: Loaded, rows: int, length: int, settings: TrainingSettings) -> None:
    """ZooError, with the sum and a setting to change, where a step on rows of `length` tokens would not fit in memory."""
    parts = step_memory(loaded, rows, length, settings)
    sum_in_words = shortage(parts)
    if sum_in_words is None:
        return
    room = runtime.usable_memory() or 0
    if parts["model"] + parts["gradients"] + parts["optimizer"] > room:
        advice = "train fewer `layers` or `parts`, or an adapter"
    elif rows > 1:
        advice = "lower `batch` (and raise `accumulate`), or `length`"
    else:
        advice = "lower `length`" if settings.checkpoint else "lower `length`, or set `checkpoint`"
    raise ZooError(f"a step on {rows} × {length:,} tokens does not fit: {sum_in_words}; {advice}")


def step_memory(loaded: Loaded, rows: int, length: int, settings: TrainingSettings) -> dict[str, int]:
    """The bytes that a step on rows of `length` tokens takes at its peak, by what takes them.

    The model is as it is now, its trainable parameters those that are not frozen.
    """
    trained = [array for _, array in tree_flatten(loaded.model.trainable_parameters())]
    size = max((array.dtype.size for array in trained), default=4)
    gradients = sum(array.nbytes for array in trained)
    layers = [_activations(layer, loaded.recipe.dim, rows, length) for layer in loaded.recipe.layers]
    numbers = sum(layers)
    if settings.checkpoint:  # the input of each layer, and all of those that are computed again
        numbers = min(numbers, AGAIN * max(layers) + len(layers) * rows * length * loaded.recipe.dim)
    vocab = getattr(loaded.recipe.head, "vocab", None) or 0
    activations, logits = int(numbers * size), int(LOGITS * rows * length * vocab * size)
    return {
        "model": runtime.active_memory(),
        "gradients": gradients * (2 if settings.accumulate > 1 else 1),
        "optimizer": 2 * gradients,
        # Clipped gradients are others than the gradients; by then there are no activations.
        "activations": max(activations, gradients - logits),
        "logits": logits,
    }


def _activations(layer: Spec, dim: int, rows: int, length: int) -> float:
    """How many numbers a layer keeps for the gradients."""
    tokens = rows * length
    numbers = sum(
        MATRICES * tokens * matrix.uses * (matrix.inputs + matrix.outputs) for matrix in layer.matrices(dim)
    )
    if not layer.recurrent:
        numbers += SCORES * tokens * length * getattr(layer, "heads", 0)
    for name, value in layer.parts():
        for part in value if isinstance(value, tuple) else (value,):
            numbers += _activations(part, layer.width(name, dim), rows, length)
    return numbers
