"""How linear attention is drawn. Imports no mlx."""

from zoo.describe.diagram import note


def linear_attention(subject):
    """The projections, the features, and the state that they add to."""
    rows = [
        [("Query", "query"), ("Key", "key"), ("Value", "value")],
        [("elu + 1", "query"), ("elu + 1", "key"), ""],
        "State",
        ("Output", "output"),
    ]
    return subject.box("Linear attention", note("heads", "{n} heads", n=subject.spec.heads), rows=rows)
