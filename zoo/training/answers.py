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

from zoo.errors import ZooError
from zoo.generation.chat.parsing import AnswerFormat, answer_format
from zoo.generation.loop.prompt import eos_ids_of, has_chat_template
from zoo.generation.prefix_cache.tree import common_prefix
from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer
from zoo.tokenizer.chat_messages import Message, text_of, with_thinking
from zoo.training.example_objective import ExampleObjective, padded_ids
from zoo.training.examples import Completion, Conversation, Example, TextExample
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
    held: list[int] = []  # all ids of the last row
    for prompt, answer in turns:
        last = max((number for number, id in enumerate(answer, 1) if id in ends), default=None)
        answer = answer[:last]
        told = answer if last or end is None else [*answer, end]
        ids = [*prompt, *answer]
        fits = len(prompt) + len(told) - 1 <= length
        targets: list[int] = []
        if held and fits and len(prompt) > len(held) and prompt[: len(held)] == held:
            targets = list(rows.pop().targets)
        held = ids
        targets += [IGNORED] * (len(prompt) - 1 - len(targets)) + told
        rows.append(_cut(ids[: len(targets)], targets, len(told), loaded, length))
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
    """The prompt and the answer of each message of the assistant."""
    plain = isinstance(example, Completion) and not has_chat_template(
        loaded
    )  # begins with a start token, if any
    written: Iterable[tuple[str, str]] = _written(example, loaded, tokenizer)
    if isinstance(example, Completion) and plain:
        written = [(example.prompt, example.completion)]
    for prompt, answer in written:
        ids, whole = (tokenizer.encode(text, plain) for text in (prompt, prompt + answer))
        # Encoded together where that leaves the prompt as it is: some tokenizers begin each text with a space.
        together = whole[: len(ids)] == ids
        yield ids, whole[len(ids) :] if together else tokenizer.encode(answer, False)


def _written(
    example: Completion | Conversation, loaded: Loaded, tokenizer: Tokenizer
) -> Iterator[tuple[str, str]]:
    """The texts of prompts and answers as the chat template writes them."""
    from zoo.tokenizer.chat import render_chats

    if not has_chat_template(loaded) or tokenizer.chat_template is None:
        raise ZooError(
            f"{_name(loaded)} has no chat template, which lays out messages; give prompts and completions"
        )
    if isinstance(example, Completion):
        messages: Sequence[Message] = (
            {"role": "user", "content": example.prompt},
            {"role": "assistant", "content": example.completion},
        )
    else:
        messages = example.messages
    tools = {"tools": list(example.tools)} if isinstance(example, Conversation) and example.tools else {}
    places = [
        n for n, message in enumerate(messages) if message["role"] == "assistant" and message.get("weight", 1)
    ]
    chats = [chat for n in places for chat in ((messages[:n], True), (messages[: n + 1], False))]

    def rendered(chats: Sequence[tuple[Sequence[Message], bool]]) -> list[str]:
        texts = render_chats(
            tokenizer.chat_template or "", chats, special_tokens=tokenizer.special_tokens, **tools
        )
        error = next((text for text in texts if not isinstance(text, str)), None)
        if error is not None:
            raise error
        return texts

    format = answer_format(tokenizer, loaded.registry)
    texts = rendered(chats)
    for n, prompt, text in zip(places, texts[::2], texts[1::2], strict=True):
        answer = text[len(prompt) :] if text.startswith(prompt) else None
        if answer is None:
            (without,) = rendered([(messages[:n], False)])
            answer = _after_header(prompt, without, text, messages[n], format)
        if not answer.strip():
            raise ZooError(f"the chat template writes nothing of message {n + 1} after the prompt for it")
        yield prompt, answer


def _after_header(prompt: str, without: str, text: str, message: Message, format: AnswerFormat) -> str:
    """The answer in a text that does not begin with the prompt for it.

    `without` is the prompt without what begins an answer, its header. Some templates open the model's thinking there, or
    close it, and leave the thinking out of the message: it is then written as the model would have to go on.
    """
    opening, closing = (tag.strip() for tag in format.thinking or ("", ""))
    header = prompt.removeprefix(without)
    head = header
    for tag in filter(None, (opening, closing)):
        head = head.partition(tag)[0]
    at = text.rfind(head.rstrip()) if head.strip() else common_prefix(text, without)
    if at < 0:
        return ""
    answer = text[at + len(head.rstrip()) :].lstrip()
    thinking, closed, said = answer.removeprefix(opening).partition(closing) if closing else ("", "", answer)
    if not closed:
        thinking, said = with_thinking(dict(message)).get("reasoning_content") or "", answer
    if opening and header.rstrip().endswith(opening):
        return f"{thinking.strip()}\n{closing}\n\n{said.lstrip()}"
    return said.lstrip() if closing and header.rstrip().endswith(closing) else answer


def collate(rows: Sequence[TokenRow], loaded: Loaded, order: random.Random) -> Batch:
    """Inputs and targets, (B, T), padded on the right."""
    return padded_ids([row.ids for row in rows], 0), padded_ids([row.targets for row in rows], IGNORED)


def loss(model: Any, inputs: mx.array, targets: mx.array) -> mx.array:
    """The mean loss of the targets (B, T) that are not ignored, after inputs (B, T)."""
    return scored_loss(model.backbone(inputs), model.head, targets)


def left_out(rows: Sequence[Any], length: int) -> str | None:
    """A sentence about the tokens that rows of at most `length` tokens leave out; None where they have all."""
    cut = [row.cut for row in rows if row.cut]
    if not cut:
        return None
    return f"{len(cut):,} of {len(rows):,} rows are longer than {length:,} tokens: {sum(cut):,} tokens are left out"


ANSWERS = ExampleObjective((TextExample, Completion, Conversation), encode, collate, loss)
