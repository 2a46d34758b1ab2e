"""Looking into a running model: traces, interventions, perplexity, divergence, the pieces of a text."""
