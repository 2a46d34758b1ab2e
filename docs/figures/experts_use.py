"""Which experts of a pocket each kind of token goes to, and how evenly each layer's experts are used."""

from __future__ import annotations

from functools import cache

import numpy as np

import zoo
from figures.parts import rect, svg, text
from figures.seen import held_out, values_on
from figures.tour_marks import panels, shade

MODEL, SENTENCES, LAYER = "mixtral", 150, 0
KINDS = {
    "name": {"en": "capitalised", "zh": "大写开头的词元"},
    "word": {"en": "other words", "zh": "其他英文词"},
    "piece": {"en": "parts of words", "zh": "英文词的片段"},
    "chinese": {"en": "Chinese", "zh": "汉字"},
    "number": {"en": "digits", "zh": "数字"},
    "mark": {"en": "punctuation", "zh": "标点"},
}
SAID = {
    "en": {
        "kinds": "Layer {layer}: % of a kind's tokens",
        "load": "Load, times the even share",
        "layer": "layer",
    },
    "zh": {
        "kinds": "第 {layer} 层：每类词元选中各专家的百分比",
        "load": "负载（平均份额的倍数）",
        "layer": "第 {} 层",
    },
}
CELL, ROW = 30, 26


def draw(language: str) -> str:
    """Two tables of cells: kinds of tokens by experts in one layer, layers by experts."""
    said = SAID[language]
    kinds, chosen = tokens_and_choices()
    count = chosen.shape[-1]
    shares = {kind: chosen[LAYER, kinds == kind].mean(axis=0) for kind in KINDS}
    by_kind = table(
        said["kinds"].format(layer=LAYER),
        {KINDS[kind][language]: [(x, f"{100 * x:.0f}") for x in share] for kind, share in shares.items()},
        count,
    )
    loads = chosen.mean(axis=1) / chosen.mean(axis=1).mean(axis=-1, keepdims=True)  # (L, E)
    names = [
        said["layer"].format(n) if "{" in said["layer"] else f"{said['layer']} {n}" for n in range(len(loads))
    ]
    by_layer = table(
        said["load"],
        {
            name: [(x / loads.max(), f"{x:.1f}") for x in load]
            for name, load in zip(names, loads, strict=True)
        },
        count,
    )
    return panels((by_kind, by_layer))


def table(title: str, rows: dict[str, list[tuple[float, str]]], count: int) -> str:
    """Rows of cells, one an expert: how strongly each is coloured, and its words."""
    left = 106
    parts = [text(0, 14, title, size=13, bold=True)]
    for expert in range(count):
        x = left + CELL * expert + CELL / 2
        parts.append(text(x, 36, f"e{expert}", size=12, colour="quiet", anchor="middle"))
    for number, (name, cells) in enumerate(rows.items()):
        y = 44 + ROW * number
        parts.append(text(left - 8, y + 17, name, size=12, anchor="end"))
        for expert, (strength, words) in enumerate(cells):
            x = left + CELL * expert
            parts.append(rect(x, y, CELL - 2, ROW - 2, fill=shade(0.5 * strength), line="none", radius=2))
            parts.append(text(x + CELL / 2 - 1, y + 17, words, size=12, anchor="middle"))
    return svg(left + CELL * count, 48 + ROW * len(rows), parts)


def tokens_and_choices() -> tuple[np.ndarray, np.ndarray]:
    """The kind of each token of some held-out sentences (T,), and in each layer whether it uses an expert (L, T, E)."""
    tokenizer = zoo.load(MODEL).tokenizer
    sentences = gates_of_sentences()
    kinds = [kind_of(tokenizer.decode([id])) for ids, _ in sentences for id in ids]
    return np.array(kinds), np.concatenate([gates > 0 for _, gates in sentences], axis=1)


def repetitions() -> tuple[np.ndarray, np.ndarray]:
    """In each layer (L,), how often a token and the next have the same first expert, and how often two random tokens do."""
    first = [gates.argmax(axis=-1) for _, gates in gates_of_sentences()]  # (L, T) each
    same = np.concatenate([experts[:, 1:] == experts[:, :-1] for experts in first], axis=1)
    experts = np.arange(gates_of_sentences()[0][1].shape[-1])
    loads = (np.concatenate(first, axis=1)[..., None] == experts).mean(axis=1)  # (L, E)
    return same.mean(axis=1), (loads**2).sum(axis=-1)


@cache
def gates_of_sentences() -> list[tuple[list[int], np.ndarray]]:
    """The ids of each held-out sentence, and the routers' weights of all experts, 0 for those not chosen (L, T, E)."""
    loaded = zoo.load(MODEL)
    addresses = [f"layers.{layer}.feedforward.router.gates" for layer in range(len(loaded.recipe.layers))]
    return [(ids, np.stack(gates)) for ids, gates in values_on(loaded, held_out(SENTENCES), addresses)]


def kind_of(token: str) -> str:
    """The kind of a token, by its first character that is no space; "" where it is a part of a character."""
    first = token.strip()[:1]
    if first == "\ufffd" or not first:
        return ""
    if not first.isalnum():
        return "mark"
    if first.isdigit():
        return "number"
    if not first.isascii():
        return "chinese"
    return "name" if first.isupper() else "word" if token[0] == " " else "piece"
