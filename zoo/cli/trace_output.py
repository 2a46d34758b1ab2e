"""The view of a trace on a terminal: in colours there, the same characters in a pipe."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoo.cli.terminal import columns, facts, table, visible, width, wrapped
from zoo.cli.tokenize import COLOURS, PIPE, SPECIAL, cut, draw_cells, escaped
from zoo.errors import pluralize

if TYPE_CHECKING:
    from zoo.inspect.trace_view.view import AttentionPattern, TraceToken, TraceView, ValueSummary

SHADES = " ░▒▓█"
EIGHTHS = " ▏▎▍▌▋▊▉"
LABEL = 12  # cells of a piece beside a map
CANDIDATES = 6
TOKENS = 8  # of a recurrent layer: the last that are shown
LEAST = 0.005  # probability of a candidate that is listed
LENS_CELL = 12
NAME = 16  # cells of a candidate's text


def show(
    model: str, view: TraceView, maps: Sequence[tuple[AttentionPattern, int]], layers: Sequence[int]
) -> None:
    """Print a model's name and a view: pieces, vectors, layers, the attention maps, the lens, each choice, the text."""
    _Printer(view).print(model, maps, layers)


class _Printer:
    """One view and the terminal that it is printed on."""

    def __init__(self, view: TraceView) -> None:
        from rich.console import Console

        self.view, self.room = view, columns() or PIPE
        self.console = Console(file=sys.stdout, width=self.room, highlight=False)
        self.names = {t.name: [written(piece) for piece in t.pieces] for t in view.tracks}

    def print(self, model: str, maps: Sequence[tuple[AttentionPattern, int]], layers: Sequence[int]) -> None:
        """Print everything, in the order of the journey."""
        view = self.view
        self.line(facts([model, *(self.counted(t.name) for t in view.tracks)], self.room))
        for note in view.notes:
            self.line(wrapped(note, self.room))
        for track in view.tracks:
            self.heading("Pieces and ids" if len(view.tracks) == 1 else f"Pieces and ids: {track.name}")
            self.pieces(track.pieces)
        self.heading("Vectors and positions")
        self.stages(view.before)
        attends = "where heads look most, " if any(layer.patterns for layer in view.layers) else ""
        tokens = " and ".join(dict.fromkeys(self.names[t.name][self.position(t.name)] for t in view.tracks))
        self.heading(
            "Layers", f"mean norm of what each part adds; from {tokens}: {attends}what the head reads"
        )
        self.layers()
        for layer in view.layers:
            if layer.number in layers:
                self.heading(f"Values of {layer.address}")
                self.stages(layer.stages)
        self.states(layers)
        for pattern, head in maps:
            self.map(pattern, head)
        if view.lens:
            self.heading("Logit lens", "the likeliest next token after each layer, and its probability")
            self.lens()
        for number in range(len(view.decisions)):
            self.decision(number)
        for hidden in view.masks:
            self.heading(f"The mask at position {hidden.position}")
            pairs = zip(hidden.tokens, hidden.probabilities, strict=True)
            self.bars([(self.token(id), [p]) for id, p in pairs], 0, ["model"])
        self.passes()
        if not view.masks:
            self.heading("Text")
            self.line(visible(view.prompt), end="" if len(view.tracks) == 1 else " → ")
            self.line(visible(view.text), "bold")

    def line(self, text: str, style: str = "", end: str = "\n") -> None:
        """Print text as it is, in one style."""
        from rich.text import Text

        self.console.print(Text(text, style), soft_wrap=True, end=end)

    def heading(self, text: str, note: str = "") -> None:
        """A line before a part, and what its columns are."""
        self.line("")
        self.line(wrapped(text, self.room), "bold")
        if note:
            self.line(wrapped(note, self.room), "dim")

    def counted(self, track: str) -> str:
        """How many tokens there are, by where they come from."""
        pieces = self.view.track(track).pieces
        made = sum(piece.origin == "generated" for piece in pieces)
        name = f"{track}: " if len(self.view.tracks) > 1 else ""
        return f"{name}{pluralize(len(pieces) - made, 'token')} given, {made:,} written"

    def pieces(self, pieces: Sequence[TraceToken]) -> None:
        """Pieces as cells with their ids below; generated ones are underlined."""
        styles = (SPECIAL if p.special else COLOURS[i % len(COLOURS)] for i, p in enumerate(pieces))
        draw_cells(
            ((written(p), str(p.id)), f"{style} underline" if p.origin == "generated" else style, False)
            for p, style in zip(pieces, styles, strict=True)
        )

    def stages(self, stages: Sequence[ValueSummary]) -> None:
        """A line for each value."""
        rows = [[s.address, s.axes, " × ".join(map(str, s.shape)), s.dtype, _number(s.norm)] for s in stages]
        self.line(table(rows, ["address", "axes", "shape", "type", "norm"], room=self.room))

    def layers(self) -> None:
        """A line for each layer."""
        view = self.view
        lens = {prediction.address: prediction for prediction in view.lens}
        rows = []
        token = {track.name: self.position(track.name) for track in view.tracks}
        for layer in view.layers:
            at = token[layer.track]
            best = lens.get(layer.address)
            norms = "  ".join(f"{s.name} {_number(s.norm)}" for s in layer.stages if _adds(s))
            attended = "; ".join(_attended(p, at, self.names[p.columns]) for p in layer.patterns)
            experts = ", ".join(
                " ".join(f"e{e} {_share(w)}" for e, w in zip(x.chosen[at], x.weights[at], strict=True))
                for x in layer.experts
            )
            read = f"{self.token(best.tokens[at][0])} {_share(best.probabilities[at][0])}" if best else ""
            rows.append([layer.address, norms, attended, experts, read])
        self.table(rows, ["layer", "adds", "heads look at", "experts", "reads"])

    def table(self, rows: Sequence[Sequence[str]], head: Sequence[str]) -> None:
        """A table without the columns that are empty."""
        used = [i for i in range(len(head)) if any(row[i] for row in rows)]
        self.line(table([[row[i] for i in used] for row in rows], [head[i] for i in used], room=self.room))

    def states(self, layers: Sequence[int]) -> None:
        """Of a recurrent layer, the last unless others are chosen: each gate and state, its mean at the last tokens."""
        recurrent = [layer for layer in self.view.layers if not layer.patterns]
        chosen = [a for a in recurrent if a.number in layers] or recurrent[-1:]
        for layer in chosen:
            values = [s for s in layer.stages if s.noted and s.track and s.name.startswith("mixer.")]
            if not values:
                continue
            track = self.view.track(layer.track)
            last = range(max(0, track.read - TOKENS), track.read)
            rows = []
            for value in values:
                means = value.strip.means(value.shape[-1] if len(value.shape) > 1 else 1)
                rows.append([value.name.removeprefix("mixer."), *(f"{means[t]:.2f}" for t in last)])
            self.heading(f"Gates and state: {layer.address}", "the mean over channels, token by token")
            self.line(table(rows, ["", *(self.names[track.name][t] for t in last)], room=self.room))

    def position(self, track: str) -> int:
        """The position whose attention is printed: the first mask or, without one, the last given token."""
        if self.view.masks:
            return self.view.masks[0].position
        if self.view.unmasking:
            return self.view.unmasking[0].predictions[0].position
        found = self.view.track(track)
        given = sum(piece.origin != "generated" for piece in found.pieces)
        return max(min(given, found.read) - 1, 0)

    def map(self, pattern: AttentionPattern, head: int) -> None:
        """One attention map in shades, two characters a token where there is room."""
        rows, names, seen = pattern.heads[head].weights, self.names[pattern.rows], self.names[pattern.columns]
        self.heading(
            f"Attention: {pattern.address}.{head}",
            "a row is a token, its columns those that it looks at: ░ from 0.05, ▒ 0.3, ▓ 0.55, █ 0.8",
        )
        label = min(max((width(n) for n in names), default=1), LABEL)
        count = len(rows[0])
        room = self.room - label - 6
        cell = 2 if count * 2 <= room else 1
        first = max(count - room // cell, 0)
        if first:
            self.line(f"without the first {pluralize(first, 'column')}", "dim")
        numbers = range(first, count)
        for power in (100, 10, 1)[(count <= 10) + (count <= 100) :]:
            marks = "".join(str(n // power % 10 if n >= power else " ").rjust(cell) for n in numbers)
            marks = marks if power > 1 else "".join(str(n % 10).rjust(cell) for n in numbers)
            self.line(" " * (label + 5) + marks, "dim")
        for number, row in enumerate(rows[-200:], max(len(rows) - 200, 0) + pattern.first_row):
            name = cut(names[number], label)
            shades = (0 if weight < 0.05 else min(1 + int((weight - 0.05) * 4), 4) for weight in row[first:])
            cells = "".join(SHADES[shade] * cell for shade in shades)
            self.line(f"{number:4d} {' ' * (label - width(name))}{name}│"[1:] + cells.rstrip())
        if seen is not names:
            names_of = " ".join(f"{i} {name}" for i, name in enumerate(seen[first:count], first))
            self.line(wrapped(f"columns: {names_of}", self.room), "dim")

    def lens(self) -> None:
        """Tokens by layers: what the head reads, and how surely."""
        view = self.view
        names = self.names[view.lens[0].track]
        head = ["", *(g.address.removeprefix("decoder.").replace("layers.", "layer ") for g in view.lens)]
        shown = range(len(view.lens[0].tokens))[-40:]
        each = (self.room - LABEL) // len(view.lens) - 7
        cell = max(min(each, LENS_CELL), 6)
        rows = []
        for at in shown:
            best = ((self.token(p.tokens[at][0]), p.probabilities[at][0]) for p in view.lens)
            rows.append([cut(names[at], LABEL - 2), *(f"{cut(t, cell)} {_share(p)}" for t, p in best)])
        if len(rows) < len(view.lens[0].tokens):
            self.line(f"the last {len(rows)} of {pluralize(len(view.lens[0].tokens), 'token')}", "dim")
        self.line(table(rows, head, repeated=1, room=self.room))

    def decision(self, number: int) -> None:
        """How one token was chosen: its candidates before and after each step of sampling."""
        decision = self.view.decisions[number]
        self.heading(
            f"Choice {number + 1}: {self.token(decision.token)}",
            f"entropy {decision.entropy_bits:.2f} bits; the chosen token has rank {decision.rank + 1}",
        )
        stages = decision.stages
        first, last = stages[0].probabilities, stages[-1].probabilities
        likeliest = sorted(range(len(last)), key=lambda i: -last[i])[:CANDIDATES]
        order = [i for i, p in enumerate(first[:CANDIDATES]) if p >= LEAST or not i]
        order += [i for i in likeliest if last[i] >= LEAST]
        shown = list(dict.fromkeys((*order, decision.shown.index(decision.token))))
        heads = [
            s.name.replace("_", "-") + (f" {s.setting:g}" if s.setting is not None else "") for s in stages
        ]
        rows = [(self.token(decision.shown[i]), [s.probabilities[i] for s in stages]) for i in shown]
        self.bars(rows, shown.index(decision.shown.index(decision.token)), heads)
        if len(stages) > 1:
            kept = ", ".join(f"{h}: {s.kept:,}" for h, s in zip(heads[1:], stages[1:], strict=True))
            self.line(wrapped(f"tokens kept after {kept}", self.room), "dim")

    def bars(self, rows: Sequence[tuple[str, Sequence[float]]], chosen: int, heads: Sequence[str]) -> None:
        """Candidates, each with bars for its probabilities: the model's, and that after each stage of sampling."""
        from rich.table import Column, Table
        from rich.text import Text

        label = min(max((width(name) for name, _ in rows), default=1), NAME)
        cells = max(min((self.room - label - 3) // len(heads) - 6, 30), 2)
        bars = [Column(no_wrap=True) for _ in heads]
        grid = Table.grid("", Column(no_wrap=True, max_width=NAME), *bars, padding=(0, 1, 0, 0))
        if len(heads) > 1:
            grid.add_row("", "", *(cut(head, cells + 5) for head in heads), style="dim")
        for number, (name, probabilities) in enumerate(rows):
            drawn = [f"{_bar(p, cells)} {_share(p):>4}" for p in probabilities]
            mark, style = ("●", "bold") if number == chosen else ("", "")
            grid.add_row(mark, Text(name), *drawn, style=style)
        self.console.print(grid)

    def passes(self) -> None:
        """What each pass read, and what its cache held."""
        view = self.view
        if len(view.passes) < 2:
            return
        self.heading("Passes")
        rows = []
        for number, each in enumerate(view.passes):
            names = self.names[each.track]
            if view.unmasking:
                read = self.unmasked(number)
            elif each.tokens == 1 and each.start < len(names):
                read = names[each.start]
            else:
                read = pluralize(each.tokens, "token") + (" of the source" if each.kind == "encode" else "")
            rows.append([str(number + 1), read, f"{each.cached_numbers:,}" if each.cached_numbers else ""])
        self.table(rows, ["pass", "reads", "numbers in the cache"])

    def unmasked(self, number: int) -> str:
        """The text as a pass of unmasking reads it, up to its first end token; ░ is a mask."""
        masked = {hidden.position for hidden in self.view.unmasking[number].predictions}
        read = ""
        for at, piece in enumerate(self.view.tracks[0].pieces):
            if piece.special and piece.origin == "generated" and at not in masked:
                break
            read += "░" if at in masked else written(piece)
        return read

    def token(self, id: int) -> str:
        """The text of an id."""
        return escaped(self.view.vocabulary.get(id, f"[{id}]")) or "∅"


def written(piece: TraceToken) -> str:
    """A piece in visible signs; parts of a character as bytes."""
    return escaped(piece.name) or "∅"


def _adds(stage: ValueSummary) -> bool:
    """Whether a value is what a part of a layer adds to the residual stream, or the stream itself."""
    return (
        not stage.noted
        and "." not in stage.name
        and "norm" not in stage.name
        and stage.norm is not None
        and stage.name != "output"
    )


def _attended(pattern: AttentionPattern, at: int, names: Sequence[str]) -> str:
    """Which tokens the heads look at most, with how many heads look there."""
    row = at - pattern.first_row
    if not 0 <= row < len(pattern.heads[0].attends_to):
        return ""
    found = Counter(head.attends_to[row] for head in pattern.heads)
    most = found.most_common(4)
    parts = (f"{names[index]}{f' ({count} heads)' if count > 1 else ''}" for index, count in most)
    return ", ".join(parts) + (" …" if len(found) > 4 else "")


def _bar(share: float, cells: int) -> str:
    full, rest = divmod(round(share * cells * 8), 8)
    return ("█" * full + EIGHTHS[rest].strip()).ljust(cells)


def _share(p: float) -> str:
    return "1.00" if p >= 0.995 else f"{p:.2f}" if p >= 0.01 else "<.01" if p > 0 else "0"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
