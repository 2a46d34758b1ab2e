"""The layers for the token after the next of the families beside DeepSeek-V3: how they are read, and texts with their drafts."""

import json

import mlx.core as mx
import pytest

import zoo
from zoo import weights
from zoo.assemble import assemble
from zoo.checkpoint.open import make_recipe
from zoo.checkpoint.parameters import export, parameters_of
from zoo.checkpoint.quantized_matrix import join
from zoo.errors import PromptError
from zoo.generation.speculative.drafters import DraftSampler, MTPDrafter, mtp_layer
from zoo.testing import same, subject
from zoo.testing.generation_checks import same_text
from zoo.testing.subjects import randomise

PROMPT = [5, 6, 7, 8] * 5
ASKED = dict(max_tokens=10, temperature=0.0, logprobs=2)
QWEN = ("qwen3-next", "qwen3.5", "qwen3.5-moe")
PAST_THE_LAST = ("deepseek-v3.2", "glm-moe-dsa", "glm4-moe", "glm4-moe-lite")


def published(name, path):
    """A folder with the layer, under the names of the family, and the layer."""
    made = subject(name, "tiny")
    key = "mtp_num_hidden_layers" if name in QWEN else "num_nextn_predict_layers"
    numbers = made.architecture.preset("tiny").config | {
        key: 1,
        "model_type": made.architecture.model_types[0],
    }
    record = made.architecture.prediction
    recipe = make_recipe(record, numbers, made.registry)
    layer = assemble(recipe, made.registry)
    randomise(layer, 1)
    own, left = weights.invert(record.weights, parameters_of(layer), recipe, join)
    assert not left
    if name in QWEN:
        own = {"mtp." + tensor.removeprefix("model."): array for tensor, array in own.items()}
    else:
        own = {tensor.replace("layers.0.", f"layers.{recipe.index}."): array for tensor, array in own.items()}
    tensors = export(made.model, made.architecture, made.recipe) | own
    mx.save_safetensors(str(path / "model.safetensors"), tensors, metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(numbers))
    return layer


@pytest.mark.parametrize("name", QWEN + PAST_THE_LAST)
def test_greedy_texts_are_those_without_drafts(name, tmp_path):
    layer = published(name, tmp_path)
    loaded = zoo.load(tmp_path)
    expected = list(zoo.stream(loaded, PROMPT, **ASKED))
    found = list(zoo.stream(loaded, PROMPT, own_draft=True, draft_tokens=2, prefill_chunk=7, **ASKED))
    same_text(found, expected, "by its own layer")
    assert found[-1].drafted.proposed > 0
    read, written = parameters_of(mtp_layer(loaded)), parameters_of(layer)
    assert read.keys() == written.keys()
    assert all(mx.array_equal(read[path], written[path]).item() for path in written)


def test_later_drafts_are_made_from_the_layers_own_normalised_states(tmp_path):
    published("qwen3.5", tmp_path)
    loaded = zoo.load(tmp_path)
    model, layer, tokens = loaded.model, mtp_layer(loaded), mx.array([PROMPT])
    drafter = MTPDrafter(model, layer, DraftSampler(loaded.recipe.vocab))
    drafter.add_tokens(PROMPT)
    hidden = model.backbone(tokens)[:, :-1]
    drafter.add_hidden(0, hidden)
    first, second = drafter.propose(2).tokens
    vectors = model.embedding.tokens.weight[mx.array([[*PROMPT[1:], first]])]
    state = layer.norm(layer(vectors[:, :-1], hidden))
    assert mx.argmax(model.head(state)[0, -1]).item() == first
    states = layer.norm(layer(vectors, mx.concatenate([hidden, state[:, -1:]], axis=1)))
    assert mx.argmax(model.head(states)[0, -1]).item() == second
    same(states[:, :-1], state, "states")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(mtp_num_hidden_layers=2), "mtp_num_hidden_layers 2 is not implemented"),
        (dict(mtp_use_dedicated_embeddings=True), "mtp_use_dedicated_embeddings True"),
        (dict(), "mtp_num_hidden_layers 1 is more than the files hold"),
    ],
)
def test_a_layer_that_cannot_be_used_is_refused_by_its_key(tmp_path, changes, words):
    published("qwen3.5", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    if not changes:
        tensors = mx.load(str(tmp_path / "model.safetensors"))
        kept = {name: array for name, array in tensors.items() if not name.startswith("mtp.")}
        mx.save_safetensors(str(tmp_path / "model.safetensors"), kept, metadata={"format": "pt"})
    with pytest.raises(PromptError, match=words):
        zoo.stream(zoo.load(tmp_path), PROMPT, own_draft=True)
