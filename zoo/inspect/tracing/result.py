"""`Trace`: the values of a run by address. Axes: B batch, T tokens, S cached and new, H heads, D width, V vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import mlx.core as mx
import numpy as np

from zoo.architecture import import_target
from zoo.errors import PromptError
from zoo.files.writing import GENERATOR, output_file
from zoo.generation.loop.step import Step
from zoo.generation.settings import Settings
from zoo.inspect.tracing.choices import Choice, ChoiceRecorder, choice_of
from zoo.inspect.tracing.intervention import resolve
from zoo.inspect.tracing.join_passes import join_rows
from zoo.inspect.tracing.logit_lens import LensPrediction, lens_prediction
from zoo.inspect.tracing.probe import Value
from zoo.inspect.tracing.recorder import RecordedPass
from zoo.loading import Loaded

STREAM = re.compile(r"^(?:(?:encoder|decoder)\.)?(?:embedding|layers\.\d+)$")


class Trace(Mapping[str, np.ndarray]):
    """The values of one run of a model, by address.

    `trace["layers.3.mixer.pattern"]` is the value over the whole text, prompt and answer, as a NumPy array without the
    batch. The rows of all passes are concatenated, and keys that a pass has not seen are zero. `passes` has each pass by
    itself, in the model's own dtype. If a model reads the whole text in each pass (masked diffusion), `trace[address]` is
    the value of the last. `about(address)` describes a value: axes, meaning, unit.

    `prompt` are the ids that were read, `steps` what the strategy yielded, `choices` how each token was chosen, `chosen`
    the recorder of these choices, `settings` the sampling settings.
    PromptError for an address that the run does not have.

    >>> trace = zoo.trace(zoo.load("llama"), "The capital city of China is", max_tokens=2)
    >>> trace.text
    ' Beij'
    >>> trace.about("layers.3.mixer.pattern").axes
    'B H T S'
    >>> trace["layers.3.mixer.pattern.2"].shape  # (T, S), of one head
    (7, 7)
    >>> trace.streams
    ['embedding', 'layers.0', 'layers.1', 'layers.2', 'layers.3']
    """

    def __init__(
        self,
        loaded: Loaded,
        prompt: list[int],
        passes: list[RecordedPass],
        about: Mapping[str, Value],
        steps: list[Step],
        chosen: ChoiceRecorder | None = None,
    ) -> None:
        self.loaded, self.prompt, self.passes, self.steps = loaded, prompt, passes, steps
        self.chosen = chosen or ChoiceRecorder()
        self._about = dict(about)
        self._joined: dict[str, np.ndarray] = {}

    def __repr__(self) -> str:
        name, read, made = self.loaded.architecture.name, len(self.prompt), len(self.tokens)
        return f"<Trace of {name}, {read} tokens read, {made} generated, {len(self)} values>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._about)

    def __len__(self) -> int:
        return len(self._about)

    def __contains__(self, address: object) -> bool:
        try:
            return isinstance(address, str) and bool(resolve(address, self._about))
        except PromptError:
            return False

    def get(self, address: str, default: Any = None) -> Any:
        """The value at `address`, or `default` if the run has none."""
        try:
            return self[address]
        except PromptError:
            return default

    def __getitem__(self, address: str) -> np.ndarray:
        found, axis, index = resolve(address, self._about)
        if found not in self._joined:
            self._joined[found] = self._join(found)
        whole = self._joined[found]
        if axis is None:
            return whole
        if index >= whole.shape[axis - 1]:
            raise PromptError(f"{address}: there are only {whole.shape[axis - 1]}, numbered from 0")
        return whole.take(index, axis=axis - 1)

    def about(self, address: str) -> Value:
        """The axes, meaning and unit of a value. The axis B comes first; `trace[address]` omits it."""
        return self._about[resolve(address, self._about)[0]]

    def dtype(self, address: str) -> str:
        """The type of the value's numbers in the model: "float32"."""
        return str(self._mlx_dtype(resolve(address, self._about)[0])).removeprefix("mlx.core.")

    @property
    def tokens(self) -> list[int]:
        """The ids that were generated."""
        return [step.token for step in self.steps if step.token is not None and step.candidate is None]

    @property
    def text(self) -> str:
        """The text that was generated."""
        return "".join(step.text for step in self.steps)

    @property
    def grows(self) -> bool:
        """Whether the passes continue each other through a cache."""
        return any(p.cached for p in self.passes)

    @property
    def streams(self) -> list[str]:
        """The addresses of the residual stream: after the embedding, then after each layer, in order."""
        return [address for address in self._about if STREAM.match(address)]

    @property
    def patterns(self) -> list[str]:
        """The addresses of the attention patterns, in the order in which they were computed."""
        return [address for address in self._about if address.rpartition(".")[2] == "pattern"]

    @property
    def missing(self) -> dict[str, str]:
        """A sentence for each of "lens", "patterns" and "choices" that is empty: why it is."""
        name = self.loaded.architecture.name
        inside = f"{name} is run by another library's code, whose modules are seen from outside"
        opaque = self.loaded.architecture.bridged
        found = {}
        if not self._lens_addresses():
            found["lens"] = inside if opaque else "no residual stream was kept that a head of the model reads"
        if not self.patterns:
            found["patterns"] = inside if opaque else "no attention pattern was kept: no module notes one"
        if self.chosen.one_by_one(self.tokens) is None:
            found["choices"] = "no token was chosen from the logits of the last position alone"
        return found

    def choices(self, count: int = 20) -> list[Choice]:
        """How each generated token was chosen, with the `count` likeliest candidates.

        The stages are those of the run itself, one for each setting, penalties and constraints included; the token was
        drawn from the last. Empty if the tokens were not chosen one by one.
        """
        found = self.chosen.one_by_one(self.tokens)
        choices = [] if found is None else found.choices[: len(self.tokens)]
        return [choice_of(int(token.item()), stages, count) for stages, token in choices]

    @property
    def settings(self) -> Settings | None:
        """The settings by which the tokens were chosen; None if no token was sampled."""
        found = self.chosen.one_by_one(self.tokens) or self.chosen.blocks()
        return None if found is None else found.settings

    def lens(self, count: int = 5) -> list[LensPrediction]:
        """What the model's head predicts from the residual stream after each layer, at every position.

        Empty for a model without a head of its own: an encoder without one, a model that another library runs.
        """
        model = self.loaded.model
        reader, track = (model.decoder, "target") if "decoder" in model else (model, "text")
        found = []
        for address in self._lens_addresses():
            stream = mx.array(self[address])[None].astype(self._mlx_dtype(address))
            found.append(lens_prediction(reader, address, track, stream, count))
        return found

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write every value by its address to a NumPy archive (.npz), floats as float32.

        SourceError when it cannot be written, and for a file that no trace wrote unless `overwrite`.
        """
        with output_file(Path(path), overwrite) as temporary:
            with temporary.open("wb") as file:
                np.savez_compressed(file, **dict(self))  # type: ignore[arg-type]
            with ZipFile(temporary, "a") as archive:
                archive.comment = GENERATOR.encode()

    def plot(self, address: str, **options: Any) -> Any:
        """A picture of a value, by matplotlib; see `zoo.inspect.trace_view.plots.plot`."""
        plot = import_target("zoo.inspect.trace_view.plots:plot")  # the views import traces
        return plot(self, address, **options)

    def _lens_addresses(self) -> list[str]:
        model = self.loaded.model
        if "decoder" in model:
            return [a for a in self.streams if a.startswith("decoder.")] if "head" in model.decoder else []
        return self.streams if "head" in model else []

    def _mlx_dtype(self, address: str) -> mx.Dtype:
        return next(p.values[address].dtype for p in self.passes if address in p.values)

    def _join(self, address: str) -> np.ndarray:
        passes = [
            p
            for p in self.passes
            if address in p.values and (p.cached or not self.grows or p.kind == "encode")
        ]
        axes = self._about[address].axes.split()
        arrays = [p.values[address] for p in passes]
        rows = [np.array(a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a) for a in arrays]
        if axes[:1] == ["B"] or (not axes and all(row.ndim and row.shape[0] == 1 for row in rows)):
            rows, axes = [row[0] for row in rows], axes[1:]
        if not self.grows or len(rows) == 1:
            return rows[-1]
        return join_rows(rows, axes, [(p.start, len(p.tokens)) for p in passes])
