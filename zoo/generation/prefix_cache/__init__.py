"""What caches keep of the texts before, so that a prompt is computed from where it differs from them."""

from zoo.generation.prefix_cache.cache import Match, PromptCache, Statistics
from zoo.generation.prefix_cache.miss_reason import Reason, Why

__all__ = ["Match", "PromptCache", "Reason", "Statistics", "Why"]
