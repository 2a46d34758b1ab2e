"""A tokenizer's backend has a declared interface: the zoo's own subclass it, a plugin's may merely have it all."""

import pytest

from zoo.errors import PluginError
from zoo.tokenizer import Backend, Tokenizer
from zoo.tokenizer.backend import REQUIRED
from zoo.tokenizer.huggingface import TokenizersBackend
from zoo.tokenizer.sentencepiece import SentencePieceBackend
from zoo.tokenizer.seq2seq import M2MBackend, MarianBackend, NllbBackend


class Letters:
    """Ids to text one by one."""

    def add(self, id):
        return chr(id)

    def finish(self):
        return "."


class FirstVersion:
    """A backend of contract version 1, which knows nothing of languages."""

    def __init__(self):
        self.vocab_size = 128
        self.special_tokens = {"eos_token": "\0"}

    def encode(self, text, special_tokens):
        return [ord(letter) for letter in text] + [0] * special_tokens

    def decode(self, ids, skip_special_tokens):
        return "".join(chr(id) for id in ids if id or not skip_special_tokens)

    def id(self, token):
        return ord(token)

    def token(self, id):
        return chr(id) if id < 128 else None

    def detokenizer(self, skip_special_tokens):
        return Letters()


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


@pytest.mark.parametrize(
    "kind", [TokenizersBackend, SentencePieceBackend, MarianBackend, M2MBackend, NllbBackend]
)
def test_the_zoos_own_are_subclasses_that_can_be_made(kind):
    assert Backend in kind.__mro__ and not kind.__abstractmethods__


def test_one_of_the_first_version_serves_whole():
    tokenizer = Tokenizer(FirstVersion())
    assert tokenizer.languages is None
    assert tokenizer.vocab_size == 128 and tokenizer.special_tokens == {"eos_token": "\0"}
    assert tokenizer.encode("hi") == [104, 105, 0] and tokenizer.encode("hi", False) == [104, 105]
    assert tokenizer.decode([104, 0]) == "h" and tokenizer.decode([104, 0], False) == "h\0"
    assert (tokenizer.id("a"), tokenizer.token(97)) == (97, "a")
    assert isinstance(tokenizer.detokenizer(), Letters)


def test_a_subclass_inherits_decoding_and_speaks_no_languages():
    tokenizer = Tokenizer(Smallest())
    assert tokenizer.languages is None and tokenizer.decode([104, 105]) == "hi."


def test_a_subclass_that_lacks_a_method_cannot_be_made():
    class Lacking(Smallest):
        token = Backend.token

    with pytest.raises(TypeError, match="token"):
        Lacking()


@pytest.mark.parametrize("name", REQUIRED)
def test_what_lacks_a_member_is_refused_by_its_name(name):
    backend = FirstVersion()
    if name in vars(backend):
        delattr(backend, name)
    else:
        members = {key: value for key, value in vars(FirstVersion).items() if key != name}
        backend = type("FirstVersion", (), members)()
    with pytest.raises(PluginError, match=f"FirstVersion, which has no {name}$"):
        Tokenizer(backend)
