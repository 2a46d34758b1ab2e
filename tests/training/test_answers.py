"""Which tokens of an example are targets: the answers, up to the token that ends them, for any chat template."""

import json
from dataclasses import replace

import pytest

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from tests.helpers.call_templates import ENTRIES, NamedTemplate
from tests.helpers.chat_templates import TOOLS, call, result
from tests.helpers.closeness import close
from zoo.errors import ZooError
from zoo.tokenizer import load_tokenizer
from zoo.training.answers import TokenRow, collate, encode, left_out, loss
from zoo.training.examples import Completion, Conversation, TextExample
from zoo.training.loss import IGNORED, next_token_loss

# Each fourth template in each run, the others nightly.
SOME = [
    name if place % 4 == 0 else pytest.param(name, marks=pytest.mark.nightly)
    for place, name in enumerate(ENTRIES)
]
END = "<|endoftext|>"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = (  # earlier thinking is dropped
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' and loop.last %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
TALK = (
    {"role": "user", "content": "the question"},
    {"role": "assistant", "content": "an answer", "reasoning_content": "a thought"},
    {"role": "user", "content": "another question"},
    {"role": "assistant", "content": "a second answer", "reasoning_content": "more thought"},
)
CALLS = (
    {"role": "user", "content": "the question"},
    {"role": "assistant", "content": "", "tool_calls": [call(1, "Rome")]},
    result(1, "the result"),
    {"role": "assistant", "content": "a second answer"},
)


@pytest.fixture(scope="module")
def pocket():
    return zoo.load("llama")


@pytest.fixture
def loaded(pocket):
    """The pocket checkpoint with a tokenizer whose template a test may set."""
    return replace(pocket, tokenizer=load_tokenizer(pocket.folder))


def spans(loaded, row):
    """The texts of the targets of a row that follow each other."""
    found, ids = [], []
    for target in (*row.targets, IGNORED):
        if target != IGNORED:
            ids.append(target)
        elif ids:
            found.append(loaded.tokenizer.decode(ids, False))
            ids = []
    return found


def consistent(row):
    """Whether each target is the id after it, except for an end token that the template does not write."""
    pairs = zip(row.targets, row.ids[1:], strict=False)
    return len(row.ids) == len(row.targets) and all(t in (IGNORED, following, 0) for t, following in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_with_every_template_the_answers_are_the_targets(loaded, name):
    loaded.tokenizer.chat_template = NamedTemplate(name).chat_template
    close = ENTRIES[name].get("close", "<|im_end|>\n")
    for messages, tools, answers in (
        (TALK, (), ("an answer", "a second answer")),
        (CALLS, TOOLS, ("Rome", "a second")),
    ):
        rows = encode(Conversation("x", messages, tuple(tools)), loaded, 10_000)
        found = [span for row in rows for span in spans(loaded, row)]
        assert all(map(consistent, rows)) and len(found) == 2
        for span, answer in zip(found, answers, strict=True):
            assert answer in span and span.endswith(END)
            if "{" not in close:
                assert span.removesuffix(END).rstrip().endswith(close.strip())
            assert "question" not in span and "result" not in span


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_before_an_answer_a_row_is_the_prompt_of_a_chat(loaded, name):
    from zoo.generation.loop.prompt import encode_messages

    loaded.tokenizer.chat_template = NamedTemplate(name).chat_template
    rows = encode(Conversation("x", TALK), loaded, 10_000)
    prompt = encode_messages(loaded, TALK[:3])
    assert list(rows[-1].ids[: len(prompt)]) == prompt and rows[-1].targets[len(prompt) - 1] != IGNORED


def test_a_conversation_is_one_row_where_each_prompt_continues_it(loaded):
    loaded.tokenizer.chat_template = CHATML
    (row,) = encode(Conversation("x", TALK), loaded, 512)
    assert spans(loaded, row) == [f"an answer<|im_end|>\n{END}", f"a second answer<|im_end|>\n{END}"]


def test_an_answer_ends_at_the_token_that_ends_a_text(loaded):
    loaded.tokenizer.chat_template = CHATML.replace("<|im_end|>", END)
    (row,) = encode(Conversation("x", TALK), loaded, 512)
    assert spans(loaded, row) == [f"an answer{END}", f"a second answer{END}"]
    assert row.ids[-1] != 0  # nothing follows the last target


def test_where_earlier_thinking_is_dropped_each_answer_has_a_row(loaded):
    loaded.tokenizer.chat_template = THINKING
    first, second = encode(Conversation("x", TALK), loaded, 512)
    assert spans(loaded, first) == [f"<think>a thought</think>an answer{END}"]
    assert spans(loaded, second) == [f"<think>more thought</think>a second answer{END}"]
    assert "a thought" not in loaded.tokenizer.decode(second.ids, False)


@pytest.mark.parametrize(
    ("prompt", "written"),
    [
        ("[assistant]<think>\n", f"a thought\n</think>\n\nan answer{END}"),
        ("[assistant]<think></think>", f"an answer{END}"),
        ("[assistant]\n", f"an answer{END}"),
    ],
)
def test_an_answer_goes_on_where_the_prompt_ends(loaded, prompt, written):
    """Also where the template writes the prompt's end otherwise in a message."""
    loaded.tokenizer.chat_template = THINKING.replace("and loop.last", "and false").replace(
        "[assistant]{%", f"{prompt}{{%"
    )
    (row,) = encode(Conversation("x", TALK[:2]), loaded, 512)
    assert spans(loaded, row) == [written]
    assert f"{prompt}{written.removesuffix(END)}" in loaded.tokenizer.decode(row.ids, False)


def test_a_message_of_weight_0_is_no_target(loaded):
    loaded.tokenizer.chat_template = CHATML
    messages = (TALK[0], TALK[1] | {"weight": 0}, *TALK[2:])
    (row,) = encode(Conversation("x", messages), loaded, 512)
    assert spans(loaded, row) == [f"a second answer<|im_end|>\n{END}"]
    assert "an answer" in loaded.tokenizer.decode(row.ids, False)


def test_without_a_template_a_conversation_is_refused_and_a_completion_is_text(loaded):
    with pytest.raises(ZooError, match="has no chat template for messages: give prompts and completions"):
        encode(Conversation("x", TALK), loaded, 512)
    (row,) = encode(Completion("x", "The capital of", " China"), loaded, 512)
    assert spans(loaded, row) == [f" China{END}"]
    assert loaded.tokenizer.decode(row.ids) == "The capital of China"


def test_with_a_template_a_completion_is_an_answer(loaded):
    loaded.tokenizer.chat_template = CHATML
    said = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    assert encode(Completion("x", "a", "b"), loaded, 512) == encode(Conversation("x", said), loaded, 512)


def test_a_template_that_leaves_out_the_answer_is_refused(loaded):
    loaded.tokenizer.chat_template = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    with (
        pytest.warns(UserWarning, match="role assistant"),
        pytest.raises(ZooError, match="nothing of message 2"),
    ):
        encode(Conversation("x", TALK[:2]), loaded, 512)


def test_a_template_that_refuses_a_message_is_an_error(loaded):
    loaded.tokenizer.chat_template = "{{ raise_exception('no system') }}"
    with pytest.raises(ZooError, match="chat template: no system"):
        encode(Conversation("x", TALK), loaded, 512)


def test_a_long_text_goes_on_in_further_rows_and_each_token_is_a_target_once(loaded):
    text = " ".join(f"word{n}" for n in range(50))
    ids = [*loaded.tokenizer.encode(text), 0]
    rows = encode(TextExample("x", text), loaded, 16)
    assert [target for row in rows for target in row.targets] == ids[1:]
    assert (
        rows[0].ids[0] == ids[0]
        and max(row.length for row in rows) == 16
        and not any(row.cut for row in rows)
    )


def test_a_text_that_ends_has_one_end(loaded):
    (row,) = encode(TextExample("x", f"a text{END}"), loaded, 512)
    assert (
        spans(loaded, row) == [loaded.tokenizer.decode([*row.targets], False)] and row.targets.count(0) == 1
    )


def test_an_answer_is_kept_and_the_beginning_of_its_prompt_is_cut(loaded):
    whole = encode(Completion("x", "one two three four five six", " seven eight"), loaded, 512)[0]
    told = sum(target != IGNORED for target in whole.targets)
    (row,) = encode(Completion("x", "one two three four five six", " seven eight"), loaded, told + 2)
    assert (row.ids, row.targets) == (whole.ids[-told - 2 :], whole.targets[-told - 2 :])
    assert row.cut == whole.length - told - 2
    (row,) = encode(Completion("x", "one two three four five six", " seven eight"), loaded, told - 1)
    assert (
        row.targets == whole.targets[-told:-1]
        and row.length == told - 1
        and row.cut == whole.length - told + 1
    )


def test_a_start_token_stays(loaded):
    loaded.tokenizer.bos_id = loaded.tokenizer.encode("one", False)[0]
    whole = encode(Completion("x", "one two three four five six", " seven"), loaded, 512)[0]
    (row,) = encode(Completion("x", "one two three four five six", " seven"), loaded, whole.length - 2)
    assert row.ids == (whole.ids[0], *whole.ids[3:])


def test_an_answer_that_does_not_fit_into_the_row_gets_its_own(loaded):
    loaded.tokenizer.chat_template = CHATML
    (whole,) = encode(Conversation("x", TALK), loaded, 512)
    first, second = encode(Conversation("x", TALK), loaded, whole.length - 1)
    assert spans(loaded, first) + spans(loaded, second) == spans(loaded, whole)
    assert (first.cut, second.cut) == (0, 1) and second.ids == whole.ids[1:]


def test_what_is_left_out_is_said():
    rows = [TokenRow((1,), (2,), cut) for cut in (0, 3000, 204)]
    assert left_out(rows, 512) == "rows of more than 512 tokens: 2 of 3; 3,204 tokens are left out"
    assert left_out(rows[:1], 512) is None


@pytest.mark.parametrize("length", [24, 512])
def test_the_loss_is_that_of_the_targets_whether_gathered_or_not(loaded, length):
    """With few targets their hidden states are gathered; the text alone has a target at each place."""
    rows = encode(
        Completion("x", "The capital of China is a city, and its name", " is Beijing"), loaded, length
    )
    rows += encode(TextExample("x", "one"), loaded, length)
    for some in (rows, rows[1:]):
        inputs, targets = collate(some, loaded, None)
        values = [
            nn.value_and_grad(loaded.model, each)(loaded.model, inputs, targets)
            for each in (loss, next_token_loss)
        ]
        (found, gradients), (expected, others) = values
        assert found.dtype == mx.float32 and close(found, expected, atol=1e-5)
        for (path, one), (_, other) in zip(tree_flatten(gradients), tree_flatten(others), strict=True):
            assert close(one, other, atol=1e-5), path


def test_only_the_logits_of_targets_are_computed(loaded):
    rows = encode(Completion("x", "The capital of China is a city, and its name", " is"), loaded, 512)
    seen = []

    class Watched:
        backbone = staticmethod(loaded.model.backbone)

        def head(self, hidden):
            seen.append(hidden.shape[1])
            return loaded.model.head(hidden)

    loss(Watched(), *collate(rows, loaded, None))
    assert seen == [sum(target != IGNORED for target in rows[0].targets)]


def test_ids_are_those_of_the_prompt_where_its_end_would_join_the_answer(loaded):
    prompt = loaded.tokenizer.encode("The capi")
    (row,) = encode(Completion("x", "The capi", "tal"), loaded, 512)
    assert list(row.ids[: len(prompt)]) == prompt and spans(loaded, row) == [f"tal{END}"]


def test_a_conversation_of_many_turns_is_rendered_within_the_limits(loaded, monkeypatch):
    monkeypatch.setattr("zoo.tokenizer.chat_process.OUTPUT", 4000)
    loaded.tokenizer.chat_template = CHATML
    (row,) = encode(Conversation("x", TALK * 8), loaded, 10_000)
    assert len(spans(loaded, row)) == 16
    assert len(json.dumps(TALK * 8)) < 4000
