"""The drawing of Jamba's state space. Imports no mlx."""

from zoo.describe.diagram import Note
from zoo_mamba.drawing import state_space


def normed_state_space(subject):
    """Mamba's, with a note of its norms."""
    return state_space(subject).with_notes(Note("RMSNorm on Δ, B and C", "eps"))
