"""A layer: a mixer between tokens, then a feed-forward for each token, both around a residual path."""

import mlx.nn as nn


class Layer(nn.Module):
    """Two residual sums, their norms before or after.

    pre                          post
    x ─┬─ norm ─ mixer ─ + ─     x ─┬─ mixer ─ + ─ norm ─
       └──────────────── ┘          └───────── ┘

    Where the feed-forward carries a state too, `mask` and `cache` hold both parts' by name. `passed` is handed to the
    parts that say they give or take something.
    """

    def __init__(self, spec, *, dim, index=0, mixer, feedforward, mixer_norm, feedforward_norm):
        super().__init__()
        self.mixer, self.feedforward = mixer, feedforward
        self.mixer_norm, self.feedforward_norm = mixer_norm, feedforward_norm
        self.placement = spec.placement
        self.by_part = spec.by_part
        parts = {"mixer": spec.mixer, "feedforward": spec.feedforward}
        self.remembering = frozenset(
            name for name, part in parts.items() if name == "mixer" or part.remembers
        )
        self.passing = frozenset(name for name, part in parts.items() if part.gives or part.takes)

    def __call__(self, x, mask=None, cache=None, passed=None):  # (B, T, D) -> (B, T, D)
        if self.placement == "pre":
            x = x + self.run("mixer", self.mixer_norm(x), mask, cache, passed)
            return x + self.run("feedforward", self.feedforward_norm(x), mask, cache, passed)
        x = self.mixer_norm(x + self.run("mixer", x, mask, cache, passed))
        return self.feedforward_norm(x + self.run("feedforward", x, mask, cache, passed))

    def run(self, name, x, mask, cache, passed):  # (B, T, D) -> (B, T, D)
        """The part of that name, handed what its spec asks for."""
        part = self[name]
        more = {"passed": passed} if name in self.passing else {}
        if name not in self.remembering:
            return part(x, **more)
        if self.by_part:
            mask, cache = mask and mask[name], cache and cache[name]
        return part(x, mask, cache, **more)
