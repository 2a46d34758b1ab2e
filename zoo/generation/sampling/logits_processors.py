"""What changes the logits of one sequence before its next token is chosen, and the strings of some settings as tokens.

Axes: H rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import mlx.core as mx

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation.sampling.custom import CustomFunction, CustomProcessor, processors_from
from zoo.generation.sampling.guidance import Guidance
from zoo.generation.sampling.logits import NEG_INF, LogitsProcessor, keep_only, mask_tokens
from zoo.generation.sampling.penalties import (
    BannedSequences,
    Counts,
    Dry,
    exponential_decay,
    frequency,
    presence,
    repetition,
)
from zoo.generation.settings import ONE_OF, Constraints, Settings
from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from zoo.generation.grammar.token_mask import TokenMask

TokenSequence = tuple[int, ...]
BEFORE = "\n"  # a character that tokenizers do not join with a word after it

# The bytes of each tokenizer's tokens, computed once.
_VOCABULARIES: WeakKeyDictionary[Tokenizer, list[bytes | None]] = WeakKeyDictionary()


@frozen()
class TokenStrings(Frozen):
    """The strings of some settings as tokens: `banned` sequences, DRY's `breakers`, and tokens with a line break."""

    banned: tuple[TokenSequence, ...] = ()
    breakers: tuple[TokenSequence, ...] = ()
    lines: tuple[int, ...] = ()


def encodings(tokenizer: Tokenizer, text: str) -> set[TokenSequence]:
    """The token sequences that encode `text` at the start of a text, at the start of a line, and after a space.

    Other sequences for the same text ("b", "ad"), and longer words that contain it, are not among them.
    """
    variants = [text] if text[:1].isspace() else [text, " " + text]
    unknown = tokenizer.special_tokens.get("unk_token")
    sequences: set[TokenSequence] = set()
    for variant in variants:
        alone, start, whole = (
            tuple(tokenizer.encode(each, special_tokens=False))
            for each in (variant, BEFORE, BEFORE + variant)
        )
        sequences.add(alone)
        if whole[: len(start)] == start:
            sequences.add(whole[len(start) :])
    # A sequence with the unknown token stands for many texts.
    bad = None if unknown is None else tokenizer.id(unknown)
    return {run for run in sequences if run and bad not in run}


def tokens_with(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens that contain `text`, in the order of their ids; tokens without known bytes are left out."""
    if tokenizer not in _VOCABULARIES:
        _VOCABULARIES[tokenizer] = [tokenizer.token_bytes(id) for id in range(tokenizer.vocab_size)]
    wanted = text.encode("utf-8")
    return [id for id, token in enumerate(_VOCABULARIES[tokenizer]) if token is not None and wanted in token]


def banned_sequences(tokenizer: Tokenizer | None, texts: Iterable[str]) -> tuple[TokenSequence, ...]:
    """The token sequences of these texts; PromptError for a text that has none."""
    sequences: set[TokenSequence] = set()
    for text in texts:
        if tokenizer is None:
            raise PromptError(f"`banned` needs a tokenizer, which this checkpoint lacks, for {text!r:.60}")
        runs = encodings(tokenizer, text)
        if not runs:
            raise PromptError(f"`banned`: the tokenizer has no tokens for {text!r:.60}")
        sequences |= runs
    return tuple(sorted(sequences))


def breaker_sequences(tokenizer: Tokenizer | None, texts: Iterable[str]) -> tuple[TokenSequence, ...]:
    """The tokens that contain one of these texts, and the longer sequences that encode one; none without a tokenizer."""
    if tokenizer is None:
        return ()
    sequences: set[TokenSequence] = set()
    for text in texts:
        sequences |= {(id,) for id in tokens_with(tokenizer, text)}
        sequences |= {run for run in encodings(tokenizer, text) if len(run) > 1}
    return tuple(sorted(sequences))


CHECKPOINT = "generation_config.json"  # the name of a processor that the checkpoint asks for
NO_STRINGS = TokenStrings()


class LogitsProcessors:
    """The logits processors of one sequence, `chain`, in their order, and what they know of its tokens.

    The order: guidance, bias, penalties, bans, the least length, forced tokens, the growth of end tokens, custom
    processors, a grammar. `follow` tells each new token, evaluated or not, and `update` its id. `looks_back`: the processors
    depend on the tokens before, and not only on their number. `needs_last_token`: they need its id. `removes`: they may
    remove every token.
    """

    def __init__(
        self,
        settings: Settings,
        constraints: Constraints,
        vocab: int,
        strings: TokenStrings = NO_STRINGS,
        mask: TokenMask | None = None,
        generated: Sequence[int] = (),
        *,
        custom: Sequence[CustomFunction] = (),
        guidance: Guidance | None = None,
    ) -> None:
        """The processors after the constraints' prompt and the tokens that were `generated` after it.

        `custom` are the logits processors of a caller and of plugins.
        """
        if settings.min_tokens:
            constraints = replace(constraints, min_tokens=settings.min_tokens)
        self.settings, self.constraints, self.vocab = settings, constraints, vocab
        self.strings, self.mask, self.count = strings, mask, len(generated)
        self._custom, self._guidance = custom, guidance
        self._counts: list[Counts] = []
        tokens = (*constraints.prompt, *generated)
        self.chain = (*self._changes(tokens), *self._removals(tokens))
        functions = [processor.function for processor in self.chain]
        bans = [each for each in functions if isinstance(each, BannedSequences)]
        others = [each for each in functions if isinstance(each, Dry | CustomProcessor)]
        self._trackers = (*bans, *others, *(() if mask is None else (mask,)))
        self.needs_last_token = bool(others) or mask is not None or any(each.looks_back for each in bans)
        self.looks_back = self.needs_last_token or bool(self._counts)
        self.removes = bool(bans) or mask is not None or NEG_INF in (settings.logit_bias or {}).values()

    def __call__(self, logits: mx.array) -> mx.array:
        """The logits after the whole chain, (H, V) -> (H, V)."""
        for processor in self.chain:
            logits = processor.function(logits)
        return logits

    def after(self, generated: Sequence[int]) -> LogitsProcessors:
        """These processors for a sequence whose generated tokens are others."""
        return LogitsProcessors(
            self.settings,
            self.constraints,
            self.vocab,
            self.strings,
            generated=generated,
            custom=self._custom,
        )

    def follow(self, token: mx.array) -> None:
        """One more token (1,), evaluated or not: what needs no id is brought up to date."""
        for counts in self._counts:
            counts.update(token)
        if self._guidance is not None:
            self._guidance.follow(token)
        self.count += 1

    def update(self, token: int) -> None:
        """The id of the last token."""
        for tracker in self._trackers:
            tracker.update(token)

    def _changes(self, tokens: Sequence[int]) -> Iterator[LogitsProcessor]:
        """Guidance, the bias, and penalties of tokens that the text has.

        Those of presence and frequency leave the prompt out.
        """
        settings = self.settings
        if self._guidance is not None:
            yield LogitsProcessor("guidance_scale", self._guidance)
        if settings.logit_bias:
            ids, values = zip(*settings.logit_bias.items(), strict=True)
            bias = mx.zeros(self.vocab).at[mx.array(ids)].add(mx.array(values))
            yield LogitsProcessor("logit_bias", lambda logits: logits + bias)
        if (again := settings.repetition_penalty) != 1:
            inside = [token for token in tokens if token < self.vocab]
            recent = Counts(self.vocab, inside, settings.repetition_context_size)
            self._counts.append(recent)
            yield LogitsProcessor(
                "repetition_penalty", lambda logits: repetition(logits, recent.array > 0, again)
            )
        present, often = settings.presence_penalty, settings.frequency_penalty
        if present or often:
            generated = Counts(self.vocab)
            self._counts.append(generated)
        if present:
            yield LogitsProcessor(
                "presence_penalty", lambda logits: presence(logits, generated.array, present)
            )
        if often:
            yield LogitsProcessor(
                "frequency_penalty", lambda logits: frequency(logits, generated.array, often)
            )
        if multiplier := settings.dry_multiplier:
            dry = Dry(
                multiplier, settings.dry_base, settings.dry_allowed_length, self.strings.breakers, tokens
            )
            yield LogitsProcessor("dry_multiplier", dry)

    def _removals(self, tokens: Sequence[int]) -> Iterator[LogitsProcessor]:
        """The processors for banned sequences, for the number of tokens, custom ones, and for a grammar."""
        settings, constraints = self.settings, self.constraints
        if self.strings.banned:
            yield LogitsProcessor("banned", BannedSequences(self.strings.banned, tokens))
        if size := settings.no_repeat_ngram_size:
            yield LogitsProcessor("no_repeat_ngram_size", BannedSequences(given=tokens, repeats=size))
        if banned := constraints.banned:
            yield LogitsProcessor(CHECKPOINT, BannedSequences(banned, tokens))
        if constraints.min_tokens or constraints.min_length:
            name = "min_tokens" if settings.min_tokens else CHECKPOINT
            yield LogitsProcessor(name, self._long_enough)
        if constraints.first_token is not None or constraints.last_tokens or constraints.suppressed_first:
            name = "target_language" if settings.target_language else CHECKPOINT
            yield LogitsProcessor(name, self._forced)
        if (growth := settings.exponential_decay_length_penalty) is not None:
            ends = tuple(constraints.eos_ids)
            yield LogitsProcessor(
                "exponential_decay_length_penalty",
                lambda logits: exponential_decay(logits, ends, *growth, self.count),
            )
        for function in self._custom:
            yield LogitsProcessor(function.name, CustomProcessor(function, tokens))
        if (mask := self.mask) is not None:
            from zoo.generation.grammar.token_mask import apply_mask

            name = next((name for name in ONE_OF if getattr(settings, name) is not None), "grammar")
            yield LogitsProcessor(name, lambda logits: apply_mask(logits, mask.allowed()))

    def _long_enough(self, logits: mx.array) -> mx.array:
        """The logits without end tokens while the text is too short, unless a grammar allows nothing else."""
        constraints, count = self.constraints, self.count
        if count >= constraints.min_tokens and len(constraints.prompt) + count >= constraints.min_length:
            return logits
        eos_ids = tuple(constraints.eos_ids)
        if self.mask is not None:
            from zoo.generation.grammar.token_mask import bits_of

            ends = bits_of((token for token in eos_ids if token < self.vocab), self.vocab)
            if not (self.mask.allowed() & ~ends).any():
                return logits  # a text that is whole by the grammar ends, however short it is
        return mask_tokens(logits, eos_ids)

    def _forced(self, logits: mx.array) -> mx.array:
        """The logits of the tokens that may come at this position."""
        constraints = self.constraints
        if forced := constraints.forced(self.count):
            return keep_only(logits, forced)
        # What must not come first must not come after a forced first token either.
        first = len(constraints.prompt) == 1 and constraints.first_token is not None
        return mask_tokens(logits, constraints.suppressed_first if self.count == first else ())


def processors_of(
    loaded: Loaded, settings: Settings, constraints: Constraints, guidance: Guidance | None = None
) -> LogitsProcessors:
    """The logits processors of one sequence of a loaded model; PromptError for a string that cannot be encoded."""
    vocab, tokenizer = loaded.recipe.head.vocab or loaded.recipe.embedding.vocab, loaded.tokenizer
    strings = TokenStrings(
        banned=banned_sequences(tokenizer, settings.banned),
        breakers=breaker_sequences(tokenizer, settings.dry_breakers) if settings.dry_multiplier else (),
        lines=tuple(tokens_with(tokenizer, "\n"))
        if tokenizer is not None and settings.xtc_probability
        else (),
    )
    forms = {name: form for name in ONE_OF if (form := getattr(settings, name)) is not None}
    mask = None
    if forms:  # else nothing heavy is imported
        from zoo.generation.grammar.token_mask import token_mask

        mask = token_mask(tokenizer, vocab, constraints.eos_ids, **forms)
    custom = processors_from(loaded.registry, settings)
    return LogitsProcessors(settings, constraints, vocab, strings, mask, custom=custom, guidance=guidance)
