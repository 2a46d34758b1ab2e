"""A head in a checkpoint whose config ties it to the embedding: other numbers count, equal ones stay tied."""

import json
import warnings

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import zoo
from tests.checkpoint.gguf import test_families as gguf_families
from tests.helpers import gguf_files
from zoo.assemble import assemble
from zoo.checkpoint.convert import convert, save
from zoo.checkpoint.open import make_recipe, open_model
from zoo.checkpoint.parameters import export, parse_quantization, quantize
from zoo.checkpoint.shards import SaveOptions, write
from zoo.describe import describe
from zoo.errors import CheckpointError
from zoo.host.registry import default_registry
from zoo.recipe import EncoderDecoder
from zoo.testing import numbers_of, randomise
from zoo.weights import OutputHead

REGISTRY = default_registry()
# mT5 uses a head that is there, whatever its config says.
TIED = [
    name
    for name, architecture in sorted(REGISTRY.architectures.items())
    if not architecture.bridged and name != "mt5" and architecture.task not in ("classify", "encode")
]
DECODERS = dict(reversed(gguf_families.DECODERS)) | {
    name: {} for name in ("llama", "gpt2", "gemma2", "qwen3")
}


def tied(name, **changes):
    """An architecture, numbers that tie its head, and the recipe that they make."""
    architecture = REGISTRY.architecture(name)
    key = "weight_tying" if name == "llada" else "tie_word_embeddings"
    numbers = {**numbers_of(architecture), key: True, **changes}
    recipe = make_recipe(architecture, numbers, REGISTRY)
    assert recipe.head.tied
    return architecture, numbers, recipe


def untied(recipe):
    """The recipe with a head of its own."""
    own = {"head": {"tied": False}}
    return recipe.change(decoder=own) if isinstance(recipe, EncoderDecoder) else recipe.change(**own)


def written(folder, name, layout="hf", pack=None, change=None, **changes):
    """A model that has a head of its own, in a folder whose config ties it; gives the model."""
    architecture, numbers, recipe = tied(name, **changes)
    recipe = untied(recipe)
    model = assemble(recipe, REGISTRY)
    randomise(model)
    if pack:
        quantize(model, parse_quantization(pack, 32))
    tensors = export(model, architecture, recipe, layout)
    config = {"model_type": (architecture.model_types or [name])[0], **numbers}
    write(folder, change(tensors) if change else tensors, config, SaveOptions(layout))
    return model


def loaded(path, **options):
    """What a path loads to, and the warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = zoo.load(path, **options)
    return found, [str(each.message) for each in told]


def same_logits(found, model):
    """Whether two models of one recipe give the same logits, to rounding."""
    tokens = mx.array([[5, 2, 9, 1, 7, 30]])
    inputs = (tokens, tokens) if model.translates else (tokens,)
    ours, theirs = found.model(*inputs), model(*inputs)
    return mx.abs(ours - theirs).max().item() <= 1e-5 * (theirs.max() - theirs.min()).item()


@pytest.mark.parametrize("layout", ["hf", "mlx"])
@pytest.mark.parametrize("name", TIED)
def test_another_head_in_the_weights_counts_and_is_said(tmp_path, name, layout):
    model = written(tmp_path / "model", name, layout)
    found, told = loaded(tmp_path / "model")
    assert not found.recipe.head.tied and same_logits(found, model)
    assert [line for line in told if "another head, which is used" in line] == told and len(told) == 1


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2", "gemma2", "granite"])
def test_another_head_counts_where_both_are_packed(tmp_path, name):
    model = written(tmp_path / "model", name, "mlx", pack="8")
    found, told = loaded(tmp_path / "model")
    assert same_logits(found, model) and len(told) == 1
    assert "scales" in found.model.head.output and "scales" in found.model.embedding.tokens


def same_head(table):
    """A change of a folder's tensors: the head is the table."""
    return lambda tensors: tensors | {"lm_head.weight": tensors[table]}


@pytest.mark.parametrize("pack", [None, "8"])
@pytest.mark.parametrize(
    "name, table", [("llama", "model.embed_tokens.weight"), ("bart", "model.shared.weight")]
)
def test_an_equal_head_stays_tied_without_a_word(tmp_path, name, table, pack):
    written(tmp_path / "model", name, "mlx" if pack else "hf", pack, same_head(table))
    found, told = loaded(tmp_path / "model")
    assert found.recipe.head.tied and not told
    assert not any(path.endswith("head.output") for path, _ in found.model.named_modules())


def test_an_equal_head_in_another_dtype_stays_tied(tmp_path):
    def narrow(tensors):
        table = tensors["model.embed_tokens.weight"].astype(mx.bfloat16)
        return tensors | {"model.embed_tokens.weight": table, "lm_head.weight": table.astype(mx.float32)}

    written(tmp_path / "model", "llama", change=narrow)
    found, told = loaded(tmp_path / "model")
    assert found.recipe.head.tied and not told


def test_a_difference_in_the_last_row_is_found(tmp_path):
    def change(tensors):
        table = tensors["model.embed_tokens.weight"]
        return tensors | {"lm_head.weight": mx.concatenate([table[:-1], table[-1:] + 1e-3])}

    written(tmp_path / "model", "llama", change=change, vocab_size=5000)
    found, told = loaded(tmp_path / "model")
    assert not found.recipe.head.tied and len(told) == 1
    count = sum(array.size for _, array in tree_flatten(found.model.parameters()))
    assert found.recipe.parameters(found.recipe.dim) == count


@pytest.mark.parametrize("name", [name for name in TIED if "decoder" not in name])
def test_a_table_that_is_stored_as_the_head_alone_is_the_embeddings(tmp_path, name):
    architecture, numbers, recipe = tied(name)
    model = assemble(recipe, REGISTRY)
    randomise(model)
    tensors = export(model, architecture, recipe)
    rules = architecture.layouts["hf"]
    head = next(rule.source for rule in rules if isinstance(rule, OutputHead)).replace("*", "weight")
    whole = model.embedding.tokens.weight if not model.translates else model.encoder.embedding.tokens.weight
    table = next(
        key for key, array in tensors.items() if array.shape == whole.shape and mx.array_equal(array, whole)
    )
    tensors[head] = tensors.pop(table)
    config = {"model_type": (architecture.model_types or [name])[0], **numbers}
    write(tmp_path / "model", tensors, config)
    found, told = loaded(tmp_path / "model")
    assert found.recipe.head.tied and same_logits(found, model) and not told


@pytest.mark.parametrize("name, changes", [*DECODERS.items(), ("t5", {"decoder_start_token_id": 0})])
def test_the_head_of_a_gguf_file_counts(tmp_path, name, changes):
    folder = gguf_files.random_folder(tmp_path / "model", name, **changes, tie_word_embeddings=True)
    table = zoo.load(folder).recipe.embedding
    head = np.random.default_rng(0).normal(size=(table.vocab, table.dim)).astype(np.float32)
    path = gguf_files.write(
        tmp_path / "model.gguf",
        folder,
        extra=lambda writer: gguf_files.add_tensor(writer, "output.weight", head),
    )
    found, _ = loaded(path)
    assert not found.recipe.head.tied
    stack = found.model.decoder if found.model.translates else found.model
    assert mx.array_equal(stack.head.output.weight, mx.array(head))


@pytest.mark.parametrize("layout", ["hf", "mlx"])
@pytest.mark.parametrize("name", ["llama", "gemma2", "bart", "gpt2"])
def test_a_converted_folder_says_that_its_head_is_its_own(tmp_path, name, layout):
    model = written(tmp_path / "model", name)
    with pytest.warns(match="another head"):
        convert(tmp_path / "model", tmp_path / "out", layout=layout)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is False
    found, told = loaded(tmp_path / "out")
    assert same_logits(found, model) and not told


def test_a_converted_t5_keeps_the_scale_that_its_tie_stands_for(tmp_path):
    model = written(tmp_path / "model", "t5")
    with pytest.warns(match="another head"):
        convert(tmp_path / "model", tmp_path / "out")
    found, told = loaded(tmp_path / "out")
    assert same_logits(found, model) and len(told) == 1


def test_the_config_of_a_loaded_model_says_what_was_loaded(tmp_path):
    written(tmp_path / "model", "llama")
    found, _ = loaded(tmp_path / "model")
    save(tmp_path / "out", found.model, found.architecture, found.recipe, found.config)
    again, told = loaded(tmp_path / "out")
    assert same_logits(again, found.model) and not told


def test_a_description_counts_the_head_that_is_loaded(tmp_path):
    written(tmp_path / "model", "llama")
    found, _ = loaded(tmp_path / "model")
    with pytest.warns(match="another head"):
        described = describe(str(tmp_path / "model"), REGISTRY)
    assert described.recipe == found.recipe


def test_a_head_that_is_missing_is_named(tmp_path):
    architecture = REGISTRY.architecture("llama")
    numbers = {**numbers_of(architecture), "tie_word_embeddings": False}
    recipe = make_recipe(architecture, numbers, REGISTRY)
    model = assemble(recipe, REGISTRY)
    randomise(model)
    tensors = export(model, architecture, recipe)
    del tensors["lm_head.weight"]
    write(tmp_path / "model", tensors, {"model_type": "llama", **numbers})
    with pytest.raises(
        CheckpointError, match=r"missing tensor lm_head\.weight .*set tie_word_embeddings to true"
    ):
        zoo.load(tmp_path / "model")


def test_tables_of_source_and_target_that_differ_both_count(tmp_path):
    def change(tensors):
        table = tensors["model.shared.weight"]
        return tensors | {"model.decoder.embed_tokens.weight": table + 0.5}

    model = written(tmp_path / "model", "bart", change=change)
    model.decoder.embedding._embedding = None
    found, told = loaded(tmp_path / "model")
    assert not found.recipe.decoder.embedding.shared and len(told) == 2
    tables = found.model.decoder.embedding.tokens.weight, found.model.encoder.embedding.tokens.weight
    assert mx.allclose(tables[0], tables[1] + 0.5)


def test_tables_that_differ_without_a_head_are_refused(tmp_path):
    def change(tensors):
        del tensors["lm_head.weight"]
        return tensors | {"model.encoder.embed_tokens.weight": tensors["model.shared.weight"] + 0.5}

    written(tmp_path / "model", "bart", change=change)
    with pytest.raises(CheckpointError, match="different tables for source and target"):
        open_model(tmp_path / "model")
