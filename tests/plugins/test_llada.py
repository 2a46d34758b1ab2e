"""LLaDA's recipe, and text by unmasking."""

from itertools import pairwise
from types import SimpleNamespace

import mlx.core as mx
import pytest

import zoo
from zoo.config import Config
from zoo.errors import PromptError
from zoo.generation.sampling.draw import greedy
from zoo.loading import Loaded
from zoo.testing import subject
from zoo_llada import EIGHT_BILLION, llada
from zoo_llada.unmask import HIDDEN, draft_text, split_evenly, unmask_passes

MASK, END = 3, 2


def recipe(**changes):
    return llada(Config(EIGHT_BILLION | changes))


def test_attention_goes_both_ways_and_nothing_is_cached():
    assert recipe().causality == "full"
    assert recipe().kv_cache_size(4096) == 0


def test_the_table_has_embedding_size_rows():
    assert recipe(vocab_size=126400).embedding.vocab == 126464
    assert recipe(vocab_size=126400, embedding_size=None).head.vocab == 126400


def test_sizes_of_the_feed_forward_and_the_keys_have_the_published_defaults():
    plain = recipe(mlp_hidden_size=None, n_kv_heads=None, mlp_ratio=3)
    assert plain.layers[0].feedforward.hidden == 3 * 4096
    assert plain.layers[0].mixer.kv_heads == 32


def test_biases_without_the_norms():
    mixer = recipe(include_bias=True, bias_for_layer_norm=False).layers[0].mixer
    assert mixer.bias and mixer.output_bias
    mixer = recipe(include_qkv_bias=True).layers[0].mixer
    assert mixer.bias and not mixer.output_bias


class Known:
    """A model whose logits depend on the place alone: a table (T, V)."""

    def __init__(self, table):
        self.table, self.seen = mx.array(table), []

    def backbone(self, tokens):
        self.seen.append(tokens[0].tolist())
        return mx.arange(tokens.shape[1])[None, :, None]

    def head(self, places):
        return self.table[places[0, :, 0]][None]


def test_the_surest_are_uncovered_first_and_stay():
    sure = [0, 0, 5.0, 1.0, 9.0, 3.0]  # of the token 4, at each place
    table = [[0, 0, 0, 0, value, 0] for value in sure]
    model = Known(table)
    text = mx.array([[5, 5, MASK, MASK, MASK, MASK]])
    steps = [t[0].tolist() for t in unmask_passes(model, text, 2, 4, 4, MASK, greedy)]
    texts = [text[0].tolist(), *steps]
    changed = [
        [i for i, (old, new) in enumerate(zip(*pair, strict=True)) if old != new] for pair in pairwise(texts)
    ]
    assert changed == [[4], [2], [5], [3]]
    assert steps[-1] == [5, 5, 4, 4, 4, 4]


def test_fewer_passes_uncover_several_at_once():
    model = Known([[0, 0, 0, 0, float(place), 0] for place in range(8)])
    steps = list(unmask_passes(model, mx.array([[MASK] * 7 + [5]]), 0, 7, 3, MASK, greedy))
    assert [sum(id == MASK for id in step[0].tolist()) for step in steps] == [4, 2, 0]
    assert len(model.seen) == 3


def test_the_mask_itself_is_never_a_prediction():
    model = Known([[0, 0, 0, 9.0, 1.0, 0]] * 4)
    *_, last = unmask_passes(model, mx.array([[MASK] * 4]), 0, 4, 2, MASK, greedy)
    assert last[0].tolist() == [4] * 4


def test_shares_are_even():
    assert split_evenly(10, 4) == [3, 3, 2, 2]
    assert split_evenly(4, 4) == [1, 1, 1, 1]


@pytest.fixture(scope="module")
def made():
    return subject("llada")


@pytest.fixture
def loaded(made, tmp_path):
    return Loaded(made.model, None, made.architecture, made.recipe, {"mask_token_id": MASK}, tmp_path)


def test_all_tokens_come_and_none_is_a_mask(loaded):
    done = zoo.generate(loaded, [5, 6, 7], max_tokens=11, block_length=4, steps=7)
    assert len(done.tokens) == 11
    assert MASK not in done.tokens
    assert done.finish_reason == "length"


def test_blocks_are_whole_from_left_to_right(loaded):
    seen = []

    def backbone(tokens, *rest):
        seen.append(tokens[0].tolist())
        return loaded_model.backbone(tokens, *rest)

    loaded_model = loaded.model
    loaded.model = SimpleNamespace(
        backbone=backbone, head=loaded_model.head, encodes=False, padding=loaded_model.padding
    )
    zoo.generate(loaded, [5, 6, 7], max_tokens=8, block_length=4, steps=4)
    masks = [[place for place, id in enumerate(text) if id == MASK] for text in seen]
    assert masks[0] == list(range(3, 11))
    assert masks[2] == list(range(7, 11))
    assert len(masks) == 4


def test_greedy_is_the_default_and_a_seed_repeats_a_draw(loaded):
    def draw(**settings):
        return zoo.generate(loaded, [5, 6, 7], max_tokens=9, **settings).tokens

    assert draw() == draw() == draw(temperature=0.0, seed=5)
    assert draw(temperature=2.0, seed=1) == draw(temperature=2.0, seed=1) != draw(temperature=2.0, seed=2)


@pytest.mark.filterwarnings("ignore")
def test_settings_of_a_checkpoint_are_those_that_masks_are_drawn_by(loaded):
    loaded.generation_config.update(do_sample=True, temperature=0.7, top_k=9, repetition_penalty=1.5)
    settings = zoo.trace(loaded, [5, 6, 7], max_tokens=3, top_p=0.8).settings
    assert (settings.temperature, settings.top_k, settings.top_p) == (0.7, 9, 0.8)
    assert settings.repetition_penalty == 1  # unmasking has no penalties


def test_it_ends_after_an_end_token(loaded):
    free = zoo.generate(loaded, [5, 6, 7], max_tokens=12, block_length=4).tokens
    loaded.config["eos_token_id"] = free[5]
    done = zoo.generate(loaded, [5, 6, 7], max_tokens=12, block_length=4)
    assert done.tokens == free[: free.index(free[5]) + 1]
    assert done.finish_reason == "stop"


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (dict(max_tokens=0), "`max_tokens`"),
        (dict(max_tokens=2**31 - 1), "`max_tokens`: the logits of 2,147,483,648 tokens are"),
        (dict(block_length=0), "`block_length`"),
        (dict(steps=-1), "`steps`"),
        (dict(steps=2, max_tokens=12, block_length=4), "at least 3"),
        (dict(temperature=-1.0), "`temperature`"),
        (dict(stop="x"), "`stop`"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(loaded, settings, word):
    with pytest.raises(PromptError, match=word):
        zoo.stream(loaded, [5], **settings)


def test_a_mask_token_is_needed(loaded):
    del loaded.config["mask_token_id"]
    with pytest.raises(PromptError, match="mask token"):
        zoo.stream(loaded, [5])


class Letters:
    """A tokenizer whose ids 5, 6, … are the letters a, b, …"""

    def __init__(self):
        self.special_tokens, self.eos_ids, self.languages = {}, frozenset([END]), None

    def decode(self, ids):
        return "".join(chr(ord("a") + id - 5) for id in ids)

    def detokenizer(self):
        return SimpleNamespace(add=lambda id: self.decode([id]), finish=lambda: "")


def test_a_draft_shows_what_is_masked_and_ends_where_the_text_will():
    assert draft_text(Letters(), [5, MASK, MASK, 6], MASK, frozenset([END])) == f"a{HIDDEN}{HIDDEN}b"
    assert draft_text(Letters(), [5, MASK, END, 6], MASK, frozenset([END])) == f"a{HIDDEN}"


def test_drafts_stand_before_the_tokens_of_their_block(loaded):
    loaded.tokenizer = Letters()
    steps = list(zoo.stream(loaded, [5, 6, 7], max_tokens=6, block_length=3, steps=4))
    assert [step.draft is not None for step in steps] == [True, True, False, False, False] * 2
    for step in steps:
        assert (step.token is None) == (step.draft is not None)
        assert step.draft is None or step.text == ""
    assert steps[1].draft == "".join(step.text for step in steps[2:5])
