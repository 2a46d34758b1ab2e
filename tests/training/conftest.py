"""A small model, a small text and a tokenizer of its own."""

import pytest

from tests.helpers.small_llama import NUMBERS

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@pytest.fixture
def numbers():
    """Those of a LLaMA that takes milliseconds a step."""
    return dict(NUMBERS)


@pytest.fixture
def text(tmp_path):
    """A text of some hundred lines."""
    path = tmp_path / "text.txt"
    path.write_text(
        "\n".join(" ".join(WORDS[(i * k) % 10] for k in range(1, 9)) for i in range(300)), encoding="utf-8"
    )
    return path
