"""The parts of a lab page that follow from the experiment's record, in Markdown. Needs no Sphinx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from building.build_cache import DOCS
from building.lab_records import in_chinese, record
from building.lab_words import asked, axis_of, word
from building.picture import FOLDER

if TYPE_CHECKING:
    from zoo_lab.plan import Chart
    from zoo_lab.record import ArmRecord, ExperimentRecord

FEW = 6  # arms, of which the description of a chart gives every value
WORDS = {
    "en": {
        "seen": "✓ seen",
        "contrary": "✗ contradicted",
        "not shown": "– not shown",
        "not measured": "– not measured",
        "tally": "Claims: {}.",
        "counts": {
            "seen": "{} seen",
            "contrary": "{} contradicted",
            "not shown": "{} not shown",
            "not measured": "{} not measured",
        },
        "separator": ", ",
        "arm": "arm",
        "claim": "claim, made before the runs",
        "measured": "measured",
        "record": "The record",
        "of each arm": "{axis}: a row for each arm",
        "against": "{axis} against {along}, a line for each arm",
        "points": "{axis} against {along}",
        "end": ", at the right end",
        "lowest": "lowest: {}",
        "highest": "highest: {}",
    },
    "zh": {
        "seen": "✓ 成立",
        "contrary": "✗ 相反",
        "not shown": "– 未能判断",
        "not measured": "– 未测量",
        "tally": "论断：{}。",
        "counts": {
            "seen": "{} 条成立",
            "contrary": "{} 条相反",
            "not shown": "{} 条未能判断",
            "not measured": "{} 条未测量",
        },
        "separator": "，",
        "arm": "组",
        "claim": "运行之前的论断",
        "measured": "测量结果",
        "record": "记录文件",
        "of each arm": "{axis}，每组一行",
        "against": "{axis}随{along}的变化，每组一条线",
        "points": "{axis}与{along}",
        "end": "，右端的值",
        "lowest": "最低：{}",
        "highest": "最高：{}",
    },
}


def question(name: str, language: str) -> str:
    """The question, and how many of the claims were seen."""
    found = record(name)
    return f"**{asked(name, 'questions', found.question, language)}**\n\n{tally(name, language)}"


def tally(name: str, language: str) -> str:
    """How many claims have each verdict."""
    from zoo_lab.report import findings

    said = WORDS[language]
    counts = Counter(finding.verdict for finding in findings(record(name)))
    parts = [said["counts"][verdict].format(counts[verdict]) for verdict in said["counts"] if counts[verdict]]
    return said["tally"].format(said["separator"].join(parts))


def expected(name: str, language: str) -> str:
    """The expectation and its sources."""
    found = record(name)
    sources = ("；" if language == "zh" else "; ").join(map(_linked, found.references))
    text = asked(name, "expected", found.expected, language)
    return f"{text}（{sources}）" if language == "zh" else f"{text} ({sources})"


def measured(name: str, language: str) -> str:
    """The charts, as pictures in the folder of its language, and a table of the arms."""
    from zoo_lab.chart_values import drawn_charts

    found = record(name)
    charts = [
        f"![{alternative(found, chart, language)}]({FOLDER}/lab_chart.{name}.{chart.name}.svg)"
        for chart in drawn_charts(found)
    ]
    return "\n\n".join([*charts, arms(name, language)])


def arms(name: str, language: str) -> str:
    """A table of the arms: the mean of each metric with its interval."""
    from zoo_lab.report import rows

    found = record(name)
    _, *body = rows(found)
    head = [WORDS[language]["arm"], *(axis_of(one.label, one.unit, language) for one in found.metrics)]
    return _table([head, *([word(arm, language), *cells] for arm, *cells in body)])


def claims(name: str, language: str) -> str:
    """A table of the claims: the verdict, the claim, what was measured."""
    from zoo_lab.report import findings

    said = WORDS[language]
    lines = [
        [
            said[finding.verdict],
            word(finding.claim.text, language),
            in_chinese(finding.words) if language == "zh" else finding.words,
        ]
        for finding in findings(record(name))
    ]
    return _table([["", said["claim"], said["measured"]], *lines])


def method(name: str, language: str) -> str:
    """How the runs were made, what they were made with, and the command."""
    found = record(name)
    how = _method_in_chinese(found) if language == "zh" else _method(found)
    return f"{how}\n\n```text\n$ zoo lab {name}\n```"


def _method(found: ExperimentRecord) -> str:
    from zoo_lab.report import method as described

    loads = [run.load for run in found.runs if run.load is not None]
    busy = f", load {min(loads):.1f} to {max(loads):.1f} meanwhile" if loads else ""
    versions = found.versions
    return (
        f"{described(found)}\n\nSettings: {_settings(found, 'en')}. {len(found.runs)} runs in {found.seconds / 60:.1f} minutes "
        f"on {versions['machine']}{busy}; mlx {versions['mlx']}, {versions['backend']}, {versions['blas']}. "
        f"{_file(found, '..')} has every run."
    )


def _method_in_chinese(found: ExperimentRecord) -> str:
    from zoo.inspect.interval import LEVEL

    repeated = word(found.repeated, "zh")
    compared = (
        f"各次运行的数据（{repeated}）在各组之间相同，因此逐次比较。"
        if found.paired
        else "组间差值的自由度按 Welch 和 Satterthwaite 的公式计算。"
    )
    loads = [run.load for run in found.runs if run.load is not None]
    busy = f"，期间负载 {min(loads):.1f} 至 {max(loads):.1f}" if loads else ""
    versions = found.versions
    machine = versions["machine"].replace(", 2 cores", "，2 核")
    return (
        f"每组 {found.seeds} 次运行，彼此的区别是{repeated}。数字是均值和 Student 的 {100 * LEVEL:.0f} % 区间；没有区间的数字在"
        f"各次运行中相同。{compared}整个区间都在论断所说的一侧，论断成立；完全不在那一侧，则与论断相反；其余情况未能判断。每条论断单独"
        f"判断，没有按论断的个数作校正。\n\n设置：{_settings(found, 'zh')}。共 {len(found.runs)} 次运行，用时 "
        f"{found.seconds / 60:.1f} 分钟，机器为 {machine}{busy}；mlx {versions['mlx']}，{versions['backend']}，{versions['blas']}。"
        f"每次运行的数据在 {_file(found, '../..')} 中。"
    )


def _file(found: ExperimentRecord, docs: str) -> str:
    """A link to the record's file; `docs` is the way from the page to the folder of the docs."""
    path = f"records/lab/{found.experiment}.json"
    return f"[docs/{path}]({docs}/{path})"


def _settings(found: ExperimentRecord, language: str) -> str:
    separator = "；" if language == "zh" else "; "
    return separator.join(
        f"{word(key.replace('_', ' '), language)} {_value(value, language)}"
        for key, value in found.settings.items()
        if key != "quick"
    )


def _value(value: Any, language: str) -> str:
    if isinstance(value, bool):
        return word("yes" if value else "no", language)
    return f"{value:,}" if isinstance(value, int) else word(str(value), language)


def alternative(found: ExperimentRecord, chart: Chart, language: str) -> str:
    """The text alternative of a chart: its axes, and each arm's value, or the extremes where there are many."""
    from zoo.inspect.interval import interval
    from zoo_lab.report import text_of

    said = WORDS[language]
    colon = "：" if language == "zh" else ": "
    ends = [(arm.name, values) for arm in found.arms if (values := _ends(found, chart, arm))]
    values = [
        (f"{word(name, language)}{colon}{text_of(interval(each))}", sum(each) / len(each))
        for name, each in ends
    ]
    texts = [text for text, _ in values]
    if len(values) > FEW:
        lowest, highest = (extreme(values, key=lambda value: value[1])[0] for extreme in (min, max))
        texts = [said["lowest"].format(lowest), said["highest"].format(highest)]
    where = said["end"] if chart.kind == "curves" else ""
    stop, between = ("。", "；") if language == "zh" else (". ", "; ")
    return f"{_axes(found, chart, language)}{where}{stop}{between.join(texts)}"


def _axes(found: ExperimentRecord, chart: Chart, language: str) -> str:
    """The axes of a chart, in words."""
    said = WORDS[language]
    if chart.kind == "curves":
        curve = next(curve for curve in found.curves if curve.name == chart.y)
        axis = axis_of(curve.label, curve.unit, language)
        return said["against"].format(axis=axis, along=word(curve.along, language))
    metric = found.metric(chart.y)
    axis = axis_of(metric.label, metric.unit, language)
    if chart.kind == "dots":
        return said["of each arm"].format(axis=axis)
    metrics = {metric.name: axis_of(metric.label, metric.unit, language) for metric in found.metrics}
    along = metrics[chart.x] if chart.x in metrics else word(chart.x, language)
    return said["points"].format(axis=axis, along=along)


def _ends(found: ExperimentRecord, chart: Chart, arm: ArmRecord) -> list[float]:
    """The values of an arm's runs in a chart; of a curve its last point."""
    if chart.kind != "curves":
        return found.values(arm.name, chart.y)
    lines = (run.curves.get(chart.y) for run in found.runs if run.arm == arm.name)
    return [line[-1][1] for line in lines if line]


def listed(language: str) -> str:
    """A list of the experiments: a link to each page, the question, how many claims were seen."""
    return "\n".join(
        f"- [{name}]({name}.md){'：' if language == 'zh' else ': '}"
        f"{asked(name, 'questions', record(name).question, language)}"
        f"{'' if language == 'zh' else ' '}*{tally(name, language)}*"
        for name in experiments()
    )


def experiments() -> list[str]:
    """The zoo's own experiments that have a record, in their order."""
    from zoo.host.registry import default_registry

    return [
        one.name
        for plugin in default_registry().plugins
        if plugin.first_party
        for one in plugin.records.get("zoo_experiments", ())
        if (DOCS / "records" / "lab" / f"{one.name}.json").is_file()
    ]


PARTS: dict[str, Callable[[str, str], str]] = {
    "question": question,
    "expected": expected,
    "measured": measured,
    "arms": arms,
    "claims": claims,
    "method": method,
}


def _linked(reference: str) -> str:
    """A reference, arXiv's as a link."""
    text, _, number = reference.partition(" arXiv:")
    return f"[{text.rstrip(',')}](https://arxiv.org/abs/{number})" if number else reference


def _table(lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    head, *body = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))
