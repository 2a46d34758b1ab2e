"""Drawings of Falcon-H1's layer and its scaled parts. Imports no mlx."""

from zoo.describe.diagram import Note, Residual, parts
from zoo_mamba2.drawing import state_space

MULTIPLIERS = Note("with multipliers", "scales")


def scaled_state_space(subject):
    """Mamba-2's mixer, with a note of its multipliers."""
    return state_space(subject).with_notes(MULTIPLIERS)


def scaled_mlp(subject):
    """A gated feed-forward, with a note of its multipliers."""
    return parts.gated_mlp(subject).with_notes(MULTIPLIERS)


def parallel_mixers(subject):
    """A residual sum of attention and the state space, which share a norm, then one of the feed-forward."""
    title = "Attention and state space in parallel"
    mixers = parts.side_by_side(subject, title, mixer="Attention", memory="State space")
    yield Residual((*subject.part("mixer_norm"), mixers))
    yield Residual((*subject.part("feedforward_norm"), *subject.part("feedforward")))
