"""The check that speculative decoding changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.generation.loop.engine import Engine
from zoo.generation.loop.prefill import Prefill
from zoo.generation.loop.sequence import sequence_of
from zoo.generation.loop.speculative_batch import SpeculativeBatch
from zoo.generation.loop.step import Step
from zoo.generation.settings import settings_for
from zoo.generation.speculative import Draft, DraftConfig, Drafter
from zoo.generation.speculative.rollback import can_roll_back
from zoo.loading import Loaded
from zoo.testing.batches import same_text
from zoo.testing.subjects import Subject, loaded_of

ASKED: dict[str, Any] = {"max_tokens": 14, "temperature": 0.0, "logprobs": 2}
DRAFTS = 4  # tokens a pass
RIGHT = (4, 1, 0, 3, 2)  # how many of them are the text's, pass after pass


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
    """Whether its caches can roll tokens back; otherwise drafts are refused."""
    return can_roll_back(subject.model.plain_caches(subject.model.make_cache()))


def drafted_text_equals_the_text_alone(subject: Subject) -> None:
    """Rejected drafts must leave nothing behind in any cache."""
    loaded = loaded_of(subject)
    prompt: Any = subject.tokens[0, : subject.tokens.shape[1] // 2].tolist()
    alone = Engine(loaded)
    alone.add(prompt, **ASKED)
    expected = [step for _, step in alone.run()]
    tokens = [step.token for step in expected if step.token is not None]
    found = drafted_steps(loaded, prompt, KnownText([*prompt, *tokens], subject.vocab), **ASKED)
    same_text(found, expected, "the drafted text")


def drafted_steps(
    loaded: Loaded, prompt: Sequence[int], drafter: Drafter, count: int = DRAFTS, **asked: Any
) -> list[Step]:
    """The steps of a text whose tokens `drafter` drafts, always `count` a pass."""
    sequence = sequence_of(loaded, prompt, settings_for(loaded, asked))
    sequence.drafting, sequence.drafter = DraftConfig(count, lambda: drafter, False, None), drafter
    drafter.add_tokens(sequence.ids)
    caches = loaded.model.make_cache(sequence.settings.policy())
    row = SpeculativeBatch(loaded.model, sequence.settings.policy())
    logits = Prefill(
        loaded.model, sequence.ids, caches, prefix=loaded.architecture.causality == "prefix"
    ).finish()
    row.join(sequence, caches, logits)
    row.throttle.always = True
    steps = []
    while row.sequences:
        steps += [step for _, step in row.step()]
    return steps
