"""`zoo run --prompt-cache FILE`: what a file saves the next command, and what it says of one that it cannot use."""

import json

import pytest

ASKED = ("--max-tokens", "3", "--json", "--prompt-cache")


@pytest.mark.parametrize("name", ["llama", "mamba"])
def test_a_second_command_computes_what_is_new(command, tmp_path, name):
    path = tmp_path / "talk.cache"
    first = json.loads(command("run", name, "The capital city of China is", *ASKED, path).stdout)
    again = json.loads(command("run", name, "The capital city of China is", *ASKED, path).stdout)
    assert (first["cached_tokens"], again["cached_tokens"]) == (0, first["prompt_tokens"] - 1)
    assert again["tokens"] == first["tokens"]
    done = command("run", name, "The capital city of China is", *ASKED[:2], "--prompt-cache", path)
    assert "of them from the prompt cache (the whole prompt is held" in done.stderr


def test_prompts_of_a_file_use_it_too(command, tmp_path):
    cache, lines = tmp_path / "talk.cache", tmp_path / "prompts.jsonl"
    command("run", "llama", "The capital city of China is", *ASKED, cache)
    before = cache.read_bytes()
    lines.write_text('"The capital city of France is"\n"The capital city of Peru is"\n')
    done = command(
        "run", "llama", "--prompts", lines, "--output", tmp_path / "out.jsonl", "--prompt-cache", cache
    )
    assert done.returncode == 0 and len(cache.read_bytes()) > len(before)
    held = command("run", "llama", "The capital city of Peru is", *ASKED, cache)
    values = json.loads(held.stdout)
    assert values["cached_tokens"] == values["prompt_tokens"] - 1


def test_what_cannot_be_used_is_one_line_before_anything_runs(command, tmp_path):
    path, essay = tmp_path / "talk.cache", tmp_path / "essay.txt"
    essay.write_text("Once upon a time")
    command("run", "llama", "The capital", *ASKED, path)
    whole = path.read_bytes()
    for arguments, words in (
        (("mamba", "The", *ASKED, path), "is the prompt cache of another model, llama"),
        (("llama", "The", *ASKED, essay), "is not a file of this kind that the zoo wrote"),
        (("llama", "The", *ASKED, tmp_path / "none" / "cache"), "there is no folder"),
        (("transformer", "I love NLP", *ASKED, tmp_path / "t"), "--prompt-cache: transformer does not"),
    ):
        done = command("run", *arguments)
        assert done.returncode != 0 and done.stdout == ""
        assert words in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert path.read_bytes() == whole and essay.read_text() == "Once upon a time"
    path.write_bytes(whole[:-10])
    done = command("run", "llama", "The capital", *ASKED, path)
    assert done.returncode == 0 and "the prompt cache is not used and will be replaced" in done.stderr
    assert json.loads(command("run", "llama", "The capital", *ASKED, path).stdout)["cached_tokens"] > 0
