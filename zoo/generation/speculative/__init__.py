"""Speculative decoding: several tokens are drafted, and one pass over the model verifies all of them.

`draft_config` reads the settings and gives what makes a drafter: prompt look-up, a smaller model, or the checkpoint's own
next-token-prediction layer. `zoo.generation.loop.speculative_batch` generates one text with it. Greedily the text is the
one without drafts; drawn, it has the same distribution (`verification`).
"""

from zoo.generation.speculative.drafters import Draft, DraftConfig, Drafter, draft_config
from zoo.generation.speculative.verification import DraftThrottle

__all__ = ["Draft", "DraftConfig", "DraftThrottle", "Drafter", "draft_config"]
