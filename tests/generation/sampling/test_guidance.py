"""Guidance: the text that a loop by hand gives, alone and beside others, with drafts too; and what is refused."""

import json

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers.table_model import table_model
from zoo.errors import PromptError
from zoo.generation.prompts_file import answer_prompts, read_prompts
from zoo.generation.sampling.guidance import Guidance, guided
from zoo.testing import subject
from zoo.testing.subjects import loaded_of

PROMPT, NEGATIVE = "The capital city of China is", "The capital city of France is a large"


@pytest.fixture(scope="module")
def llama():
    return zoo.load("llama")


def by_hand(loaded, ids, negative, scale, count):
    """Greedy text of whole passes without caches, in numpy's float64; and the least lead of a token over the next."""
    ids, negative, tokens, lead = list(ids), list(negative), [], np.inf

    def logprobs(text):
        row = np.array(loaded.model(mx.array([text]))[0, -1].astype(mx.float32), np.float64)
        return row - row.max() - np.log(np.exp(row - row.max()).sum())

    for _ in range(count):
        p, n = logprobs([*ids, *tokens]), logprobs([*negative, *tokens])
        scores = n + scale * (p - n)
        *_, second, first = np.sort(scores)
        lead = min(lead, first - second)
        tokens.append(int(scores.argmax()))
    return tokens, lead


def test_the_numbers_of_one_step():
    p, n = np.array([0.5, 0.3, 0.2]), np.array([0.25, 0.25, 0.5])
    found = guided(mx.array(np.log(p) + 7)[None], mx.array(np.log(n) - 2)[None], 2.0)
    assert np.allclose(np.exp(np.array(found)[0]), p**2 / n, atol=1e-6)
    assert np.allclose(np.exp(np.array(guided(mx.log(mx.array(p)), mx.log(mx.array(n)), 0.0))), n, atol=1e-6)


def test_the_branch_reads_each_token_once_however_often_the_logits_are_asked_for():
    read = []

    def run(token):
        read.append(None if token is None else token.item())
        return mx.zeros((1, 3))

    guidance, logits = Guidance(2.0, run), mx.array([[1.0, 2.0, 3.0]])
    guidance(logits)
    guidance(logits)
    guidance.follow(mx.array([1]))
    guidance.follow(mx.array([2]))
    guidance(logits)
    assert read == [None, 1, 2]


@pytest.mark.parametrize("scale", [0.0, 0.5, 2.5])
@pytest.mark.parametrize("negative", [NEGATIVE, None], ids=["negative", "last token"])
def test_the_text_is_that_of_whole_passes_by_hand(llama, scale, negative):
    ids = llama.tokenizer.encode(PROMPT)
    start = ids[-1:] if negative is None else llama.tokenizer.encode(negative)
    wanted, lead = by_hand(llama, ids, start, scale, 10)
    assert lead > 1e-3
    settings = dict(max_tokens=10, min_tokens=0, guidance_scale=scale, negative_prompt=negative)
    found = zoo.generate(llama, PROMPT, **settings).tokens
    assert found == wanted[: len(found)] and (len(found) == 10 or found[-1] in llama.tokenizer.eos_ids)
    assert zoo.generate(llama, PROMPT, **settings | {"negative_prompt": start}).tokens == found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gpt2", "mamba", "deepseek-v3", "prefix-lm"])
def test_a_guided_text_beside_others_is_the_text_alone(name):
    loaded = zoo.load(name)
    asked = [
        ("The", dict(guidance_scale=0.0, negative_prompt=NEGATIVE)),
        ("One of", dict(guidance_scale=3.0, temperature=1.0, seed=3)),
        ("The", {}),
        ("The", dict(guidance_scale=6.0, negative_prompt="A")),
    ]
    alone = [zoo.generate(loaded, text, max_tokens=8, **settings).tokens for text, settings in asked]
    assert alone[0] != alone[2] != alone[3]
    engine = zoo.Engine(loaded)
    handles = [engine.add(text, max_tokens=8, **settings) for text, settings in asked]
    found = {handle: [] for handle in handles}
    for handle, step in engine.run():
        found[handle].append(step.token)
    assert [found[handle] for handle in handles] == alone


@pytest.mark.parametrize("drawn", [{}, dict(temperature=0.7, top_k=3, seed=4)], ids=["greedy", "drawn"])
def test_drafts_leave_a_guided_text_as_it_is(llama, drawn):
    settings = dict(max_tokens=16, guidance_scale=2.0, negative_prompt=NEGATIVE, **drawn)
    text = f"{PROMPT} Beijing. {PROMPT}"
    alone = zoo.generate(llama, text, **settings).tokens
    steps = list(zoo.stream(llama, text, prompt_lookup=3, **settings))
    assert [step.token for step in steps] == alone and steps[-1].drafted.proposed


def test_sampled_drafts_are_verified_by_the_guided_distribution(llama, monkeypatch):
    from zoo.generation.loop import speculative_batch

    tested, own = [], speculative_batch.accept
    monkeypatch.setattr(
        speculative_batch, "accept", lambda p, *rest: tested.append(np.array(p)) or own(p, *rest)
    )
    settings = dict(max_tokens=5, guidance_scale=2.0, negative_prompt=NEGATIVE, temperature=1.0, seed=2)
    tokens = zoo.generate(llama, PROMPT, draft_model=llama, draft_tokens=2, **settings).tokens
    ids, negative = llama.tokenizer.encode(PROMPT), llama.tokenizer.encode(NEGATIVE)
    laws = []
    for count in range(len(tokens)):
        p, n = (
            llama.model(mx.array([[*text, *tokens[:count]]]))[0, -1].astype(mx.float32)
            for text in (ids, negative)
        )
        laws.append(np.array(mx.softmax(guided(p, n, 2.0))))
    assert tested and all(any(np.allclose(p, law, atol=1e-4) for law in laws) for p in tested)


def test_best_of_and_contrastive_search_are_guided(llama):
    guidance = dict(guidance_scale=3.0, negative_prompt=NEGATIVE, max_tokens=6)
    one = zoo.generate(llama, PROMPT, temperature=1.0, seed=2, **guidance).tokens
    several = zoo.generate(llama, PROMPT, best_of=2, temperature=1.0, seed=2, **guidance)
    assert one in [candidate["tokens"] for candidate in several.candidates]
    # Without a penalty on similar states the likeliest candidate is taken.
    greedy = zoo.generate(llama, PROMPT, **guidance).tokens
    assert zoo.generate(llama, PROMPT, penalty_alpha=0.0, top_k=2, **guidance).tokens == greedy


def test_a_trace_has_the_passes_of_the_text_alone(llama):
    plain = zoo.trace(llama, PROMPT, max_tokens=3)
    trace = zoo.trace(llama, PROMPT, max_tokens=3, guidance_scale=2.0, negative_prompt=NEGATIVE)
    assert (
        trace.tokens
        == zoo.generate(llama, PROMPT, max_tokens=3, guidance_scale=2.0, negative_prompt=NEGATIVE).tokens
    )
    assert trace.passes[0].tokens == plain.passes[0].tokens
    assert len(trace.passes) == len(plain.passes)
    length = len(plain.prompt) + 2
    assert trace["layers.3.mixer.pattern"].shape[1:] == (length, length)
    assert trace["head"].shape == plain["head"].shape
    assert np.allclose(trace["head"][0], plain["head"][0], atol=1e-4)
    model, stage = trace.choices()[0].stages
    assert (model.name, stage.name, stage.setting) == ("model", "guidance_scale", 2.0)
    unguided = plain.choices()[0].stages[0].probabilities
    assert model.probabilities[: len(unguided)] == unguided != stage.probabilities[: len(unguided)]


def test_the_prompts_of_a_file_have_their_own_negative_prompts(llama, tmp_path):
    path = tmp_path / "prompts.jsonl"
    own = [{"negative_prompt": NEGATIVE}, {"negative_prompt": llama.tokenizer.encode(NEGATIVE)}, {}]
    path.write_text("\n".join(json.dumps({"prompt": PROMPT, "guidance_scale": 3, **each}) for each in own))
    lines = read_prompts(llama, path, {})
    answers = list(answer_prompts(llama, lines, tmp_path / "answers.jsonl", max_tokens=6))
    guided_text = zoo.generate(llama, PROMPT, max_tokens=6, guidance_scale=3, negative_prompt=NEGATIVE).text
    assert [answer["text"] for answer in answers[:2]] == [guided_text] * 2
    assert answers[2]["text"] == zoo.generate(llama, PROMPT, max_tokens=6, guidance_scale=3).text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (dict(negative_prompt="x"), "`negative_prompt` needs a `guidance_scale` other than 1"),
        (dict(negative_prompt="x", guidance_scale=1), "`negative_prompt` needs a `guidance_scale`"),
        (dict(guidance_scale=2, negative_prompt=[]), None),
        (dict(guidance_scale=2, negative_prompt=[9999]), "`negative_prompt`: token id 9999 lies outside"),
        (dict(guidance_scale=2, negative_prompt=3), "`negative_prompt`: the prompt must be a text or a list"),
        (dict(guidance_scale=-1), "`guidance_scale` must be a number from 0 to 100, got -1"),
        (dict(guidance_scale=2, beams=3), "`guidance_scale` cannot be given with several `beams`"),
    ],
)
def test_what_cannot_be_guided_is_refused_by_name(llama, settings, said):
    if said is None:  # an empty list is as if none were given
        assert zoo.generate(llama, PROMPT, max_tokens=2, **settings).tokens
        return
    with pytest.raises(PromptError, match=said):
        zoo.stream(llama, PROMPT, **settings)


def test_beams_refuse_the_guidance_of_a_checkpoint():
    model = table_model(6, 1)
    model.generation_config = {"guidance_scale": 2.0}
    with pytest.raises(PromptError, match="`guidance_scale` cannot be given with several `beams`"):
        zoo.generate(model, [1], beams=2)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("transformer", "`guidance_scale`: transformer translates"),
        ("llada", "`guidance_scale`: masked-diffusion generation has no such setting"),
        ("bert", "`guidance_scale`: fill-mask generation has no such setting"),
    ],
)
def test_families_without_a_text_to_guide_refuse_it(name, said):
    with pytest.raises(PromptError, match=said):
        zoo.generate(zoo.load(name), "I love NLP", guidance_scale=2.0)


def test_a_negative_prompt_that_leaves_no_positions_is_refused():
    gpt2 = loaded_of(subject("gpt2"))
    context = gpt2.recipe.context
    ids = [1 + place % 9 for place in range(context - 3)]
    guidance = dict(guidance_scale=2.0, negative_prompt=ids)
    assert len(zoo.generate(gpt2, [5], max_tokens=4, **guidance).tokens) == 4
    with pytest.raises(
        PromptError, match=r"`negative_prompt` has \d+ tokens, which leaves 4 of the \d+ learned"
    ):
        zoo.generate(gpt2, [5], max_tokens=5, **guidance)
