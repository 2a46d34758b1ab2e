"""Protocols: pure translations from the JSON of an interface to requests, and from answers to its JSON. No mlx, no HTTP."""
