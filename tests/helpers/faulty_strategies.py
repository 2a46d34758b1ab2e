"""Strategies with one fault each, which the suite and the host must find."""

from zoo.architecture import Setting, Strategy, hookimpl
from zoo.errors import PromptError
from zoo.generation import Step
from zoo.generation.loop.prompt import encode_prompt

CLOSED = []


def sound(loaded, prompt, *, max_tokens=4):
    ids = encode_prompt(loaded, prompt)
    return _steps(ids, max_tokens)


def _steps(ids, count):
    try:
        for place in range(count):
            yield Step(ids[-1], "x", finish_reason="length" if place == count - 1 else None)
    finally:
        CLOSED.append(len(ids))


def nothing(loaded, prompt, *, max_tokens=4):
    encode_prompt(loaded, prompt)
    return iter(())


def endless(loaded, prompt, *, max_tokens=4):
    ids = encode_prompt(loaded, prompt)
    return (Step(ids[-1], "x") for _ in range(max_tokens))


def texts(loaded, prompt, *, max_tokens=4):
    encode_prompt(loaded, prompt)
    return iter(["x"] * max_tokens)


def no_text(loaded, prompt, *, max_tokens=4):
    ids = encode_prompt(loaded, prompt)
    return (Step(id, None, finish_reason="stop") for id in ids[:1])


def late(loaded, prompt, *, max_tokens=4):
    ids = encode_prompt(loaded, prompt)
    return (Step(ids[-1], "x", finish_reason="stop") for _ in range(2))


def none(loaded, prompt, *, max_tokens=4):
    encode_prompt(loaded, prompt)


def too_long(loaded, prompt, *, max_tokens=4):
    return sound(loaded, prompt, max_tokens=max_tokens + 1)


def strange(loaded, prompt, *, max_tokens=4):
    encode_prompt(loaded, prompt)
    return iter([Step(10**6, "x", finish_reason="stop")])


def lazy(loaded, prompt, *, max_tokens=4):
    yield from sound(loaded, prompt, max_tokens=max_tokens)


def demanding(loaded, prompt, *, max_tokens=4, draft=None):
    """No fault: it needs a setting that only its user can give."""
    if draft is None:
        raise PromptError("draft: name a model")
    return sound(loaded, prompt, max_tokens=max_tokens)


DEMANDING = Strategy(
    "demanding",
    "tests.helpers.faulty_strategies:demanding",
    ("generate",),
    ("max_tokens", Setting("draft", object)),
)
NAMES = ("sound", "nothing", "endless", "texts", "no_text", "late", "none", "too_long", "strange", "lazy")


@hookimpl
def zoo_strategies():
    for name in NAMES:
        yield Strategy(
            name.replace("_", "-"), f"tests.helpers.faulty_strategies:{name}", ("generate",), ("max_tokens",)
        )
    yield DEMANDING
