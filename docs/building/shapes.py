"""The strip on top of a page of the tour, with the shape of what the prompt is at each stage. Needs no Sphinx."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from figures.tour_marks import PROMPT

from building.build_cache import cached_result
from building.shape_rows import Row, Stage, rows_of

STYLE = "shapes.css"
NAMES = {
    "en": {
        "tokens": "Tokens",
        "embedding": "Embedding",
        "positions": "Positions",
        "queries": "Rotated queries",
        "kept": "Keys, values",
        "attention": "Attention",
        "sum": "Sum",
        "cross": "Cross-attention",
        "feedforward": "Feed-forward",
        "router": "Router",
        "experts": "Experts",
        "logits": "Logits",
        "choice": "Next token",
        "text": "Text",
        "losses": "Losses",
        "loss": "Mean loss",
        "memory": "Memory",
        "masks": "Logits at the masks",
        "kept predictions": "Kept predictions",
        "mean": "or a vector of the text",
        "gates": "Gates",
        "state": "State",
        "channels": "Channels",
        "output": "Output",
    },
    "zh": {
        "tokens": "词元",
        "embedding": "嵌入",
        "positions": "位置",
        "queries": "旋转后的查询",
        "kept": "键和值",
        "attention": "注意力",
        "sum": "残差和",
        "cross": "交叉注意力",
        "feedforward": "前馈",
        "router": "路由器",
        "experts": "专家",
        "logits": "Logits",
        "choice": "下一个词元",
        "text": "文本",
        "losses": "各处损失",
        "loss": "平均损失",
        "memory": "记忆",
        "masks": "掩码处的 logits",
        "kept predictions": "保留的预测",
        "mean": "或整个文本的向量",
        "gates": "门",
        "state": "状态",
        "channels": "通道",
        "output": "输出",
    },
}
TITLES = {
    "en": {"encoder": "Encoder", "decoder": "Decoder", "prefill": "Prefill", "decode": "Decode"},
    "zh": {"encoder": "编码器", "decoder": "解码器", "prefill": "预填充", "decode": "解码"},
}
AXES = {
    "en": {
        "B": "texts",
        "T": "tokens",
        "S": "tokens looked at",
        "L": "masks",
        "D": "width",
        "H": "heads",
        "G": "key/value heads",
        "d": "width of a head",
        "F": "hidden features",
        "N": "experts",
        "k": "experts of a token",
        "V": "vocabulary",
        "g": "gates",
        "c": "vectors of state",
        "E": "channels",
    },
    "zh": {
        "B": "文本数",
        "T": "词元数",
        "S": "被看的词元数",
        "L": "掩码数",
        "D": "宽度",
        "H": "头数",
        "G": "键/值头数",
        "d": "头的宽度",
        "F": "隐藏特征数",
        "N": "专家数",
        "k": "每个词元的专家数",
        "V": "词表大小",
        "g": "门数",
        "c": "状态向量数",
        "E": "通道数",
    },
}
SAID = {
    "en": {
        "here": "Shapes: where this page is",
        "shapes": "Shapes",
        "colon": ": ",
        "layers": "{count} layers",
        "of": "Numbers of {model} for “{text}”",
        "batch": "Numbers of the training of {model}",
        "state": "state numbers of a channel",
    },
    "zh": {
        "here": "形状：本页所在的位置",
        "shapes": "形状",
        "colon": "：",
        "layers": "{count} 层",
        "of": "数字取自 {model}，文本为“{text}”",
        "batch": "数字取自 {model} 的训练",
        "state": "每个通道的状态数",
    },
}


@cache
def token_count(model: str, text: str) -> int:
    """How many tokens a pocket reads for a text."""
    from zoo.inspect.tokenization import tokenizer_of

    return len(tokenizer_of(model).encode(text))


def written_count(model: str, text: str) -> int:
    """How many tokens a pocket writes after a text, the end included."""
    import zoo

    return len(zoo.generate(zoo.load(model), text, max_tokens=32).tokens)


def training_lengths() -> dict[str, int]:
    """How many texts of how many tokens a step of the LLaMA pocket's training read."""
    from figures.training_curve import record

    settings = record()["settings"]
    return {"B": settings["batch"], "T": settings["length"]}


def rows(models: list[str], text: str, phase: str = "", masks: int = 0) -> list[Row]:
    """The rows of a strip: of each model, or of one model's phases."""
    [model, *others] = models
    if phase == "training":
        return rows_of(model, training_lengths(), phase)
    count = token_count(model, text)
    if phase == "decode":
        return [
            *rows_of(model, {"T": count}, "", "prefill"),
            *rows_of(model, {"T": count}, "decode", "decode"),
        ]
    if model == "transformer":
        written = cached_result(lambda: written_count(model, text), "written", model, text)
        return rows_of(model, {"S": count, "T": written})
    if masks:
        return rows_of(model, {"T": count + masks, "L": masks})
    several = bool(others)
    return [
        row
        for name in models
        for row in rows_of(name, {"T": token_count(name, text)}, title=name if several else "")
    ]


def strip(found: list[Row], at: str, page: str, language: str, caption: str) -> str:
    """The strip as HTML, the stages of `at` marked."""
    words, lines = SAID[language], []
    marked = False
    for row in found:
        title = TITLES[language].get(row.title, row.title)
        head = f'<span class="zoo-shapes-title">{escape(title)}</span>' if title else ""
        inside, marked = items(row, at, page, language, marked)
        name = f' aria-label="{escape(title)}"' if title else ""
        lines.append(f"<div>{head}<ol{name}>{inside}</ol></div>")
    legend = escape(f"{caption}{words['colon']}{axes_of(found, language)}")
    label = words["here"] if at else escape(f"{words['shapes']}{words['colon']}{caption}")
    return f'<nav class="zoo-shapes" aria-label="{label}">{"".join(lines)}<p>{legend}</p></nav>'


def items(row: Row, at: str, page: str, language: str, marked: bool) -> tuple[str, bool]:
    """The stages of a row as items of a list, those of the layers in a list of their own."""
    parts = []
    for group in (row.before, row.layer, row.after):
        shown = []
        for stage in group:
            here = bool(at) and stage.name == at
            shown.append(item(stage, row.sizes, here, here and not marked, page, language))
            marked = marked or here
        text = "".join(shown)
        if group is row.layer:
            count = SAID[language]["layers"].format(count=row.count)
            text = f'<li class="zoo-shapes-layers"><span aria-hidden="true">× {row.count}</span><ol aria-label="{count}">{text}</ol></li>'
        parts.append(text)
    return "".join(parts), marked


def item(stage: Stage, sizes: dict[str, int], here: bool, current: bool, page: str, language: str) -> str:
    """One stage: its name, its shape in symbols and in numbers; a link unless the reader is there."""
    name = f"<b>{escape(NAMES[language][stage.name])}</b>"
    shape = "" if stage.name == "text" else shown(stage.axes)
    numbers = shape and shown(f"{sizes[axis]:,}" if axis in sizes else axis for axis in stage.axes)
    inside = f"{name}<i>{shape}</i>" if shape else name
    inside += f"<span>{numbers}</span>" if numbers != shape else ""
    title = f' title="{escape(stage.address)}"' if stage.address else ""
    mark = ' class="zoo-shapes-here"' if here else ""
    mark += ' aria-current="step"' if current else ""
    if stage.page == page:
        return f"<li{mark}><span{title}>{inside}</span></li>"
    return f'<li{mark}><a href="{stage.page}.html"{title}>{inside}</a></li>'


def shown(axes: Any) -> str:
    """A shape: "(T, D)"."""
    return f"({', '.join(axes)})"


def axes_of(found: list[Row], language: str) -> str:
    """What each symbol stands for, of those that the strip has."""
    used = {axis for row in found for stage in row.stages for axis in stage.axes if axis in row.sizes}
    recurrent = any("E" in row.sizes for row in found)
    named = AXES[language] | ({"N": SAID[language]["state"]} if recurrent else {})
    comma = "，" if language == "zh" else ", "
    return comma.join(f"{axis} {named[axis]}" for axis in AXES["en"] if axis in used)


@dataclass(frozen=True)
class Strip:
    """The strip of one model, or of several below one another, as a page asks for it in a language."""

    rows: list[Row]
    at: str
    caption: str
    language: str

    def html(self, page: str) -> str:
        """The strip as the site shows it."""
        return strip(self.rows, self.at, page, self.language, self.caption)


def strip_of(models: list[str], options: dict[str, str], language: str) -> Strip:
    """The strip of some models. ValueError for an option or a stage that there is not.

    `at` names the stage that the page is about; `text` is the prompt, by default the tour's; `phase` is "decode" or
    "training"; `masks` tells how many masks follow the prompt.
    """
    if unknown := options.keys() - {"at", "text", "phase", "masks"}:
        raise ValueError(f"no option of a strip: {', '.join(sorted(unknown))}")
    text, phase = options.get("text") or PROMPT[language], options.get("phase", "")
    found, at = rows(models, text, phase, int(options.get("masks", 0))), options.get("at", "")
    if at and all(stage.name != at for row in found for stage in row.stages):
        names = ", ".join(dict.fromkeys(stage.name for row in found for stage in row.stages))
        raise ValueError(f"at={at}: the stages are {names}")
    names = ", ".join(f"{name}:pocket" for name in models)
    caption = SAID[language]["batch" if phase == "training" else "of"].format(model=names, text=text)
    return Strip(found, at, caption, language)


def setup(app: Any) -> None:
    """Add the styles."""
    app.add_css_file(STYLE)
