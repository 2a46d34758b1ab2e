"""Where in held-out sentences one hidden feature of a pocket's feed-forward is largest."""

from __future__ import annotations

import numpy as np

import zoo
from figures.parts import rect, svg, text
from figures.seen import held_out, values_on

PROMPT, LAYER = "The capital city of China is", 0
SENTENCES, SHOWN, WIDTH, BARS = 150, 10, 360, 70
SAID = {
    "en": "llama:pocket, layer {layer}, feature {feature} of {hidden}",
    "zh": "llama:pocket，第 {layer} 层，{hidden} 个隐藏特征中的第 {feature} 个",
}


def draw(language: str) -> str:
    """The tokens, each with the text before it, at which the feature is largest, and how large it is."""
    loaded = zoo.load("llama")
    feature, hidden = chosen(loaded)
    found = largest(loaded, feature)
    most = found[0][0]
    title = SAID[language].format(layer=LAYER, feature=feature, hidden=hidden)
    parts = [text(0, 15, title, size=13, bold=True)]
    for row, (value, before, token) in enumerate(found):
        y = 26 + 22 * row
        parts.append(rect(0, y, BARS * value / most, 16, fill="var(--accent)", line="none", radius=2))
        parts.append(text(BARS + 8, y + 13, f"{value:.1f}", size=12, colour="quiet"))
        shown = text(BARS + 42, y + 13, before, size=13, colour="quiet", more='xml:space="preserve"')
        marked = f'<tspan fill="var(--ink)" font-weight="600">{token}</tspan></text>'
        parts.append(shown.removesuffix("</text>") + marked)
    return svg(WIDTH, 32 + 22 * len(found), parts)


def address() -> str:
    """Where a trace has the hidden features."""
    return f"layers.{LAYER}.feedforward.hidden"


def chosen(loaded: zoo.Loaded) -> tuple[int, int]:
    """The feature that adds most to the logit of the pocket's own answer to PROMPT, and how many there are."""
    model = loaded.model
    trace = zoo.trace(loaded, PROMPT, max_tokens=1, only=address())
    features = trace[address()][len(trace.prompt) - 1]  # (F,)
    answer = np.array(model.embedding.tokens.weight[trace.tokens[0]]) * np.array(model.norm.weight)  # (D,)
    adds = features * (answer @ np.array(model.layers[LAYER].feedforward.down.weight))  # (D, F) -> (F,)
    return int(adds.argmax()), len(features)


def largest(loaded: zoo.Loaded, feature: int) -> list[tuple[float, str, str]]:
    """The values that are largest, each with the text before its token and the token."""
    found = []
    for ids, (features,) in values_on(loaded, held_out(SENTENCES), [address()]):
        for place, value in enumerate(features[:, feature].tolist()):
            before = loaded.tokenizer.decode(ids[max(0, place - 5) : place])
            found.append((value, before.lstrip(), loaded.tokenizer.decode([ids[place]])))
    return sorted(found, reverse=True)[:SHOWN]
