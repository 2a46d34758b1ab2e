"""Whole models: embedding, layers, head; and the masks, caches and passed values that layers need. Imports no mlx."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from zoo.errors import RecipeError
from zoo.frozen import Frozen, frozen
from zoo.recipe.parts import LearnedPositions
from zoo.recipe.spec import Spec, check_widths
from zoo.recipe.vocabulary import Embedding, Head

RECURRENT = "recurrent"  # the kind of mask of states


@frozen()
class Chunks(Frozen):
    """The kind of mask by which a token sees its own chunk of `width` tokens up to itself."""

    width: int


@frozen()
class Memory(Frozen):
    """A part of a layer that gets a mask and a cache: its path within the layer ("" for the whole) and its window.

    `window` None: everything; `chunked`: of each chunk of so many tokens. One that is `recurrent` has a state instead of keys.
    """

    path: str
    window: int | None
    recurrent: bool
    chunked: bool = False

    @property
    def mask_kind(self) -> Any:
        """What parts must have in common to share a mask: the window, `Chunks`, or `RECURRENT`."""
        if self.recurrent:
            return RECURRENT
        return Chunks(self.window) if self.chunked and self.window else self.window


@frozen()
class Needs(Frozen):
    """The masks, caches and values that a layer takes, and the values it gives: its spec's declarations, read once.

    `caches` are the paths of the parts that make one. Without any, the layer still gets a mask.
    """

    memories: tuple[Memory, ...]
    caches: tuple[str, ...]
    by_part: bool
    gives: tuple[str, ...]
    takes: tuple[str, ...]


def needs(layer: Spec) -> Needs:
    """The needs of the layer of this spec."""
    parts = dict(_remembering(layer, ""))
    found = tuple(_memory(path, part) for path, part in parts.items())
    if not layer.by_part:
        found = (_memory("", layer),)
    return Needs(found, tuple(parts), layer.by_part, tuple(layer.gives), tuple(layer.takes))


def _memory(path: str, spec: Spec) -> Memory:
    below = [part for _, part in spec.walk()]
    window = next((part.attention_window for part in below if part.attention_window), None)
    chunked = any(getattr(part, "chunked", False) for part in below)
    return Memory(path, window, any(part.recurrent for part in below), chunked)


def _remembering(spec: Spec, path: str) -> Iterator[tuple[str, Spec]]:
    for below, part in spec.children(path):
        if part.remembers:
            yield below, part
        else:
            yield from _remembering(part, below)


def kv_widths(spec: Spec, dim: int, path: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The parts below a spec that say the widths of the keys and values they cache, by their paths."""
    for name, value in spec.parts():
        width = spec.width(name, dim)
        for index, part in enumerate(value if isinstance(value, tuple) else (value,)):
            below = f"{path}.{name}.{index}" if isinstance(value, tuple) else f"{path}.{name}"
            widths = part.kv_widths(width) if part.remembers else None
            if widths is not None:
                yield below, widths
            elif not part.remembers:
                yield from kv_widths(part, width, below)


def check_layers(layers: Iterable[Spec], given: Iterable[str] = (), path: str = "layers") -> None:
    """RecipeError, naming it, for a part whose cache or values its layer does not hand to it.

    `given` are the names of the values that are there before the first layer.
    """
    known = set(given)
    fit: set[int] = set()  # most layers are one and the same spec
    for index, layer in enumerate(layers):
        where = f"{path}.{index}"
        if id(layer) not in fit:
            _check_parts(layer, where)
            fit.add(id(layer))
        for name in layer.takes:
            if name not in known:
                raise RecipeError(f"{where}: takes {name!r}, which no earlier layer gives")
        known.update(layer.gives)


def _check_parts(layer: Spec, where: str) -> None:
    for path, _ in _remembering(layer, "") if layer.by_part else ():
        if "." in path and not path.rpartition(".")[2].isdigit():
            raise RecipeError(
                f"{where}.{path}: has a cache, which {layer.block()} hands to parts of its own only"
            )
    for path, part in layer.walk():
        for what, names in (("gives", part.gives), ("takes", part.takes)):
            for name in names:
                if name not in getattr(layer, what):
                    raise RecipeError(
                        f"{where}.{path}: {what} {name!r}, which {layer.block()} does not hand on"
                    )


CAUSALITIES = ("causal", "prefix", "full")


class Model(Spec):
    """A whole model. `task` and `causality` are what an `Architecture` declares under these names.

    Together with `with_vocab` they let a recipe be trained that no architecture makes.
    """

    embedding: Any
    layers: Any
    head: Any
    context: Any

    @property
    def causality(self) -> str:
        """What a token sees: "causal", "prefix" or "full"."""
        raise NotImplementedError

    @property
    def task(self) -> str:
        """What the model does: "generate", "translate", "encode", "fill-mask", "classify" or "denoise"."""
        raise NotImplementedError

    @property
    def dim(self) -> int:
        """The model's width, D."""
        return self.embedding.dim

    @property
    def vocab(self) -> int:
        """How many tokens the model can read."""
        return self.embedding.vocab

    def with_vocab(self, vocab: int) -> typing.Self:
        """A copy for a vocabulary of another size."""
        raise NotImplementedError

    def change_layers(
        self, change: Callable[[int, Spec], Mapping[str, Any]] | None = None, **changes: Any
    ) -> typing.Self:
        """A copy with every layer changed: by `changes`, or by what `change(index, layer)` gives for each."""
        if change:
            layers = [layer.change(**change(index, layer)) for index, layer in enumerate(self.layers)]
        else:  # one spec that stands for several layers goes on doing so
            changed = {
                id(layer): layer.change(**changes) for layer in {id(one): one for one in self.layers}.values()
            }
            layers = [changed[id(layer)] for layer in self.layers]
        return self.change(layers=tuple(layers))

    def _check(self, context: int | None, embedding: Embedding, head: Spec | None) -> None:
        """Give a head without a vocabulary the embedding's; RecipeError for parts that do not fit each other."""
        if isinstance(head, Head) and head.vocab is None:
            head = head.change(vocab=embedding.vocab)
            object.__setattr__(self, "head", head)
        check_widths(self, self.dim)
        positions = embedding.positions
        if isinstance(positions, LearnedPositions) and positions.context < (context or 1):
            raise RecipeError(
                f"embedding.positions.context: {positions.context} positions are fewer than the model's context, "
                f"{context}"
            )
        if isinstance(head, Head) and head.tied and head.vocab not in (None, embedding.vocab):
            raise RecipeError(
                f"head.vocab: {head.vocab} is not the embedding's vocabulary, {embedding.vocab}, to which it is tied"
            )


@frozen()
class Decoder(Model):
    """Embedding, layers, final norm (None under Post-LN), head. `context` is the most positions it can take.

    `causality`: "causal", "prefix" (the prompt sees itself both ways) or "full". `relative` is a relative
    position bias that all layers share (T5).
    """

    kind, name = "model", "decoder"
    embedding: Embedding
    layers: tuple[Spec, ...] = dataclasses.field(metadata={"kind": "layer"})
    norm: Spec | None = dataclasses.field(metadata={"kind": "norm"})
    head: Head
    context: int | None = None
    causality: str = dataclasses.field(default="causal", metadata={"choices": CAUSALITIES})
    relative: Spec | None = dataclasses.field(default=None, metadata={"kind": "position", "by_heads": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layers:
            raise RecipeError("layers: a model needs at least one")
        windowed = (path for path, part in self.walk() if vars(part).get("window") is not None)
        if self.causality == "full" and (path := next(windowed, None)):
            raise RecipeError(f"{path}.window: must be null where every token attends to every other")
        check_layers(self.layers, self.embedding.gives)
        self._check(self.context, self.embedding, self.head)

    @property
    def task(self) -> str:
        """ "classify" where the head gives labels, "denoise" where every token sees every other, else "generate"."""
        if not self.head.predicts_tokens:
            return "classify"
        return "denoise" if self.causality == "full" else "generate"

    def kv_cache_size(self, dim: int) -> int:
        # Where all tokens see each other a new one changes them all, and nothing can be kept.
        return 0 if self.causality == "full" else super().kv_cache_size(dim)

    def with_vocab(self, vocab: int) -> typing.Self:
        return self.change(embedding={"vocab": vocab}, head={"vocab": vocab})


@frozen()
class Encoder(Model):
    """Embedding, bidirectional layers, and a `head` (None: the model gives hidden states).

    `relative` is as in a decoder.
    """

    kind, name = "model", "encoder"
    causality = "full"
    embedding: Embedding
    layers: tuple[Spec, ...] = dataclasses.field(metadata={"kind": "layer"})
    norm: Spec | None = dataclasses.field(default=None, metadata={"kind": "norm"})
    head: Spec | None = dataclasses.field(default=None, metadata={"kind": "head"})
    context: int | None = None
    relative: Spec | None = dataclasses.field(default=None, metadata={"kind": "position", "by_heads": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self.layers, self.embedding.gives)
        if self.embedding.shared:
            raise RecipeError("embedding.shared: only a decoder's table is shared, with its encoder's")
        parts = {"embedding": self.embedding} | {f"layers.{i}": layer for i, layer in enumerate(self.layers)}
        for path, part in parts.items():
            if part.by_part or part.gives or part.takes:
                raise RecipeError(
                    f"{path}: {part.block()} is about masks by part, or values for layers, which an encoder does not "
                    "hand on"
                )
        for path, part in self.walk():
            if part.recurrent:
                raise RecipeError(f"{path}: {part.block()} is recurrent, which an encoder has no masks for")
        self._check(self.context, self.embedding, self.head)

    @property
    def task(self) -> str:
        """ "fill-mask" where a head makes logits of the hidden states, "classify" where these are of labels, else "encode"."""
        if self.head is None:
            return "encode"
        return "fill-mask" if getattr(self.head, "predicts_tokens", True) else "classify"

    def with_vocab(self, vocab: int) -> typing.Self:
        head = {"head": {"vocab": vocab}} if isinstance(self.head, Head) else {}
        return self.change(embedding={"vocab": vocab}, **head)

    def kv_cache_size(self, dim: int) -> int:
        return 0  # every token is read at once


@frozen()
class EncoderDecoder(Model):
    """An encoder reads the source; a decoder, whose layers have cross-attention to its output, writes the target.

    `start` is the token that every target begins with. What is cached for each token generated is the decoder's;
    the source's keys and values, computed once, are not counted.
    """

    kind, name = "model", "encoder-decoder"
    causality, task, title = "causal", "translate", "encoder-decoder"
    encoder: Encoder
    decoder: Decoder
    start: int = dataclasses.field(default=0, metadata={"least": 0})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder.dim != self.decoder.dim:
            raise RecipeError(
                f"decoder: its width, {self.decoder.dim}, is not the encoder's, {self.encoder.dim}"
            )
        if self.decoder.embedding.shared and self.decoder.embedding.vocab != self.encoder.embedding.vocab:
            raise RecipeError("decoder.embedding.shared: the encoder's vocabulary has another size")
        if self.start >= self.decoder.embedding.vocab:
            raise RecipeError(
                f"start: {self.start} lies outside the vocabulary of {self.decoder.embedding.vocab}"
            )

    def with_vocab(self, vocab: int) -> typing.Self:
        """A copy for a vocabulary of another size, the same for source and target."""
        encoder, decoder = self.encoder.with_vocab(vocab), self.decoder.with_vocab(vocab)
        return dataclasses.replace(self, encoder=encoder, decoder=decoder)

    def change_layers(
        self, change: Callable[[int, Spec], Mapping[str, Any]] | None = None, **changes: Any
    ) -> typing.Self:
        encoder = self.encoder.change_layers(change, **changes)
        decoder = self.decoder.change_layers(change, **changes)
        return dataclasses.replace(self, encoder=encoder, decoder=decoder)

    @property
    def embedding(self) -> Any:
        """The source's embedding."""
        return self.encoder.embedding

    @property
    def layers(self) -> tuple[Spec, ...]:
        """The layers of the encoder, then those of the decoder."""
        return self.encoder.layers + self.decoder.layers

    @property
    def head(self) -> Head:
        """The decoder's head."""
        return self.decoder.head

    @property
    def context(self) -> int | None:
        """The most positions of a target."""
        return self.decoder.context

    def kv_cache_size(self, dim: int) -> int:
        return self.decoder.kv_cache_size(dim)

    def flops(self, dim: int, keys: int, prefill: bool = False) -> int:
        """Of a token of the source under `prefill`, else of one of the target, with `keys` tokens in each text."""
        if not prefill:
            return self.decoder.flops(dim, keys)
        parts = (part for layer in self.decoder.layers for _, part in layer.walk())
        sources = sum(part.flops(dim, keys, True) for part in parts if part.kind == "cross")
        return self.encoder.flops(dim, keys, True) + sources


def two_sided(decoder: Decoder, halves: bool = False) -> Encoder:
    """The encoder that a decoder becomes where attention is not causal. It gives vectors, and has no head.

    A window of W tokens reaches so far on both sides; `halves`: W // 2 on each. RecipeError for layers that an encoder
    cannot have.
    """

    def reach(layer: Spec) -> Spec:
        window = getattr(getattr(layer, "mixer", None), "window", None)
        return layer if window is None or halves else layer.change(mixer={"window": 2 * window})

    layers = tuple(map(reach, decoder.layers))
    return Encoder(
        decoder.embedding, layers, decoder.norm, context=decoder.context, relative=decoder.relative
    )


def repeat(layer: Spec, count: int) -> tuple[Spec, ...]:
    """The same layer `count` times."""
    return (layer,) * count


def learned_context(recipe: Any) -> int | None:
    """The number of positions that a model has learned vectors for; None when its positions have no end."""
    positions = recipe.embedding.positions
    return positions.context if isinstance(positions, LearnedPositions) else None
