"""Who makes a layer's cache, and who is handed which; `zoo.recipe.memory` says what a layer needs."""

from zoo.cache import LayerCache
from zoo.errors import PluginError, RecipeError


def makes_cache(module):
    """Whether it has the method that every block with a cache has."""
    return callable(getattr(module, "make_cache", None))


def check_caches(where, spec, layer, need):
    """RecipeError for a layer of several caches that takes one, and for a part that makes none of what it keeps."""
    if makes_cache(layer):
        return
    if len(need.caches) > 1 and not need.by_part:
        names = " and ".join(need.caches)
        raise RecipeError(
            f"{where}: {names} each have a cache, and {spec.block()} takes one (it is not `by_part`)"
        )
    parts = dict(spec.walk())
    for path in need.caches:
        if not makes_cache(_part(layer, path, where)):
            raise RecipeError(
                f"{where}.{path}: {parts[path].block()} has no make_cache(policy), which gives what it keeps from "
                f"token to token"
            )


def layer_cache(layer, need, policy, where):
    """The cache of a layer: its own, its one mixer's, or those of its parts in one."""
    if makes_cache(layer):
        return layer.make_cache(policy)
    made = {path: _part(layer, path, where).make_cache(policy) for path in need.caches}
    return LayerCache(made) if need.by_part or not made else next(iter(made.values()))


def _part(layer, path, where):
    """The module at a path below a layer: where its spec is, so is what it runs."""
    try:
        for step in path.split("."):
            layer = layer[int(step)] if isinstance(layer, list) else layer[step]
    except (LookupError, TypeError) as error:
        raise PluginError(f"{where}: the module does not keep its part {path} under that name") from error
    return layer


def by_part(need, cache):
    """The caches of a layer's parts by their names; of mlx-lm's, which have no names, in order."""
    if isinstance(cache, LayerCache):
        return cache
    caches = [None] * len(need.memories) if cache is None else cache
    return {memory.path: one for memory, one in zip(need.memories, caches, strict=True)}
