"""A corpus's questions, asked of a model."""

from __future__ import annotations

from itertools import count
from typing import Any

from zoo.checkpoint.open import Report
from zoo.cli.terminal import table
from zoo.loading import Loaded
from zoo_corpora.accuracy import Score, corpus_to_ask, questions_of, scores


def ask(loaded: Loaded, corpus: str | None, every: bool, report: Report) -> list[Score]:
    """The right answers by relation and language; of the corpus that the model was trained on where none is named."""
    questions = questions_of(loaded.architecture, corpus or corpus_to_ask(loaded), every, loaded.registry)
    done = count(1)
    return scores(loaded, questions, lambda: report(next(done), len(questions)))


def shown(found: list[Score]) -> str:
    """The scores as a table."""
    rows: list[list[Any]] = [
        [
            score.relation,
            score.language,
            f"{score.right}/{score.questions}",
            f"{score.right / score.questions:.1%}",
            f"{score.unseen_right}/{score.unseen}",
        ]
        for score in found
    ]
    return table(rows, ["relation", "language", "right", "share", "of these, sentences never trained on"])
