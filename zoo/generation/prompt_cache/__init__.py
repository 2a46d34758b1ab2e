"""What caches keep of the texts before, so that a prompt is computed from where it differs from them."""

from zoo.generation.prompt_cache.cache import Match, PromptCache, Statistics
from zoo.generation.prompt_cache.why import Reason, Why

__all__ = ["Match", "PromptCache", "Reason", "Statistics", "Why"]
