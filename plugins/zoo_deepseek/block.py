"""The blocks of DeepSeek-V3: latent attention, the router of its experts, the layer for the token after the next.

Axes: B batch, T query length, S key length, D width, H heads, R latent width, N and P the widths of a head's
parts without and with positions, V width of a head's values, Q width of the queries' latent, E experts, G groups of
them, k experts chosen.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.blocks.feedforward import top_k
from zoo.blocks.mask import Mask, attention_mask, dense
from zoo.blocks.model import Model
from zoo.blocks.position import RoPE
from zoo.blocks.quantized import QuantizedStack, quantize_arguments
from zoo.cache import CachePolicy, KVCache
from zoo.compiled_step.compiler import Function, StepCompiler, chained, compiles, has_methods_of
from zoo_deepseek import spec as specs


class LatentAttention(nn.Module):
    """Attention whose keys and values are projections of cached latents (DeepSeek-V2, 2024, section 2.1).

    One result, two orders. Expanded: every latent becomes keys and values. Absorbed: the queries are projected
    into the latent space and compared with the latents as they are, since qᵀ(U c) = (Uᵀ q)ᵀ c.
    """

    def __init__(
        self,
        spec: specs.LatentAttention,
        *,
        dim: int,
        index: int = 0,
        kv_norm: nn.Module,
        rope: nn.Module | None = None,
        query_norm: nn.Module | None = None,
        query_scale: Any = None,
        indexer: Any = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.scale = spec.scale or (spec.nope_dim + spec.rope_dim) ** -0.5
        queries = spec.heads * (spec.nope_dim + spec.rope_dim)
        if query_norm is None:
            self.query = nn.Linear(dim, queries, bias=False)
        else:
            self.query_down = nn.Linear(dim, spec.query_rank, bias=spec.bias)
            self.query_norm = query_norm
            self.query_up = nn.Linear(spec.query_rank, queries, bias=False)
        self.kv_down = nn.Linear(dim, spec.kv_rank + spec.rope_dim, bias=spec.bias)
        self.kv_norm = kv_norm
        head_linear = PackableHeadLinear if spec.packs_heads else HeadLinear
        self.key_up = head_linear(spec.heads, spec.nope_dim, spec.kv_rank)
        self.value_up = head_linear(spec.heads, spec.kv_rank, spec.value_dim)
        self.output = nn.Linear(spec.heads * spec.value_dim, dim, bias=spec.bias)
        self.query_scale = query_scale
        if rope is not None:
            self.rope = rope
        if indexer is not None:
            self.indexer = indexer

    def make_cache(self, policy: CachePolicy | None = None) -> KVCache:
        """A cache of latents and rotated keys, (B, 1, S, R) and (B, 1, S, P), these with an indexer's keys at their ends."""
        return KVCache(policy)

    def queries(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """What queries are made of, (B, T, D or Q) -> (B, H, T, N) and (B, H, T, P), not yet rotated."""
        flat = self.query(x) if "query" in self else self.query_up(x)
        heads = flat.reshape(*x.shape[:2], self.spec.heads, -1).transpose(0, 2, 1, 3)  # (B, H, T, N + P)
        return mx.split(heads, [self.spec.nope_dim], axis=-1)

    def __call__(
        self, x: mx.array, mask: Mask = None, cache: Any = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        source = x if "query" in self else self.query_norm(self.query_down(x))  # (B, T, D or Q)
        queries, rotated = self.queries(source)  # (B, H, T, N), (B, H, T, P)
        latents, keys = mx.split(self.kv_down(x)[:, None], [self.spec.kv_rank], axis=-1)  # one head for all
        latents = self.kv_norm(latents)  # (B, 1, T, R)
        offset = 0 if cache is None else cache.offset
        queries, rotated = self.grow(queries, offset), self.grow(rotated, offset)
        if "rope" in self:
            rotated, keys = self.rope(rotated, offset), self.rope(keys, offset)  # (B, H, T, P), (B, 1, T, P)
        if "indexer" in self:
            keys = mx.concatenate([keys, self.indexer.keys(x, offset)], axis=-1)  # (B, 1, T, P + I)
        if cache is not None:
            latents, keys = cache.update_and_fetch(latents, keys)  # (B, 1, S, R), (B, 1, S, P)
        if "indexer" in self:
            latents, keys, mask = self.chosen(x, source, offset, latents, keys, mask)
        mixed = self.read(queries, rotated, latents, keys, mask)  # (B, H, T, V)
        return self.output(mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1))

    def grow(self, queries: mx.array, offset: int | mx.array) -> mx.array:  # (B, H, T, N) -> (B, H, T, N)
        """A part of the queries by the scale of their positions."""
        return self.query_scale(queries, offset) if "query_scale" in self else queries

    def chosen(
        self, x: mx.array, source: mx.array, offset: Any, latents: mx.array, keys: mx.array, mask: Mask
    ) -> tuple[mx.array, mx.array, Mask]:
        """The latents and rotated keys of the tokens that the indexer chooses, and which of them are seen.

        One query of many keys takes its k tokens alone, (B, 1, k, R); otherwise a mask shows each query its own.
        """
        keys, indexed = mx.split(keys, [self.spec.rope_dim], axis=-1)  # (B, 1, S, P), (B, 1, S, I)
        length, past = x.shape[1], keys.shape[2]
        visible = dense(mask, length, past)
        places = self.indexer(x, source, offset, indexed, visible)  # (B, 1, T, k)
        if places is None:
            return latents, keys, mask
        if self.gathers(length, past):
            rows = places.swapaxes(-1, -2)  # (B, 1, k, 1)
            if visible is not None:
                seen = mx.broadcast_to(visible, (x.shape[0], 1, 1, past))
                visible = mx.take_along_axis(seen, places, axis=-1)
            return taken(latents, rows), taken(keys, rows), visible
        found = mx.zeros((x.shape[0], 1, length, past), dtype=mx.bool_)
        found = mx.put_along_axis(found, places, mx.array(True), axis=-1)
        return latents, keys, found if visible is None else found & visible

    def gathers(self, queries: int, keys: int) -> bool:
        """Whether the chosen latents are copied out of the cached ones, which moves them three times, rather than masked."""
        return queries == 1 and bool(keys > 8 * self.indexer.spec.top_k)

    def read(
        self, queries: mx.array, rotated: mx.array, latents: mx.array, keys: mx.array, mask: Mask
    ) -> mx.array:
        """(B, H, T, N), (B, H, T, P), cached (B, 1, S, R) and (B, 1, S, P) -> (B, H, T, V)."""
        # The rotated parts' share of each score is given as an additive mask.
        scores = (rotated * self.scale) @ keys.swapaxes(-1, -2)  # (B, H, T, S)
        visible = dense(mask, *scores.shape[-2:])
        if visible is not None:
            scores = mx.where(visible, scores, mx.finfo(scores.dtype).min)
        return self.mix(queries, latents, scores)

    def mix(self, queries: mx.array, latents: mx.array, scores: mx.array) -> mx.array:
        """Queries (B, H, T, N), latents (B, 1, S, R), scores of the rotated parts (B, H, T, S) -> (B, H, T, V)."""
        if self.absorbs(*scores.shape[-2:]):
            return self.value_up(self.attend(self.key_up(queries), latents, latents, scores))
        keys, values = self.key_up.transposed(latents), self.value_up(latents)  # (B, H, S, N), (B, H, S, V)
        return self.attend(queries, keys, values, scores)

    def attend(self, queries: mx.array, keys: mx.array, values: mx.array, scores: mx.array) -> mx.array:
        """softmax(Q Kᵀ · scale + scores) V, in either order: W is N and V, or R twice.

        (B, H, T, W), (B, H or 1, S, W), (B, H or 1, S, W), (B, H, T, S) -> (B, H, T, W).
        """
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=self.scale, mask=scores)

    def absorbs(self, queries: int, keys: int) -> bool:
        """Whether the absorbed order takes fewer multiplications, as it does for the few queries of decoding."""
        rank, widths = self.spec.kv_rank, self.spec.nope_dim + self.spec.value_dim
        absorbed = queries * rank * widths + queries * keys * 2 * rank
        expanded = keys * rank * widths + queries * keys * widths
        return absorbed < expanded


def taken(x: mx.array, rows: mx.array) -> mx.array:  # (B, 1, S, W), (B, 1, k, 1) -> (B, 1, k, W)
    """The rows of `x` by their numbers."""
    return mx.take_along_axis(x, mx.broadcast_to(rows, (*rows.shape[:-1], x.shape[-1])), axis=2)


@compiles(LatentAttention, "__call__", "queries", "chosen")
def step_of_attention(compiler: StepCompiler, block: LatentAttention) -> Function | None:
    """One token of latent attention: (B, D), mask, cache -> (B, D)."""
    rope = block.rope if "rope" in block else None
    if isinstance(rope, RoPE) and rope.depends_on_length:
        return None
    spec, positions = block.spec, compiler.positions
    first = "query" if "query" in block else "query_down"
    indexer = block.indexer if "indexer" in block else None
    layers = [block[first], block.kv_down, *([] if indexer is None else [indexer.key])]
    down = compiler.joined(*layers)  # an adapted layer is not joined
    widths = [] if down is None else [layer.weight.shape[0] for layer in layers[:-1]]
    ends = [sum(widths[: n + 1]) for n in range(len(widths))]
    projections = [compiler.compile(layer) for layer in layers]
    latent = None if "query" in block else compiler.compile(block.query_norm)
    more = None if "query" in block else compiler.compile(block.query_up)
    norm = compiler.compile(block.kv_norm)
    rotate = None if rope is None else compiler.compile_if_known(rope) or rope

    def attend(x: mx.array, mask: Mask, cache: Any) -> mx.array:  # (B, D) -> (B, H·V)
        rows, offset = x.shape[0], positions.next
        projected = (
            [project(x) for project in projections] if down is None else mx.split(down(x), ends, axis=-1)
        )
        flat, both = projected[:2]
        source = flat if latent is None else latent(flat)
        heads = (source if more is None else more(source)).reshape(rows, spec.heads, 1, -1)
        queries, rotated = mx.split(heads, [spec.nope_dim], axis=-1)  # (B, H, 1, N), (B, H, 1, P)
        latents, keys = mx.split(both.reshape(rows, 1, 1, -1), [spec.kv_rank], axis=-1)
        if rotate is not None:
            rotated, keys = rotate(rotated, offset), rotate(keys, offset)
        if indexer is not None:
            keys = mx.concatenate([keys, indexer.placed(projected[2][:, None], offset)], axis=-1)
        latents, keys = cache.update_and_fetch(norm(latents), keys)
        if indexer is not None:
            latents, keys, mask = block.chosen(x[:, None], source[:, None], offset, latents, keys, mask)
        queries, rotated = block.grow(queries, offset), block.grow(rotated, offset)
        return block.read(queries, rotated, latents, keys, mask).reshape(rows, -1)

    return chained(attend, compiler.compile(block.output))


class HeadLinear(nn.Module):
    """A matrix a head, stacked: (H, out, in)."""

    def __init__(self, heads: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = mx.random.uniform(-bound, bound, (heads, outputs, inputs))

    def __call__(self, x: mx.array) -> mx.array:  # (B, H or 1, T, in) -> (B, H, T, out)
        return x @ self.weight.swapaxes(-1, -2)

    def transposed(self, x: mx.array) -> mx.array:  # (B, H or 1, T, out) -> (B, H, T, in)
        """The transposed matrices applied."""
        return x @ self.weight


class PackableHeadLinear(HeadLinear):
    """The same, which may be packed."""

    def to_quantized(
        self, group_size: int | None = None, bits: int | None = None, mode: str = "affine"
    ) -> QuantizedHeadLinear:
        """The same with packed weights; `mlx.nn.quantize` asks for it."""
        return QuantizedHeadLinear(self, group_size, bits, mode)


class QuantizedHeadLinear(QuantizedStack):
    """The same, the matrices packed along their inputs; all of them are used at once."""

    def __call__(
        self, x: mx.array, transpose: bool = True
    ) -> mx.array:  # (B, H or 1, T, in) -> (B, H, T, out)
        parts = (self.weight, self.scales, self.get("biases"), transpose)
        # By heads, then by rows of all texts: some of MLX's kernels misread packed matrices that are repeated for each text.
        rows = x.swapaxes(0, 1).flatten(1, 2)  # (H or 1, B·T, in)
        found = mx.quantized_matmul(rows, *parts, **quantize_arguments(self))
        return mx.unflatten(found, 1, (x.shape[0], x.shape[2])).swapaxes(0, 1)

    def transposed(self, x: mx.array) -> mx.array:  # (B, H or 1, T, out) -> (B, H, T, in)
        """The transposed matrices applied."""
        return self(x, transpose=False)


class SigmoidRouter(nn.Module):
    """Top-k routing by sigmoid scores (DeepSeek-V3, 2024, equations 13 to 16)."""

    spec: specs.SigmoidRouter

    def __init__(self, spec: specs.SigmoidRouter, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.weight = mx.random.normal((spec.experts, dim), scale=dim**-0.5)
        if spec.corrects:
            self.correction_bias = mx.zeros((spec.experts,))

    def __call__(
        self, x: mx.array
    ) -> tuple[mx.array, mx.array]:  # (B, T, D) -> indices (B, T, k), weights (B, T, k)
        scores = self.score(x)  # (B, T, E)
        indices = self.choose(scores)
        return indices, self.weigh(scores, indices).astype(x.dtype)

    def score(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, E)
        """σ(W x), in float32: the bias is small beside the scores that it decides between."""
        return self.activate(x.astype(mx.float32) @ self.weight.T.astype(mx.float32))

    def activate(self, logits: mx.array) -> mx.array:  # (B, T, E) -> (B, T, E)
        """σ of each logit: experts do not compete for their scores."""
        return mx.sigmoid(logits)

    def choose(self, scores: mx.array) -> mx.array:  # (B, T, E) -> (B, T, k)
        """The chosen experts, by their scores and what is added to these to balance the load."""
        return top_k(self.corrected(scores), self.spec.top_k)

    def corrected(self, scores: mx.array) -> mx.array:  # (B, T, E) -> (B, T, E)
        """The scores by which experts are chosen."""
        scores = mx.stop_gradient(scores)
        return scores + self.correction_bias if self.spec.corrects else scores

    def weigh(self, scores: mx.array, indices: mx.array) -> mx.array:  # (B, T, E), (B, T, k) -> (B, T, k)
        """The weights of the chosen experts' outputs."""
        weights = mx.take_along_axis(scores, indices, axis=-1)
        if self.spec.normalised:
            weights = weights / (weights.sum(axis=-1, keepdims=True) + 1e-20)
        return weights * self.spec.scale


class GroupRouter(SigmoidRouter):
    """The same among the experts of the best groups alone (section 2.1.2)."""

    spec: specs.GroupRouter

    def corrected(self, scores: mx.array) -> mx.array:  # (B, T, E) -> (B, T, E)
        """The scores by which experts are chosen, −∞ for those of other groups."""
        return self.mask_groups(super().corrected(scores))

    def mask_groups(self, scores: mx.array) -> mx.array:  # (B, T, E) -> (B, T, E)
        """The scores of experts of the best groups, −∞ for the others."""
        groups, kept = self.spec.groups, self.spec.top_k_groups
        if kept == groups:
            return scores
        grouped = scores.reshape(*scores.shape[:-1], groups, -1)  # (B, T, G, E/G)
        chosen = top_k(mx.topk(grouped, self.spec.best, axis=-1).sum(axis=-1), kept)
        inside = (chosen[..., None] == mx.arange(groups)).any(axis=-2)  # (B, T, G)
        return mx.where(inside[..., None], grouped, -mx.inf).reshape(scores.shape)


@compiles(SigmoidRouter, "__call__", "score", "choose", "weigh")
def step_of_router(compiler: StepCompiler, block: SigmoidRouter) -> Function | None:
    """(B, D) -> (B, k), (B, k); not where experts are chosen in another way than by groups."""
    grouped = has_methods_of(block, GroupRouter, "corrected")
    if not grouped and not has_methods_of(block, SigmoidRouter, "corrected"):
        return None
    spec, weight = block.spec, compiler.take(block, "weight")
    matrix = weight.T.astype(mx.float32)
    bias = compiler.take(block, "correction_bias") if spec.corrects else mx.array(0.0)
    mx.eval(matrix)  # in float32 once
    correct = runtime.fused(lambda logits: ((scores := block.activate(logits)), scores + bias))
    divide = runtime.fused(lambda chosen, total: (chosen / (total + 1e-20) * spec.scale).astype(weight.dtype))

    def choose(x: mx.array) -> tuple[mx.array, mx.array]:
        scores, merits = correct(x.astype(mx.float32) @ matrix)  # (B, E)
        indices = top_k(block.mask_groups(merits) if grouped else merits, spec.top_k)
        if not spec.normalised:
            return indices, block.weigh(scores, indices).astype(x.dtype)
        chosen = mx.take_along_axis(scores, indices, axis=-1)
        return indices, divide(chosen, chosen.sum(axis=-1, keepdims=True))

    return choose


class PredictionLayer(Model, nn.Module):
    """A layer on the projection of a hidden state and the token that it predicted (DeepSeek-V3, 2024, equations 21, 22).

    h' = M [norm(vector of token i + 1); norm(hidden state i)]. The paper writes the two the other way round; this is the
    order of the published matrix, and the hidden states are those after the model's final norm, as they are for the
    servers that run it.
    """

    decodes = False

    def __init__(
        self,
        spec: specs.PredictionLayer,
        *,
        dim: int,
        index: int = 0,
        embedding_norm: nn.Module,
        hidden_norm: nn.Module,
        layers: list[Any],
        norm: nn.Module,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.embedding_norm, self.hidden_norm = embedding_norm, hidden_norm
        self.projection = nn.Linear(2 * dim, dim, bias=False)
        self.layers = layers
        self.norm = norm

    def make_cache(self, policy: CachePolicy | None = None) -> list[Any]:
        """The cache of its layer, in a list."""
        return [layer.make_cache(policy) for layer in self.layers]

    def __call__(
        self, vectors: mx.array, hidden: mx.array, caches: list[Any] | None = None
    ) -> mx.array:  # (B, T, D), (B, T, D) -> (B, T, D)
        both = mx.concatenate([self.embedding_norm(vectors), self.hidden_norm(hidden)], axis=-1)
        x = self.projection(both)  # (B, T, 2D) -> (B, T, D)
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers), strict=True):
            length = 0 if cache is None else cache.length
            x = layer(x, attention_mask(x.shape[1], length=length), cache)
        return x
