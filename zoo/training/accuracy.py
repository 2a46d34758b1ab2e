"""How many facts of the atlas a model knows, or how many sentences of the phrasebook it translates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from zoo.generation import generate
from zoo.generation.fill_mask import fill
from zoo.generation.prompt import mask_id, pieces
from zoo.loading import Loaded
from zoo_corpora import atlas, phrasebook


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


def is_right(loaded: Loaded, question: Any) -> bool:
    """Whether the model gives the answer: by filling it in where it fills masks, else by going on from the prompt."""
    fills = loaded.architecture.task == "fill-mask"
    return fills_in(loaded, question) if fills else goes_on(loaded, question)


def fills_in(loaded: Loaded, question: Any) -> bool:
    """Whether the answer is what comes in the place of as many masks as it has tokens, the sentence around it."""
    told, words = question.prompt + question.continuation, loaded.tokenizer
    assert words is not None
    before, ids, after = pieces(words, told + question.ending)
    start, end = (len(words.encode(text, special_tokens=False)) for text in (question.prompt, told))
    hidden = ids[:start] + [mask_id(loaded)] * (end - start) + ids[end:]
    return fill(loaded, before + hidden + after) == before + ids + after


def goes_on(loaded: Loaded, question: Any) -> bool:
    """Whether the greedy continuation of the prompt is the answer, up to the punctuation that ends the sentence."""
    assert loaded.tokenizer is not None
    room = len(loaded.tokenizer.encode(question.continuation)) + 4
    text = generate(loaded, question.prompt, max_tokens=room, temperature=0.0).text
    if not text.startswith(question.continuation):
        return False
    rest = text[len(question.continuation) :]
    return not rest or not rest[0].isalnum()  # "Niger" is no right answer where "Nigeria" is


def translations(loaded: Loaded, sentences: int = phrasebook.SIZE) -> Score:
    """How many sentences are translated just as the phrasebook does: `sentences` of training, as many of "test"."""
    score = Score("translation", "en-zh")
    for split in ("train", "test"):
        for pair in islice(phrasebook.pairs(split), sentences):
            score.add(generate(loaded, pair.source).text == pair.target, split == "test")
    return score


def scores(
    loaded: Loaded,
    relations: Iterable[str] = ("capital",),
    languages: Iterable[atlas.Language] = atlas.LANGUAGES,
) -> Iterator[Score]:
    """The score of each relation in each language, over all countries; of a translator that of the phrasebook."""
    if loaded.architecture.task == "translate":
        yield translations(loaded)
        return
    for relation in relations:
        for language in languages:
            score = Score(relation, language)
            for question in atlas.questions(relation, language):
                score.add(is_right(loaded, question), question.held_out)
            yield score
