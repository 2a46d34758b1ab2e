"""Folders of random classifiers, with a tokenizer of a few words."""

import json

import mlx.core as mx

import zoo
from zoo.checkpoint.convert import save
from zoo.config import Config
from zoo.host.registry import default_registry
from zoo.testing import subject

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "dog",
    "sat",
    "on",
    "a",
    "mat",
    "bad",
    "good",
    "film",
    "who",
    "is",
    "it",
    ".",
    "!",
]


def write_classifier(folder, name="bert-classifier", **changes):
    """A random small classifier in a folder, with BERT's tokenizer."""
    made = subject(name, "tiny", default_registry())
    numbers = {**made.numbers, **changes}
    recipe = made.architecture.recipe_of(Config(numbers))
    model = made.model if recipe == made.recipe else zoo.assemble.assemble(recipe, default_registry())
    mx.random.seed(3)
    model.apply(lambda array: mx.random.normal(array.shape) * 0.1)
    save(folder, model, made.architecture, recipe, numbers)
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {**changes, "architectures": numbers["architectures"]}
    path.write_text(json.dumps({"model_type": "bert", **config, "pad_token_id": 0}))
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    return folder
