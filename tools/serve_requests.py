"""Random requests for `tools/serve_load.py`, and the answers that the library gives to each of them alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve_client import Reader, Reply

import zoo
from zoo.cache import CachePolicy
from zoo.errors import ZooError
from zoo.generation.chat.chat_prompt import chat_prompt
from zoo.generation.chat.session import Transcript
from zoo.generation.loop.prompt import encode_prompt, has_chat_template
from zoo.generation.loop.step import Step
from zoo.loading import Loaded

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NO_CONTEXT = 300  # tokens of the longest prompts, of a model with a longer context or none
TEMPLATE = 24  # tokens that a chat template may add
VERDICTS = ("equal", "refused", "cancelled", "tie", "wrong")
TIE = 1e-3  # nats: a smaller gap between two tokens can be tipped by rounding
QUANTIZED_TIE = 0.2  # the same where a number of the cache can be rounded to the next of 15 or 255 values
NUDGE = 1e-5  # of a temperature: a draw that so small a change tips can be tipped by rounding, too
LOGPROB = 1e-2  # nats by which a log-probability may differ; QUANTIZED_TIE where the cache is quantized

TEXTS = (
    "The capital city of China is",
    "Question: which river is the longest? Answer:",
    "中国的首都是",
    "Once upon a time there was a small village by the sea, and",
    "The country domain of Norway is",
    "A list of five animals: the dog,",
    "La ville de Paris se trouve en",
    "def add(a, b):\n    return",
)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "large": {"type": "boolean"}},
    "required": ["name", "large"],
    "additionalProperties": False,
}
CONSTRAINTS: tuple[dict[str, Any], ...] = (
    {"regex": "[A-Z][a-z]{2,6}( [a-z]{2,6}){0,3}\\."},
    {"json_schema": SCHEMA},
)
PENALTIES: tuple[dict[str, Any], ...] = (
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.6, "frequency_penalty": 0.4},
    {"no_repeat_ngram_size": 3},
)
FILTERS: tuple[dict[str, Any], ...] = ({}, {"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.05})
POLICIES: tuple[dict[str, int], ...] = (
    {"kv_bits": 8},
    {"key_bits": 8, "value_bits": 4},
    {"max_kv_size": 48, "keep": 4},
)
WRONG: tuple[dict[str, Any], ...] = ({"max_tokens": -1}, {"top_q": 0.5}, {"temperature": "warm"})


@dataclass
class Turn:
    """A request to be made: its fields but the prompt, the new text, and how its answer is read."""

    text: str | list[int]
    fields: dict[str, Any]
    reader: Reader
    patience: float | None  # seconds after which the client gives up at first, and asks again
    body: dict[str, Any] | None = None  # as it was sent
    reply: Reply | None = None


@dataclass
class Conversation:
    """Requests that follow each other, each with what was said before."""

    path: str
    turns: list[Turn]

    def body(self, number: int) -> dict[str, Any]:
        """The request of this turn, once those before it were answered."""
        turn = self.turns[number]
        before = [(one.text, said(self.path, one)) for one in self.turns[:number]]
        if self.path == COMPLETIONS:
            if isinstance(turn.text, list):
                return {**turn.fields, "prompt": turn.text}
            text = "".join(f"{asked}{answer} " for asked, answer in before)
            return {**turn.fields, "prompt": text + turn.text}
        messages = []
        for asked, answer in before:
            messages += [
                {"role": "user", "content": asked},
                {"role": "assistant", "content": answer or "Yes."},
            ]
        return {**turn.fields, "messages": [*messages, {"role": "user", "content": turn.text}]}


class Planner:
    """Makes conversations of a seed, for what a model can do."""

    def __init__(self, loaded: Loaded, seed: int, stall: float, longest: int) -> None:
        """`stall`: seconds for which a reader that stalls reads nothing; `longest`: the most tokens of other answers."""
        self.random, self.loaded, self.stall = random.Random(seed), loaded, stall
        self.lengths = (1, max(longest // 8, 1), max(longest // 3, 1), longest)
        self.context = loaded.recipe.context
        self.chats = has_chat_template(loaded)
        model = loaded.model
        self.policies = [
            one for one in POLICIES if not model.refused(model.make_cache(), CachePolicy.of(**one))
        ]

    def conversations(self, requests: int) -> list[Conversation]:
        """Conversations of so many requests in all."""
        conversations, left = [], requests
        while left:
            path = self.random.choice([CHAT, COMPLETIONS] if self.chats else [COMPLETIONS])
            turns = min(left, self.random.choice((1, 1, 1, 2, 3)))
            conversations.append(Conversation(path, [self._turn(path, turns > 1) for _ in range(turns)]))
            left -= turns
        return conversations

    def _turn(self, path: str, short: bool) -> Turn:
        chance, choose = self.random.random, self.random.choice
        fields: dict[str, Any] = {"max_tokens": choose(self.lengths)}
        fields |= {"temperature": 0} if chance() < 0.5 else self._sampling()
        for share, some in ((0.2, PENALTIES), (0.25, self.policies), (0.15, CONSTRAINTS), (0.02, WRONG)):
            if some and chance() < share:
                fields |= choose(some)
        if chance() < 0.2:
            fields["stop"] = choose((".", ["\n", " the"], ","))
        if chance() < 0.2:
            fields |= {"logprobs": True, "top_logprobs": 3} if path == CHAT else {"logprobs": 3}
        if chance() < 0.1:
            fields["n"] = choose((2, 3))
        if chance() < 0.5:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        reader = Reader()
        if (dice := chance()) < 0.12:
            reader = Reader(leaves=choose((0.0, 0.02, 0.2, 1.0)) * chance())
        elif dice < 0.14 and fields.get("stream"):
            reader = Reader(slow=min(self.stall, 8))
        elif dice < 0.145:  # more than the buffers between the two processes hold
            reader = Reader(stalls=self.stall)
            fields = {"stream": True, "n": 8, "max_tokens": 500, "temperature": 0}
            fields |= {"logprobs": True, "top_logprobs": 20} if path == CHAT else {"logprobs": 20}
        patience = 3 * chance() if chance() < 0.05 else None
        return Turn(self._text(path, short), fields, reader, patience)

    def _sampling(self) -> dict[str, Any]:
        draw = {"temperature": round(self.random.uniform(0.4, 1.3), 2), "seed": self.random.randrange(2**31)}
        return draw | self.random.choice(FILTERS)

    def _text(self, path: str, short: bool) -> str | list[int]:
        """A prompt: short, medium, or as long as the context allows; now and then longer."""
        tokenizer = self.loaded.tokenizer
        assert tokenizer is not None
        text = self.random.choice(TEXTS)
        length = self.random.random()
        if short or length < 0.5:
            return text
        longest = min(self.context or NO_CONTEXT, NO_CONTEXT)
        wanted = longest - self.random.choice((-3, 1, 2, 8, 30))  # the first is too long
        if length < 0.8:
            wanted = self.random.randrange(20, longest // 2)
        ids: list[int] = []
        while len(ids) < wanted:
            ids += tokenizer.encode(self.random.choice(TEXTS) + " ", special_tokens=False)
        if path == CHAT:
            return tokenizer.decode(ids[: max(wanted - TEMPLATE, 8)])
        return ids[:wanted]


@dataclass
class Choice:
    """One answer: text, why it ended, and the log-probabilities of its tokens if they were asked for."""

    text: str
    reason: str | None
    logprobs: list[float] | None


def choices(path: str, reply: Reply) -> list[Choice]:
    """The answers in a reply, in their order."""
    if not reply.is_stream:
        return [
            Choice(
                (one["message"]["content"] or "") if path == CHAT else one["text"],
                one["finish_reason"],
                _logprobs(one),
            )
            for one in reply.json()["choices"]
        ]
    by_index: dict[int, Choice] = {}
    for event in reply.events:
        for part in event.get("choices", ()):
            choice = by_index.setdefault(part["index"], Choice("", None, None))
            choice.text += part["delta"].get("content", "") if path == CHAT else part["text"]
            choice.reason = part["finish_reason"] or choice.reason
            if (more := _logprobs(part)) is not None:
                choice.logprobs = (choice.logprobs or []) + more
    return [by_index[number] for number in sorted(by_index)]


def _logprobs(part: Mapping[str, Any]) -> list[float] | None:
    had = part.get("logprobs")
    if had is None:
        return None
    return had["token_logprobs"] if "token_logprobs" in had else [one["logprob"] for one in had["content"]]


def usage(reply: Reply) -> dict[str, Any] | None:
    """The numbers of tokens in a reply, if it has them."""
    if not reply.is_stream:
        return reply.json().get("usage")
    return next((event["usage"] for event in reply.events if event.get("usage")), None)


def is_refusal(reply: Reply) -> bool:
    """Whether the server says that the request is at fault, by its status or in a stream."""
    if reply.is_stream:
        return reply.failed and reply.events[-1]["error"]["type"] == "invalid_request_error"
    return reply.status == 400


def said(path: str, turn: Turn) -> str:
    """The first answer of a turn that was answered, else an empty text."""
    reply = turn.reply
    return choices(path, reply)[0].text if reply and reply.whole and reply.status == 200 else ""


class Alone:
    """What the library answers to each request by itself, with nothing else running."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded, self.context = loaded, loaded.recipe.context
        self._known: dict[str, list[Step]] = {}

    def verdicts(self, conversation: Conversation) -> Iterator[tuple[Turn, str, str]]:
        """Each turn with its verdict, one of `VERDICTS`, and what to see of it.

        The server encodes earlier answers with the ids that the model generated, if it remembers them: a later turn is
        compared with both encodings.
        """
        assert self.loaded.tokenizer is not None
        transcript = Transcript(self.loaded.tokenizer)
        for turn in conversation.turns:
            encoders = [transcript.encode, None] if conversation.path == CHAT else [None]
            best = None
            for encode in encoders:
                verdict, seen, generated = self._verdict(conversation.path, turn, encode)
                for ids in generated:
                    transcript.add(ids)
                if best is None or VERDICTS.index(verdict) < VERDICTS.index(best[0]):
                    best = verdict, seen
                if verdict in ("equal", "refused", "cancelled"):
                    break
            assert best is not None
            yield turn, *best

    def _verdict(self, path: str, turn: Turn, encode: Any) -> tuple[str, str, list[list[int]]]:
        reply, body = turn.reply, turn.body
        assert reply is not None and body is not None
        if not reply.whole:
            gone = turn.reader.leaves is not None or turn.reader.stalls is not None
            return ("cancelled" if gone else "wrong"), "the answer is not whole", []
        try:
            ids, settings, view = self._prompt(path, body, encode)
            answers = [self._alone(view, ids, settings, number) for number in range(body.get("n", 1))]
            for steps in answers:
                if steps[-1].error is not None:
                    raise steps[-1].error
        except ZooError as error:
            return "refused" if is_refusal(reply) else "wrong", f"status {reply.status}, alone: {error}", []
        if reply.status != 200 or reply.failed:
            problem = str(reply.events[-1:]) if reply.is_stream else reply.body.decode()
            return "wrong", f"status {reply.status}: {problem[:200]}", []
        generated = [[*ids, *(step.token for step in steps if step.token is not None)] for steps in answers]
        counts, got = usage(reply), choices(path, reply)
        if len(got) != len(answers):
            return "wrong", f"{len(got)} answers in place of {len(answers)}", generated
        if counts is not None and counts["prompt_tokens"] != len(ids):
            return "wrong", f"{counts['prompt_tokens']} prompt tokens in place of {len(ids)}", generated
        worst, seen = "equal", ""
        for number, (one, steps) in enumerate(zip(got, answers, strict=True)):
            verdict, what = self._compared(one, steps, ids, settings, view, number)
            if verdict == "wrong" or (verdict == "tie" and worst == "equal"):
                worst, seen = verdict, what
        if worst == "equal" and counts is not None:
            expected = sum(len(one) - len(ids) for one in generated)
            if counts["completion_tokens"] != expected:
                return (
                    "wrong",
                    f"{counts['completion_tokens']} tokens counted in place of {expected}",
                    generated,
                )
        return worst, seen, generated

    def _prompt(
        self, path: str, body: Mapping[str, Any], encode: Any
    ) -> tuple[list[int], dict[str, Any], Any]:
        """The ids, the settings as `zoo.stream` takes them, and the model with the tokenizer of the answer."""
        others = ("prompt", "messages", "n", "stream", "stream_options", "top_logprobs")
        settings = {name: value for name, value in body.items() if name not in others}
        if "logprobs" in settings:
            settings["logprobs"] = body.get("top_logprobs", body["logprobs"])
        if path == CHAT:
            prompt = chat_prompt(self.loaded, body["messages"], encode=encode)
            ids, view = prompt.ids, prompt.loaded
        else:
            ids, view = encode_prompt(self.loaded, body["prompt"]), self.loaded
        bounded = self.context is not None and "max_kv_size" not in settings
        if bounded and len(ids) >= self.context:
            raise ZooError(f"the prompt has {len(ids)} tokens, the context {self.context}")
        if self.context is not None and isinstance(settings["max_tokens"], int):
            settings["max_tokens"] = min(settings["max_tokens"], max(self.context - len(ids), 1))
        return ids, settings, view

    def _alone(
        self, view: Loaded, ids: list[int], settings: dict[str, Any], number: int, **more: Any
    ) -> list[Step]:
        seed = {"seed": settings["seed"] + number} if "seed" in settings else {}
        settings = {**settings, **seed, **more}
        key = repr((ids, settings))
        if key not in self._known:
            self._known[key] = list(zoo.stream(view, ids, **settings))
        return self._known[key]

    def _compared(
        self, got: Choice, steps: Sequence[Step], ids: list[int], settings: dict[str, Any], view: Loaded, number: int
    ) -> tuple[str, str]:  # fmt: skip
        text, reason = "".join(step.text for step in steps), steps[-1].finish_reason
        quantized = any("bits" in name for name in settings)
        if got.text == text and got.reason == reason:
            if got.logprobs is not None:
                reported = [step.logprob for step in steps if step.logprob is not None]
                worst = max((abs(a - b) for a, b in zip(got.logprobs, reported, strict=False)), default=0)
                if len(reported) != len(got.logprobs) or worst > (QUANTIZED_TIE if quantized else LOGPROB):
                    return "wrong", f"log-probabilities differ by {worst:.3g} nats, {settings}"
            return "equal", ""
        if settings["temperature"]:
            for change in (-NUDGE, NUDGE):
                nudged = settings["temperature"] * (1 + change)
                drawn = self._alone(view, ids, settings, number, temperature=nudged)
                if "".join(step.text for step in drawn) == got.text and drawn[-1].finish_reason == got.reason:
                    return "tie", f"temperature {change:+g}, {settings}"
        steps = self._alone(view, ids, settings, number, logprobs=20)
        place, before = 0, ""
        while place < len(steps) - 1 and got.text.startswith(before + steps[place].text):
            before += steps[place].text
            place += 1
        step = steps[place]
        ranked = sorted((step.alternatives or {}).values(), reverse=True)
        gap = ranked[0] - ranked[1] if len(ranked) > 1 else float("inf")
        seen = (
            f"token {place + 1}: gap {gap:.2g} nats; {got.text[len(before):][:30]!r} in place of "
            f"{text[len(before):][:30]!r}; {got.reason}/{reason}; {len(ids)} ids, {settings}"
        )  # fmt: skip
        return ("tie" if gap < (QUANTIZED_TIE if quantized else TIE) else "wrong"), seen
