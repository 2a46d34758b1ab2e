"""`zoo run` on a model that thinks: the output is the answer alone."""

import json
import shutil

import pytest

import zoo
from tests.cli.test_screen import on_a_terminal
from zoo.generation.loop.step import Step
from zoo.host.registry import default_registry

QUESTION = "The capital of France is"
THOUGHT, ANSWER = "Let me see.", "Paris."
WRITTEN = r"<think>\nLet me see\.\n</think>\n\nParis\."
WHOLE = f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"


@pytest.fixture
def thinker(tmp_path):
    """The small LLaMA with a chat template that drops thinking; `--regex` makes it write some."""
    path = tmp_path / "thinker"
    shutil.copytree(default_registry().architecture("llama").preset("pocket").folder, path)
    settings = json.loads((path / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{% for m in messages %}Q: {{ m.content.split('</think>')[-1] }}{% endfor %}"
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def test_a_pipe_gets_the_answer_alone_unless_raw(command, thinker):
    assert command("run", thinker, QUESTION, "--regex", WRITTEN).stdout == f"{ANSWER}\n"
    assert command("run", thinker, QUESTION, "--regex", WRITTEN, "--raw").stdout == f"{WHOLE}\n"


def test_json_has_the_thinking_under_a_key_of_its_own(command, thinker):
    found = json.loads(command("run", thinker, QUESTION, "--regex", WRITTEN, "--json").stdout)
    assert (found["text"], found["thinking"]) == (ANSWER, THOUGHT)
    raw = json.loads(command("run", thinker, QUESTION, "--regex", WRITTEN, "--json", "--raw").stdout)
    assert raw["text"] == WHOLE and "thinking" not in raw
    assert "thinking" not in json.loads(
        command("run", thinker, QUESTION, "--regex", "Paris", "--json").stdout
    )


@pytest.mark.slow
def test_a_terminal_shows_it_dimmed_above_the_answer(thinker):
    shown = on_a_terminal("run", thinker, QUESTION, "--regex", WRITTEN).replace("\r\n", "\n")
    assert "\x1b[2mL\x1b[0m" in shown and "<think>" not in shown
    plain = shown.replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert f"{THOUGHT}\n\n{ANSWER}\n" in plain and f"\x1b[2m{ANSWER[0]}" not in shown


def test_each_of_several_answers_is_taken_apart(command, thinker):
    several = (
        "--best-of",
        "3",
        "--temperature",
        "1",
        "--seed",
        "1",
        "--regex",
        "<think>a</think>(Paris|Rome)",
    )
    found = json.loads(command("run", thinker, QUESTION, *several, "--json").stdout)
    assert [one["thinking"] for one in found["candidates"]] == ["a"] * 3
    assert {one["text"] for one in found["candidates"]} <= {"Paris", "Rome"}
    assert found["text"] == found["candidates"][0]["text"]


def test_who_allows_too_few_tokens_is_told_that_the_answer_is_missing(command, thinker):
    done = command("run", thinker, QUESTION, "--regex", "<think>.{500}", "--max-tokens", "9")
    assert done.stdout == "\n" and "(cut: " in done.stderr


def test_tags_that_are_special_tokens_are_seen_too(command, thinker, monkeypatch):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (thinker / name).read_text().replace("[CLS]", "<think>").replace("[SEP]", "</think>")
        (thinker / name).write_text(text)
    tokenizer = zoo.load(thinker).tokenizer
    ids = tokenizer.encode(f"<think>{THOUGHT}</think>{ANSWER}", special_tokens=False)
    assert "<think>" not in tokenizer.decode(ids)

    def stream(loaded, prompt, **settings):
        detokenizer = loaded.tokenizer.detokenizer()
        for id in ids:
            yield Step(id, detokenizer.add(id))
        yield Step(None, detokenizer.finish(), finish_reason="stop")

    monkeypatch.setattr("zoo.generation.stream", stream)
    assert command("run", thinker, QUESTION).stdout == f"{ANSWER}\n"


@pytest.mark.slow
def test_a_file_of_prompts_has_it_apart_too(command, thinker, tmp_path):
    prompts = tmp_path / "in.jsonl"
    messages = [{"role": "user", "content": QUESTION}]
    lines = ["Q: " + QUESTION, QUESTION, {"messages": messages}, [1, 2, 3]]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def answers(*more):
        done = command("run", thinker, "--prompts", prompts, "--regex", WRITTEN, *more)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    _, question, conversation, ids = answers()
    for found in (question, conversation):
        assert (found["text"], found["thinking"]) == (ANSWER, THOUGHT)
    assert question["prompt_tokens"] == conversation["prompt_tokens"]
    assert ids["text"] == WHOLE and "thinking" not in ids and ids["prompt_tokens"] == 3
    plain, raw, conversation, _ = answers("--raw")
    assert raw["text"] == WHOLE and "thinking" not in raw
    assert plain["prompt_tokens"] == question["prompt_tokens"] > raw["prompt_tokens"]
    assert conversation["thinking"] == THOUGHT, "messages have no other layout than the template's"
