"""What a chat template, a model, a block or a plugin's strategy does wrong ends its own request alone."""

import shutil

import mlx.core as mx
import pytest

import zoo
from tests.helpers.serving import LONG, PROMPT, alone, serving
from tests.helpers.waiting import PATIENCE, in_background, wait_until
from zoo.architecture import Strategy, hookimpl
from zoo.generation import Step
from zoo.generation.loop.batch_decoder import DecodeStep
from zoo.host.registry import default_registry, isolated, using
from zoo.tokenizer import chat_process

pytestmark = pytest.mark.slow

OTHERS = [PROMPT, "Peru is a country in"]
BAD = "Norway is"
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}BODY{% endfor %}{% endfor %}"
TEMPLATE = "".join(
    [
        "{% set asked = messages[-1].content %}{% if asked == 'loop' %}",
        ENDLESS.replace("BODY", ""),
        "{% elif asked == 'memory' %}{% set all = namespace(a=[]) %}{% for i in range(90) %}",
        "{% set all.a = all.a + ['x' * (10**7 + i)] %}{% endfor %}",
        "{% elif asked == 'output' %}",
        ENDLESS.replace("BODY", "x" * 99),
        "{% elif asked == 'error' %}{{ raise_exception('no') }}{% else %}{{ asked }}{% endif %}",
    ]
)


def ask_together(made, body):
    """The status and the body of the response to a request beside others, which must have exactly their texts."""
    made.hold()
    steps = made.steps
    others = [in_background(made.text, {**LONG, "prompt": prompt}) for prompt in OTHERS]
    wait_until(lambda: made.service.under_way == 2 and made.steps > steps)  # held: the bad one cannot end yet
    bad = in_background(made.ask, body)
    wait_until(lambda: made.service.under_way == 3)
    made.go_on()
    assert [other() for other in others] == [alone(prompt).text for prompt in OTHERS]
    status, _, answer = bad()
    made.rest()
    assert made.text() == alone().text
    return status, answer


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """A server of a model whose chat template fails at some messages."""
    folder = tmp_path_factory.mktemp("poisoned") / "llama"
    shutil.copytree(default_registry().architecture("llama").preset("pocket").folder, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    with serving(load=lambda name: zoo.load(folder)) as made:
        yield made


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("loop", "processor time"),
        ("memory", "memory"),
        ("output", "wrote more than"),
        ("error", "no"),
    ],
)
def test_a_chat_template_that_is_poisoned_fails_its_request_alone(poisoned, monkeypatch, content, words):
    monkeypatch.setattr(chat_process, "CPU_SECONDS", 1 if content == "loop" else PATIENCE)
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 3}
    bad = in_background(poisoned.ask, body, "/v1/chat/completions")
    others = [in_background(poisoned.text, {**LONG, "prompt": prompt}) for prompt in OTHERS]
    assert [other() for other in others] == [alone(prompt).text for prompt in OTHERS]
    status, _, answer = bad()
    assert status == 400
    assert "chat template" in answer["error"]["message"] and words in answer["error"]["message"]
    poisoned.rest()
    assert poisoned.text() == alone().text


def test_logits_that_are_no_numbers_end_the_answer_they_are_of(monkeypatch):
    of_others = {token for prompt in OTHERS for token in alone(prompt).tokens}
    bad = next(token for token in alone(BAD).tokens[3:] if token not in of_others)
    call, rows = DecodeStep.__call__, []

    def spoilt(self, tokens, cache):
        rows.append(tokens.shape[0])
        return mx.where(tokens == bad, mx.nan, call(self, tokens, cache))

    monkeypatch.setattr(DecodeStep, "__call__", spoilt)
    with serving() as made:
        status, answer = ask_together(made, {**LONG, "prompt": BAD})
    assert status == 500
    assert "the model gives NaN where numbers belong" in answer["error"]["message"]
    assert max(rows) == 3


def test_a_request_for_which_memory_is_short_ends_alone(monkeypatch):
    llama = zoo.load("llama")
    backbone, model = type(llama.model).backbone, type(llama.model)
    bad = len(llama.tokenizer.encode(BAD * 3))

    def short(self, tokens, *more, **others):
        if tokens.shape[1] == bad:
            raise RuntimeError("[malloc] Unable to allocate 9 bytes.")
        return backbone(self, tokens, *more, **others)

    monkeypatch.setattr(model, "backbone", short)
    with serving() as made:
        status, answer = ask_together(made, {**LONG, "prompt": BAD * 3})
    assert status == 500
    assert "out of memory" in answer["error"]["message"]


def test_a_block_that_raises_ends_its_request_without_details(monkeypatch, capfd):
    block = type(zoo.load("llama").model.layers[0].mixer)
    call = block.__call__

    def raising(self, x, *more, **others):
        if raising.armed:
            raising.armed = False
            raise KeyError("a secret")
        return call(self, x, *more, **others)

    raising.armed = False
    monkeypatch.setattr(block, "__call__", raising)
    with serving() as made:
        raising.armed = True
        for stream in (False, True):
            raising.armed = True
            status, _, answer = made.ask({**LONG, "stream": stream})
            assert (status, "the model failed at this request" in str(answer)) == (
                200 if stream else 500,
                True,
            )
            assert "secret" not in str(answer)
            made.rest()
            assert made.text() == alone().text
    assert "secret" not in capfd.readouterr().err


def fails_at_once(loaded, prompt, *, max_tokens=4):
    raise KeyError("a secret")


def fails_later(loaded, prompt, *, max_tokens=4):
    yield Step(5, "x")
    raise KeyError("a secret")


def fails_to_end(loaded, prompt, *, max_tokens=4):
    try:
        yield "no step"
        while True:
            yield Step(5, "x")
    finally:
        raise KeyError("a secret")


class Failing:
    @hookimpl
    def zoo_strategies(self):
        for name in ("fails_at_once", "fails_later", "fails_to_end"):
            yield Strategy(name.replace("_", "-"), f"{__name__}:{name}", ("generate",), ("max_tokens",))


@pytest.fixture(scope="module")
def failing():
    with using(isolated(Failing())), serving() as made:
        yield made


@pytest.mark.parametrize("strategy", ["fails-at-once", "fails-later", "fails-to-end"])
def test_a_strategy_that_fails_ends_its_request_without_details(failing, strategy):
    status, answer = ask_together(failing, {"prompt": BAD, "strategy": strategy})
    assert (status, answer["error"]["code"]) == (500, "internal_error")
    assert "secret" not in str(answer)
