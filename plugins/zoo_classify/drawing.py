"""The drawing of a classifier's head. Imports no mlx."""

import dataclasses

from zoo.describe.diagram import Cell, parts
from zoo.describe.diagram.draw import activation


def classifier_head(subject):
    """A dense layer, its activation and a norm, where there are some, before the logits of the labels."""
    spec, titles = subject.spec, {}
    if spec.activation is not None:
        titles = {"Dense": "dense", activation(spec.activation): "activation"}
    if spec.norm is not None:
        titles[subject.title("norm")] = "norm"
    titles["Logits"] = "output"
    rows = tuple((Cell(title, subject.below(field)),) for title, field in titles.items())
    return dataclasses.replace(parts.head(subject), title="Classification head", rows=rows)
