"""`llm`, a command line for models, as a client."""

import os
import subprocess
import sys

import pytest

from tests.clients import chat_model

MODELS = """\
- model_id: zoo
  model_name: chatter
  api_base: {address}
  supports_schema: true
  supports_tools: true
"""


@pytest.fixture
def llm(chatter, tmp_path):
    """Run `llm …` with the server as one of its models; gives what it prints."""
    (tmp_path / "extra-openai-models.yaml").write_text(MODELS.format(address=chatter.v1))
    environment = {
        **os.environ,
        "LLM_USER_PATH": str(tmp_path),
        "OPENAI_API_KEY": "none",
        "LLM_LOAD_PLUGINS": "",
    }

    def run(*arguments):
        command = [sys.executable, "-m", "llm", *arguments]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
        ).stdout.strip()

    return run


def test_a_prompt_is_answered_in_a_stream_and_at_once(llm):
    prompt = ("-m", "zoo", chat_model.RIVER["content"])
    assert llm(*prompt) == llm(*prompt, "--no-stream") == chat_model.RIVER_ANSWER


def test_a_conversation_goes_on(llm):
    llm("-m", "zoo", "-s", chat_model.SYSTEM["content"], chat_model.RIVER["content"])
    assert llm("-c", chat_model.SECOND[-1]["content"]) == chat_model.SECOND_ANSWER


def test_a_tool_is_run_between_two_answers(llm):
    code = f"def weather(city: str) -> str:\n    return {chat_model.RESULT['content']!r}"
    assert llm("-m", "zoo", "--functions", code, chat_model.QUESTION["content"]) == chat_model.FORECAST
