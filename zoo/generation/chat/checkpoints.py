"""Finds where this prompt and the next turn's diverge, to snapshot caches there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoo.errors import PromptError, TokenizerError
from zoo.generation.loop.prompt import encode_messages
from zoo.generation.prefix_cache.tree import common_prefix
from zoo.loading import Loaded

FOLLOWING = ({"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"})


def next_turn_checkpoints(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    ids: Sequence[int],
    variables: Mapping[str, Any] | None = None,
) -> Iterator[int]:
    """Yield the number of tokens that this prompt and the prompt of the next turn share, whatever the answer is.

    `ids` are those of `encode_messages` with the same messages and variables. A template may render a past answer
    differently from the prompt for it, for example without the thinking. So the conversation is rendered with one more
    turn or, where the template refuses that, without the generation prompt; this takes time, and is done when the
    first number is asked for. Yields nothing when all of the prompt is shared, or where rendering fails.
    """
    for following, more in ((FOLLOWING, {}), ((), {"add_generation_prompt": False})):
        try:
            later = encode_messages(loaded, [*messages, *following], {**(variables or {}), **more})
        except (TokenizerError, PromptError):  # the next turn alone fails: the prompt itself was rendered
            continue
        shared = common_prefix(list(ids), later)
        if 0 < shared < len(ids):
            yield shared
        return
