"""Next-token prediction on single examples: of a conversation and of a completion, only the answers are targets.

Which tokens those are is found by rendering the chat template: an answer is what the template writes after the prompt that
the model would be given, up to the token that ends it. Axes: B rows, T tokens a row, D width, V vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.errors import ZooError
from zoo.generation.chat.parsing import AnswerFormat, answer_format
from zoo.generation.loop.prompt import eos_ids_of, has_chat_template
from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer
from zoo.tokenizer.chat_messages import with_thinking
from zoo.training.example_objective import ExampleObjective, padded_ids
from zoo.training.examples import Completion, Conversation, Example, Message, TextExample
from zoo.training.loop import Batch
from zoo.training.loss import IGNORED, scored_loss


@dataclass(frozen=True)
class TokenRow:
    """The ids of a row, and the target after each: the next token, or IGNORED. `cut` tokens are left out."""

    ids: tuple[int, ...]
    targets: tuple[int, ...]
    cut: int = 0

    @property
    def length(self) -> int:
        """The number of ids."""
        return len(self.ids)

    @property
    def prompt_length(self) -> int:
        """The number of ids before the first target."""
        return next(number for number, target in enumerate(self.targets, 1) if target != IGNORED)


def encode(example: Example, loaded: Loaded, length: int) -> list[TokenRow]:
    """The rows of a text, a completion or a conversation, each of at most `length` tokens.

    A text is closed by the end token; a long one goes on in further rows, and nothing is left out. A completion is the
    answer to a user's message where the model has a chat template, else text after its prompt. A conversation is one row
    as long as each prompt begins with what the row has so far, as most templates have it, and while it fits. An
    answer too long for its row loses the beginning of the prompt, then its own end.

    ZooError for a conversation that the template refuses or whose answers it leaves out, and where there is no template.
    """
    tokenizer = loaded.tokenizer
    if tokenizer is None:
        raise ZooError(f"{_name(loaded)} has no tokenizer, which training on texts needs")
    if isinstance(example, TextExample):
        rows = _text_rows(tokenizer.encode(example.text), loaded, length)
    else:
        assert isinstance(example, Completion | Conversation)
        rows = _answer_rows(_turns(example, loaded, tokenizer), loaded, length)
    vocab = loaded.recipe.embedding.vocab
    for row in rows:
        if max(row.ids) >= vocab:
            raise ZooError(f"token id {max(row.ids)} lies outside the vocabulary of {vocab}")
    return rows


def _name(loaded: Loaded) -> str:
    return loaded.folder.name or loaded.architecture.name


def end_of(loaded: Loaded) -> int | None:
    """The id of the token that ends a text; None where there is none."""
    named = loaded.tokenizer and loaded.tokenizer.special_tokens.get("eos_token")
    id = loaded.tokenizer.id(named) if loaded.tokenizer and named else None
    return min(eos_ids_of(loaded), default=None) if id is None else id


def _text_rows(ids: list[int], loaded: Loaded, length: int) -> list[TokenRow]:
    end = end_of(loaded)
    if end is not None and ids[-1:] != [end]:
        ids = [*ids, end]
    windows = (ids[start : start + length + 1] for start in range(0, len(ids) - 1, length))
    return [TokenRow(tuple(window[:-1]), tuple(window[1:])) for window in windows]


Turn = tuple[list[int], list[int]]
"""The ids of a prompt, as the model would be given them, and those of the answer."""


def _answer_rows(turns: Iterable[Turn], loaded: Loaded, length: int) -> list[TokenRow]:
    """The rows of prompts and their answers: one where each prompt continues the row, and while it fits.

    An answer ends at its last end token; one without any gets one as its last target.
    """
    ends, end = eos_ids_of(loaded), end_of(loaded)
    rows: list[TokenRow] = []
    row_ids: list[int] = []  # all ids of the last row
    for prompt, answer in turns:
        last = max((number for number, id in enumerate(answer, 1) if id in ends), default=None)
        answer = answer[:last]
        expected = answer if last or end is None else [*answer, end]
        ids = [*prompt, *answer]
        fits = len(prompt) + len(expected) - 1 <= length
        targets: list[int] = []
        if row_ids and fits and len(prompt) > len(row_ids) and prompt[: len(row_ids)] == row_ids:
            targets = list(rows.pop().targets)
        row_ids = ids
        targets += [IGNORED] * (len(prompt) - 1 - len(targets)) + expected
        rows.append(_cut(ids[: len(targets)], targets, len(expected), loaded, length))
    return rows


def _cut(ids: list[int], targets: list[int], told: int, loaded: Loaded, length: int) -> TokenRow:
    """A row of at most `length` tokens, whose last `told` targets are its answer.

    A start token stays, and so does the last token of the prompt, after which the answer begins.
    """
    excess = len(ids) - length
    if excess <= 0:
        return TokenRow(tuple(ids), tuple(targets))
    prompt = len(ids) - told + 1
    assert loaded.tokenizer is not None
    first = int(ids[0] == loaded.tokenizer.bos_id and prompt > 1)
    out = min(excess, prompt - 1 - first)
    ids, targets = ([*row[:first], *row[first + out :]][:length] for row in (ids, targets))
    return TokenRow(tuple(ids), tuple(targets), excess)


def _turns(example: Completion | Conversation, loaded: Loaded, tokenizer: Tokenizer) -> Iterator[Turn]:
    """The prompt and the answer of each message of the assistant, or of a completion."""
    written: Iterable[tuple[str, str]]
    if isinstance(example, Conversation):
        written = _render_answers(example.messages, example.tools, loaded)
    elif has_chat_template(loaded):
        asked = {"role": "user", "content": example.prompt}
        written = _render_answers((asked, {"role": "assistant", "content": example.completion}), (), loaded)
    else:
        written = [(example.prompt, example.completion)]
    special_tokens = not has_chat_template(loaded)  # a template writes them
    for prompt, answer in written:
        ids, whole = (tokenizer.encode(text, special_tokens) for text in (prompt, prompt + answer))
        # Together where that leaves the prompt as it is: alone, some tokenizers begin a text with a space.
        together = whole[: len(ids)] == ids
        yield ids, whole[len(ids) :] if together else tokenizer.encode(answer, False)


def _render_answers(
    messages: Sequence[Message], tools: Sequence[Any], loaded: Loaded
) -> Iterator[tuple[str, str]]:
    """The texts of each prompt for the assistant, and of the answer to it, as the chat template writes them.

    A message whose "weight" is 0 is no answer.
    """
    if not has_chat_template(loaded):
        raise ZooError(f"{_name(loaded)} has no chat template for messages: give prompts and completions")
    assert loaded.tokenizer is not None
    format = answer_format(loaded.tokenizer.for_tools(tools), loaded.registry)
    for n in target_messages(messages):
        prompt = _render(messages[:n], True, tools, loaded)
        text = _render(messages[: n + 1], False, tools, loaded)
        if text.startswith(prompt):
            answer = text[len(prompt) :]
        else:
            before = _render(messages[:n], False, tools, loaded)
            answer = _after_header(prompt.removeprefix(before), text, messages[n], format)
        if not answer.strip():
            raise ZooError(f"the chat template writes nothing of message {n + 1} after the prompt for it")
        yield prompt, answer


def _render(messages: Sequence[Message], prompt: bool, tools: Sequence[Any], loaded: Loaded) -> str:
    """Render the chat template for the messages, followed by the beginning of an answer if `prompt`."""
    from zoo.tokenizer.chat import render_chat

    assert loaded.tokenizer is not None
    tokenizer = loaded.tokenizer.for_tools(tools)
    assert tokenizer.chat_template is not None
    variables = {"add_generation_prompt": prompt} | ({"tools": list(tools)} if tools else {})
    special_tokens = tokenizer.special_tokens
    return render_chat(tokenizer.chat_template, messages, special_tokens=special_tokens, variables=variables)


def _after_header(header: str, text: str, message: Message, format: AnswerFormat) -> str:
    """The answer in a text that does not begin with the prompt for it; "" where it is not found.

    `header` is what the template writes where an answer begins. Some templates open or close the thinking there, and leave
    it out of the message itself: the answer then goes on as the model has to.
    """
    opening, closing = format.thinking or ("", "")
    opening, closing = opening.strip(), closing.strip()
    head = header
    for tag in filter(None, (opening, closing)):
        head = head.partition(tag)[0]
    head = head.rstrip()
    at = text.rfind(head) if head else -1
    answer = text[at + len(head) :].lstrip() if at >= 0 else ""
    if not closing:
        return answer
    thinking, closed, said = answer.removeprefix(opening).partition(closing)
    if not closed:
        thinking, said = with_thinking(dict(message)).get("reasoning_content") or "", answer
    if header.rstrip().endswith(closing):
        return said.lstrip()
    if not header.rstrip().endswith(opening):
        return answer
    if closed and not answer.startswith(opening):
        return answer  # as if the prompt had been before it
    return f"{thinking.strip()}\n{closing}\n\n{said.lstrip()}"


def collate(rows: Sequence[TokenRow], loaded: Loaded, order: random.Random) -> Batch:
    """Inputs and targets, (B, T), padded on the right."""
    return padded_ids([row.ids for row in rows], 0), padded_ids([row.targets for row in rows], IGNORED)


def loss(model: nn.Module, inputs: mx.array, targets: mx.array) -> mx.array:
    """The mean loss of the targets (B, T) that are not ignored, after inputs (B, T)."""
    return scored_loss(model.backbone(inputs), model.head, targets)


def left_out(rows: Sequence[Any], length: int) -> str | None:
    """A sentence about the tokens that rows of at most `length` tokens leave out; None where they have all."""
    cut = [row.cut for row in rows if row.cut]
    if not cut:
        return None
    return f"rows of more than {length:,} tokens: {len(cut):,} of {len(rows):,}; {sum(cut):,} tokens are left out"


ANSWERS = ExampleObjective((TextExample, Completion, Conversation), encode, collate, loss)


def answer_to(origin: str, prompt: str | Sequence[Message], answer: str) -> Completion | Conversation:
    """The example whose one target is the answer to a prompt, a text or messages."""
    if isinstance(prompt, str):
        return Completion(origin, prompt, answer)
    return Conversation(origin, (*without_targets(prompt), {"role": "assistant", "content": answer}))


def target_messages(messages: Sequence[Message]) -> list[int]:
    """The indices of the messages that are targets: the assistant's, but for those whose "weight" is 0."""
    return [n for n, m in enumerate(messages) if m["role"] == "assistant" and m.get("weight") != 0]


def without_targets(messages: Sequence[Message]) -> list[Message]:
    """The messages, none of which is a target."""
    return [{**message, "weight": 0} for message in messages]
