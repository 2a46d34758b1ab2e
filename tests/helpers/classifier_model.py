"""The module and the strategy of the plugin `classifier`. Axes: B batch, S length, D width, L labels."""

import mlx.core as mx
import mlx.nn as nn

from zoo.generation import Step
from zoo.generation.loop.prompt import encode_prompt


class ClassificationHead(nn.Module):
    def __init__(self, spec, *, dim, index):
        super().__init__()
        self.dense, self.output = nn.Linear(dim, dim), nn.Linear(dim, spec.labels)

    def tie(self, embedding):
        """It has matrices of its own."""

    def __call__(self, x):  # (B, S, D) -> (B, L)
        return self.output(mx.tanh(self.dense(x[:, 0])))


def stream(loaded, prompt, *, labels):
    """The likeliest labels of a text, best first, a step each."""
    ids = encode_prompt(loaded, prompt)
    names = loaded.config.get("id2label", {})

    def run():
        logits = loaded.model(mx.array([ids]))[0]  # (L,)
        probabilities = mx.softmax(logits.astype(mx.float32)).tolist()
        best = sorted(range(len(probabilities)), key=lambda label: -probabilities[label])[:labels]
        for label in best:
            name, probability = names.get(str(label), f"LABEL_{label}"), probabilities[label]
            yield Step(
                None,
                f"{probability:.4f}  {name}\n",
                finish_reason="stop" if label == best[-1] else None,
                candidate={"label": name, "probability": probability},
            )

    return run()
