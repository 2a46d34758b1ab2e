"""One sentence for each part of a trace's page, with the formula of the model's own block."""

from __future__ import annotations

from collections.abc import Iterable

from zoo import recipe
from zoo.describe.language import joined, message
from zoo.loading import Loaded
from zoo.recipe import Spec

ACTIVATIONS = {"gelu_tanh": "gelu", "quick_gelu": "gelu", "relu2": "relu²"}
NORMS = {
    recipe.LayerNorm: "LayerNorm(x) = (x − mean) / √(variance + ε) · weight + bias",
    recipe.RMSNorm: "RMSNorm(x) = x / √(mean(x²) + ε) · weight",
}


def explanations(loaded: Loaded) -> dict[str, str]:
    """Sentences by the part of the page that they are for; formulas are those of the recipe's specs."""
    specs = [spec for _, spec in loaded.recipe.walk()]
    return {
        "pieces": "The tokenizer cuts the text into pieces of its vocabulary; each piece has an id, and only the ids "
        "reach the model.",
        "vectors": joined(" ", ("An id picks a row of the embedding table: x = E[id].", *_positions(specs))),
        "layers": joined(" ", _layers(specs)),
        "attention": joined(" ", _attention(specs)),
        "feedforward": joined(" ", _feedforward(specs)),
        "experts": "A router scores every expert for each token and keeps the best k: y = Σ wₑ · expertₑ(x).",
        "state": "This mixer has no attention pattern: a state of fixed size is carried from token to token, so what "
        "is remembered has to pass through it. Each row below is one token.",
        "lens": "The logit lens reads the residual stream after each layer with the model's own final norm and head: "
        "softmax(head(norm(x))). It shows at which depth the prediction appears.",
        "output": joined(" ", _output(specs)),
        "sampling": "softmax turns logits into probabilities: p = exp(z / temperature) / Σ exp(z / temperature). Then "
        "top-k keeps the k likeliest, top-p the smallest set whose probabilities reach p, min-p those at least p times "
        "as likely as the likeliest; the draw is from the renormalised rest. Temperature 0 takes the likeliest.",
        "cache": _cache(loaded, specs),
        "masks": "The model reads the text on both sides of a mask, and its head gives a probability to every token "
        "in the mask's place.",
        "uncovering": "Every pass reads the whole text and predicts all masks at once; the surest predictions stay, "
        "the others are masked again.",
    }


def _positions(specs: Iterable[Spec]) -> Iterable[str]:
    added = [spec for spec in specs if isinstance(spec, recipe.LearnedPositions | recipe.SinusoidalPositions)]
    if added:
        kind = "a learned" if isinstance(added[0], recipe.LearnedPositions) else "a sinusoidal"
        yield f"{kind.capitalize()} vector of the position is added to it."
    elif any(isinstance(spec, recipe.RoPE) for spec in specs):
        yield "No position is added here: each layer rotates its queries and keys by an angle that grows with the position."


def _layers(specs: list[Spec]) -> Iterable[str]:
    layers = [spec for spec in specs if isinstance(spec, recipe.Layer)]
    yield "Every layer adds to the residual stream, the vector that each token carries from layer to layer."
    if layers:
        yield _sums(layers[0])
        if (scale := layers[0].residual_scale) != 1.0:
            yield message("What a sum adds to x is multiplied by {n} first.", n=f"{scale:g}")
        norm = NORMS.get(type(layers[0].mixer_norm))
        if norm is not None:
            yield norm + "."


def _sums(layer: recipe.Layer) -> str:
    """How a layer adds its parts to the residual stream."""
    if layer.parallel and layer.feedforward_norm is None:
        return "Here one sum takes both parts, which read the same vector h = norm(x): x ← x + f(h) + g(h)."
    if layer.parallel:
        return (
            "Here one sum takes both parts, each with a norm of its own: x ← x + f(norm₁(x)) + g(norm₂(x))."
        )
    if layer.placement == "post":
        return "Here the norm comes after each sum (Post-LN): x ← norm(x + f(x))."
    return "Here the norm comes before each part (Pre-LN): x ← x + f(norm(x))."


def _attention(specs: list[Spec]) -> Iterable[str]:
    yield (
        "Each head compares the query of a token with the keys of the tokens that it may see: "
        "softmax(Q·Kᵀ / √d + mask) gives a row of weights that sum to 1, and the head takes that mean of the values V."
    )
    kinds = [spec for spec in specs if isinstance(spec, recipe.Attention)]
    if kinds and kinds[0].kv_heads and kinds[0].kv_heads < kinds[0].heads:
        template = "{n} heads share {m} key/value heads."
        yield message(template, n=kinds[0].heads, m=kinds[0].kv_heads)
    if any(spec.chunked for spec in kinds):
        yield "In layers with chunks a token sees those of its own chunk up to itself only."
    windows = {spec.window for spec in kinds if spec.window is not None and not spec.chunked}
    if windows:
        wide = ", ".join(map(str, sorted(windows)))
        template = "In layers with a window a token sees the last {text} tokens only."
        if any(spec.kind == "model" and spec.name == "encoder" for spec in specs):
            template = "In layers with a window of {text} tokens a token sees half of them on each side only."
        yield message(template, text=wide)


def _feedforward(specs: list[Spec]) -> Iterable[str]:
    plain = [spec for spec in specs if isinstance(spec, recipe.MLP)]
    if any(spec.kind == "feedforward" for spec in specs):
        yield "The feed-forward works on each token by itself."
    if plain:
        name = ACTIVATIONS.get(plain[0].activation, plain[0].activation)
        gated = isinstance(plain[0], recipe.GatedMLP)
        yield f"y = W_down({name}(W_gate·x) ⊙ W_up·x)." if gated else f"y = W_down·{name}(W_up·x)."


def _output(specs: list[Spec]) -> Iterable[str]:
    yield "The head compares the last vector with every token of the vocabulary: one logit a token."
    heads = [spec for spec in specs if spec.kind == "head"]
    if heads and heads[0].ties_embedding:
        yield "It is tied: the embedding table is used backwards, z = E·x."


def _cache(loaded: Loaded, specs: list[Spec]) -> str:
    if loaded.recipe.causality == "full":
        return "Every token sees every other, so nothing can be cached: each pass reads the whole text."
    recurrent = any(spec.recurrent for spec in specs)
    if recurrent and not any(isinstance(spec, recipe.Attention) for spec in specs):
        return "The first pass reads the whole prompt, later ones one token each; the state that they continue has a fixed size."
    return (
        "The first pass reads the whole prompt (prefill); each later pass reads one token (decode) and finds the keys "
        "and values of the earlier ones in the cache, which grows with every token."
    )
