"""The fact of the memory that latent attention saves. Imports no mlx."""

from zoo.describe import Fact
from zoo.describe.facts.cache_bytes import POLICIES
from zoo_deepseek.spec import LatentAttention


def expanded_cache(recipe):
    """The cache that a token would need if each head's keys and values were kept in the place of latents."""
    parts = [part for _, part in recipe.walk() if isinstance(part, LatentAttention)]
    numbers = sum(part.heads * (part.nope_dim + part.rope_dim + part.value_dim) for part in parts)
    if numbers:
        size = round(numbers * POLICIES["16-bit"])
        yield Fact("cache.expanded", "cache without latents, a token", size, "bytes")
