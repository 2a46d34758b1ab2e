"""Where the prompt of a conversation may go on in another way at the next turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoo.errors import PromptError, TokenizerError
from zoo.generation.loop.prompt import encode_messages
from zoo.loading import Loaded

FOLLOWING = ({"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"})


def next_turn_checkpoints(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    ids: Sequence[int],
    variables: Mapping[str, Any] | None = None,
) -> Iterator[int]:
    """How many tokens of a conversation's prompt will begin the prompt of its next turn, whatever is answered.

    `ids` are those of `encode_messages` with the same messages and variables. A template may lay out an answer that is
    past in another way than the prompt that asked for it, without the thinking for example. What the two have in common
    is found by rendering the conversation with one more turn, or, where the template refuses that, without the answer's
    beginning; this takes time, and is done when the first number is asked for. None when all of the prompt stays, or
    nothing is known of the next.
    """
    for following, more in ((FOLLOWING, {}), ((), {"add_generation_prompt": False})):
        try:
            later = encode_messages(loaded, [*messages, *following], {**(variables or {}), **more})
        except (
            TokenizerError,
            PromptError,
        ):  # the prompt itself was laid out: this one serves the next turn alone
            continue
        places = range(min(len(ids), len(later)))
        shared = next((place for place in places if ids[place] != later[place]), len(places))
        if 0 < shared < len(ids):
            yield shared
        return
