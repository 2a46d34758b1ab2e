"""A text decoded by a model and by its compiled step."""

import mlx.core as mx

from zoo.compiled_step import compiled_step


def both(model, tokens):
    """The logits of tokens one by one, (B, T, V): of the model and of its compiled step."""
    step, caches = compiled_step(model), (model.make_cache(), model.make_cache())
    for cache in caches:
        mx.eval(model(tokens[:, :3], cache))
    rows = [(model(one, caches[0])[:, 0], step(one, caches[1])) for one in mx.split(tokens[:, 3:], 6, axis=1)]
    return tuple(mx.stack(logits, axis=1) for logits in zip(*rows, strict=True))
