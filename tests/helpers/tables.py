"""A model that is a table of probabilities, for the searches."""

import mlx.core as mx


class Table:
    """A reader whose next token depends on the last one only, by a table of log-probabilities."""

    def __init__(self, table, start):
        self.table, self.start, self.rows = mx.log(mx.array(table)), start, []

    def first(self):
        return self.table[self.start][None]

    def next(self, tokens):
        return self.table[tokens[:, -1]]

    def select(self, rows):
        self.rows.append(rows)


# 0 ends. From 3, token 1 is likelier than 2, but then nothing is certain; after 2 the end is.
GARDEN = [
    [0.25, 0.25, 0.25, 0.25],
    [0.30, 0.40, 0.20, 0.10],
    [0.97, 0.01, 0.01, 0.01],
    [0.01, 0.50, 0.40, 0.09],
]
