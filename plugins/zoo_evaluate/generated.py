"""Greedy answers and translations of many prompts, and how they agree with references."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from zoo.checkpoint.open import Report
from zoo.errors import SourceError
from zoo.generation import batch
from zoo.generation.loop.engine import MOST_ROWS
from zoo.loading import Loaded
from zoo_evaluate.sample import Sample, of_sums

MORE = 16  # tokens that an answer may have beyond twice its reference's


def greedy_answers(
    loaded: Loaded,
    prompts: Sequence[str | Sequence[int]],
    references: Sequence[str],
    max_tokens: int | None = None,
    report: Report | None = None,
) -> list[str]:
    """The greedy answer to each prompt, a text or ids, in their order.

    An answer has at most `max_tokens` tokens, by default twice those of the reference and `MORE`: one that is longer
    is not the reference.
    """
    assert loaded.tokenizer is not None
    limits = [max_tokens or 2 * len(loaded.tokenizer.encode(text)) + MORE for text in references]
    order = sorted(range(len(prompts)), key=lambda index: (limits[index], len(prompts[index])))
    answers: dict[int, str] = {}
    for start in range(0, len(order), MOST_ROWS):
        block = order[start : start + MOST_ROWS]
        most = max(limits[index] for index in block)
        block_answers = batch(loaded, [prompts[index] for index in block], temperature=0.0, max_tokens=most)
        answers |= {index: answer.text for index, answer in zip(block, block_answers, strict=True)}
        if report is not None:
            report(len(answers), len(prompts))
    return [answers[index] for index in range(len(prompts))]


def agrees(answer: str, reference: str) -> bool:
    """Whether an answer is the reference, up to white space."""
    return answer.split() == reference.split()


def check_sacrebleu() -> None:
    """SourceError, with the command that installs it, where sacrebleu is missing."""
    if find_spec("sacrebleu") is None:
        raise SourceError(
            "BLEU and chrF need sacrebleu, which the extra `eval` installs: pip install 'mlx-zoo[eval]'"
        )


def corpus_score(name: str, answers: Sequence[str], references: Sequence[str]) -> Sample:
    """sacrebleu's "bleu" or "chrf" of all answers.

    BLEU splits references that are mostly Chinese by sacrebleu's "zh", others by its default.
    """
    from sacrebleu.metrics import BLEU, CHRF

    metric: Any = CHRF() if name == "chrf" else BLEU(tokenize="zh" if _chinese(references) else "13a")
    # What sacrebleu's own significance test resamples.
    statistics = metric._extract_corpus_statistics(list(answers), [list(references)])
    return of_sums("higher", statistics, lambda sums: metric._compute_score_from_stats(sums.tolist()).score)


def _chinese(texts: Sequence[str]) -> bool:
    letters = [letter for text in texts for letter in text if letter.isalpha()]
    return 2 * sum("\u4e00" <= letter <= "\u9fff" for letter in letters) > len(letters)
