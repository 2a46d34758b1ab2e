"""The zoo itself, as one of the engines."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zoo.inspect.timing import timed_tokens
from zoo.loading import Loaded
from zoo_bench.engine import BenchmarkEngine, Job, Lengths
from zoo_bench.limits import needs

if TYPE_CHECKING:
    from zoo.generation.loop.engine import Engine

DRAFT = 8  # tokens that are looked up a step


def zoo(job: Job) -> BenchmarkEngine:
    """The zoo, with what its model does."""
    from zoo.loading import load

    loaded = load(job.path, force=True, dtype=job.dtype, architecture=job.architecture, unpack=job.unpack)
    model, causality = loaded.model, loaded.architecture.causality
    if model.translates:
        return ZooTranslator(loaded)
    return ZooDecoder(loaded) if model.decodes and causality != "full" else ZooEngine(loaded)


class ZooEngine(BenchmarkEngine):
    """A model that the zoo has loaded; of its works only the loading is timed."""

    refused: str | None = (
        "not a model that writes a text token by token: `zoo compare --measure` times it, and --only load its loading"
    )

    def __init__(self, loaded: Loaded) -> None:
        # Without a tokenizer and settings there is no end token: no text is shorter.
        self.loaded = replace(loaded, tokenizer=None, config={}, generation_config={})
        if loaded.tokenizer is not None:
            self.encode = loaded.tokenizer.encode
        self.vocab: int = loaded.recipe.embedding.vocab
        self.context = loaded.recipe.context

    def _writing(self, rows: list[list[int]], new: int) -> Engine:
        """The zoo's engine with these prompts; it answers each with `new` tokens."""
        from zoo.generation.loop.engine import Engine

        engine = Engine(self.loaded, rows=len(rows))
        for ids in rows:
            engine.add(ids, max_tokens=new, temperature=0.0)
        return engine


class ZooTranslator(ZooEngine):
    """A model that translates."""

    refused = "a translator: --only load, start and translate time it"

    def translate(self, rows: list[list[int]], new: int) -> float:
        """Seconds of the translations of texts side by side."""
        began = time.perf_counter()
        for _ in self._writing(rows, new).run():
            pass
        return time.perf_counter() - began


class ZooDecoder(ZooEngine):
    """A model that continues a text."""

    refused = None

    def needs(self, lengths: Lengths) -> dict[str, float]:
        """By metric, what a token takes of the machine's limit that bounds it."""
        import mlx.core as mx
        from mlx.utils import tree_flatten

        from zoo import runtime

        recipe = self.loaded.recipe
        dtype = runtime.compute_dtype() or mx.bfloat16
        held = sum(array.nbytes for _, array in tree_flatten(self.loaded.model.parameters()))
        a_weight = dtype.size if self.loaded.unpacked else held / recipe.parameters(recipe.dim)
        return needs(recipe, a_weight, dtype.size, lengths)

    def write(self, ids: list[int], new: int, **settings: Any) -> tuple[float, float]:
        """Seconds to the first token, and of those after it."""
        from zoo.generation import stream

        return timed_tokens(stream(self.loaded, ids, max_tokens=new, temperature=0.0, **settings))

    def write_drafted(self, ids: list[int], new: int) -> tuple[float, float]:
        """The same with drafts that are looked up in the text."""
        return self.write(ids, new, prompt_lookup=DRAFT)

    def turns(self, ids: list[int], answer: int, following: list[int]) -> tuple[float, float]:
        """Seconds to the first token after a message, and after it, its answer and another message."""
        from zoo.generation.prefix_cache import PromptCache

        held = PromptCache(self.loaded)
        first, given = self._first(ids, answer, held)
        return first, self._first([*ids, *given, *following], answer, held)[0]

    def _first(self, ids: list[int], new: int, held: Any) -> tuple[float, list[int]]:
        """Seconds to the first token of an answer, and the answer."""
        from zoo.generation import stream

        began = time.perf_counter()
        steps = stream(self.loaded, ids, max_tokens=new, temperature=0.0, prompt_cache=held)
        given = [next(steps).token]
        first = time.perf_counter() - began
        return first, [*given, *(step.token for step in steps)]  # type: ignore[list-item]

    def write_rows(self, rows: list[list[int]], new: int) -> float:
        """Seconds of the tokens after the first of texts side by side."""
        engine = self._writing(rows, new)
        while len(engine.step()) < len(rows):
            pass
        began = time.perf_counter()
        for _ in engine.run():
            pass
        return time.perf_counter() - began

    def step(self) -> tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]:
        """The function that builds one step after 4 tokens, ids (1, 1) -> next token, and the one for the arrays to evaluate."""
        import mlx.core as mx

        from zoo.compiled_step import compiled_step

        model = self.loaded.model
        cache = model.make_cache()
        model.backbone(mx.array([[1, 2, 3, 4]]), cache)
        run = compiled_step(model) or (lambda ids, cache: model.head(model.backbone(ids, cache))[:, 0])

        def build(ids: Any) -> Any:
            logits = run(ids, cache)
            return mx.argmax(logits, axis=-1), logits.max(axis=-1)

        return build, lambda found: [*found, [one.state for one in cache]]
