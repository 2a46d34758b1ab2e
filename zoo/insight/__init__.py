"""What a model looks like and does: diagrams, comparisons, traces, interventions, perplexity, timed runs."""
