"""`PromptCache`: reuses the KV caches of earlier prompts for the tokens that a new prompt shares with them."""

from zoo.generation.prefix_cache.cache import CacheStatistics, Match, MissReason, PromptCache

__all__ = ["CacheStatistics", "Match", "MissReason", "PromptCache"]
