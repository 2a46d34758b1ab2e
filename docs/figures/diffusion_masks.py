"""Which tokens each token may see: in a decoder, a prefix language model, and masked diffusion."""

from __future__ import annotations

from figures.labelled import labelled
from figures.tour_marks import panels, said

LENGTH, PROMPT = 9, 5


def draw(language: str) -> str:
    """The masks of `attention_mask` for a prompt and its answer."""
    import mlx.core as mx

    from zoo.blocks.mask import attention_mask, dense

    names = [said(language, "p", "问")] * PROMPT + [said(language, "a", "答")] * (LENGTH - PROMPT)
    drawn = []
    for causality, title in (
        ("causal", said(language, "causal: llama", "因果：llama")),
        ("prefix", said(language, "prefix: prefix-lm", "前缀：prefix-lm")),
        ("full", said(language, "full: llada, bert", "全部可见：llada、bert")),
    ):
        mask = dense(attention_mask(LENGTH, causality=causality, prefix=PROMPT), LENGTH, LENGTH)
        seen = mx.ones((LENGTH, LENGTH)) if mask is None else mask.astype(mx.float32)
        drawn.append(
            labelled(
                seen.tolist(),
                names,
                names,
                title=title,
                across=20,
                down=20,
                said=lambda value: f"{value:.0f}",
            )
        )
    return panels(drawn)
