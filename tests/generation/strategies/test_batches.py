"""Strategies that run several prompts in the same passes: each is as it is alone."""

import pytest

import zoo
from tests.helpers.parameters import ordinary
from zoo.errors import PromptError
from zoo.generation.loop.batch_decoder import DecodeStep
from zoo.generation.strategies.beam import batch
from zoo.loading import Loaded
from zoo.testing import subject

SOURCES = [[5, 6, 7, 8, 9], [9, 4, 11], [12, 13, 14, 15, 16, 17, 18], [6], [21, 7, 5]]
MASK = 3


def loaded_of(name, folder, **config):
    made = subject(name)
    return Loaded(made.model, None, made.architecture, made.recipe, {"eos_token_id": 3} | config, folder)


def rows_of(monkeypatch, kind, method):
    """How many rows each pass through a method of a class has."""
    rows, original = [], getattr(kind, method)

    def counted(self, tokens, *arguments, **inputs):
        rows.append(tokens.shape[0])
        return original(self, tokens, *arguments, **inputs)

    monkeypatch.setattr(kind, method, counted)
    return rows


def same(loaded, prompts, **settings):
    """What several prompts give together, which must be what each gives alone."""
    together = zoo.batch(loaded, prompts, **settings)
    for found, prompt in zip(together, prompts, strict=True):
        alone = zoo.generate(loaded, prompt, **settings)
        assert found.tokens == alone.tokens and found.finish_reason == alone.finish_reason
        for one, other in zip(found.candidates, alone.candidates, strict=True):
            for name, value in other.items():
                assert one[name] == (pytest.approx(value, abs=1e-4) if type(value) is float else value)
    return together


@pytest.mark.parametrize("name", ordinary(("marian", "t5", "llama", "mistral", "mamba"), "marian", "mamba"))
@pytest.mark.parametrize(
    "search",
    [
        dict(beams=3, length_penalty=2.0),
        dict(beams=4, beam_groups=2, diversity_penalty=0.7, return_sequences=3),
    ],
    ids=["beams", "groups"],
)
def test_beams_of_several_prompts(name, search, tmp_path):
    found = same(loaded_of(name, tmp_path), SOURCES, max_tokens=7, no_repeat_ngram_size=1, **search)
    assert len({tuple(each.tokens) for each in found}) > 1


@pytest.mark.parametrize("settings", [{}, dict(temperature=1.5, seed=3)], ids=["greedy", "drawn"])
def test_translations_of_several_sources(settings, tmp_path):
    same(loaded_of("marian", tmp_path), SOURCES, max_tokens=7, **settings)


@pytest.mark.parametrize("settings", [{}, dict(temperature=1.0, seed=3)], ids=["greedy", "drawn"])
def test_unmasked_texts(settings, tmp_path, monkeypatch):
    loaded = loaded_of("llada", tmp_path, mask_token_id=MASK)
    same(loaded, SOURCES, max_tokens=6, block_length=3, steps=4, **settings)
    rows = rows_of(monkeypatch, type(loaded.model), "backbone")
    zoo.batch(loaded, SOURCES, max_tokens=6, block_length=3, steps=4, **settings)
    assert rows == [len(SOURCES)] * 4


@pytest.mark.slow
def test_a_text_that_has_ended_takes_no_part_in_the_next_block(tmp_path):
    loaded = loaded_of("llada", tmp_path, mask_token_id=MASK)
    settings = dict(max_tokens=12, block_length=3)
    alone = [zoo.generate(loaded, ids, **settings).tokens for ids in SOURCES]
    # One text ends with its first token, the others go on.
    loaded.config["eos_token_id"] = next(
        t[0] for t in alone if sum(t[0] in other[:3] for other in alone) == 1
    )
    lengths = {len(each.tokens) for each in same(loaded, SOURCES, **settings)}
    assert 1 in lengths and len(lengths) > 1


def test_masks_of_several_texts(tmp_path):
    loaded = loaded_of("bert", tmp_path, mask_token_id=MASK)
    prompts = [[5, MASK, 7], [5, 6, MASK, MASK, 9, 10], [MASK]]
    together = zoo.batch(loaded, prompts, top_k=3)
    for found, prompt in zip(together, prompts, strict=True):
        alone = zoo.generate(loaded, prompt, top_k=3)
        assert found.tokens == alone.tokens
        expected = [candidate["probability"] for candidate in alone.candidates]
        assert [c["probability"] for c in found.candidates] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("marian", dict(beams=2), r"prompts\[1\]: the prompt is empty"),
        ("marian", {}, r"prompts\[1\]: the prompt is empty"),
        ("llada", {}, r"prompts\[1\]: the prompt is empty"),
        ("bert", {}, r"prompts\[0\]: the prompt has no"),
    ],
)
def test_a_prompt_that_cannot_be_is_named_before_anything_runs(name, settings, message, tmp_path):
    loaded = loaded_of(name, tmp_path, mask_token_id=MASK)
    loaded.model = None if name != "marian" else loaded.model
    with pytest.raises(PromptError, match=message):
        zoo.batch(loaded, [[5, 6], [], [7]], **settings)


def test_more_prompts_than_share_a_pass_keep_their_order(tmp_path):
    loaded = loaded_of("marian", tmp_path)
    found = {index: [] for index in range(len(SOURCES))}
    for index, step in batch(loaded, SOURCES, beams=2, max_tokens=5, batch_size=2):
        found[index] += [step.token] if step.token is not None else []
    assert list(found.values()) == [
        zoo.generate(loaded, ids, beams=2, max_tokens=5).tokens for ids in SOURCES
    ]


def test_searches_share_their_passes_and_leave_them_when_they_are_over(tmp_path, monkeypatch):
    loaded = loaded_of("marian", tmp_path)
    settings = dict(max_tokens=8, beams=2, no_repeat_ngram_size=1)
    alone = [zoo.generate(loaded, ids, **settings).tokens for ids in SOURCES]
    # A token that some of the searches choose early.
    loaded.config["eos_token_id"] = next(t for t in alone[0] if not all(t in other for other in alone))
    rows = rows_of(monkeypatch, DecodeStep, "__call__")
    found = zoo.batch(loaded, SOURCES, **settings)
    assert len({len(each.tokens) for each in found}) > 1
    assert rows[0] == 2 * len(SOURCES) > rows[-1]
    assert rows == sorted(rows, reverse=True)
