"""Commands that cannot work as they were typed: the error says in one line what to type instead."""

import json

import pytest

import zoo

TYPED = {
    "run": "usage: zoo run [options] source [prompt]. example: zoo run llama",
    "run llama The capital": "in quotes: zoo run llama 'the capital'",
    "run llama Hello --prompt Hello": "as prompt or as --prompt, not both",
    "perplexity llama": "usage: zoo perplexity [options] source... file",
    "perplexity llama gpt2": "comes last: zoo perplexity llama gpt2 file",
    "perplexity llama text.txt": "comes last: zoo perplexity llama file",
    "show llama gpt2": "extra argument (gpt2) usage: zoo show [options] source",
    "train mine.json": "zoo train --recipe mine.json --out folder",
    "train .": "zoo train --resume --out . goes on with its run",
}


@pytest.mark.parametrize("line", TYPED)
def test_a_line_that_cannot_work_says_what_to_type(command, line):
    done = command(*line.split())
    assert done.returncode != 0 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and TYPED[line] in done.stderr.lower(), done.stderr


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


def test_what_a_plain_install_has_is_recommended(command):
    assert "Next: pip install -e my-arch && zoo test my-arch" in command("new", "my-arch").stdout
    assert "pip install -e 'my-sum[test]' && pytest" in command("new", "my-sum", "--kind", "command").stdout
