"""Words of a prompt that do not occur in a corpus."""

from __future__ import annotations

import re

from zoo.training.corpora import Texts

# A character of a script that is written without spaces, or a run of other letters.
WORD = re.compile("[⺀-\U0003fffd]|[^\\W\\d_⺀-\U0003fffd]+")


def unseen_words(prompt: str, texts: Texts) -> list[str]:
    """The words of a prompt that a sample of the corpus does not have, in any case, in the order of the prompt.

    >>> from zoo.training.corpora import corpus
    >>> from zoo.training.unseen import unseen_words
    >>> unseen_words("The capital of France, and cats", corpus("atlas", "generate"))
    ['cats']
    """
    unseen = {word.casefold(): word for word in WORD.findall(prompt)}
    for text in texts.sample():
        if not unseen:
            break
        for word in WORD.findall(text):
            unseen.pop(word.casefold(), None)
    return list(unseen.values())
