"""A loaded model as lm-eval's `LM`: what its tasks ask, answered by the zoo."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from zoo.checkpoint.open import Report
from zoo.errors import PromptError
from zoo.generation import batch
from zoo.generation.loop.prompt import bos_id_of, eos_ids_of, render_messages, start_token
from zoo.loading import Loaded
from zoo.training.loss import IGNORED
from zoo_evaluate.likelihood import TargetRow, likelihoods

CONTEXT, NEW_TOKENS = 2048, 256  # lm-eval's own, where the model or the task says nothing
Tokens = tuple[
    tuple[str, str] | None, list[int], list[int]
]  # the texts, the context's ids, the continuation's


class ZooLM(TemplateLM):
    """A decoder or an encoder-decoder with a tokenizer; PromptError for any other model.

    Texts are encoded as lm-eval's own class for transformers encodes them, and cut on the left. `report` is called with
    the requests done and those in all.
    """

    def __init__(self, loaded: Loaded, report: Report | None = None) -> None:
        super().__init__()
        name = loaded.folder.name or loaded.architecture.name
        if loaded.architecture.task not in ("generate", "translate"):
            raise PromptError(f"{loaded.architecture.name} does not predict a next token, which tasks need")
        if loaded.tokenizer is None:
            raise PromptError(f"{name}: has no tokenizer, which tasks need")
        self.loaded, self.tokenizer, self.report = loaded, loaded.tokenizer, report
        self.backend = "seq2seq" if loaded.model.translates else "causal"
        self.max_length = loaded.recipe.context or CONTEXT

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        name = self.tokenizer.special_tokens.get("eos_token")
        id = None if name is None else self.tokenizer.id(name)
        return min(eos_ids_of(self.loaded), default=0) if id is None else id

    @property
    def prefix_token_id(self) -> int:
        """The token that an empty context stands for."""
        bos = bos_id_of(self.loaded)
        return self.eot_token_id if bos is None else bos

    @property
    def tokenizer_name(self) -> str:
        """A name for lm-eval's caches."""
        return str(self.loaded.folder).replace("/", "__")

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The text of messages; without a generation prompt it ends with the last message's content."""
        text = render_messages(self.loaded, chat_history, {"add_generation_prompt": add_generation_prompt})
        if add_generation_prompt:
            return text
        content = chat_history[-1]["content"].strip()
        return text[: text.rindex(content) + len(content)]

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """The ids of a text; a text that begins with the start token gets no other."""
        if add_special_tokens is None:
            add_special_tokens = not string.startswith(self.tokenizer.token(self.prefix_token_id))
        return self.tokenizer.encode(string, add_special_tokens)

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """The log-probability of each continuation, and whether it is the greedy one."""
        return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(self, requests: Sequence[Tokens], **options: Any) -> list[tuple[float, bool]]:
        rows = [self._row(context, continuation) for _, context, continuation in requests]
        answers = [
            (found.total, all(found.likeliest)) for found in likelihoods(self.loaded, rows, self.report)
        ]
        for (texts, _, _), answer in zip(requests, answers, strict=True):
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answers

    def _row(self, context: Sequence[int], continuation: Sequence[int]) -> TargetRow:
        """What the model reads of a context and its continuation."""
        if len(continuation) > self.max_length:
            raise PromptError(
                f"a task's continuation has {len(continuation)} tokens, more than the {self.max_length} of the context"
            )
        if self.backend == "seq2seq":
            inputs = [start_token(self.loaded), *continuation[:-1]]
            return TargetRow(inputs, continuation, context[-self.max_length :])
        inputs = [*context, *continuation][-self.max_length - 1 : -1]
        return TargetRow(inputs, [*[IGNORED] * (len(inputs) - len(continuation)), *continuation])

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = True) -> list[float]:
        """The log-probability of each text, by windows of the whole context."""
        windows: list[list[Tokens]] = []
        for (text,) in (request.args for request in requests):
            pairs = get_rolling_token_windows(
                self.tok_encode(text), self.prefix_token_id, self.max_length, context_len=1
            )
            windows.append([(None, *make_disjoint_window(pair)) for pair in pairs])
        parts = iter(self._loglikelihood_tokens([window for own in windows for window in own]))
        totals = [sum(next(parts)[0] for _ in own) for own in windows]
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        """The text that follows each context, greedy unless the task samples, up to the first of its stop strings."""
        alike: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            alike.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(index)
        texts: dict[int, str] = {}
        for indices in alike.values():
            contexts = [requests[index].args[0] for index in indices]
            texts |= zip(indices, self._generate_texts(contexts, requests[indices[0]].args[1]), strict=True)
        for index, request in enumerate(requests):
            self.cache_hook.add_partial("generate_until", request.args, texts[index])
        return [texts[index] for index in range(len(requests))]

    def _generate_texts(self, contexts: Sequence[str], asked: dict[str, Any]) -> Iterable[str]:
        """The texts that follow contexts, with the settings of a task."""
        settings: dict[str, Any] = {**normalize_gen_kwargs(asked, NEW_TOKENS)}
        until = handle_stop_sequences(settings.pop("until"), eos=None)
        new = settings.pop("max_gen_toks")
        sampled = settings.pop("do_sample")
        settings["temperature"] = settings.get("temperature", 1.0) if sampled else 0.0
        room = self.max_length if self.backend == "seq2seq" else self.max_length - new
        if room < 1:
            raise PromptError(f"a task asks for {new} new tokens, and the context has {self.max_length}")
        prompts = [self.tok_encode(context)[-room:] for context in contexts]
        stop = [text for text in until if text]
        answers = batch(self.loaded, prompts, max_tokens=new, stop=stop, report=self.report, **settings)
        return [postprocess_generated_text(answer.text, until, None) for answer in answers]
