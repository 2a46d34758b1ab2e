"""The check that a text is the same alone and in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.generation.loop.engine import Engine
from zoo.generation.loop.step import Step
from zoo.testing.subjects import TOLERANCE, Subject, loaded_of

ASKED: dict[str, Any] = {"max_tokens": 6, "temperature": 0.0, "logprobs": 2}


def text_beside_others_equals_the_text_alone(subject: Subject, **settings: Any) -> None:
    """Texts of different lengths share a batch, join it and leave it; none may depend on the others."""
    loaded, asked = loaded_of(subject), ASKED | settings
    prompts = [subject.tokens[row, :length].tolist() for row, length in ((0, 9), (1, 3), (0, 5), (1, 12))]
    engine = Engine(loaded)
    handles = [engine.add(prompts[0], **asked)]
    together = [engine.step()]
    handles += [engine.add(prompt, **asked) for prompt in prompts[1:]]
    together.append(engine.step())
    engine.cancel(handles[2])
    while engine.busy:
        together.append(engine.step())
    for number, handle in enumerate(handles):
        found = [step for steps in together for owner, step in steps if owner == handle]
        alone = Engine(loaded)
        alone.add(prompts[number], **asked)
        expected = [step for _, step in alone.run()]
        same_text(found, expected[: len(found)] if number == 2 else expected, f"text {number}")


def same_text(found: Sequence[Step], expected: Sequence[Step], what: str) -> None:
    """AssertionError unless the steps agree in tokens and log-probabilities, up to where two tokens are equally likely."""
    assert len(found) == len(expected), f"{what}: {len(found)} tokens, alone {len(expected)}"
    for number, (step, alone) in enumerate(zip(found, expected, strict=True)):
        assert step.logprob is not None and alone.logprob is not None
        where = f"{what}: token {number}"
        if step.token != alone.token:
            first, second, *_ = (alone.alternatives or {}).values()
            assert first - second <= 10 * TOLERANCE, f"{where} is {step.token}, alone {alone.token}"
            return
        off = abs(step.logprob - alone.logprob)
        allowed = 10 * TOLERANCE * max(1.0, abs(alone.logprob))
        assert off <= allowed, f"{where}: its log-probability is off by {off:.3g}, allowed {allowed:.3g}"
