"""Beam search: its configuration, the search for one prompt, and the passes that several searches share."""

from zoo.generation.strategies.beam_search.config import BeamConfig, Hypothesis
from zoo.generation.strategies.beam_search.passes import beam_search, run_searches
from zoo.generation.strategies.beam_search.search import BeamSearch, likeliest

__all__ = ["BeamConfig", "BeamSearch", "Hypothesis", "beam_search", "likeliest", "run_searches"]
