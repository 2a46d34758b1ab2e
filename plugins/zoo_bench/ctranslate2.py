"""CTranslate2, which translates ids to a fixed number of tokens, the likeliest each time, without an end token."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zoo.errors import SourceError, in_words
from zoo_bench.engine import BenchmarkEngine, Job, process_peak


class CTranslate2(BenchmarkEngine):
    """CTranslate2, as many threads as cores; its own copy of the folder is made first and lies in a temporary one."""

    def __init__(self, job: Job) -> None:
        import ctranslate2

        from zoo.runtime import threads

        with TemporaryDirectory() as made:
            began = time.perf_counter()
            tokens = converted(job.path, Path(made), job.dtype or "float32")
            self.converting = time.perf_counter() - began
            self._translator = ctranslate2.Translator(
                made, device="cpu", compute_type=job.dtype or "float32", intra_threads=threads()
            )
        self._tokens = tokens
        self.vocab: int = len(tokens) - 1  # but for the padding

    def peak(self) -> int:
        """The most bytes that the process has held, those of the conversion among them."""
        return process_peak()

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
