"""The engines beside the zoo, and all engines by their names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zoo.errors import SourceError, in_words
from zoo.inspect.timing import timed_tokens
from zoo_bench.engine import BenchmarkEngine, Job
from zoo_bench.zoo_engine import zoo


class Mlx(BenchmarkEngine):
    """MLX's own reading of the same files, and nothing else: what no loading can be faster than."""

    def __init__(self, job: Job) -> None:
        import mlx.core as mx
        import numpy

        from zoo.checkpoint.checkpoint import open_checkpoint
        from zoo.host.registry import default_registry

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
        import mlx.core as mx
        from mlx_lm.utils import load_model

        self.model, config = load_model(job.path)
        if job.dtype:
            self.model.set_dtype(getattr(mx, job.dtype))
            mx.eval(self.model.parameters())
        self.vocab: int = config["vocab_size"]
        self.context = config.get("max_position_embeddings", config.get("n_positions"))

    def write(self, ids: list[int], new: int) -> tuple[float, float]:
        """Seconds to the first token, and of those after it."""
        import mlx.core as mx
        from mlx_lm.generate import generate_step

        return timed_tokens(generate_step(mx.array(ids), self.model, max_tokens=new))

    def write_rows(self, rows: list[list[int]], new: int) -> float:
        """Seconds of the tokens after the first of texts side by side."""
        from mlx_lm.generate import BatchGenerator

        engine = BatchGenerator(self.model, max_tokens=new, completion_batch_size=len(rows))
        engine.insert(rows)
        found: list[Any] = []
        while len(found) < len(rows):
            found = engine.next()[-1]
        began = time.perf_counter()
        while engine.next()[-1]:
            pass
        return time.perf_counter() - began

    def step(self) -> tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]:
        """The function that builds one step as mlx-lm's own generation does, and the one for the arrays to evaluate."""
        import mlx.core as mx
        from mlx_lm.models.cache import make_prompt_cache

        cache = make_prompt_cache(self.model)
        self.model(mx.array([[1, 2, 3, 4]]), cache=cache)

        def build(ids: Any) -> Any:
            logits = self.model(ids, cache=cache)[:, -1, :]
            scores = logits - mx.logsumexp(logits, keepdims=True)
            return mx.argmax(scores, axis=-1), scores

        return build, lambda found: [*found, [one.state for one in cache]]


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

    def write(self, ids: list[int], new: int) -> tuple[float, float]:
        """Seconds to the first token, and of those after it."""
        return timed_tokens(self._tokens([ids], new))

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

        from zoo import runtime

        if job.path.suffix != ".gguf":
            raise SourceError(f"llama.cpp: {job.path} is no GGUF file, and it reads no other")
        threads = runtime.threads()
        self.model = Llama(
            str(job.path), n_ctx=job.longest, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self.vocab: int = self.model.n_vocab()
        self.context = job.longest

    def write(self, ids: list[int], new: int) -> tuple[float, float]:
        """Seconds to the first token, and of those after it."""
        self.model.reset()  # or it would go on from what it has read of the same prompt
        tokens = self.model.generate(ids, temp=0.0)
        return timed_tokens(next(tokens) for _ in range(new))


class CTranslate2(BenchmarkEngine):
    """CTranslate2, as many threads as cores; its own copy of the folder is made first and lies in a temporary one.

    It translates ids to a fixed number of tokens, the likeliest each time, without an end token. The bytes of the
    conversion are among those that its process has held.
    """

    on_mlx = False

    def __init__(self, job: Job) -> None:
        import ctranslate2

        from zoo.runtime import threads

        dtype = job.dtype or "float32"
        with TemporaryDirectory() as made:
            began = time.perf_counter()
            self._tokens = converted(job.path, Path(made), dtype)
            self.converting = time.perf_counter() - began
            self._translator = ctranslate2.Translator(
                made, device="cpu", compute_type=dtype, intra_threads=threads()
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
        def load_tokenizer(self, *arguments: Any, **settings: Any) -> TokenNames:
            return TokenNames(names, config.eos_token_id)

    try:
        Converter(str(folder)).convert(str(made), quantization=dtype, force=True)
    except ValueError as error:
        raise SourceError(f"{folder}: CTranslate2 cannot convert it: {in_words(error)}") from error
    return names


class TokenNames:
    """A tokenizer with these names of tokens, as far as the conversion uses one."""

    def __init__(self, names: list[str], end: int) -> None:
        self.names = names
        self.bos_token = self.eos_token = self.pad_token = names[end]
        self.unk_token = names[end + 1]

    def get_vocab(self) -> dict[str, int]:
        """The id of each name."""
        return {name: id for id, name in enumerate(self.names)}

    def convert_ids_to_tokens(self, id: int) -> str:
        """The name of an id."""
        return self.names[id]


ENGINES: dict[str, Callable[[Job], BenchmarkEngine]] = {
    "zoo": zoo,
    "mlx": Mlx,
    "mlx-lm": MlxLm,
    "transformers": Transformers,
    "llama.cpp": LlamaCpp,
    "ctranslate2": CTranslate2,
}
