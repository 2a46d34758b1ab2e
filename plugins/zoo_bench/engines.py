"""The engines by their names: the zoo itself, and those beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo import runtime
from zoo.checkpoint.checkpoint import open_checkpoint
from zoo.errors import SourceError, in_words
from zoo.host.registry import default_registry
from zoo.inspect.timing import timed_tokens
from zoo.loading import Loaded, load
from zoo_bench.engine import BenchmarkEngine, Job, Lengths
from zoo_bench.limits import needs

DRAFT = 8  # tokens that are looked up a step


def zoo(job: Job) -> BenchmarkEngine:
    """The zoo, with what its model does."""
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

    def _writing(self, texts: list[list[int]], new: int, rows: int | None = None) -> Any:
        """The zoo's engine with these prompts, all or `rows` at once; it answers each with `new` tokens."""
        from zoo.generation.loop.engine import Engine

        engine = Engine(self.loaded, rows=rows or len(texts))
        for ids in texts:
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
        recipe = self.loaded.recipe
        dtype = runtime.compute_dtype() or mx.bfloat16
        weight_bytes = sum(array.nbytes for _, array in tree_flatten(self.loaded.model.parameters()))
        a_weight = dtype.size if self.loaded.unpacked else weight_bytes / recipe.parameters(recipe.dim)
        return needs(recipe, a_weight, dtype.size, lengths)

    def tokens(self, ids: list[int], new: int, **settings: Any) -> Iterator[Any]:
        """The steps of `new` tokens."""
        from zoo.generation import stream

        return stream(self.loaded, ids, max_tokens=new, temperature=0.0, **settings)

    def drafted_tokens(self, ids: list[int], new: int) -> Iterator[Any]:
        """The same with drafts that are looked up in the text."""
        return self.tokens(ids, new, prompt_lookup=DRAFT)

    def turns(self, ids: list[int], answer: int, following: list[int]) -> tuple[float, float]:
        """Seconds to the first token after a message, and after it, its answer and another message."""
        from zoo.generation.prefix_cache import PromptCache

        prompt_cache = PromptCache(self.loaded)
        first, given = self._first(ids, answer, prompt_cache)
        return first, self._first([*ids, *given, *following], answer, prompt_cache)[0]

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
        return sum(timed_tokens(engine.run()))

    def write_texts(self, texts: list[list[int]], new: int, rows: int) -> float:
        """Seconds of reading and writing texts, `rows` of them side by side."""
        return sum(timed_tokens(self._writing(texts, new, rows).run()))

    def step(self) -> tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]:
        """The function that builds one step after 4 tokens, ids (1, 1) -> next token, and the one for the arrays to evaluate."""
        from zoo.compiled_step import compiled_step

        model = self.loaded.model
        cache = model.make_cache()
        model.backbone(mx.array([[1, 2, 3, 4]]), cache)
        run = compiled_step(model) or (lambda ids, cache: model.head(model.backbone(ids, cache))[:, 0])

        def build(ids: mx.array) -> Any:
            logits = run(ids, cache)
            return mx.argmax(logits, axis=-1), logits.max(axis=-1)

        return build, lambda found: [*found, [memory.state for memory in cache]]


class Mlx(BenchmarkEngine):
    """MLX's own reading of the same files, and nothing else: what no loading can be faster than."""

    def __init__(self, job: Job) -> None:
        import numpy

        files = open_checkpoint(job.path, default_registry()).weight_files()
        # Of other files the bytes: MLX's own reader of GGUF crashes at a damaged one.
        self.arrays = [
            mx.load(str(file))
            if file.suffix == ".safetensors"
            else mx.array(numpy.fromfile(file, numpy.uint8))
            for file in files
        ]
        mx.eval(self.arrays)


class MlxLm(BenchmarkEngine):
    """mlx-lm, on the BLAS that the zoo uses."""

    def __init__(self, job: Job) -> None:
        from mlx_lm.utils import load_model

        self.model, config = load_model(job.path)
        if job.dtype:
            self.model.set_dtype(getattr(mx, job.dtype))
            mx.eval(self.model.parameters())
        self.vocab: int = config["vocab_size"]
        self.context = config.get("max_position_embeddings", config.get("n_positions"))

    def tokens(self, ids: list[int], new: int) -> Iterator[Any]:
        """The next `new` tokens."""
        from mlx_lm.generate import generate_step

        return generate_step(mx.array(ids), self.model, max_tokens=new)  # type: ignore[no-any-return]

    def write_texts(self, texts: list[list[int]], new: int, rows: int) -> float:
        """Seconds of reading and writing texts, `rows` of them side by side."""
        from mlx_lm.generate import BatchGenerator

        engine = BatchGenerator(
            self.model, max_tokens=new, completion_batch_size=rows, prefill_batch_size=rows
        )
        began = time.perf_counter()
        engine.insert(texts)
        left = len(texts) * new
        while left > 0:
            left -= len(engine.next()[-1])
        return time.perf_counter() - began

    def write_rows(self, rows: list[list[int]], new: int) -> float:
        """Seconds of the tokens after the first of texts side by side."""
        from mlx_lm.generate import BatchGenerator

        engine = BatchGenerator(self.model, max_tokens=new, completion_batch_size=len(rows))
        engine.insert(rows)
        tokens: list[Any] = []
        while len(tokens) < len(rows):
            tokens = engine.next()[-1]
        began = time.perf_counter()
        while engine.next()[-1]:
            pass
        return time.perf_counter() - began

    def step(self) -> tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]:
        """The function that builds one step as mlx-lm's own generation does, and the one for the arrays to evaluate."""
        from mlx_lm.models.cache import make_prompt_cache

        cache = make_prompt_cache(self.model)
        self.model(mx.array([[1, 2, 3, 4]]), cache=cache)

        def build(ids: mx.array) -> Any:
            logits = self.model(ids, cache=cache)[:, -1, :]
            scores = logits - mx.logsumexp(logits, keepdims=True)
            return mx.argmax(scores, axis=-1), scores

        return build, lambda found: [*found, [memory.state for memory in cache]]


class Transformers(BenchmarkEngine):
    """transformers on torch."""

    on_mlx = False

    def __init__(self, job: Job) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        kind = getattr(torch, job.dtype or "float32")
        self.model = AutoModelForCausalLM.from_pretrained(job.path, dtype=kind).eval()
        self.vocab: int = self.model.config.vocab_size
        self.context = self.model.config.max_position_embeddings

    def tokens(self, ids: list[int], new: int) -> Iterator[Any]:
        """The next `new` tokens."""
        return self._tokens([ids], new)

    def write_rows(self, rows: list[list[int]], new: int) -> float:
        """Seconds of the tokens after the first of texts side by side."""
        return timed_tokens(self._tokens(rows, new))[1]

    def _tokens(self, rows: list[list[int]], new: int) -> Iterator[list[list[int]]]:
        """The next token of each row, `new` times."""
        import torch

        given, past = torch.tensor(rows), None
        with torch.inference_mode():
            for _ in range(new):
                out = self.model(given, past_key_values=past, use_cache=True, logits_to_keep=1)
                past, given = out.past_key_values, out.logits[:, -1:].argmax(-1)
                yield given.tolist()


class LlamaCpp(BenchmarkEngine):
    """llama.cpp by its Python package, in the types of a GGUF file, on as many threads as there are cores."""

    on_mlx = False

    def __init__(self, job: Job) -> None:
        from llama_cpp import Llama

        if job.path.suffix != ".gguf":
            raise SourceError(f"llama.cpp: {job.path} is no GGUF file, and it reads no other")
        threads, self.context = runtime.threads(), job.lengths.longest(job.works)
        self.model = Llama(
            str(job.path), n_ctx=self.context, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self.vocab: int = self.model.n_vocab()

    def tokens(self, ids: list[int], new: int) -> Iterator[Any]:
        """The next `new` tokens."""
        self.model.reset()  # or it would go on from what it has read of the same prompt
        return islice(self.model.generate(ids, temp=0.0), new)


class CTranslate2(BenchmarkEngine):
    """CTranslate2, as many threads as cores; its own copy of the folder is made first and lies in a temporary one.

    It translates ids to a fixed number of tokens, the likeliest each time, without an end token. The bytes of the
    conversion are among those that its process has held.
    """

    on_mlx = False

    def __init__(self, job: Job) -> None:
        import ctranslate2

        dtype = job.dtype or "float32"
        with TemporaryDirectory() as copy:
            began = time.perf_counter()
            self._tokens = converted(job.path, Path(copy), dtype)
            self.converting = time.perf_counter() - began
            self._translator = ctranslate2.Translator(
                copy, device="cpu", compute_type=dtype, intra_threads=runtime.threads()
            )
        self.vocab: int = len(self._tokens) - 1  # but for the padding

    def translate(self, rows: list[list[int]], new: int) -> float:
        """Seconds in which it writes `new` tokens for each of these sources, side by side."""
        sources = [[self._tokens[id] for id in ids] for ids in rows]
        began = time.perf_counter()
        self._translator.translate_batch(
            sources, beam_size=1, min_decoding_length=new, max_decoding_length=new, max_batch_size=0
        )
        return time.perf_counter() - began


def converted(folder: Path, made: Path, dtype: str) -> list[str]:
    """Write what CTranslate2 reads of a folder into `made`, and give the name of each token.

    The names are the ids: a translation that is timed needs no text, and the folder no tokenizer. SourceError for a model
    that CTranslate2 does not know.
    """
    from ctranslate2.converters import TransformersConverter
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    names = [f"<{id}>" for id in range(config.vocab_size)]
    names[-1] = "<pad>"  # Marian's last, which CTranslate2 leaves out

    class Converter(TransformersConverter):  # type: ignore[misc]
        def load_tokenizer(self, *arguments: Any, **settings: Any) -> SimpleNamespace:
            """A tokenizer with these names of tokens, as far as the conversion uses one."""
            end, unknown = names[config.eos_token_id : config.eos_token_id + 2]
            return SimpleNamespace(
                **dict.fromkeys(("bos_token", "eos_token", "pad_token"), end),
                unk_token=unknown,
                get_vocab=lambda: {name: id for id, name in enumerate(names)},
                convert_ids_to_tokens=names.__getitem__,
            )

    try:
        Converter(str(folder)).convert(str(made), quantization=dtype, force=True)
    except ValueError as error:
        raise SourceError(f"{folder}: CTranslate2 cannot convert it: {in_words(error)}") from error
    return names


ENGINES: dict[str, Callable[[Job], BenchmarkEngine]] = {
    "zoo": zoo,
    "mlx": Mlx,
    "mlx-lm": MlxLm,
    "transformers": Transformers,
    "llama.cpp": LlamaCpp,
    "ctranslate2": CTranslate2,
}
