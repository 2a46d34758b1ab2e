"""The samples of a tuning: what is shown as asked is the example's question, not the end of the prompt's ids."""

import pytest

import zoo
from zoo.training.answers import ANSWERS
from zoo.training.data import Data
from zoo.training.example_objective import ExampleBatches
from zoo.training.examples import Completion, Conversation
from zoo.training.record import TrainingRecord
from zoo.training.run import sample, samples
from zoo_tune.run import prompts_of

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
TALK = (
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "And of China?"},
    {"role": "assistant", "content": "Beijing."},
)
EXAMPLES = {
    "a conversation": (Conversation("here", TALK), "What is the capital of France?"),
    "its second answer": (
        Conversation("here", (*TALK[:2], TALK[2] | {"weight": 0}, *TALK[3:])),
        "And of China?",
    ),
    "a prompt": (
        Completion("here", "The capital city of China is", " Beijing."),
        "The capital city of China is",
    ),
    "a long prompt": (Completion("here", "word " * 30 + "is", " Rome."), "… " + "word " * 11 + "is"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_sample_shows_the_question_and_the_answer(name):
    example, asked = EXAMPLES[name]
    loaded = zoo.load("llama")
    loaded.tokenizer.chat_template = TEMPLATE if isinstance(example, Conversation) else None
    batches = ExampleBatches(ANSWERS, loaded, [], [], 1, 0)
    data = Data("here", (example,), (example,))
    (prompt,) = prompts_of(loaded, data, batches, 512)
    shown = sample(loaded, *prompt)
    assert shown.startswith(f"{asked} → ") and "assistant" not in shown


def test_without_prompts_there_is_no_sample():
    data = Data("here", (EXAMPLES["a prompt"][0],))
    loaded = zoo.load("llama")
    prompts = prompts_of(loaded, data, ExampleBatches(ANSWERS, loaded, [], [], 1, 0), 512)
    assert samples(loaded, lambda: prompts, TrainingRecord("llama", 0, {}))() is None
