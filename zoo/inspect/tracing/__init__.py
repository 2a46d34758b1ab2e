"""What happens inside a model: `trace` keeps the values of a run, `intervene` replaces some of them."""

from zoo.inspect.tracing.intervention import intervene
from zoo.inspect.tracing.traced_run import Trace, trace

__all__ = ["Trace", "intervene", "trace"]
