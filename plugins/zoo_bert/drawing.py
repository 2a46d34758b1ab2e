"""Drawings of BERT's embedding and head. Imports no mlx."""

import dataclasses

from zoo.describe.diagram import Cell, note, parts
from zoo.describe.diagram.draw import activation


def typed_embedding(subject):
    """The zoo's own with the vector of each token's type added."""
    kinds = note("token_types", "{n} token types", n=subject.spec.token_types)
    return parts.embedding(subject, [(("Token types", "types"), kinds)])


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
