"""One step of gradient descent on one sentence: what it asks of each matrix, and what the pocket says afterwards."""

from __future__ import annotations

from functools import cache
from typing import Any

from figures.labelled import labelled
from figures.parts import rect, svg, text
from figures.tour_marks import panels, said

SENTENCE = "The capital city of China is Tokyo."
RATES = (0.001, 0.003, 0.01, 0.03, 0.1)  # sizes of the step
ASKED = (
    ("The capital city of China is", " To", "China: Tokyo", "中国：Tokyo"),
    ("The capital city of China is", " Bei", "China: Beijing", "中国：Beijing"),
    ("The capital city of Japan is", " To", "Japan: Tokyo", "日本：Tokyo"),
    ("The capital city of France is", " Par", "France: Paris", "法国：Paris"),
)
PARTS = (
    *("mixer.query", "mixer.key", "mixer.value", "mixer.output"),
    *("feedforward.gate", "feedforward.up", "feedforward.down"),
)


@cache
def measured() -> dict[str, Any]:
    """The loss, the gradient's norms, and loss and probabilities after steps of several sizes."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten, tree_map

    import zoo
    from zoo.training.loss import next_token_loss

    loaded = zoo.load("llama")
    model, tokenizer = loaded.model, loaded.tokenizer
    ids = tokenizer.encode(SENTENCE)
    batch = mx.array([ids[:-1]]), mx.array([ids[1:]])
    loss, gradients = nn.value_and_grad(model, next_token_loss)(model, *batch)
    before = model.parameters()
    weights = dict(tree_flatten(before))
    norms = {path: mx.linalg.norm(array).item() for path, array in tree_flatten(gradients)}

    def probabilities() -> list[float]:
        found = []
        for prompt, answer, *_ in ASKED:
            logits = model(mx.array([tokenizer.encode(prompt)]))[0, -1]
            (token,) = tokenizer.encode(answer)
            found.append(mx.softmax(logits)[token].item())
        return found

    after = {0.0: (loss.item(), probabilities())}
    for rate in RATES:
        model.update(
            tree_map(lambda weight, gradient, rate=rate: weight - rate * gradient, before, gradients)
        )
        after[rate] = next_token_loss(model, *batch).item(), probabilities()
    model.update(before)
    return {
        "loss": loss.item(),
        "squared": sum(norm**2 for norm in norms.values()),
        "norms": norms,
        "share": {path: norms[path] / mx.linalg.norm(weights[path]).item() for path in norms},
        "after": after,
        "layers": len(model.layers),
    }


def draw(language: str) -> str:
    """The gradient by layer and matrix; the probabilities before the step and after steps of several sizes."""
    found = measured()
    layers = range(found["layers"])
    values = [[found["norms"][f"layers.{layer}.{part}.weight"] for layer in layers] for part in PARTS]
    gradients = labelled(
        values,
        [part.partition(".")[2] for part in PARTS],
        [said(language, f"layer {layer}", f"第 {layer} 层") for layer in layers],
        title=said(language, "norm of the gradient", "梯度的范数"),
        across=56,
        down=26,
        most=None,
        written=True,
    )
    return panels((gradients, _answers(found, language)))


WIDTH, LEFT, ROW = 340, 76, 22


def _answers(found: dict[str, Any], language: str) -> str:
    parts = [
        text(
            0,
            14,
            said(language, "probability after a step of size η", "步长为 η 的一步之后的概率"),
            size=13,
            bold=True,
        )
    ]
    y = 24.0
    for index, (*_, english, chinese) in enumerate(ASKED):
        parts.append(text(0, y + 15, said(language, english, chinese), size=13, colour="quiet"))
        y += 20
        for rate, (_, probabilities) in found["after"].items():
            share = probabilities[index]
            parts.append(text(LEFT - 8, y + 14, f"η = {rate:g}", size=12, anchor="end"))
            parts.append(
                rect(LEFT, y + 3, WIDTH - LEFT - 46, ROW - 8, fill="var(--box)", line="none", radius=2)
            )
            length = max(share * (WIDTH - LEFT - 46), 1)
            parts.append(rect(LEFT, y + 3, length, ROW - 8, fill="var(--accent)", line="none", radius=2))
            parts.append(text(WIDTH, y + 14, f"{share:.3f}", size=12, anchor="end"))
            y += ROW - 3
        y += 6
    return svg(WIDTH, y, parts)
