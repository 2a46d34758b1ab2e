"""An empty prompt is the token that begins texts, for models that have one."""

import json
import shutil
from dataclasses import replace

import pytest

import zoo
from zoo.errors import PromptError
from zoo.host.registry import default_registry


@pytest.fixture(scope="module")
def llama():
    return zoo.load("llama")


@pytest.fixture
def copied(tmp_path):
    """The folder of the small LLaMA, whose tokenizer names no bos token; these keys name one in a file."""

    def copy(name=None, **keys):
        path = tmp_path / "model"
        shutil.copytree(default_registry().architecture("llama").preset("pocket").folder, path)
        changes = {"tokenizer_config.json": {"bos_token": None}, "config.json": {"bos_token_id": None}}
        for file, change in changes.items():
            values = json.loads((path / file).read_text()) | change | (keys if name == file else {})
            (path / file).write_text(json.dumps({key: v for key, v in values.items() if v is not None}))
        if name == "generation_config.json":
            (path / name).write_text(json.dumps(keys))
        return path

    return copy


def test_it_gives_what_the_token_alone_gives(llama):
    alone = zoo.generate(llama, [llama.tokenizer.bos_id], max_tokens=6)
    assert alone.text and zoo.generate(llama, "", max_tokens=6).tokens == alone.tokens
    assert [step.token for step in zoo.stream(llama, "", max_tokens=6)] == alone.tokens
    together = zoo.batch(llama, ["", "Peru", ""], max_tokens=6)
    assert [together[0].tokens, together[2].tokens] == [alone.tokens] * 2


@pytest.mark.parametrize("name", ["tokenizer_config.json", "config.json", "generation_config.json"])
def test_any_of_the_files_may_name_the_token(copied, name):
    keys = {"bos_token": "<|pad|>"} if name == "tokenizer_config.json" else {"bos_token_id": 1}
    loaded = zoo.load(copied(name, **keys))
    assert zoo.generate(loaded, "", max_tokens=3).tokens == zoo.generate(loaded, [1], max_tokens=3).tokens


def test_without_one_it_is_refused(copied):
    with pytest.raises(PromptError, match="the prompt is empty"):
        zoo.stream(zoo.load(copied()), "")


def test_without_special_tokens_it_is_refused(llama):
    with pytest.raises(PromptError, match="the prompt is empty"):
        zoo.stream(llama, "", special_tokens=False)


@pytest.mark.parametrize("name", ["transformer", "bert"])
def test_a_model_that_only_reads_its_prompt_refuses_it(name):
    with pytest.raises(PromptError, match="the prompt is empty"):
        zoo.stream(zoo.load(name), "")


def test_a_text_to_embed_may_not_be_empty(llama):
    with pytest.raises(PromptError, match="is empty"):
        zoo.embed(llama, ["Peru", ""])


def test_a_token_outside_the_vocabulary_is_refused(llama):
    tokenizer = llama.tokenizer.with_visible_tokens([])
    tokenizer.bos_id = 99999
    with pytest.raises(PromptError, match="token id 99999 lies outside"):
        zoo.stream(replace(llama, tokenizer=tokenizer), "")


def test_the_command_takes_it_as_an_argument_and_as_a_line_of_a_file(command, tmp_path):
    text = command("run", "llama", "", "--max-tokens", "6").stdout
    assert len(text.split()) > 2
    (tmp_path / "in.jsonl").write_text('""\n{"prompt": ""}\n')
    done = command("run", "llama", "--prompts", tmp_path / "in.jsonl", "--max-tokens", "6")
    assert [json.loads(line)["text"] + "\n" for line in done.stdout.splitlines()] == [text, text]


def test_an_empty_question_is_refused(command, copied):
    path = copied("config.json", bos_token_id=0)
    settings = json.loads((path / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    done = command("run", path, "")
    assert done.returncode == 1 and "the prompt is empty" in done.stderr
    assert command("run", path, "", "--raw", "--max-tokens", "4").returncode == 0


def test_an_empty_pipe_is_refused(command):
    done = command("run", "llama", stdin="")
    assert (
        done.returncode == 1
        and "no prompt: the pipe is empty; type zoo run llama TEXT" in done.stderr
        and done.stdout == ""
    )
