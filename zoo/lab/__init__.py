"""Experiments: plans of what is run, measured and claimed; their runs, records, conclusions and figures."""
