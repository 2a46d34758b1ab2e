"""Which drafter the settings ask for, checked before the first token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.blocks.position import rope_stable_length
from zoo.errors import PromptError, TokenizerError, ZooError
from zoo.frozen import Frozen, frozen
from zoo.generation.sampling.filters import draw_processors
from zoo.generation.speculative.drafters import (
    Drafter,
    DraftModel,
    DraftSampler,
    MTPDrafter,
    PromptLookup,
    mtp_layer,
)
from zoo.generation.speculative.verification import can_roll_back
from zoo.loading import Loaded, load
from zoo.recipe import learned_context
from zoo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from zoo.generation.settings import Settings

DRAFT_TOKENS = 4  # of a draft model
METHODS = ("prompt_lookup", "draft_model", "own_draft")


@frozen()
class DraftConfig(Frozen):
    """How texts are drafted: at most `count` tokens a pass, by a drafter that `create` makes for each text.

    `samples`: drafts are sampled, so that a seed gives the same text only if the same passes have drafts. `max_length`:
    no token is drafted after so many, because the angles of positions change with the length (`rope_stable_length`).
    """

    count: int
    create: Callable[[], Drafter]
    samples: bool
    max_length: int | None


def draft_config(loaded: Loaded, settings: Settings) -> DraftConfig | None:
    """The drafting that the settings ask for, or None.

    PromptError, naming the setting, for two methods at once, for a draft model of another vocabulary, and for a checkpoint
    without an MTP layer.
    """
    asked = [name for name in METHODS if getattr(settings, name) not in (None, False, 0)]
    if len(asked) > 1:
        raise PromptError(f"`{asked[0]}` and `{asked[1]}` cannot be given together: each drafts the text")
    if settings.draft_tokens is not None and asked in ([], ["prompt_lookup"]):
        raise PromptError("`draft_tokens` is of `draft_model` and `own_draft`, and neither is given")
    if not asked:
        return None
    model = loaded.model
    if not model.decodes or model.translates or loaded.architecture.causality == "full":
        raise PromptError(f"`{asked[0]}`: {loaded.architecture.name} does not continue a text token by token")
    if not can_roll_back(model.plain_caches(model.make_cache(settings.policy()))):
        raise PromptError(f"`{asked[0]}`: the caches of {loaded.architecture.name} cannot take tokens back")
    max_length = rope_stable_length(model)
    if settings.prompt_lookup:
        return DraftConfig(settings.prompt_lookup, PromptLookup, False, max_length)
    vocab = loaded.recipe.head.vocab or loaded.recipe.embedding.vocab

    def sampler() -> DraftSampler:
        return DraftSampler(vocab, draw_processors(settings), seed=settings.seed)

    if settings.own_draft:
        layer, count = mtp_layer(loaded), settings.draft_tokens or 1
        return DraftConfig(
            count, lambda: MTPDrafter(model, layer, sampler()), not settings.greedy, max_length
        )
    draft, count = load_draft_model(loaded, settings.draft_model), settings.draft_tokens or DRAFT_TOKENS
    context = learned_context(draft.recipe)
    return DraftConfig(
        count,
        lambda: DraftModel(draft.model, sampler(), context=context),
        not settings.greedy,
        max_length,
    )


def load_draft_model(loaded: Loaded, source: Loaded | str | Path) -> Loaded:
    """The draft model, loaded at the first call if `source` is not; PromptError where it cannot draft for `loaded`."""
    if not isinstance(source, Loaded) and str(source) in loaded.drafters:
        return loaded.drafters[str(source)]
    try:
        draft = source if isinstance(source, Loaded) else load(source, registry=loaded.registry)
    except ZooError as error:
        raise PromptError(f"`draft_model`: {error}") from error
    name, model = f"`draft_model` {draft.folder}", draft.model
    if not model.decodes or model.translates or draft.architecture.causality != "causal":
        raise PromptError(f"{name}: {draft.architecture.name} is no causal decoder")
    if not can_roll_back(model.plain_caches(model.make_cache())):
        raise PromptError(f"{name}: the caches of {draft.architecture.name} cannot take tokens back")
    if (draft.tokenizer is None) != (loaded.tokenizer is None):
        raise PromptError(f"{name}: one of the two models has a tokenizer, the other none")
    if draft.tokenizer is None or loaded.tokenizer is None:
        ours, theirs = loaded.recipe.embedding.vocab, draft.recipe.embedding.vocab
        if ours != theirs:
            raise PromptError(f"{name}: its vocabulary has {theirs} tokens, that of {loaded.folder} {ours}")
    else:
        for token in range(max(loaded.tokenizer.vocab_size, draft.tokenizer.vocab_size)):
            theirs, ours = piece(draft.tokenizer, token), piece(loaded.tokenizer, token)
            if theirs != ours:
                raise PromptError(
                    f"{name}: its tokenizer is another: token {token} is {theirs!r} there and {ours!r} in {loaded.folder}"
                )
    if not isinstance(source, Loaded):
        loaded.drafters[str(source)] = draft
    return draft


def piece(tokenizer: Tokenizer, id: int) -> str | None:
    """The token of an id, None where there is none."""
    try:
        return tokenizer.token(id)
    except TokenizerError:
        return None
