"""`Transcript`: re-encodes a conversation with the ids that the model generated, so that its KV cache stays valid."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from zoo.tokenizer import Tokenizer

MOST = 8  # texts: the last one has the whole conversation, the others serve turns that are undone


class Transcript:
    """Encodes a conversation's prompts. One that begins with an earlier prompt and its answer begins with their ids.

    A model may write a text in other tokens than the tokenizer would. Its caches hold the keys and values of its own
    tokens: were the answer encoded anew, all of it would be computed again.

    >>> from zoo.generation.chat.transcript import Transcript
    >>> tokenizer = zoo.load("llama").tokenizer
    >>> transcript = Transcript(tokenizer)
    >>> said = [tokenizer.encode(letter)[0] for letter in "China"]
    >>> transcript.add(said)
    >>> transcript.encode("China is large.")[:5] == said, tokenizer.encode("China is large.")[:5] == said
    (True, False)
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._encoded: deque[tuple[str, list[int]]] = deque(maxlen=MOST)

    def add(self, ids: Sequence[int]) -> None:
        """Keep the ids of a prompt and its answer, with and without the last: templates may write another end token."""
        for end in (len(ids) - 1, len(ids)):
            self._encoded.append((self._text(ids[:end]), list(ids[:end])))

    def encode(self, text: str) -> list[int]:
        """The ids of a rendered text, which has its special tokens in it."""
        for start, ids in reversed(self._encoded):
            if start and text.startswith(start):
                rest = self._tokenizer.encode(text[len(start) :], special_tokens=False)
                if self._text([*ids, *rest]) == text:  # some tokenizers add a space before a text
                    return [*ids, *rest]
        return self._tokenizer.encode(text, special_tokens=False)

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)
