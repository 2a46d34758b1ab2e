"""What people reported of the texts that other programs generate, tried here. Each test names the reports."""

import mlx.core as mx
import pytest

import zoo
from tests.helpers.table_model import table_model
from zoo.errors import PromptError, TokenizerError
from zoo.generation.chat.parsing import Parsed, answer_format
from zoo.generation.sampling import LogitsProcessors
from zoo.generation.settings import Constraints, Settings
from zoo.testing import subject
from zoo.testing.subjects import loaded_of
from zoo.tokenizer.chat import render_chat

reported = pytest.mark.reported
pytestmark = pytest.mark.filterwarnings("ignore:the chat template leaves out")
PROMPTS = ["The capital city of China is", "A", "The river of the country that lies beside the sea"]


@pytest.fixture(scope="module")
def llama():
    return zoo.load("llama")


def texts(loaded, prompts, **settings):
    return [answer.text for answer in zoo.batch(loaded, prompts, **settings)]


@reported(
    "ml-explore/mlx-lm 1906",
    "huggingface/transformers 22707",
    "huggingface/transformers 30378",
    "huggingface/transformers 47651",
)
@pytest.mark.parametrize("name", ["llama", "deepseek-v3", "gemma3", "qwen3-next", "mamba2"])
def test_a_text_beside_longer_ones_is_the_text_alone(name):
    loaded = loaded_of(subject(name))
    prompts = [[5, 6, 7, 8, 9, 10, 11], [12], [3, 4, 5]]
    settings = {"max_tokens": 12, "min_tokens": 12}
    together = [answer.tokens for answer in zoo.batch(loaded, prompts, **settings)]
    assert together == [zoo.generate(loaded, prompt, **settings).tokens for prompt in prompts]


@reported("huggingface/text-generation-inference 1765", "vllm-project/vllm 5639")
def test_penalties_of_a_row_are_those_of_its_own_tokens(llama):
    settings = {"max_tokens": 20, "min_tokens": 20, "frequency_penalty": 0.8, "repetition_penalty": 1.5}
    together = texts(llama, PROMPTS, **settings)
    assert together == [zoo.generate(llama, prompt, **settings).text for prompt in PROMPTS]


def penalised(tokens, **asked):
    """The logits after these tokens, of which each was 1."""
    processors = LogitsProcessors(Settings(**asked), Constraints(prompt=tuple(tokens)), 5)
    return processors(mx.ones((1, 5)))[0].tolist()


@reported("ohdearquant/lattice 312", "software-mansion/react-native-executorch 1483")
def test_a_token_is_penalised_once_for_repetition_however_often_it_stands():
    assert penalised([1, 1, 1, 2], repetition_penalty=2.0) == [1, 0.5, 0.5, 1, 1]


@reported("abetlen/llama-cpp-python 1295")
def test_repetition_is_looked_for_among_the_last_tokens():
    assert penalised([1, 2, 3], repetition_penalty=2.0, repetition_context_size=2) == [1, 1, 0.5, 0.5, 1]


@reported("ml-explore/mlx-lm 388")
def test_the_most_probable_token_alone_is_left_whatever_stands_beside_it(llama):
    greedy = zoo.generate(llama, PROMPTS[0], max_tokens=12).text
    for more in ({"top_p": 0.8}, {"min_p": 0.9}, {"top_p": 0.01}):
        asked = {"temperature": 1.0, "top_k": 1, "seed": 3, **more}
        assert zoo.generate(llama, PROMPTS[0], max_tokens=12, **asked).text == greedy


@reported("ml-explore/mlx-lm 566", "ml-explore/mlx-lm 1008", "dottxt-ai/outlines 789")
def test_all_rows_of_a_batch_keep_the_form(llama):
    written = texts(llama, PROMPTS, regex="(Rome|Oslo) [0-9]{3}", temperature=1.0, seed=1, max_tokens=30)
    assert all(text.split()[0] in ("Rome", "Oslo") and len(text) == 8 for text in written)


@reported(
    "ml-explore/mlx-lm 846",
    "lmstudio-ai/lmstudio-bug-tracker 461",
    "lmstudio-ai/lmstudio-bug-tracker 1519",
)
@pytest.mark.parametrize("own", [True, False], ids=["the model itself", "another model"])
def test_drafts_leave_no_token_out_alone_and_in_a_batch(llama, own):
    draft = llama if own else zoo.load("qwen3")
    settings = {"max_tokens": 24, "min_tokens": 24}
    drafted = texts(llama, PROMPTS, draft_model=draft, draft_tokens=5, **settings)
    assert drafted == texts(llama, PROMPTS, **settings)


@reported("LostRuins/koboldcpp 2325")
def test_a_draft_model_of_another_vocabulary_is_refused():
    with pytest.raises(PromptError, match=r"vocabulary|tokens"):
        zoo.generate(table_model(40, 1), [1, 2], draft_model=table_model(30, 1), max_tokens=3)


@reported("ml-explore/mlx-examples 524")
@pytest.mark.parametrize("stops", [[" is the"], ["x" * 9, "s t"], ["capital", " t"]], ids=str)
def test_a_stop_text_is_found_within_tokens_and_beside_longer_ones(llama, stops):
    whole = zoo.generate(llama, "The sea", max_tokens=60, min_tokens=60).text
    stops = [*stops, whole[7:10]]
    expected = min(whole.find(stop) for stop in stops if stop in whole)
    answer = zoo.generate(llama, "The sea", max_tokens=60, stop=stops)
    assert (answer.text, answer.finish_reason) == (whole[:expected], "stop")


@reported("jundot/omlx 572", "ml-explore/mlx-examples 1093")
@pytest.mark.parametrize("beyond", [-1, 0, 1, 2, 3])
def test_prompts_around_the_size_of_a_window_are_read_as_one_pass_reads_them(beyond):
    loaded = loaded_of(subject("gemma3"))
    window = next(layer.mixer.window for layer in loaded.recipe.layers if layer.mixer.window)
    ids = [5 + number % 90 for number in range(window + beyond)]
    logits = loaded.model(mx.array([ids]))[0, -1]
    cache = loaded.model.make_cache()
    for at in range(0, len(ids), 7):
        last = loaded.model(mx.array([ids[at : at + 7]]), cache)[0, -1]
    assert mx.abs(last - logits).max() < 1e-3


TALK = [{"role": "user", "content": "Hi"}]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


@reported("nomic-ai/gpt4all 3305", "ikawrakow/ik_llama.cpp 693", "ggml-org/llama.cpp 11866")
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{%- if not tools is defined %}{%- set tools = none %}{% endif %}{{ tools is none }}", "True"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{% for m in messages %}{{ m['content'] | trim | capitalize }}{% endfor %}", "Hi"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "Hi"),
        ("{{ ['a', 'b'] | reject('equalto', 'a') | join(', ') }}", "b"),
        ("{% for m in messages %}{{ m.content }}{% break %}{% endfor %}", "Hi"),
    ],
)
def test_templates_have_what_those_of_published_models_use(template, expected):
    assert render_chat(template, TALK, special_tokens=TOKENS) == expected


@reported("containers/ramalama 1857", "containers/ramalama 1855")
def test_a_template_of_another_language_is_refused_as_one_that_cannot_be_read():
    template = "{{- if .System }}{{ .System }}{{ end }}{{- range $i, $_ := .Messages }}"
    with pytest.raises(TokenizerError, match=r"^chat template: "):
        render_chat(template, TALK, special_tokens=TOKENS)


OPENED = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n{# </think> #}"


@reported("mudler/LocalAI 11790", "nosana-ci/pipeline-templates 171", "unslothai/unsloth 5714")
@pytest.mark.parametrize(
    ("written", "thinking", "text"),
    [("A river.</think>\n\nHello!", "A river.", "Hello!"), ("A river", "A river", "")],
    ids=["closed", "cut"],
)
def test_thinking_that_the_prompt_opened_is_told_from_the_answer(written, thinking, text):
    loaded = zoo.load("llama")
    loaded.tokenizer.chat_template = OPENED
    parser = answer_format(loaded.tokenizer, loaded.registry).parser("Hi<think>\n")
    parsed = Parsed()
    for letter in written:
        parsed += parser.add(letter)
    parsed += parser.finish()
    assert (parsed.thinking, parsed.text) == (thinking, text)
