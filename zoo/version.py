"""The version of the zoo. The package, its wheel and its releases read it here."""

__version__ = "0.1.0"
