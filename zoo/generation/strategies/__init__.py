"""The strategies that generate an answer, one a module."""
