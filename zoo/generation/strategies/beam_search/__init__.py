"""Beam search: how hypotheses compete, the search for one prompt, and the passes that several searches share."""

from zoo.generation.strategies.beam_search.passes import beam_search, search_all
from zoo.generation.strategies.beam_search.scoring import Beams, Hypothesis
from zoo.generation.strategies.beam_search.search import Search, likeliest

__all__ = ["Beams", "Hypothesis", "Search", "beam_search", "likeliest", "search_all"]
