"""A drafter of the settings of a generation, checked before the first token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.blocks.model import protocol_of
from zoo.blocks.position import steady_length
from zoo.errors import PromptError, TokenizerError, ZooError
from zoo.frozen import Frozen, frozen
from zoo.generation.drafting.drafter import Drafter
from zoo.generation.drafting.lookup import PromptLookup
from zoo.generation.drafting.model import DraftModel, Draws, Narrow
from zoo.generation.drafting.own import OwnDraft, own_layer
from zoo.generation.prompt import learned_context
from zoo.loading import Loaded, load
from zoo.tokenizer import Tokenizer
