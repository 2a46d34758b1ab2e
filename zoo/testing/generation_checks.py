"""The checks of generated text: what strategies yield and refuse, and that neither a batch nor drafts change a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.architecture import Strategy
from zoo.errors import PromptError
from zoo.generation import stream
from zoo.generation.loop.batch import sequence_of
from zoo.generation.loop.engine import Engine
from zoo.generation.loop.prompt import Prefill
from zoo.generation.loop.speculative_batch import SpeculativeBatch
from zoo.generation.loop.step import Step
from zoo.generation.settings import settings_for
from zoo.generation.speculative import Draft, DraftConfig, Drafter
from zoo.generation.speculative.verification import can_roll_back
from zoo.host.registry import Registry, default_registry
from zoo.loading import Loaded
from zoo.testing.subjects import TOLERANCE, Subject, loaded_of, streams, subject

LENGTH = 8  # tokens of a prompt, and of an answer
MASK = 3  # the id that stands for a hidden token
PROMPT = tuple(range(MASK, MASK + LENGTH))
ASKED: dict[str, Any] = {"temperature": 0.0, "logprobs": 2}  # of texts that are compared token by token
DRAFTS = 4  # tokens a pass
RIGHT = (4, 1, 0, 3, 2)  # how many of them are the text's, pass after pass


def loaded_with_mask(subject: Subject) -> Loaded:
    """A subject as a loaded model whose config has the id of the mask token."""
    return loaded_of(subject, {**subject.numbers, "mask_token_id": MASK})


def check_strategy(
    name: str, architecture: str | None = None, registry: Registry | None = None, **settings: Any
) -> list[Step]:
    """Check the contract of the strategy `name`, plain or qualified; AssertionError or PluginError says what fails.

    It runs with `settings` on token ids and a small model of random weights: of `architecture`, else of the first whose
    task it serves. Returns the steps of one run.
    """
    registry = registry or default_registry()
    plain = name.rpartition("::")[2]
    tasks = next((strategy.tasks for strategy in registry.strategies.values() if strategy.name == plain), ())
    if architecture is None:
        fitting = (a.name for a in registry.architectures.values() if a.task in tasks and a.presets)
        architecture = "llama" if "generate" in tasks else next(fitting, "llama")
    tested = subject(architecture, registry=registry)
    strategy = registry.strategy(tested.architecture.task, name=name)
    return _check_runs(loaded_with_mask(tested), strategy, name, settings)


def strategies_end_as_they_must(subject: Subject) -> None:
    """A strategy yields steps, and the last one has a finish reason."""
    for strategy in strategies_of(subject):
        _check_runs(loaded_with_mask(subject), strategy, _full(subject.registry, strategy), {})


def _check_runs(loaded: Loaded, strategy: Strategy, name: str, settings: Any) -> list[Step]:
    """Run once to the end, close a second run early, and start one that must be refused."""
    most = {"max_tokens": LENGTH} if "max_tokens" in strategy.setting_names else {}

    def start(ids: Sequence[int]) -> Any:
        return stream(loaded, ids, strategy=name, **{**most, **settings})

    steps = list(start(PROMPT))  # PluginError when these are no steps, or have no end
    tokens = [step.token for step in steps if step.token is not None]
    if most and not settings.get("max_tokens"):
        assert len(tokens) <= LENGTH, f"{strategy.name}: {len(tokens)} tokens where max_tokens is {LENGTH}"
    vocab = getattr(loaded.recipe.head, "vocab", None) or loaded.recipe.embedding.vocab
    strange = next((token for token in tokens if not 0 <= token < vocab), None)
    assert strange is None, f"{strategy.name}: token {strange} lies outside the vocabulary of {vocab}"
    given_up = start(PROMPT)
    next(given_up)
    given_up.close()
    try:
        start([])
    except PromptError:
        return steps
    raise AssertionError(
        f"{strategy.name}: an empty prompt must be a PromptError when it is called, not while it runs"
    )


def strategies_of(subject: Subject) -> list[Strategy]:
    """The strategies of the architecture's plugin that serve its task and run without settings.

    `check_strategy` checks those that need settings.
    """
    registry, task = subject.registry, subject.architecture.task
    given = registry.plugin_of(subject.architecture).records.get("zoo_strategies", ())
    return [strategy for strategy in given if task in strategy.tasks and _starts(subject, strategy)]


def _starts(subject: Subject, strategy: Strategy) -> bool:
    try:
        stream(loaded_with_mask(subject), PROMPT, strategy=_full(subject.registry, strategy))
    except Exception as error:  # whatever else it is, the check itself runs into it and says so
        return not isinstance(error, PromptError)
    return True


def _full(registry: Registry, strategy: Strategy) -> str:
    """The qualified name of a strategy."""
    return f"{registry.plugin_of(strategy).distribution}::{strategy.name}"


class KnownText(Drafter):
    """Drafts the known tokens of a text, and wrong tokens after some of them."""

    def __init__(self, known: Sequence[int], vocab: int) -> None:
        super().__init__()
        self.known, self.vocab = known, vocab
        self.passes = 0

    def propose(self, count: int) -> Draft:
        """The next tokens, of which only the first ones are right."""
        right = RIGHT[self.passes % len(RIGHT)]
        self.passes += 1
        ahead = self.known[len(self.text) : len(self.text) + count]
        return Draft(tuple(token if i < right else (token + 1) % self.vocab for i, token in enumerate(ahead)))


def takes_drafts(subject: Subject) -> bool:
    """Whether text is made token by token, and its caches can roll tokens back; otherwise drafts are refused."""
    return streams(subject) and can_roll_back(subject.model.plain_caches(subject.model.make_cache()))


def drafted_text_equals_the_text_alone(subject: Subject) -> None:
    """Rejected drafts must leave nothing behind in any cache."""
    loaded = loaded_of(subject)
    prompt: Any = subject.tokens[0, : subject.tokens.shape[1] // 2].tolist()
    asked = ASKED | {"max_tokens": 14}
    expected = _alone(loaded, prompt, asked)
    tokens = [step.token for step in expected if step.token is not None]
    steps = drafted_steps(loaded, prompt, KnownText([*prompt, *tokens], subject.vocab), **asked)
    same_text(steps, expected, "the drafted text")


def drafted_steps(
    loaded: Loaded, prompt: Sequence[int], drafter: Drafter, count: int = DRAFTS, **asked: Any
) -> list[Step]:
    """The steps of a text whose tokens `drafter` drafts, always `count` a pass."""
    sequence = sequence_of(loaded, prompt, settings_for(loaded, asked))
    sequence.drafting, sequence.drafter = DraftConfig(count, lambda: drafter, False), drafter
    drafter.add_tokens(sequence.ids)
    caches = loaded.model.make_cache(sequence.settings.policy())
    prefix = loaded.architecture.causality == "prefix"
    logits = Prefill(loaded.model, sequence.ids, caches, prefix=prefix).finish()
    row = SpeculativeBatch(loaded, sequence, caches, logits)
    row.throttle.always = True
    steps = []
    while row.sequences:
        steps += [step for _, step in row.step()]
    return steps


def text_beside_others_equals_the_text_alone(subject: Subject, **settings: Any) -> None:
    """Texts of different lengths share a batch, join it and leave it; none may depend on the others."""
    loaded, asked = loaded_of(subject), ASKED | {"max_tokens": 6} | settings
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
        expected = _alone(loaded, prompts[number], asked)
        same_text(found, expected[: len(found)] if number == 2 else expected, f"text {number}")


def _alone(loaded: Loaded, prompt: Sequence[int], asked: dict[str, Any]) -> list[Step]:
    engine = Engine(loaded)
    engine.add(prompt, **asked)
    return [step for _, step in engine.run()]


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
