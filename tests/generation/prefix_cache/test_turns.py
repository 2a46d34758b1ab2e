"""A talk of many turns computes what is new at each, and answers as if all of it had been computed."""

from dataclasses import replace

import mlx.core as mx
import pytest

import zoo
from tests.helpers.parameters import ordinary
from zoo.assemble import assemble
from zoo.errors import PromptError
from zoo.generation.chat.chat_prompt import next_turn_checkpoints
from zoo.generation.loop.prompt import encode_messages
from zoo.generation.prefix_cache import PromptCache
from zoo.host.registry import default_registry
from zoo.testing import subject
from zoo.testing.subjects import loaded_of, randomise

TURNS, ASKED, ANSWERED = 20, 3, 2  # tokens of a question, and of an answer


def hybrid():
    """A model with layers of attention and of a selective state space, by turns."""
    llama, mamba = subject("llama"), subject("mamba")
    layers = (llama.recipe.layers[0], mamba.recipe.layers[0]) * 2
    recipe = replace(llama.recipe, layers=layers)
    model = assemble(recipe, default_registry())
    randomise(model)
    return loaded_of(replace(llama, recipe=recipe, model=model))


@pytest.fixture
def computed(monkeypatch):
    """Counts the tokens that a model computes; gives the function that tells how many since it was last called."""
    counted = []

    def watch(loaded):
        backbone = type(loaded.model).backbone

        def watched(model, tokens, *args, **kwargs):
            counted.append(tokens.size)
            return backbone(model, tokens, *args, **kwargs)

        monkeypatch.setattr(type(loaded.model), "backbone", watched)
        monkeypatch.setattr(
            "zoo.compiled_step.compiled_step", lambda model: None
        )  # every token by the backbone

    def since():
        total = sum(counted)
        counted.clear()
        return total

    return watch, since


FAMILIES = {
    "llama": "plain attention",
    "gemma2": "windows and plain attention",
    "mistral": "windows",
    "deepseek-v3": "latent attention, a mixture",
    "mixtral": "a mixture",
    "gpt-oss": "sinks, windows, a mixture",
    "lstm": "recurrent",
    "mamba": "a state space",
    "hybrid": "attention and a state space",
}


@pytest.mark.parametrize("name", ordinary(FAMILIES, "gpt-oss", "deepseek-v3", "hybrid"))
def test_each_turn_computes_its_own_tokens_only(name, computed):
    loaded = hybrid() if name == "hybrid" else loaded_of(subject(name))
    watch, since = computed
    watch(loaded)
    cache = PromptCache(loaded)
    kinds = loaded.recipe.embedding.vocab
    talk = []
    for turn in range(TURNS):
        # What the template puts after an answer, and the question.
        new = [(7 * turn + place * place) % kinds for place in range((turn > 0) + ASKED)]
        talk += new
        steps = list(zoo.stream(loaded, talk, max_tokens=ANSWERED, prompt_cache=cache, logprobs=1))
        unread = turn > 0  # the last token of the answer before: it ended the answer, and nothing came of it
        assert steps[0].prompt.cached_tokens == len(talk) - len(new) - unread
        assert since() == unread + len(new) + ANSWERED - 1
        if turn % 6 == 1 or turn == TURNS - 1:
            alone = list(zoo.stream(loaded, talk, max_tokens=ANSWERED, logprobs=1))
            for step, expected in zip(steps, alone, strict=True):
                assert step.token == expected.token
                assert step.logprob == pytest.approx(expected.logprob, abs=1e-3)
            since()
        talk += [step.token for step in steps]
    assert cache.statistics.hits == TURNS - 1


@pytest.mark.parametrize("name", ["llama", "gemma2", "mamba"])
def test_asking_again_computes_one_token(name, computed):
    loaded = loaded_of(subject(name))
    watch, since = computed
    watch(loaded)
    cache = PromptCache(loaded)
    first = [step.token for step in zoo.stream(loaded, range(1, 20), max_tokens=4, prompt_cache=cache)]
    since()
    again = [step.token for step in zoo.stream(loaded, range(1, 20), max_tokens=4, prompt_cache=cache)]
    assert since() == 1 + 3 and again == first


@pytest.mark.parametrize("name", ["llama", "gemma2", "mamba"])
def test_an_answer_that_is_stopped_is_kept_as_far_as_it_was_read(name, ahead):
    loaded = loaded_of(subject(name))
    cache = PromptCache(loaded)
    steps = zoo.stream(loaded, range(1, 20), max_tokens=40, prompt_cache=cache)
    answer = [next(steps).token for _ in range(7)]
    steps.close()
    (step,) = zoo.stream(loaded, [*range(1, 20), *answer, 4], max_tokens=1, prompt_cache=cache)
    assert step.prompt.cached_tokens == 19 + (7 if ahead else 6)


@pytest.mark.parametrize("name", ["llama", "gemma2", "mamba"])
def test_rows_of_a_batch_are_kept_and_found_alone(name):
    loaded = loaded_of(subject(name))
    cache = PromptCache(loaded)
    shared = list(range(3, 15))
    prompts = [[*shared, *range(start, start + 3 + start % 4)] for start in (20, 31, 42, 53)]
    for turn in range(3):
        engine = zoo.Engine(loaded, prompt_cache=cache)
        handles = {engine.add(prompt, max_tokens=3 + number): number for number, prompt in enumerate(prompts)}
        texts = [[] for _ in prompts]
        for handle, step in engine.run():
            texts[handles[handle]].append(step)
        for number, prompt in enumerate(prompts):
            alone = list(zoo.stream(loaded, prompt, max_tokens=3 + number))
            assert [step.token for step in texts[number]] == [step.token for step in alone]
            read = texts[number][0].prompt
            if turn:
                assert read.cached_tokens == read.tokens - 3  # an answer's last token, and two more
            elif number and cache.by_column():  # one pass reads as many tokens of each, 3 to 6
                assert len(shared) - 3 <= read.cached_tokens <= len(shared)
            elif number >= 2:
                assert read.cached_tokens == len(shared)
            prompts[number] = [*prompt, *(step.token for step in texts[number]), 5, 6 + turn]


TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}] {{ message.content.split('</think>')[-1] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] <think>{% endif %}"
)


def test_thinking_that_is_left_out_of_later_prompts_costs_no_more_than_the_answer(computed):
    loaded = zoo.load("mamba")
    loaded.tokenizer.chat_template = TEMPLATE
    watch, since = computed
    watch(loaded)
    cache = PromptCache(loaded)
    messages, shared = [], 0
    for question in ("What is the capital city of China?", "And of France?", "Why?"):
        messages.append({"role": "user", "content": question})
        ids = encode_messages(loaded, messages)
        checkpoints = tuple(next_turn_checkpoints(loaded, messages, ids))
        steps = list(zoo.stream(loaded, ids, max_tokens=5, prompt_cache=cache, checkpoints=checkpoints))
        assert steps[0].prompt.cached_tokens == shared
        assert since() == len(ids) - shared + len(steps) - 1 + (steps[-1].finish_reason == "stop")
        (shared,) = checkpoints
        assert loaded.tokenizer.decode(ids[shared:]).lstrip() == "<think>"
        messages.append({"role": "assistant", "content": f"A long thought.</think>About {question}"})


def test_where_a_template_refuses_one_more_turn_the_prompt_is_shared_up_to_the_answer():
    loaded = zoo.load("llama")
    loaded.tokenizer.chat_template = (
        "{% if messages | length > 1 %}{{ raise_exception('one question') }}{% endif %}"
        "[user] {{ messages[0].content }}{% if add_generation_prompt %}\n[assistant]{% endif %}"
    )
    messages = [{"role": "user", "content": "What is the capital city of China?"}]
    ids = encode_messages(loaded, messages)
    (end,) = next_turn_checkpoints(loaded, messages, ids)
    assert loaded.tokenizer.decode(ids[:end]) == "[user] What is the capital city of China?"
    loaded.tokenizer.chat_template = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    assert not list(next_turn_checkpoints(loaded, messages, encode_messages(loaded, messages)))


def test_log_probabilities_of_a_prompt_are_those_of_all_its_tokens():
    loaded = loaded_of(subject("llama"))
    cache = PromptCache(loaded)
    ids = list(range(30))
    alone = next(iter(zoo.stream(loaded, ids, max_tokens=1, prompt_logprobs=True)))
    list(zoo.stream(loaded, ids, max_tokens=2, prompt_cache=cache))
    read = next(iter(zoo.stream(loaded, ids, max_tokens=1, prompt_cache=cache, prompt_logprobs=True)))
    assert mx.allclose(mx.array(read.prompt.logprobs), mx.array(alone.prompt.logprobs), atol=1e-4).item()


def test_another_models_prompt_cache_is_refused():
    with pytest.raises(PromptError, match="`prompt_cache`: was made for mamba from"):
        zoo.stream(loaded_of(subject("llama")), [1], prompt_cache=PromptCache(loaded_of(subject("mamba"))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "by_column"),
    [
        ({"kv_bits": 8}, True),
        ({"kv_bits": 8, "kv_start": 6}, False),
        ({"max_kv_size": 16, "keep": 2, "kv_bits": 4}, False),
        ({"prompt_lookup": 3}, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_every_policy_finds_its_own(name, settings, by_column):
    loaded = loaded_of(subject(name, "pocket"))
    cache = PromptCache(loaded)
    talk = []
    for turn in range(6):
        talk += range(9 * turn, 9 * turn + 5)
        steps = list(zoo.stream(loaded, talk, max_tokens=4, prompt_cache=cache, logprobs=1, **settings))
        alone = list(zoo.stream(loaded, talk, max_tokens=4, logprobs=1, **settings))
        assert steps[0].prompt.cached_tokens == (len(talk) - 6 if turn else 0)
        for step, expected in zip(steps, alone, strict=True):
            # Rounding may move a number to the next of few bits.
            assert step.logprob == pytest.approx(
                expected.logprob, abs=0.05 if "kv_bits" in settings else 1e-3
            )
            if step.token != expected.token:  # a near tie
                break
        talk += [step.token for step in steps]
    ((policy, _),) = cache.trees.items()
    assert cache.by_column(policy) == (by_column and name == "llama")
