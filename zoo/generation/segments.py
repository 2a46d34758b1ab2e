"""Where the prompt of a conversation may go on in another way at the next turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.errors import PromptError, TokenizerError
from zoo.generation.prompt import encode_messages
from zoo.loading import Loaded

FOLLOWING = ({"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"})


def segment_ends(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    ids: Sequence[int],
    variables: Mapping[str, Any] | None = None,
) -> tuple[int, ...]:
    """How many tokens of a conversation's prompt will begin the prompt of its next turn, whatever is answered.

    `ids` are those of `encode_messages` with the same messages and variables. A template may lay out an answer that is
    past in another way than the prompt that asked for it, without the thinking for example: what the two have in common
    is found by rendering the conversation with one more turn, or, where the template refuses that, with the answer's
    beginning alone. Empty when all of the prompt stays. TokenizerError, PromptError as for `encode_messages`.
    """
    try:
        later = encode_messages(loaded, [*messages, *FOLLOWING], variables)
    except (TokenizerError, PromptError):
        later = encode_messages(loaded, messages, {**(variables or {}), "add_generation_prompt": False})
    shared = next(
        (place for place, (now, then) in enumerate(zip(ids, later, strict=False)) if now != then),
        min(len(ids), len(later)),
    )
    return () if shared in (0, len(ids)) else (shared,)
