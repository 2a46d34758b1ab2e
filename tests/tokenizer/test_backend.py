"""The backends of tokenizers have one base class."""

import pytest

from zoo.tokenizer import Backend, Tokenizer
from zoo.tokenizer.huggingface import TokenizersBackend
from zoo.tokenizer.sentencepiece import SentencePieceBackend
from zoo_translation.tokenizers import M2MBackend, MarianBackend


class Letters:
    """Ids to text one by one."""

    def add(self, id):
        return chr(id)

    def finish(self):
        return "."


class Smallest(Backend):
    """A subclass with no more than it must have."""

    vocab_size = 128
    special_tokens = {}  # noqa: RUF012

    def encode(self, text, special_tokens):
        return [ord(letter) for letter in text]

    def id(self, token):
        return None

    def token(self, id):
        return None

    def detokenizer(self, skip_special_tokens):
        return Letters()


@pytest.mark.parametrize("kind", [TokenizersBackend, SentencePieceBackend, MarianBackend, M2MBackend])
def test_the_zoos_own_are_subclasses_that_can_be_made(kind):
    assert Backend in kind.__mro__ and not kind.__abstractmethods__


def test_a_subclass_inherits_decoding_and_speaks_no_languages():
    tokenizer = Tokenizer(Smallest())
    assert tokenizer.languages is None and tokenizer.decode([104, 105]) == "hi."


def test_a_subclass_that_lacks_a_method_cannot_be_made():
    class Lacking(Smallest):
        token = Backend.token

    with pytest.raises(TypeError, match="token"):
        Lacking()
