"""How DeepSeek-V2's router is drawn. Imports no mlx."""

from zoo.describe.diagram import note


def softmax_group_router(subject):
    """The router, and the groups that it chooses from."""
    spec = subject.spec
    notes = (
        [note("groups", "{n} of {m} groups", n=spec.top_k_groups, m=spec.groups)] if spec.groups > 1 else []
    )
    return subject.box("Router: softmax", *notes)
