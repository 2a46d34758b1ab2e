"""Settings that change logits against transformers: the same logits processed, and the text of a guided model."""

import numpy as np
import pytest
import torch
import transformers
from transformers.generation import logits_process

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

from zoo.generation.sampling.draw import draw_processors
from zoo.generation.sampling.guidance import guided
from zoo.generation.sampling.penalties import exponential_decay
from zoo.generation.settings import Settings
from zoo_samplers.filters import epsilon, eta

from .support import reference, texts

VOCAB, ROWS = 60, 5
NEAR = 1e-3  # how far the two likeliest scores may lie from each other where texts part


def logits(spread):
    return (np.random.default_rng(int(10 * spread)).normal(size=(ROWS, VOCAB)) * spread).astype(np.float32)


def same(found, expected):
    """Whether both have the same tokens left, with the same logits."""
    return np.allclose(np.array(found), expected.numpy(), atol=1e-4)


@pytest.mark.parametrize("spread", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("count", [1, 2, 7, 99])
def test_each_filter_keeps_what_transformers_keeps(spread, count):
    values = logits(spread)
    filters = {
        "top_k": (3, logits_process.TopKLogitsWarper(3, min_tokens_to_keep=count)),
        "top_p": (0.15, logits_process.TopPLogitsWarper(0.15, min_tokens_to_keep=count)),
        "min_p": (0.7, logits_process.MinPLogitsWarper(0.7, min_tokens_to_keep=count)),
        "typical_p": (0.15, logits_process.TypicalLogitsWarper(0.15, min_tokens_to_keep=count)),
    }
    for name, (value, theirs) in filters.items():
        settings = Settings(temperature=1.0, min_tokens_to_keep=count, **{name: value})
        found = draw_processors(settings)[-1].function(mx.array(values))
        assert same(found, theirs(None, torch.tensor(values))), name
    for own, theirs in (
        (epsilon, logits_process.EpsilonLogitsWarper),
        (eta, logits_process.EtaLogitsWarper),
    ):
        expected = theirs(0.05, min_tokens_to_keep=count)(None, torch.tensor(values))
        assert same(own(mx.array(values), 0.05, count), expected), own


@pytest.mark.parametrize("decay", [0.8, 1.02, 1.5])
def test_end_tokens_gain_what_they_gain_in_transformers(decay):
    values = logits(3.0)
    values[0, 7] = -np.inf
    prompt, start, ends = 4, 3, [2, 7]
    theirs = logits_process.ExponentialDecayLengthPenalty((start, decay), ends, prompt)
    for count in range(12):
        expected = theirs(torch.zeros((ROWS, prompt + count), dtype=torch.long), torch.tensor(values))
        assert same(exponential_decay(mx.array(values), ends, start, decay, count), expected)


class Fixed(torch.nn.Module):
    """A model with the same logits for every text."""

    def __init__(self, values):
        super().__init__()
        self.values = torch.tensor(values)

    def forward(self, ids, **more):
        return transformers.modeling_outputs.CausalLMOutputWithPast(logits=self.values[:, None])


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.5, 7.0])
def test_guided_logits_are_those_of_transformers(scale):
    values, negative = logits(2.0), logits(3.0)
    theirs = logits_process.UnbatchedClassifierFreeGuidanceLogitsProcessor(scale, Fixed(negative))
    expected = theirs(torch.zeros((ROWS, 3), dtype=torch.long), torch.tensor(values))
    assert same(guided(mx.array(values), mx.array(negative), scale), expected)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    sizes = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2)
    ends = dict(eos_token_id=5, bos_token_id=0, pad_token_id=59, max_position_embeddings=128)
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, **ends)
    model, folder = reference(transformers.LlamaForCausalLM, config, seed=3), tmp_path_factory.mktemp("llama")
    model.save_pretrained(folder)
    return model, zoo.load(folder)


def generated(model, prompt, **settings):
    """transformers' greedy text of one prompt, and how far its two likeliest scores lie apart at each token."""
    ids = torch.tensor([prompt])
    with torch.no_grad():
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            output_scores=True,
            return_dict_in_generate=True,
            **settings,
        )
    leads = [float((best := torch.topk(scores[0], 2)[0])[0] - best[1]) for scores in made.scores]
    return made.sequences[0, len(prompt) :].tolist(), leads


def agree(found, expected, leads):
    """Whether two texts are the same up to a near tie, and how many tokens of them were compared."""
    for place, (ours, theirs) in enumerate(zip(found, expected, strict=False)):
        if ours != theirs:
            return leads[place] < NEAR, place
    return len(found) == len(expected), len(expected)


@pytest.mark.parametrize("scale", [0.5, 1.5, 3.0, 8.0])
@pytest.mark.parametrize("negative", [True, False], ids=["negative", "last token"])
def test_a_guided_text_is_that_of_transformers(llama, scale, negative):
    model, loaded = llama
    compared, differing = 0, 0
    prompts, negatives = (texts(VOCAB - 10, 6, 9, seed).tolist() for seed in (1, 2))
    batch = []
    for prompt, other in zip(prompts, negatives, strict=True):
        more = dict(negative_prompt_ids=torch.tensor([other[:5]])) if negative else {}
        expected, leads = generated(model, prompt, max_new_tokens=24, guidance_scale=scale, **more)
        ours = dict(negative_prompt=other[:5]) if negative else {}
        found = zoo.generate(loaded, prompt, max_tokens=24, guidance_scale=scale, **ours).tokens
        right, count = agree(found, expected, leads)
        assert right, (found, expected)
        compared += count
        differing += found != zoo.generate(loaded, prompt, max_tokens=24).tokens
        batch.append((found, prompt, ours))
    assert compared > 40 and differing > 2
    engine = zoo.Engine(loaded)
    handles = [engine.add(prompt, max_tokens=24, guidance_scale=scale, **ours) for _, prompt, ours in batch]
    steps = {handle: [] for handle in handles}
    for handle, step in engine.run():
        steps[handle].append(step.token)
    assert [steps[handle] for handle in handles] == [found for found, *_ in batch]


@pytest.mark.parametrize("beams", [1, 3])
def test_the_growth_of_end_tokens_ends_a_text_where_transformers_does(llama, beams):
    model, loaded = llama
    lengths = set()
    for prompt in texts(VOCAB - 10, 6, 7, 4).tolist():
        settings = dict(exponential_decay_length_penalty=(4, 1.3))
        ids = torch.tensor([prompt])
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=40,
            num_beams=beams,
            **settings,
        )
        expected = made[0, len(prompt) :].tolist()
        found = zoo.generate(loaded, prompt, max_tokens=40, beams=beams, **settings).tokens
        assert found == expected
        lengths.add(len(found))
    assert max(lengths) < 40 and len(lengths) > 1


class NoRepeats(transformers.LogitsProcessor):
    """No token of the text comes again."""

    def __call__(self, input_ids, scores):
        return scores.scatter(1, input_ids, -float("inf"))


def no_repeats(tokens, logits):
    logits[:, tokens] = -mx.inf
    return logits


def test_a_processor_of_mlx_lm_does_here_what_it_does_there(llama):
    _, loaded = llama
    theirs, _ = load_model(loaded.folder)
    for prompt in texts(VOCAB - 10, 4, 7, 8).tolist():
        made = generate_step(mx.array(prompt), theirs, max_tokens=20, logits_processors=[no_repeats])
        expected = [int(token) for token, _ in made]
        found = zoo.generate(loaded, prompt, max_tokens=20, logits_processors=[no_repeats]).tokens
        assert found == expected[: len(found)] and (len(found) == 20 or found[-1] == 5)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_processor_in_python_acts_after_transformers_own(llama, beams):
    model, loaded = llama
    for prompt in texts(VOCAB - 10, 4, 7, 6).tolist():
        ids = torch.tensor([prompt])
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            num_beams=beams,
            max_new_tokens=20,
            repetition_penalty=1.4,
            min_new_tokens=20,
            logits_processor=transformers.LogitsProcessorList([NoRepeats()]),
        )
        settings = dict(max_tokens=20, min_tokens=20, repetition_penalty=1.4, beams=beams)
        found = zoo.generate(loaded, prompt, logits_processors=[no_repeats], **settings)
        assert found.tokens == made[0, len(prompt) :].tolist()
        assert len({*prompt, *found.tokens}) == len({*prompt}) + 20
