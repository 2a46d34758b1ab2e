"""The errors of a pass of the model that end its sequences, and not the engine."""

from __future__ import annotations

import re

from zoo.errors import ZooError, in_words
from zoo.machine import LOST

FAILURES = (ZooError, RuntimeError, MemoryError)  # MLX raises the last two, for example when memory is short
OUT_OF_MEMORY = re.compile(r"malloc|bad_alloc|allocate|(out of|insufficient) ?memory", re.IGNORECASE)


def is_of_sequences(error: BaseException) -> bool:
    """Whether an error of a pass ends only its sequences. A lost rank ends the whole run."""
    return isinstance(error, FAILURES) and LOST not in str(error)


def failure(error: BaseException, where: str) -> ZooError:
    """The error that the last step of a sequence has, after `error` of a pass; it holds nothing of the pass.

    >>> from zoo.generation.loop.failure import failure
    >>> failure(RuntimeError("[metal::malloc] 9 bytes are too many"), "in a pass of 2 sequences")
    ZooError('out of memory in a pass of 2 sequences: RuntimeError: [metal::malloc] 9 bytes are too many')
    """
    if isinstance(error, ZooError):
        return error.with_traceback(None)
    short = isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error))
    return ZooError(f"{'out of memory' if short else 'failed'} {where}: {in_words(error)}")
