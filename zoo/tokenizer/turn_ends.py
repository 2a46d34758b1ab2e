"""Special tokens that end an answer, known by their text, as llama.cpp knows them.

Files often name one end alone, that of the texts of the first training: an instruct model ends its turns by another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TURN_ENDS = (
    *(
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<end_of_turn>",
        "<turn|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
    ),
    *("<|flush|>", "<|calls|>", "<EOT>", "_<EOT>", "[EOT]", "<end_of_utterance>", "<|tool_response>"),
    *("<|endoftext|>", "<|end_of_text|>"),
)
# These end a message within a turn where one of these tokens is there to end the turn (gpt-oss, Solar Open).
MESSAGE_ENDS = {"<|end|>": ("<|call|>", "<|calls|>")}


def end_ids(special: Mapping[str, int], text_end: int | None, others: Iterable[int | None] = ()) -> list[int]:
    """The ids that end a text or a turn: its own end, `others` that a file names, and those of known tokens.

    `special` has the vocabulary's special tokens. Tokens that end only a message are left out.
    """
    messages = {special.get(text) for text, turns in MESSAGE_ENDS.items() if special.keys() & set(turns)}
    known = (special[text] for text in TURN_ENDS if text in special)
    ids = [text_end, *(id for id in (*others, *known) if id not in messages)]
    return list(dict.fromkeys(id for id in ids if id is not None))
