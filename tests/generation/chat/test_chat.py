"""Messages to an answer: the checkpoint's template lays them out, in the library as in the command."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import zoo
from zoo.errors import PromptError, TokenizerError
from zoo.generation.loop.prompt import encode_messages

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{{ ' (brief)' if brief }}{% endif %}"
)
TALK = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "The capital of France is"}]


@pytest.fixture(scope="module")
def llama():
    return zoo.load("llama")


@pytest.fixture
def loaded(llama):
    llama.tokenizer.chat_template = TEMPLATE
    yield llama
    llama.tokenizer.chat_template = None


def test_messages_are_laid_out_by_the_template(loaded):
    text = "<|endoftext|>system: Be kind.\nuser: The capital of France is\nassistant:"
    ids = loaded.tokenizer.encode(text, special_tokens=False)
    assert encode_messages(loaded, TALK) == ids
    brief = loaded.tokenizer.encode(f"{text} (brief)", special_tokens=False)
    assert encode_messages(loaded, iter(TALK), {"brief": True}) == brief
    answered = list(zoo.chat(loaded, TALK, max_tokens=4, temperature=1.0, seed=3))
    assert answered == list(zoo.stream(loaded, ids, max_tokens=4, temperature=1.0, seed=3))
    assert len(answered) <= 4 and answered[-1].finish_reason


def test_a_content_may_be_parts(loaded):
    parts = [message | {"content": [{"type": "text", "text": message["content"]}]} for message in TALK]
    assert encode_messages(loaded, parts) == encode_messages(loaded, TALK)
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
    with pytest.raises(TokenizerError, match="message 3: part 1 of its content is of type image_url"):
        zoo.chat(loaded, [*TALK, image])


def test_a_template_writes_its_own_special_tokens(llama):
    def encode(text, special_tokens):
        return [1] * special_tokens + [len(text)]

    plain = "{{ messages[0].content }}"
    tokenizer = SimpleNamespace(chat_template=plain, special_tokens={}, languages=None, encode=encode)
    tokenizer.for_tools = lambda tools: tokenizer
    loaded = replace(llama, tokenizer=tokenizer)
    assert encode_messages(loaded, [{"role": "user", "content": "three"}]) == [5]


def test_the_command_answers_the_same(loaded, command, folder):
    path = folder()
    settings = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATE}))
    asked = ("--system", "Be kind.", "--max-tokens", "4", "--json")
    done = json.loads(command("run", path, "The capital of France is", *asked).stdout)
    assert done["tokens"] == [step.token for step in zoo.chat(zoo.load(path), TALK, max_tokens=4)]


@pytest.mark.parametrize(
    ("messages", "error", "words"),
    [
        ("hello", PromptError, "`messages` must be a list of messages, each with a role and a content"),
        ({"role": "user", "content": "x"}, PromptError, "`messages` must be a list"),
        (None, PromptError, "`messages` must be a list"),
        ([], PromptError, "`messages` is empty"),
        (["hello"], TokenizerError, "message 1 must be an object"),
        ([{"role": "user"}], TokenizerError, "message 1: content must be a string"),
    ],
)
def test_what_are_no_messages_says_what_is_right(loaded, messages, error, words):
    with pytest.raises(error, match=words):
        zoo.chat(loaded, messages)


def test_a_setting_that_cannot_be_is_refused_as_for_any_prompt(loaded):
    with pytest.raises(PromptError, match="`max_tokens` must be"):
        zoo.chat(loaded, TALK, max_tokens=0)


def test_a_model_without_a_template_says_so(llama):
    with pytest.raises(
        PromptError, match=r"has no chat template: zoo\.generate and zoo\.stream continue a text"
    ):
        zoo.chat(llama, TALK)
