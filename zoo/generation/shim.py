import copy

import mlx.core as mx

from zoo.cache import *
from zoo.cache import KVCache, LayerCache


def mergeable(c):
    return type(c) is KVCache


def leaves(caches):
    for c in caches:
        if isinstance(c, LayerCache):
            yield from leaves(list(c))
        else:
            yield c


def row_of(caches, row):
    out = []
    for c in caches:
        c = copy.copy(c)
        c.select(mx.array([row]))
        out.append(c)
    return out


def source_mask(caches):
    return None


def merged_caches(lists):
    out = []
    for cs in zip(*lists):
        n = max(c.length for c in cs)
        m = KVCache(cs[0].policy)
        pads = []
        ks = []
        vs = []
        for c in cs:
            b = c.keys.shape[0]
            p = c.padding if c.padding is not None else mx.zeros((b,), mx.int32)
            pads.append(p + (n - c.length))
            for src, dst in ((c.keys, ks), (c.values, vs)):
                a = src[..., : c.length, :]
                dst.append(mx.pad(a, [(0, 0), (0, 0), (n - c.length, 0), (0, 0)]))
        m.keys = mx.concatenate(ks)
        m.values = mx.concatenate(vs)
        m.length = n
        m.padding = mx.concatenate(pads)
        out.append(m)
    return out


Cache.compact = lambda self: None
