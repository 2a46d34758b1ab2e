"""A conversation goes on in the tokens that it was said in."""

import pytest

import zoo
from zoo.generation.chat.session import MOST, ChatSession, Transcript
from zoo.generation.prefix_cache import PromptCache


@pytest.fixture(scope="module", params=["llama", "mamba"])
def loaded(request):
    return zoo.load(request.param)


def letters(tokenizer, text):
    """The ids of a text, each letter in tokens of its own."""
    return [id for letter in text for id in tokenizer.encode(letter, special_tokens=False)]


def test_a_text_goes_on_in_the_ids_of_what_was_said(loaded):
    tokenizer = loaded.tokenizer
    transcript = Transcript(tokenizer)
    said = letters(tokenizer, "The capital")
    assert transcript.encode("The capital city") == tokenizer.encode("The capital city", special_tokens=False)
    transcript.add(said)
    longer = transcript.encode("The capital city")
    assert longer[: len(said)] == said and tokenizer.decode(longer) == "The capital city"
    assert longer[len(said) :] == tokenizer.encode(" city", special_tokens=False)


def test_an_end_token_that_a_template_does_not_write_is_left_out(loaded):
    tokenizer = loaded.tokenizer
    transcript = Transcript(tokenizer)
    said = letters(tokenizer, "Paris")
    transcript.add([*said, min(tokenizer.eos_ids)])
    assert transcript.encode("Paris, in France")[: len(said)] == said


def test_another_text_is_encoded_as_ever(loaded):
    tokenizer = loaded.tokenizer
    transcript = Transcript(tokenizer)
    transcript.add(letters(tokenizer, "The capital"))
    for text in ("The cap", "A capital city", ""):
        assert transcript.encode(text) == tokenizer.encode(text, special_tokens=False)
    for number in range(MOST):
        transcript.add(letters(tokenizer, f"x{number}"))
    assert transcript.encode("The capital") == tokenizer.encode("The capital", special_tokens=False)


def test_a_tokenizer_that_adds_to_a_text_is_not_asked_for_a_part_of_one():
    class Spaced:
        """Writes a space before every text, as some do."""

        def encode(self, text, special_tokens=False):
            return [ord(letter) for letter in f" {text}"]

        def decode(self, ids, skip_special_tokens=False):
            return "".join(map(chr, ids[1:] if ids and ids[0] == ord(" ") else ids))

    transcript = Transcript(Spaced())
    transcript.add([ord(letter) for letter in " Hello"])
    assert transcript.encode("Hello you") == Spaced().encode("Hello you")


@pytest.mark.slow
def test_no_answer_is_computed_again_at_the_next_turn(loaded):
    loaded.tokenizer.chat_template = (
        "{% for message in messages %}[{{ message.role }}]{{ message.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    settings = {"max_tokens": 9, "temperature": 1.5, "seed": 3}
    talk = ChatSession(loaded, settings=settings, prompt_cache=PromptCache(loaded))
    held = 0
    for question in ("The capital city of China is", "And of France?", "Why?"):
        count = sum(1 for _ in talk.answer(question))
        assert (
            talk.last_prompt.cached_tokens >= held - 1
        )  # the answer's last token, or one that ends it and is no text
        held = talk.last_prompt.tokens + count - 1
    loaded.tokenizer.chat_template = None
