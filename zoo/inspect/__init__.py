"""Looking into a running model: traces, interventions, perplexity, divergence, intervals, the pieces of a text."""
