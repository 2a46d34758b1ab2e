"""What happens inside a model: `trace` keeps the values of a run, `intervene` puts others in their place."""

from zoo.insight.tracing.intervening import intervene
from zoo.insight.tracing.result import Trace
from zoo.insight.tracing.run import trace

__all__ = ["Trace", "intervene", "trace"]
