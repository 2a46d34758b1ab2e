"""What happens inside a model: `trace` keeps the values of a run, `intervene` replaces some of them."""

from zoo.inspect.tracing.intervention import intervene
from zoo.inspect.tracing.result import Trace
from zoo.inspect.tracing.run import trace

__all__ = ["Trace", "intervene", "trace"]
