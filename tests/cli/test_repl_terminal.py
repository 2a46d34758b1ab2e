"""`zoo chat` and `zoo run SOURCE` on a terminal: what is typed is answered, obeyed or refused."""

import json

import pytest

from tests.helpers.chatting import Chat
from tests.helpers.slow_run import slow_run

PROMPT = "The capital of France is"
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


@pytest.fixture
def model(folder):
    """A model with a chat template."""
    path = folder()
    settings = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATE}))
    return path


@pytest.mark.slow
def test_a_conversation_is_stopped_edited_saved_and_gone_on_with(model, tmp_path):
    with Chat(code=slow_run(model, command="chat", seconds=0.01), cwd=tmp_path) as chat:
        assert f"{model.name}: a conversation." in chat.began and "/help" in chat.began
        chat.type("first\r")
        chat.until("\x1b[?2004l")
        chat.child.expect(r"\w\w")
        chat.type("\x03")
        assert "(stopped)" in chat.told()
        chat.ask("/set max_tokens 3")
        assert "(cut" in chat.ask("second")
        assert "the conversation has" in chat.ask("/tokens")
        assert "first" not in chat.ask("/undo") and "first" in chat.ask("/undo")
        chat.paste("several\nlines")
        assert "(cut" in chat.ask(" at once")
        assert "(cut" in chat.ask("/retry")
        chat.type('"""of\r')
        assert "(cut" in chat.ask('two lines"""')
        assert "taken back: of two lines" in chat.ask("/undo")
        assert "2 messages in talk.json" in chat.ask("/save talk.json")
        kept = json.loads((tmp_path / "talk.json").read_text())
        assert kept["messages"][0] == {"role": "user", "content": "several\nlines at once"}
        assert kept["settings"] == {"max_tokens": 3}
        assert "temperature must be a number" in chat.ask("/set temperature hot")
        chat.ask("/system Be brief.")
        assert "2 messages from talk.json" in chat.ask("/load talk.json")
        assert "there is no system message" in chat.ask("/system")
        chat.type("/sy\t")  # completed
        assert "there is no system message" in chat.ask("")
        assert chat.end("/exit\r") == 0
    history = tmp_path / "state" / "zoo" / "history"
    assert "+several\n+lines at once" in history.read_text() and history.stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_without_a_template_no_line_is_remembered_and_ctrl_c_twice_ends(tmp_path):
    with Chat("run", "llama", "--max-tokens", "8", cwd=tmp_path) as chat:
        assert (
            "llama:pocket has no chat template" in chat.began
            and "each line is a prompt of its own" in chat.began
        )
        assert "It has 1.05 million parameters and knows only facts about the world's countries" in chat.began
        assert '"poem" does not occur' in chat.ask("The capital poem")
        assert " Paris" in chat.ask(PROMPT)
        assert " Paris" in chat.ask(PROMPT)
        told = chat.ask("/hepl me")
        assert "/hepl is not a command, so nothing was sent" in told and "Paris" not in told
        chat.type("The capital of Chi")
        chat.until("Chi")
        chat.type("\x03")
        assert "Ctrl-C again" in chat.told()
        assert " Paris" in chat.ask(PROMPT)
        chat.type("\x03")
        assert "Ctrl-C again" in chat.told()
        assert chat.end("\x03") == 0
