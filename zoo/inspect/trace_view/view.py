"""The view of a trace: what the terminal, the page and JSON show of a run, as numbers.

Axes: T tokens that were read, S tokens that are attended to, H heads, E experts, k experts of a token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.inspect.tracing.choices import Choice
from zoo.inspect.tracing.traced_run import LensPrediction

Numbers = tuple[float, ...]
Rows = tuple[Numbers, ...]


@frozen()
class TraceToken(Frozen):
    """One token: its id, its name in the vocabulary, its text, and its bytes in hexadecimal digits.

    `text` has U+FFFD for incomplete characters. `origin` is "prompt" or "generated".
    """

    id: int
    token: str
    text: str
    bytes: str
    special: bool
    origin: str

    @property
    def name(self) -> str:
        """The text; of a part of a character its bytes as Python escapes them."""
        if "\ufffd" not in self.text or not self.bytes:
            return self.text
        return bytes.fromhex(self.bytes).decode("utf-8", "backslashreplace")


@frozen()
class Track(Frozen):
    """A row of tokens: "text", or "source" and "target". The model has read the first `read` of them."""

    name: str
    pieces: tuple[TraceToken, ...]
    read: int


@frozen()
class Strip(Frozen):
    """A value as rows of at most 64 bins, each the mean of `per_bin` numbers (the last bin may have fewer).

    For a long text these are the last rows, from `first_row` on.
    """

    per_bin: int
    first_row: int
    rows: Rows

    def means(self, width: int) -> dict[int, float]:
        """The mean of each row of `width` numbers, by the row's token."""
        last = width - self.per_bin * (len(self.rows[0]) - 1) if self.rows else 0
        sums = (sum(row) * self.per_bin - row[-1] * (self.per_bin - last) for row in self.rows)
        return {self.first_row + y: total / width for y, total in enumerate(sums)}


@frozen()
class ValueSummary(Frozen):
    """A value of the run: its address, and `name`, the part of it below the layer.

    `shape` and `axes` are those of `trace[address]`. `norm` is the mean L2 norm over tokens, None for integers. `track`
    names the tokens of the rows in `strip`, "" if the rows are no tokens. A `noted` value is one that a probe notes by
    name; the others are results of modules.
    """

    address: str
    name: str
    track: str
    shape: tuple[int, ...]
    dtype: str
    axes: str
    unit: str
    summary: str
    noted: bool
    norm: float | None
    strip: Strip


@frozen()
class HeadAttention(Frozen):
    """One attention head. `weights` (T, S) to 3 decimals: the rows from `Pattern.first_row` on.

    For each of these rows `attends_to` is the token with the largest weight and `entropy_bits` that of the row. `first`,
    `previous` and `itself` are mean weights of the first token, the one before and the token itself.
    """

    weights: Rows
    attends_to: tuple[int, ...]
    entropy_bits: Numbers
    first: float
    previous: float
    itself: float


@frozen()
class AttentionOperands(Frozen):
    """What a pattern is computed from: softmax(queries keysᵀ · scale), row t over the columns `seen[t]` alone.

    `queries` (H, T, K), `keys` (G, S, K) and `values` (G, S, V), to 4 digits of the largest number of each: H/G heads
    share the keys and values of one group. `seen` has the first column that a row sees and the one after the last.
    """

    queries: tuple[Rows, ...]
    keys: tuple[Rows, ...]
    values: tuple[Rows, ...]
    scale: float
    seen: tuple[tuple[int, int], ...]


@frozen()
class AttentionPattern(Frozen):
    """The attention of a layer. Its rows are tokens of the track `rows`, its columns tokens of the track `columns`.

    `operands` is None if the text is long, or if the weights are computed by another formula.
    """

    address: str
    rows: str
    columns: str
    first_row: int
    heads: tuple[HeadAttention, ...]
    operands: AttentionOperands | None


@frozen()
class ExpertRouting(Frozen):
    """The experts `chosen` for each token, (T, k), the heaviest first, with their weights, out of `count`."""

    address: str
    track: str
    count: int
    chosen: tuple[tuple[int, ...], ...]
    weights: Rows


@frozen()
class LayerView(Frozen):
    """A layer: its stages in the order in which they ran, its attention, its experts."""

    address: str
    track: str
    stages: tuple[ValueSummary, ...]
    patterns: tuple[AttentionPattern, ...]
    experts: tuple[ExpertRouting, ...]

    @property
    def number(self) -> int:
        """Its number among the layers, from 0."""
        return int(self.address.rpartition(".")[2])


@frozen()
class Pass(Frozen):
    """One pass through the model: the position of its first token, the number of tokens, the numbers in its cache."""

    kind: str
    track: str
    start: int
    tokens: int
    cached_numbers: int


@frozen()
class MaskPrediction(Frozen):
    """The most likely tokens for the mask at `position`; the `chosen` one is among them."""

    position: int
    chosen: int
    tokens: tuple[int, ...]
    probabilities: Numbers


@frozen()
class UnmaskingPass(Frozen):
    """One pass of masked diffusion: the ids it read, a prediction for each mask, and the positions that are `kept`."""

    ids: tuple[int, ...]
    predictions: tuple[MaskPrediction, ...]
    kept: tuple[int, ...]


@frozen()
class TraceView(Frozen):
    """A run from text to text. `vocabulary` has the text of every id that it names.

    `settings` are the sampling settings: `SLIDERS`, and the others that are on. `notes` say what cannot be shown of this
    model; `words` are explanations by part of the page.
    """

    architecture: str
    task: str
    prompt: str
    text: str
    finish_reason: str | None
    settings: dict[str, Any]
    tracks: tuple[Track, ...]
    before: tuple[ValueSummary, ...]
    layers: tuple[LayerView, ...]
    after: tuple[ValueSummary, ...]
    lens: tuple[LensPrediction, ...]
    decisions: tuple[Choice, ...]
    passes: tuple[Pass, ...]
    masks: tuple[MaskPrediction, ...]
    unmasking: tuple[UnmaskingPass, ...]
    vocabulary: dict[int, str]
    words: dict[str, str]
    notes: tuple[str, ...]

    def track(self, name: str) -> Track:
        """The row of tokens of that name."""
        return next(track for track in self.tracks if track.name == name)

    def patterns(
        self, layers: Sequence[int] = (), heads: Sequence[int] = ()
    ) -> list[tuple[AttentionPattern, int]]:
        """The attention patterns of `layers` (default: the last), each with the number of one of `heads` (default: 0).

        PromptError for a layer or a head that the model does not have.
        """
        _check_numbers(layers, 1 + max((layer.number for layer in self.layers), default=-1), "layer")
        wanted = list(layers) or [layer.number for layer in self.layers if layer.patterns][-1:]
        shown = [
            pattern
            for number in dict.fromkeys(wanted)
            for layer in self.layers
            if layer.number == number
            for pattern in layer.patterns
        ]
        if heads and not shown:
            raise PromptError("`head`: no attention pattern is there to show")
        _check_numbers(heads, max((len(pattern.heads) for pattern in shown), default=0), "head")
        asked = dict.fromkeys(heads or (0,))
        return [(pattern, head) for pattern in shown for head in asked if head < len(pattern.heads)]

    def named_ids(self) -> set[int]:
        """The ids that predictions and choices name."""
        masks = (*self.masks, *(mask for one in self.unmasking for mask in one.predictions))
        return {
            *(id for prediction in self.lens for row in prediction.tokens for id in row),
            *(id for decision in self.decisions for id in (*decision.candidates, decision.token)),
            *(id for mask in masks for id in mask.tokens),
            *(id for one in self.unmasking for id in one.ids),
        }

    def to_json(self) -> dict[str, Any]:
        """The view as JSON values."""
        values: dict[str, Any] = json.loads(json.dumps(self, default=vars))
        return values


def _check_numbers(numbers: Sequence[int], count: int, what: str) -> None:
    """PromptError for the number of a layer or a head that is none of the `count`."""
    there = f"there is one {what}, 0" if count else f"there is no {what} to show"
    for number in numbers:
        if not 0 <= number < count:
            known = f"they are numbered 0 to {count - 1}" if count > 1 else there
            raise PromptError(f"`{what}`: there is no {what} {number}; {known}")
