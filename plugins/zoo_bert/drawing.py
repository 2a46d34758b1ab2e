"""How BERT's head is drawn. Imports no mlx."""

import dataclasses

from zoo.insight.diagram import Cell, parts
from zoo.insight.diagram.words import activation


def masked_head(subject):
    """A dense layer, its activation and a norm before the logits."""
    titles = {
        "Dense": "dense",
        activation(subject.spec.activation): "activation",
        subject.title("norm"): "norm",
        "Logits": "output",
    }
    rows = tuple((Cell(title, subject.below(field)),) for title, field in titles.items())
    return dataclasses.replace(parts.head(subject), title="Masked language model head", rows=rows)
