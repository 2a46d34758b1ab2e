"""The examples of a path that models are judged on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zoo.errors import ZooError
from zoo.files.reading import read_user_text
from zoo.training.data import read_examples
from zoo.training.example_lines import examples_of
from zoo.training.examples import Example, TextExample


def examples_to_judge(path: str) -> Sequence[Example]:
    """All examples of a file; of a folder or a data set of the hub those for testing, or, without any, for validation."""
    place = Path(path).expanduser()
    data = read_examples(path)
    if not place.is_file():
        return data.test or data.valid
    if data.kind is TextExample and place.suffix.lower() in (".txt", ".md"):
        return [TextExample(str(place), read_user_text(place, ZooError))]
    return tuple(examples_of(place))
