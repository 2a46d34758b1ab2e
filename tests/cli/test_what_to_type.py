"""Commands that cannot work as they were typed: the error says in one line what to type instead."""

import json
import re

import click
import pytest

import zoo
from tests.helpers.terminal import Terminal
from zoo.cli import hints
from zoo.cli.program import cli, command_table

TYPED = {
    "run": "usage: zoo run [options] source [prompt]. example: zoo run llama",
    "run llama The capital": "in quotes: zoo run llama 'the capital'",
    "run llama Hello --prompt Hello": "as prompt or as --prompt, not both",
    "perplexity llama": "usage: zoo perplexity [options] source... file",
    "perplexity llama gpt2": "comes last: zoo perplexity llama gpt2 file",
    "perplexity llama text.txt": "comes last: zoo perplexity llama file",
    "show llama gpt2": "extra argument (gpt2). usage: zoo show [options] source",
    "run llama Hello --temp 1": "no option '--temp'; did you mean --temperature?",
    "run llama Hello --top_p 1": "no option '--top_p'; did you mean --top-p?",
    "run llama Hello --tokens 1": "did you mean --max-tokens?",
    "show llama --layers": "no option '--layers'; `zoo show --help` lists the options",
    "chat llama Hello": "extra argument (hello). usage: zoo chat [options] source. example: zoo chat smollm2. for one answer: zoo run",
    "run llama Hello --max_new_tokens 1": "did you mean --max-tokens?",
    "run llama Hello -n 1": "no option '-n'; did you mean --max-tokens?",
    "run llama Hello -ngl 99": "no option '-ngl': the gpu is used where there is one",
    "run llama Hello --frobnicate": "no option '--frobnicate'; `zoo run --help` lists the options",
    "run llama Hello --verboze": "no option '--verboze': `zoo --version` shows the version",
    "run llama Hello --modle llama": "no option '--modle': the model is written without an option: zoo run model",
    "run llama Hello --no-stream": "'--no-stream': an answer is shown as it is written; --json prints it whole at the end",
    "list no-such-word": "no name, preset or summary has 'no-such-word'; `zoo list` shows all architectures",
    "list --presets no-such-word": "no name, preset or summary has 'no-such-word'",
    "search qwen": "no command 'search'; `zoo list --presets word` lists the models",
    "run llama Hello --num-ctx 1": "no option '--num-ctx': the whole context of the model is used; --max-kv-size",
    "run llama Hello --quantize 4": "'--quantize': `zoo convert model folder --quantize 4` writes",
    "chat --model llama": "no option '--model': the model is written without an option: zoo chat model …",
    "tune llama --iters 1": "did you mean --steps?",
    "convert llama out --q-bits 4": "did you mean --quantize?",
    "run hello llama": "the model comes before the prompt: zoo run llama hello",
    "run llama": "no prompt: the pipe is empty; type zoo run llama text,",
    "bench": "give a source to measure, or --suite",
    "trace llama": "no prompt: the pipe is empty; type zoo trace llama text,",
    "run llama Hello --temperature -1": "expected a number of at least 0, got -1",
    "run llama Hello --top-k -1": "expected a whole number of at least 0, got -1",
    "run llama3.2:9b Hello": "did you mean llama3.2:1b or llama3.2:3b? `zoo list --presets` shows the models, `zoo run mlx-",
    "run gemma3:4b Hello": "no weights to run; `zoo run mlx-community/name` runs a checkpoint of the hub",
    "run hf.co/o/n-GGUF:Q4_K_M Hello": "written owner/name, a file of it owner/name/file.gguf",
    "run phi-5 Hello": "did you mean phi or phi3?",
    "run Lama Hello": "did you mean llama or llama4?",
    "show qwen2.6": "did you mean qwen2 or qwen3.5? `zoo list --presets` shows the models",
    "compare llama3 gpt2": "did you mean llama:8b or llama:70b or llama3.2:1b? `zoo list --presets`",
    "pull o/n": "no command 'pull'; `zoo run owner/name` downloads",
    "ps": "no command 'ps'; a model is in memory only while a command runs; `zoo cache` lists",
    "rm o/n": "`zoo cache remove owner/name` deletes",
    "finetune": "`zoo tune model --data file",
    "llama hello": "no command 'llama'; `zoo run llama prompt` runs that model",
    "RUN llama": "no command 'run'; did you mean run?",
    "cache rm o/n": "no command 'rm'; did you mean remove?",
    "serve llama --port x": "'x' is not a whole number",
    "rum": "no command 'rum'; did you mean run?",
    "train mine.json": "zoo train --recipe mine.json --out folder",
    "train .": "zoo train --resume --out . goes on with its run",
}


@pytest.mark.parametrize("line", TYPED)
def test_a_line_that_cannot_work_says_what_to_type(command, line):
    done = command(*line.split())
    assert done.returncode != 0 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and TYPED[line] in done.stderr.lower(), done.stderr


def test_a_bound_of_arithmetic_is_said_where_it_is_broken():
    told = {
        ("temperature", 1e-31): "a number of at least 1e-30, or 0, got 1e-31",
        ("temperature", 1e31): "a number from 1e-30 to 1e+30, or 0, got 1e+31",
        ("max_tokens", 2**40): "a whole number from 1 to 2147483647, got 1099511627776",
        ("max_tokens", 0): "a whole number of at least 1, got 0",
    }
    loaded = zoo.load("llama")
    for (name, value), message in told.items():
        with pytest.raises(zoo.ZooError) as error:
            zoo.generate(loaded, "The", **{name: value})
        assert str(error.value) == f"`{name}` must be {message}"


def test_names_are_found_whatever_their_case(command, tmp_path):
    plain = command("run", "llama:pocket", "The capital city of China is", "--max-tokens", "3")
    for name in ("Llama", "LLaMA:Pocket"):
        assert (
            command("run", name, "The capital city of China is", "--max-tokens", "3").stdout == plain.stdout
        )
    assert command("show", "Llama:8B").stdout == command("show", "llama:8b").stdout
    assert command("show", "Llama3.2:1B").stdout == command("show", "llama:1b").stdout
    assert command("show", "SmolLM2:360M").stdout == command("show", "smollm2:360m").stdout
    (tmp_path / "Llama").mkdir()
    done = command("run", "Llama", "The")
    assert done.returncode == 1 and "Llama/config.json: missing" in done.stderr


def test_what_other_programs_call_help_and_version_is_known(command):
    assert command("help").stdout == command("--help").stdout
    assert command("help", "cache", "remove").stdout == command("cache", "remove", "--help").stdout
    assert command("version").stdout == command("--version").stdout


def test_one_is_no_plural(command, tmp_path):
    assert "1 token given, 1 written" in command("trace", "llama", "", "--max-tokens", "1").stdout
    assert "1 token · 1 byte, 1.00 a token · 1 character," in command("tokenize", "llama", "a").stdout
    (tmp_path / "one.jsonl").write_text('{"prompt": "The"}\n')
    done = command("run", "llama", "--prompts", "one.jsonl", "--max-tokens", "1")
    assert "1 answer · generated 1 token ·" in done.stderr


def test_an_architecture_is_trained_whatever_folder_has_its_name(command, tmp_path):
    (tmp_path / "llama").mkdir()
    done = command("train", "llama")
    assert done.returncode != 0 and "is a folder" not in done.stderr and "--out" in done.stderr


def test_the_prompt_may_be_an_option(command):
    arguments = ("--max-tokens", "3")
    as_option = command("run", "llama", "-p", "The capital city of China is", *arguments)
    assert as_option.returncode == 0
    assert as_option.stdout == command("run", "llama", "The capital city of China is", *arguments).stdout


def test_the_table_of_plugins_has_a_width_in_a_pipe(command):
    shown = command("plugins").stdout
    assert max(map(len, shown.splitlines())) <= 110 and "translation" in shown


def test_a_trace_says_what_it_is_of():
    found = zoo.trace(zoo.load("llama"), "The capital", max_tokens=2)
    assert repr(found) == f"<Trace of llama, 2 tokens read, 2 generated, {len(found)} values>"


def test_a_model_of_ones_own_text_is_not_asked_for_capitals(command, tmp_path):
    written = command("convert", "llama", "mine")
    assert written.returncode == 0, written.stderr
    (tmp_path / "mine" / "training.json").write_text(json.dumps({"settings": {"corpus": "diary.txt"}}))
    done = command("evaluate", "mine")
    assert done.returncode == 1 and done.stdout == ""
    assert "was trained on the text diary.txt, which has no questions; name a --corpus" in done.stderr


def test_hints_name_commands_and_options_that_there_are():
    names = set(command_table().listed())
    told = " ".join([*hints.COMMANDS.values(), *hints.OPTIONS.values()])
    assert {*re.findall(r"`zoo ([a-z]+)", told)} <= names
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in names]
    flags = {flag for c in commands for param in c.get_params(context) for flag in param.opts}
    assert {flag for flag in hints.OPTIONS.values() if " " not in flag} <= flags


@pytest.mark.slow
def test_a_text_that_is_read_from_the_terminal_is_asked_for():
    with Terminal("tokenize", "llama", "-") as terminal:
        terminal.until("type the text; Ctrl-D on a line of its own ends it")
        terminal.type("China\n\x04")
        assert "3 tokens" in terminal.until("vocabulary")
