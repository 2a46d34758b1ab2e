"""The probe of a model of mlx-lm: the outputs of its modules, and the logits. Axes: B batch, T tokens, V vocabulary."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo.inspect.tracing.probe import Probe, Traces, Value


class BridgedDecoderProbe(Probe):
    """The logits; what is inside a module of mlx-lm is computed by one function, and cannot be seen."""

    traces = Traces(None, {"logits": Value("B T V", "the logits", "logit")}, parts={"network": None})

    def backbone(self, *args: Any, **options: Any) -> mx.array:
        """Note the logits."""
        return self.note("logits", super().backbone(*args, **options))  # type: ignore[misc]
