"""The files beside a vocabulary: end tokens, chat templates, and what a damaged or wrong one says."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from zoo.errors import TokenizerError
from zoo.tokenizer import eos_ids_of, load_tokenizer


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def test_end_ids_are_gathered_from_every_file(tmp_path, byte_level):
    byte_level.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "tokenizer_config.json", {"eos_token": "a", "bos_token": None})
    write_json(tmp_path / "generation_config.json", {"eos_token_id": [7, 9]})
    loaded = load_tokenizer(tmp_path, {"eos_token_id": 5, "bos_token_id": 3})
    assert loaded.eos_ids == {byte_level.token_to_id("a"), 5, 7, 9}
    assert loaded.bos_id == 3
    assert eos_ids_of({"eos_token_id": [1, -1]}, {}) == {1}


def test_the_chat_template_of_its_own_file_wins(tmp_path, byte_level):
    byte_level.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).chat_template is None
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": named})
    assert load_tokenizer(tmp_path).chat_template == "D"
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": "C"})
    assert load_tokenizer(tmp_path).chat_template == "C"
    write_json(tmp_path / "chat_template.json", {"chat_template": "J"})
    assert load_tokenizer(tmp_path).chat_template == "J"
    (tmp_path / "chat_template.jinja").write_text("你\n", encoding="utf-8")
    assert load_tokenizer(tmp_path).chat_template == "你\n"


def test_templates_have_names(tmp_path, byte_level):
    """In a list, and as files of their own."""
    byte_level.save(str(tmp_path / "tokenizer.json"))
    named = [{"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": named})
    with pytest.warns(UserWarning, match="no chat template is named default, only rag, tool_use"):
        loaded = load_tokenizer(tmp_path)
    assert loaded.chat_template is None and loaded.for_tools().chat_template == "T"
    (tmp_path / "chat_template.jinja").write_text("D")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates/tool_use.jinja").write_text("U\r\n", newline="")
    (tmp_path / "additional_chat_templates/notes.txt").write_text("N")
    loaded = load_tokenizer(tmp_path)
    assert loaded.chat_templates == {"default": "D", "tool_use": "U\n", "rag": "R"}
    assert (loaded.chat_template, loaded.for_tools().chat_template) == ("D", "U\n")
    assert loaded.for_tools(()) is loaded


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"eos_token": 5}, "eos_token"),
        ({"bos_token": {"text": "<s>"}}, "bos_token"),
        ({"additional_special_tokens": "<s>"}, "additional_special_tokens"),
        ({"added_tokens_decoder": {"x": {"content": "<s>"}}}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"1": {"content": "<s>", "special": "yes"}}}, "special"),
        ({"clean_up_tokenization_spaces": 1}, "clean_up_tokenization_spaces"),
        ({"chat_template": 5}, "chat_template"),
        ({"chat_template": [{"template": "x"}]}, "chat_template"),
        ([], "JSON object"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(tmp_path, byte_level, values, key):
    byte_level.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "tokenizer_config.json", values)
    with pytest.raises(TokenizerError, match=rf"tokenizer_config\.json: .*{key}"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("value", ["2", True, [1, "2"], 1.5])
def test_an_end_id_of_the_wrong_type_is_named(value):
    with pytest.raises(TokenizerError, match=r"config\.json: eos_token_id"):
        eos_ids_of({"eos_token_id": value}, {})
    with pytest.raises(TokenizerError, match=r"generation_config\.json: eos_token_id"):
        eos_ids_of({}, {"eos_token_id": value})


GOOD_VOCAB = '{"a": 0, "b": 1}'


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"tokenizer.json": "{"}, "tokenizer.json"),
        ({"tokenizer.json": '{"version": "1.0", "model": {"type": "New"}}'}, "tokenizer.json"),
        ({"vocab.json": '{"a": 0', "merges.txt": ""}, "vocab.json"),
        ({"vocab.json": '{"a": "0"}', "merges.txt": ""}, "vocab.json"),
        ({"vocab.json": GOOD_VOCAB, "merges.txt": "a b c\n"}, r"merges.txt: line 1\b"),
        ({"vocab.json": GOOD_VOCAB, "merges.txt": "#version: 0.2\na b\n"}, "merges.txt"),
        ({"vocab.txt": "the\ncat\n"}, r"vocab.txt: .*\[UNK\]"),
        ({"vocab.txt": b"\xff\xfe"}, "vocab.txt"),
        ({"tokenizer.model": b"IQ== 0\nIg== 1\n"}, "tokenizer.model"),
        ({"tokenizer.model": b""}, "tokenizer.model"),
        ({"tokenizer.json": None, "generation_config.json": "nul"}, "generation_config.json"),
        ({"tokenizer.json": None, "chat_template.jinja": b"\xff"}, "chat_template.jinja"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, byte_level, files, named):
    for name, content in files.items():
        if content is None:
            byte_level.save(str(tmp_path / name))
        else:
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TokenizerError, match=named) as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)
