"""The decode step compiled to plain functions: one more token of each row, with less work for Python.

A model of small matrices, and any model on a fast GPU, waits for Python: it has to build the graph of each token. Here a
module is turned into a function, once: attributes are looked up, weights transposed, projections of the same vector
joined in one product, steps that change nothing for a single token left out. The blocks stay what a model is: the compiled
step is made from them, gives the same numbers, and what it does not know runs as it is. Names of parameters, saved files
and traces stay as they were.
"""

from zoo.compiled_step.step import CompiledStep, compiled_step

__all__ = ["CompiledStep", "compiled_step"]
