"""The special tokens at which an answer ends: those that files name, and those that are known by their text."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.helpers.gguf_tokenizers import write
from zoo.checkpoint.gguf.tokenizer import CONTROL, NORMAL, USER, load_gguf_tokenizer, save_gguf_tokenizer
from zoo.tokenizer import load_tokenizer
from zoo.tokenizer.turn_ends import TURN_ENDS, end_ids

ALPHABET = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"]


def folder_of(folder, special, plain=(), config=None, generation=None):
    """The tokenizer of a folder with special and plain added tokens, and what config files say ends a text."""
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(ALPHABET)}, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in plain])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": special[0]}))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    return load_tokenizer(folder, config or {})


def file_of(path, special, kind=CONTROL, **keys):
    """The header of a GGUF file with these tokens after the bytes; the first ends a text."""
    tokens = [*ALPHABET, *special]
    kinds = [NORMAL] * len(ALPHABET) + [kind] * len(special)
    named = {key: tokens.index(text) for key, text in keys.items()}
    ids = {"eos_token_id": len(ALPHABET), **named}
    return write(
        path,
        {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": kinds, "merges": ["a b"], **ids},
    )


def texts(tokenizer):
    """The tokens that end an answer."""
    return {tokenizer.token(id) for id in tokenizer.eos_ids}


VOCABULARIES = {
    "<|im_end|> beside the end of texts": (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {"<|im_start|>"}),
    "LLaMA 3": (["<|end_of_text|>", "<|begin_of_text|>", "<|eot_id|>", "<|eom_id|>"], {"<|begin_of_text|>"}),
    "Gemma": (["<eos>", "<start_of_turn>", "<end_of_turn>"], {"<start_of_turn>"}),
    "Phi": (["<|endoftext|>", "<|user|>", "<|end|>"], {"<|user|>"}),
    "gpt-oss": (
        ["<|return|>", "<|end|>", "<|call|>", "<|endoftext|>", "<|start|>", "<|message|>"],
        {"<|end|>", "<|start|>", "<|message|>"},
    ),
    "no turns": (["</s>", "<s>"], {"<s>"}),
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_an_answer_ends_at_each_token_that_ends_a_turn(tmp_path, name):
    special, others = VOCABULARIES[name]
    folder = folder_of(tmp_path, special)
    file = load_gguf_tokenizer(file_of(tmp_path / "a.gguf", special), 1000)
    assert texts(folder) == texts(file) == set(special) - others


def test_a_plain_token_of_that_text_ends_nothing_in_a_folder(tmp_path):
    assert texts(folder_of(tmp_path, ["</s>"], plain=["<|im_end|>"])) == {"</s>"}


def test_a_files_added_token_ends_turns_where_its_writer_did_not_mark_it(tmp_path):
    found = load_gguf_tokenizer(file_of(tmp_path / "a.gguf", ["</s>", "<|im_end|>"], kind=USER), 1000)
    assert texts(found) == {"</s>", "<|im_end|>"}


def test_what_a_folder_names_is_kept(tmp_path):
    special = ["<|return|>", "<|end|>", "<|call|>", "<s>"]
    ids = [len(ALPHABET) + number for number in (1, 3)]
    assert texts(folder_of(tmp_path, special, generation=ids)) == set(special)


def test_the_end_of_a_message_is_no_end_of_a_turn_though_a_key_names_it(tmp_path):
    header = file_of(tmp_path / "a.gguf", ["<|return|>", "<|end|>", "<|call|>"], eot_token_id="<|end|>")
    assert texts(load_gguf_tokenizer(header, 1000)) == {"<|return|>", "<|call|>"}


def test_a_converted_file_says_all_ends(tmp_path):
    save_gguf_tokenizer(file_of(tmp_path / "a.gguf", ["<|endoftext|>", "<|im_end|>"]), tmp_path, {})
    said = json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"]
    assert said == [len(ALPHABET), len(ALPHABET) + 1]
    assert texts(load_tokenizer(tmp_path)) == {"<|endoftext|>", "<|im_end|>"}


def test_each_known_end_stands_in_the_list_once():
    assert len(set(TURN_ENDS)) == len(TURN_ENDS)
    assert end_ids({text: number for number, text in enumerate(TURN_ENDS)}, 99)[0] == 99
