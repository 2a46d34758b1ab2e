"""Probes of LSTM and GRU: every gate and state, token by token. Axes: B batch, T tokens, D width, G gates."""

from __future__ import annotations

import mlx.core as mx

from zoo.inspect.tracing.probe import Probe, Traces, Value

OUTPUT = Value("B T D", "the hidden state after each token")
# `recurrent` is not traced: the gates contain its product for each token.
PARTS = {"input": Value("B T G·D", "the inputs' share of every gate"), "recurrent": None}


def gate(summary: str, unit: str = "probability", derived: str = "") -> Value:
    """A value with one number for each token and hidden unit."""
    return Value("B T D", summary, unit, item_axis="D", derived=derived, stepwise=True)


HIDDEN = gate("the hidden state after each token", "")


class RecurrentProbe(Probe):
    """The base of both probes. It notes what `gates` and then `step` return, under the names in `traces`, in order."""

    def gates(self, inputs: mx.array, states: list[mx.array]) -> list[mx.array]:
        """Note every gate of a token."""
        gates = super().gates(inputs, states)  # type: ignore[misc]
        return self._each(list(self.traces.values)[: len(gates)], gates)

    def step(self, gates: list[mx.array], states: list[mx.array]) -> list[mx.array]:
        """Note every state after a token."""
        return self._each(list(self.traces.values)[len(gates) :], super().step(gates, states))  # type: ignore[misc]

    def _each(self, names: list[str], values: list[mx.array]) -> list[mx.array]:
        pairs = zip(names, values, strict=True)
        return [self.note(name, value[:, None]).squeeze(1) for name, value in pairs]


class LSTMProbe(RecurrentProbe):
    """The gates, the cell and the hidden state of an LSTM."""

    traces = Traces(
        OUTPUT,
        {
            "input_gate": gate("how much of the candidate enters the cell"),
            "forget_gate": gate("how much of the cell is kept"),
            "candidate": gate("what may enter the cell", ""),
            "output_gate": gate("how much of the cell is shown"),
            "hidden": HIDDEN,
            "cell": gate("the cell after each token", ""),
        },
        parts=PARTS,
    )


class GRUProbe(RecurrentProbe):
    """The gates and the hidden state of a GRU."""

    traces = Traces(
        OUTPUT,
        {
            "reset_gate": gate("how much of the state's product enters the candidate", derived="candidate"),
            "update_gate": gate("how much of the hidden state is kept"),
            "candidate": gate("what may become the hidden state", ""),
            "hidden": HIDDEN,
        },
        parts=PARTS,
    )
