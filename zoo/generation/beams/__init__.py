"""Beam search: how hypotheses compete, the search for one prompt, and the passes that several searches share."""

from zoo.generation.beams.competition import Beams, Hypothesis
from zoo.generation.beams.passes import beam_search, search_all
from zoo.generation.beams.search import Search, likeliest

__all__ = ["Beams", "Hypothesis", "Search", "beam_search", "likeliest", "search_all"]
