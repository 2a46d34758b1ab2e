"""DeepSeek-V3's layer for the token after the next: how it is read, what it computes, and the drafts by it."""

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
from zoo_deepseek import POCKET

NUMBERS = POCKET | dict(num_nextn_predict_layers=1, model_type="deepseek_v3")
PROMPT = [5, 6, 7, 8] * 6
ASKED = dict(max_tokens=12, temperature=0.0, logprobs=2)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A folder as DeepSeek publishes them: the last layer predicts, with copies of the embedding and the head."""
    path = tmp_path_factory.mktemp("deepseek")
    made = subject("deepseek-v3", "pocket")
    tensors = export(made.model, made.architecture, made.recipe)
    record = made.architecture.prediction
    recipe = make_recipe(record, NUMBERS, made.registry)
    layer = assemble(recipe, made.registry)
    randomise(layer, 1)
    own, left = weights.invert(record.weights, parameters_of(layer), recipe, join)
    assert not left
    own["model.layers.0.embed_tokens.weight"] = own["model.layers.0.shared_head.head.weight"] = tensors[
        "model.embed_tokens.weight"
    ]
    tensors |= {name.replace("layers.0.", f"layers.{recipe.index}."): array for name, array in own.items()}
    mx.save_safetensors(str(path / "model.safetensors"), tensors, metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(NUMBERS))
    return path, layer


@pytest.fixture(scope="module")
def loaded(checkpoint):
    return zoo.load(checkpoint[0])


def test_the_layer_is_read_when_it_is_asked_for_and_only_then(checkpoint):
    loaded = zoo.load(checkpoint[0])
    assert len(loaded.model.layers) == POCKET["num_hidden_layers"] and not loaded.drafters
    found, expected = parameters_of(mtp_layer(loaded)), parameters_of(checkpoint[1])
    assert found.keys() == expected.keys()
    assert all(mx.array_equal(found[name], expected[name]).item() for name in expected)
    assert mtp_layer(loaded) is mtp_layer(loaded)
    # The model's own embedding and head serve it.
    assert not any("tokens" in name or "head" in name for name in found)


def test_it_computes_equations_21_to_23(loaded):
    layer, model = mtp_layer(loaded), loaded.model
    tokens = mx.array([PROMPT])
    hidden = model.backbone(tokens)  # (1, T, D)

    def rms(x, norm):
        return x * mx.rsqrt((x * x).mean(axis=-1, keepdims=True) + norm.eps) * norm.weight

    vectors = model.embedding.tokens.weight[tokens[:, 1:]]
    both = mx.concatenate(
        [rms(vectors, layer.embedding_norm), rms(hidden[:, :-1], layer.hidden_norm)], axis=-1
    )
    (block,) = layer.layers
    states = block(both @ layer.projection.weight.T, "causal")
    expected = model.head(rms(states, layer.norm))[0, -1]  # of the token after the text

    drafter = MTPDrafter(model, layer, DraftSampler(POCKET["vocab_size"]))
    drafter.add_tokens(PROMPT)
    drafter.add_hidden(0, hidden[:, :9])
    drafter.add_hidden(9, hidden[:, 9:-1])  # in pieces, as a prompt is read
    state = drafter._read(len(PROMPT) - 1)
    same(drafter._logits(state[:, -1:])[0], expected, "logits")


def test_its_drafts_are_the_same_after_others_were_rejected(loaded):
    def drafts(count, cut):
        """Those after the first `cut` tokens, when there were others after every token before."""
        drafter = MTPDrafter(loaded.model, mtp_layer(loaded), DraftSampler(POCKET["vocab_size"]))
        hidden = loaded.model.backbone(mx.array([PROMPT]))
        drafter.add_tokens(PROMPT[:2])
        drafter.add_hidden(0, hidden[:, :1])
        for place in range(1, cut):
            if count:
                drafter.propose(count)
            drafter.add_tokens(PROMPT[place + 1 : place + 2])
            drafter.add_hidden(place, hidden[:, place : place + 1])
        return drafter.propose(3).tokens

    assert drafts(3, 12) == drafts(1, 12) == drafts(0, 12)


@pytest.mark.parametrize("count", [None, 3])
def test_greedy_texts_are_those_without_drafts(loaded, count):
    expected = list(zoo.stream(loaded, PROMPT, **ASKED))
    more = {} if count is None else {"draft_tokens": count}
    found = list(zoo.stream(loaded, PROMPT, own_draft=True, prefill_chunk=7, **more, **ASKED))
    same_text(found, expected, "by its own layer")
    drafted = found[-1].drafted
    assert drafted.proposed > 0


def test_a_layer_that_copies_the_model_is_right(loaded, checkpoint, monkeypatch):
    """Drafts from the very state of the model that the next pass will have: all of them are accepted."""

    class Copy:
        def __init__(self, model):
            self.model, self.norm = model, lambda x: x

        def make_cache(self):
            return self.model.make_cache()

        def __call__(self, vectors, hidden, caches):
            if caches[0].length == 0:  # the first token of the text has no state before it
                self.model.backbone(mx.array([PROMPT[:1]]), caches)
            return self.model.backbone(None, caches, inputs_embeds=vectors)

    monkeypatch.setitem(loaded.drafters, "", Copy(loaded.model))
    found = list(zoo.stream(loaded, PROMPT, own_draft=True, draft_tokens=2, **ASKED))
    same_text(found, list(zoo.stream(loaded, PROMPT, **ASKED)), "by a copy of the model")
    drafted = found[-1].drafted
    assert drafted.accepted == drafted.proposed > 0


def changed(folder, path, drop=(), **changes):
    """The checkpoint with other config keys, and without tensors whose names hold one of `drop`."""
    path.mkdir()
    tensors = mx.load(str(folder / "model.safetensors"))
    kept = {name: tensor for name, tensor in tensors.items() if not any(word in name for word in drop)}
    mx.save_safetensors(str(path / "model.safetensors"), kept, metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(NUMBERS | changes))
    return zoo.load(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(drop=["layers.4."]), "num_nextn_predict_layers 1 is more than the files hold"),
        (dict(num_nextn_predict_layers=0), "num_nextn_predict_layers 0 says that there is no layer"),
        (dict(drop=["layers.4.hnorm"]), "(for hidden_norm.weight)"),
    ],
)
def test_a_checkpoint_without_the_layer_is_refused_by_name(changes, words, checkpoint, tmp_path):
    loaded = changed(checkpoint[0], tmp_path / "model", **changes)
    with pytest.raises(PromptError) as caught:
        zoo.stream(loaded, PROMPT, own_draft=True)
    assert "`own_draft`: " in str(caught.value) and words in str(caught.value)
    assert len(list(zoo.stream(loaded, PROMPT, max_tokens=2))) == 2


@pytest.mark.slow
def test_a_prompt_that_was_cached_is_drafted_from_where_its_states_are_known(loaded):
    expected = list(zoo.stream(loaded, PROMPT, **ASKED))
    cache = zoo.PromptCache(loaded)
    for cached in (0, len(PROMPT) - 1):
        found = list(zoo.stream(loaded, PROMPT, own_draft=True, prompt_cache=cache, **ASKED))
        same_text(found, expected, f"with {cached} tokens from the cache")
        assert found[0].prompt.cached_tokens == cached and found[-1].drafted.proposed > 0
