"""A conversation, and the answers that become part of it."""

import json
import os

import pytest

import zoo
from tests.helpers.parameters import ordinary
from zoo.errors import PromptError, TokenizerError
from zoo.generation.chat.conversation import Conversation, load_conversation
from zoo.generation.chat.session import ChatSession
from zoo.generation.loop.prompt import encode_messages
from zoo.generation.loop.step import Step, ToolCall

TEMPLATE = (
    "{% for m in messages %}{% if m.content == 'refuse' %}{{ raise_exception('no') }}{% endif %}{{ m.content }} "
    "{% endfor %}{% if messages[-1].reasoning_content %}{{ messages[-1].reasoning_content }}{% endif %}"
)


@pytest.fixture(scope="module")
def loaded():
    made = zoo.load("llama")
    made.tokenizer.chat_template = TEMPLATE
    return made


def made(turns, system=None):
    conversation = Conversation(system=system)
    for turn in range(turns):
        conversation.add_question(f"q{turn}")
        conversation.add_answer(f"a{turn}")
    return conversation


def contents(messages):
    return " ".join(message["content"] for message in messages)


def test_turns_are_taken_back_and_answered_again():
    conversation = made(2, system="s")
    assert conversation.undo() == "q1" and contents(conversation.messages) == "s q0 a0"
    conversation.remove_answer()
    assert contents(conversation.messages) == "s q0"
    assert conversation.undo() == "q0" and conversation.system == "s"
    for act in (conversation.undo, conversation.remove_answer):
        with pytest.raises(PromptError, match="there is no question"):
            act()
    with pytest.raises(PromptError, match="the prompt is empty"):
        conversation.add_question(" \n")


def test_the_system_message_is_changed_and_removed():
    conversation = made(1)
    conversation.system = "s"
    conversation.system = "t"
    assert contents(conversation.messages) == "t q0 a0"
    conversation.system = ""
    assert conversation.system is None and contents(conversation.messages) == "q0 a0"


def test_dropped_turns_are_kept_but_not_sent():
    conversation = made(3, system="s")
    conversation.dropped = 2
    assert (
        contents(conversation.active_messages) == "s q2 a2"
        and contents(conversation.without(1)) == "s q1 a1 q2 a2"
    )
    assert len(conversation.messages) == 7
    conversation.undo()
    assert contents(conversation.active_messages) == "s q1 a1", (
        "something is sent as long as there is anything"
    )


def test_what_is_saved_is_loaded(tmp_path):
    conversation = made(1, system="s")
    conversation.add_question("more")
    conversation.add_answer("", "thought", [ToolCall("a", "add", {"x": 1})])
    conversation.save(tmp_path / "talk.json", {"temperature": 0.5})
    again, settings = load_conversation(tmp_path / "talk.json")
    assert again.messages == conversation.messages and settings == {"temperature": 0.5}
    assert again.messages[-1]["tool_calls"][0]["function"]["name"] == "add"
    with pytest.raises(PromptError, match=r"nowhere.talk\.json: cannot be written"):
        conversation.save(tmp_path / "nowhere" / "talk.json")


def test_a_conversation_may_have_the_forms_of_openais_interface(tmp_path):
    parts = [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]
    call = {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
    conversation = Conversation(
        [
            {"role": "system", "content": parts},
            {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "2"},
        ]
    )
    conversation.save(tmp_path / "talk.json")
    again = load_conversation(tmp_path / "talk.json")[0]
    assert again.messages == conversation.messages and "content" not in again.messages[2]
    assert again.system == "Be\nbrief." and again.undo() == "1 + 1?"


def test_only_a_saved_conversation_is_replaced_by_one(tmp_path):
    own, essay, pipe = tmp_path / "talk.json", tmp_path / "essay.txt", tmp_path / "pipe"
    made(1).save(own)
    made(2).save(own)
    assert len(load_conversation(own)[0].messages) == 4
    essay.write_text("Once upon a time")
    with pytest.raises(PromptError, match=r"essay\.txt: exists and is not a file of this kind"):
        made(1).save(essay)
    assert essay.read_text() == "Once upon a time"
    os.mkfifo(pipe)
    with pytest.raises(PromptError, match="pipe: is not a file"):
        load_conversation(pipe)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", 'expected a JSON object with "messages"'),
        ('{"messages": {}}', 'expected a JSON object with "messages"'),
        ('{"messages": [], "settings": 3}', '"settings" must be an object'),
        ('{"messages": [], "more": 3}', '"more" is no part of a conversation'),
        (
            '{"messages": [{"role": "user"}]}',
            "message 1: content must be a string or a list of text parts, it is missing",
        ),
        (
            json.dumps({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "message 1: part 1 of its content is of type image_url, and the model takes text",
        ),
        ('{"messages": [{"role": "judge", "content": ""}]}', "message 1 must be an object with a role"),
        (
            json.dumps({"messages": [{"role": "user", "content": ""}, {"role": "system", "content": ""}]}),
            "message 2: a system message must be the first",
        ),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path, text, words):
    path = tmp_path / "talk.json"
    path.write_text(text)
    with pytest.raises(PromptError, match=words) as error:
        load_conversation(path)
    assert str(path) in str(error.value)
    with pytest.raises(PromptError, match="missing"):
        load_conversation(tmp_path / "missing")


def test_an_answer_follows_from_all_that_was_said(loaded):
    talk = ChatSession(loaded, settings={"max_tokens": 4})
    first = "".join(step.text for step in talk.answer("The capital of France is"))
    assert talk.conversation.messages[-1] == {"role": "assistant", "content": first}
    before = list(talk.conversation.messages)
    second = "".join(step.text for step in talk.answer("The capital of China is"))
    asked = [*before, {"role": "user", "content": "The capital of China is"}]
    assert second == "".join(step.text for step in zoo.chat(loaded, asked, max_tokens=4))
    assert talk.last_prompt.tokens == len(encode_messages(loaded, asked))
    assert "".join(step.text for step in talk.answer()) == second, "the last question is answered again"
    assert len(talk.conversation.messages) == 4


def test_what_came_of_a_stopped_answer_stays(loaded):
    talk = ChatSession(loaded, settings={"max_tokens": 20, "temperature": 1.0, "seed": 1})
    steps = talk.answer("The capital of France is")
    came = [next(steps).text for _ in range(3)]
    steps.close()
    assert talk.conversation.messages[-1]["content"] == "".join(came)
    interrupted = talk.answer("More")
    next(interrupted)
    with pytest.raises(KeyboardInterrupt):
        interrupted.throw(KeyboardInterrupt())
    assert [m["role"] for m in talk.conversation.messages] == ["user", "assistant"] * 2


def test_thinking_is_kept_beside_the_answer(loaded):
    talk = ChatSession(loaded)
    talk._steps = lambda *_: iter_steps(Step(1, "", thinking="Hm."), Step(2, "Paris."))
    list(talk.answer("The capital of France is"))
    assert talk.conversation.messages[-1] == {
        "role": "assistant",
        "content": "Paris.",
        "reasoning_content": "Hm.",
    }


def iter_steps(*steps):
    yield from steps


def test_thinking_alone_is_no_answer():
    made = zoo.load("llama")
    made.tokenizer.chat_template = TEMPLATE + "{# </think> #}<think>"
    talk = ChatSession(made, settings={"max_tokens": 3})
    steps = list(talk.answer("The capital of France is"))
    assert any(step.thinking for step in steps) and not any(step.text for step in steps)
    assert [message["role"] for message in talk.conversation.messages] == ["user"]


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_answer_without_text_is_not_kept(loaded, tmp_path, text):
    """Ctrl-C before the first token, or an answer that ends at once: its question can be asked again."""
    talk = ChatSession(loaded, made(1), settings={"max_tokens": 3})
    plain = talk._steps

    def interrupted(*_):
        yield Step(None, text)
        raise KeyboardInterrupt

    def stop(question=None):
        talk._steps = interrupted
        with pytest.raises(KeyboardInterrupt):
            list(talk.answer(question))
        talk._steps = plain

    stop("The capital city of France is")
    assert contents(talk.conversation.messages) == "q0 a0 The capital city of France is"
    talk.conversation.save(tmp_path / "talk.json")
    assert load_conversation(tmp_path / "talk.json")[0].messages == talk.conversation.messages
    assert "".join(step.text for step in talk.answer()) == talk.conversation.messages[-1]["content"] != ""
    whole = list(talk.conversation.messages)
    stop()  # /retry
    assert talk.conversation.messages == whole, "the former answer is still there"
    stop("What?")
    list(talk.answer("The capital city of China is"))
    roles = [message["role"] for message in talk.conversation.messages]
    assert roles == ["user", "assistant"] * 3 and "What?" not in contents(talk.conversation.messages)
    talk._steps = lambda *_: iter_steps(Step(1, text, finish_reason="stop"))
    list(talk.answer("Nothing?"))
    assert talk.conversation.undo() == "Nothing?" and len(talk.conversation.messages) == 6


def test_a_question_that_cannot_be_answered_is_taken_back(loaded):
    talk = ChatSession(loaded, made(1))
    with pytest.raises(TokenizerError, match="no"):
        list(talk.answer("refuse"))
    assert contents(talk.conversation.messages) == "q0 a0"
    talk.conversation.messages[-2]["content"] = "refuse"
    with pytest.raises(TokenizerError, match="no"):
        list(talk.answer())
    assert contents(talk.conversation.messages) == "refuse a0", "the former answer is still there"


@pytest.mark.slow
def test_a_full_context_drops_the_oldest_turns_and_says_so(loaded, monkeypatch):
    # What the template gives, without a process for each of many.
    monkeypatch.setattr(
        "zoo.generation.chat.session.render_messages",
        lambda _, messages: contents(messages).replace("  ", " ") + " ",
    )
    context = loaded.recipe.context
    talk = ChatSession(loaded, Conversation(system="Be brief."), {"max_tokens": 8})
    told, lengths = [], []
    for turn in range(30):
        list(talk.answer(f"The capital of country {turn} is", dropped=told.append))
        lengths.append(talk.last_prompt.tokens)
    assert 1 < len(told) < 12, "a full context is emptied by more than one turn"
    assert all(drop.before > context - 8 and drop.after <= context // 2 for drop in told)
    assert max(lengths) + 8 <= context and talk.conversation.turns == 30
    assert sum(drop.turns for drop in told) == talk.conversation.dropped
    assert talk.conversation.active_messages[0]["content"] == "Be brief."
    assert talk.tokens() < context


def test_an_answer_ends_where_the_context_does(loaded):
    context = loaded.recipe.context
    talk = ChatSession(loaded, settings={"max_tokens": 1000, "min_tokens": 1, "temperature": 2.0, "seed": 0})
    with pytest.warns(UserWarning, match="the prompt has .* more than the"):
        next(talk.answer(" word" * context))
    talk.conversation.undo()
    assert len(list(talk.answer(" word" * (context // 3)))) + talk.last_prompt.tokens <= context
    assert talk.last_prompt.tokens > context // 2


def test_without_a_template_every_question_is_a_prompt_of_its_own(loaded):
    talk = ChatSession(loaded, settings={"max_tokens": 3}, raw=True)
    alone = zoo.generate(loaded, "The capital of France is", max_tokens=3).text
    for _ in range(2):
        assert "".join(step.text for step in talk.answer("The capital of France is")) == alone
    with pytest.raises(PromptError, match="`system` needs a chat template, and `raw` leaves it out"):
        ChatSession(loaded, Conversation(system="s"), raw=True)


def test_settings_are_those_of_a_strategy_that_serves(loaded):
    talk = ChatSession(loaded)
    assert talk.set("temperature", "0.5") == 0.5 and talk.set("stop", "\n") == "\n"
    assert {
        "temperature",
        "beams",
    } <= talk.available_settings().keys() and "steps" not in talk.available_settings()
    with pytest.raises(PromptError, match="`temperature` must be a number of at least 0"):
        talk.set("temperature", "-1")
    with pytest.raises(PromptError, match="`steps`: autoregressive generation has no such setting"):
        talk.set("steps", "3")
    with pytest.raises(PromptError, match="`samplers` cannot be set in a conversation"):
        talk.set("samplers", "x")
    with pytest.raises(PromptError, match="`top_p` must be"):
        talk.resume(made(1), {"top_p": 7})
    assert not talk.conversation.messages and talk.settings["temperature"] == 0.5
    talk.resume(made(1), {"top_p": 0.7})
    assert talk.settings == {"top_p": 0.7} and talk.conversation.turns == 1


@pytest.mark.parametrize("name", ordinary(["llama", "mamba"], "llama"))
def test_a_turn_computes_what_is_new_and_answers_the_same(name):
    made = zoo.load(name)
    made.tokenizer.chat_template = TEMPLATE
    held, alone = (
        ChatSession(made, settings={"max_tokens": 4}, prompt_cache=zoo.PromptCache(made)),
        ChatSession(made, settings={"max_tokens": 4}),
    )
    computed = []
    for question in ("The capital of France is", "The capital of China is", "The capital of Brazil is"):
        answer = "".join(step.text for step in held.answer(question))
        assert answer == "".join(step.text for step in alone.answer(question))
        computed.append(held.last_prompt.tokens - held.last_prompt.cached_tokens)
    assert max(computed[1:]) <= computed[0] + 6, "the question, and the answer's last tokens"
    assert held.last_prompt.tokens > 2 * computed[0] and alone.last_prompt.cached_tokens == 0
