"""What a trace shows of linear attention. Axes: B batch, T tokens, H heads, K width of a head."""

from zoo.inspect.tracing.probe import Probe, Traces, Value


class LinearAttentionProbe(Probe):
    """The features of queries and keys, the values, and the state after them."""

    traces = Traces(
        Value("B T D", "what attention adds to the residual stream"),
        {
            "queries": Value("B H T K", "the features of the queries", item_axis="H"),
            "keys": Value("B H T K", "the features of the keys", item_axis="H"),
            "values": Value("B H T K", "the values", item_axis="H"),
            "state": Value("B H K K", "the sum of each key's feature times its value", item_axis="H"),
        },
        parts={
            name: Value("B T D", f"the {name} projection") for name in ("query", "key", "value", "output")
        },
    )

    def project(self, x):
        """Note what enters the sums."""
        parts = zip(("queries", "keys", "values"), super().project(x), strict=True)
        return [self.note(name, part) for name, part in parts]

    def keep(self, state):
        """Note the state."""
        return self.note("state", super().keep(state))
