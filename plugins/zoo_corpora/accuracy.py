"""Accuracy on a corpus's questions: facts to complete, sentences to translate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from zoo.architecture import Architecture, Corpus, import_target
from zoo.errors import PluginError, ZooError
from zoo.generation import generate
from zoo.generation.loop.prompt import mask_id, split_special_ids
from zoo.generation.strategies.fill_mask import fill
from zoo.host.registry import Registry, default_registry
from zoo.loading import Loaded
from zoo.training.corpora import trained_on
from zoo.training.objective import objective_of
from zoo_corpora.question import Question


@dataclass
class Score:
    """Right answers of all questions in one relation and language; `unseen` counts sentences never trained on."""

    relation: str
    language: str
    questions: int = 0
    right: int = 0
    unseen: int = 0
    unseen_right: int = 0

    def add(self, right: bool, held_out: bool) -> None:
        """Count one answer."""
        self.questions += 1
        self.right += right
        self.unseen += held_out
        self.unseen_right += right and held_out

    def as_json(self) -> dict[str, Any]:
        """The counts and the share of right answers."""
        return {**vars(self), "accuracy": round(self.right / self.questions, 4)}


def is_right(loaded: Loaded, question: Question) -> bool:
    """Whether the model gives the answer: it fills masks, translates, or continues the prompt."""
    if loaded.architecture.task == "translate":
        return generate(loaded, question.prompt).text == question.continuation
    fills = loaded.architecture.task == "fill-mask"
    return fills_mask(loaded, question) if fills else completes(loaded, question)


def fills_mask(loaded: Loaded, question: Question) -> bool:
    """Whether the model fills in the answer where its tokens are masked in the sentence.

    The space before the answer is shown where it is a token of its own, as in a text that a person writes.
    """
    sentence, tokenizer = question.prompt + question.continuation, loaded.tokenizer
    assert tokenizer is not None
    before, ids, after = split_special_ids(tokenizer, sentence + question.ending)
    shown = tokenizer.encode(sentence.removesuffix(question.continuation.lstrip()), special_tokens=False)
    start = next(
        (n for n, (left, right) in enumerate(zip(shown, ids, strict=False)) if left != right), len(shown)
    )
    end = len(tokenizer.encode(sentence, special_tokens=False))
    hidden = ids[:start] + [mask_id(loaded)] * (end - start) + ids[end:]
    return fill(loaded, before + hidden + after) == before + ids + after


def completes(loaded: Loaded, question: Question, **settings: Any) -> bool:
    """Whether the continuation of the prompt is the answer, up to the punctuation that ends the sentence.

    It is the greedy one, unless `settings` of generation, such as a temperature and a seed, say otherwise.
    """
    assert loaded.tokenizer is not None
    room = len(loaded.tokenizer.encode(question.continuation)) + 4
    text = generate(loaded, question.prompt, **{"max_tokens": room, "temperature": 0.0} | settings).text
    if not text.startswith(question.continuation):
        return False
    rest = text[len(question.continuation) :]
    return not rest or not rest[0].isalnum()  # "Niger" is no right answer where "Nigeria" is


def scores(
    loaded: Loaded, questions: Iterable[Question], report: Callable[[], None] = lambda: None
) -> list[Score]:
    """The score of each relation in each language, in the order of their first questions; `report` after each one."""
    by_kind: dict[tuple[str, str], Score] = {}
    for question in questions:
        kind = question.relation, question.language
        by_kind.setdefault(kind, Score(*kind)).add(is_right(loaded, question), question.held_out)
        report()
    return list(by_kind.values())


def corpus_to_ask(loaded: Loaded) -> str | None:
    """The corpus that the model was trained on, None where no record says so.

    ZooError where that was a person's own text: it has no questions.
    """
    trained = trained_on(loaded.folder, loaded.registry)
    if isinstance(trained, str):
        raise ZooError(
            f"{loaded.folder}: was trained on the text {trained}, which has no questions; name a `corpus` to ask "
            f"another's, or measure how well a text is predicted: zoo perplexity {loaded.folder} FILE"
        )
    return trained.name if trained else None


def questions_of(
    architecture: Architecture,
    corpus: str | None = None,
    every: bool = False,
    registry: Registry | None = None,
) -> list[Question]:
    """The questions of a corpus, by default the one that the architecture is trained on; ZooError if it has none."""
    registry = registry or default_registry()
    record = registry.table(Corpus).require(corpus or objective_of(architecture, registry=registry).corpus)
    if record.questions is None:
        raise ZooError(f"the corpus {record.name} has no questions to ask")
    if architecture.task not in record.tasks:
        raise ZooError(f"the corpus {record.name} has no questions for a model that does {architecture.task}")
    questions = list(import_target(record.questions)(every))
    wrong = next((question for question in questions if not isinstance(question, Question)), None)
    if wrong is not None or not questions:
        gave = "no question" if wrong is None else f"{type(wrong).__name__}, not a Question"
        raise PluginError(f"corpus {record.name}: {record.questions} gave {gave}")
    return questions
