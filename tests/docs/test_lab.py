"""The pages of the lab: the same in both languages, whole in both, with a word on every claim that was not seen."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from building import lab_page, lab_records, lab_words
from figures.bench_tables import level, quotient, ratio, rows, value
from figures.lab_chart import draw
from figures.records import in_whole_parts

from tests.helpers.code_of_pages import run
from zoo_lab.chart_values import drawn_charts
from zoo_lab.report import findings

DOCS = Path(__file__).parents[2] / "docs"
NAMES = sorted(path.stem for path in (DOCS / "records" / "lab").glob("*.json"))
SECTIONS = {
    "en": ("Expected", "How it was run", "Measured", "Claims", "What this shows", "What this does not show"),
    "zh": ("预期", "实验方法", "测量结果", "论断", "说明了什么", "没有说明什么"),
}
UNEXPECTED = {"en": "What was not expected", "zh": "出乎意料之处"}


def page(name, language):
    return (DOCS / ("zh" if language == "zh" else "") / "lab" / f"{name}.md").read_text(encoding="utf-8")


def sections(name, language):
    """The text of each section by its heading."""
    parts = re.split(r"^## (.+)$", page(name, language), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def cited(text):
    """The claims that a text tells of, by number."""
    return {int(number) for number in re.findall(r"<!-- finding: \S+ (\d+) [a-z ]+ -->", text)}


@pytest.mark.parametrize("name", [*NAMES, "index"])
def test_both_languages_run_and_show_the_same(name):
    def computed(text):
        parts = re.findall(r"^<!-- (\w+): (.*) -->$", text, re.MULTILINE)
        values = (value.replace(', "zh")', ")") for value in re.findall(r"<!-- py: (.+?) -->", text))
        return [*run(text), *parts], sorted(values), sorted(re.findall(r"<!-- finding: (.+?) -->", text))

    english = computed(page(name, "en"))
    assert english[0] and english == computed(page(name, "zh"))


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_a_page_ends_with_what_the_result_shows_and_what_not(name, language):
    found = sections(name, language)
    order = [heading for heading in found if heading in SECTIONS[language]]
    assert order == list(SECTIONS[language])
    assert all(len(found[heading].split("\n- ")) > 1 for heading in SECTIONS[language][-2:])


@pytest.mark.parametrize("name", NAMES)
def test_every_verdict_is_told_and_what_was_not_seen_is_discussed(name):
    for language in ("en", "zh"):
        found, whole = sections(name, language), page(name, language)
        verdicts = {
            number: one.verdict for number, one in enumerate(findings(lab_records.record(name)), start=1)
        }
        seen = {number for number, verdict in verdicts.items() if verdict == "seen"}
        assert seen <= cited(found[SECTIONS[language][4]])
        odd = cited(found.get(UNEXPECTED[language], ""))
        assert {number for number, verdict in verdicts.items() if verdict == "contrary"} <= odd
        told = cited(whole)
        untold = {number: verdict for number, verdict in verdicts.items() if number not in told}
        assert len(untold) <= (1 if name == "norm-placement" else 0), untold


def test_every_finding_of_a_page_has_the_verdict_of_the_record():
    for name in NAMES:
        for language in ("en", "zh"):
            for found in re.findall(r"<!-- finding: (.+?) -->", page(name, language)):
                experiment, number, verdict = found.split(maxsplit=2)
                assert lab_records.finding(experiment, int(number), verdict)


def test_every_experiment_is_listed():
    assert sorted(lab_page.experiments()) == NAMES
    for language in ("en", "zh"):
        index, listed = page("index", language), lab_page.listed(language)
        for name in NAMES:
            assert f"\n{name}\n" in index and f"- [{name}]({name}.md)" in listed
    assert "1 seen, 1 contradicted, 1 not shown" in lab_page.tally("heads", "en")


@pytest.mark.parametrize("name", NAMES)
def test_every_part_of_a_page_has_chinese(name):
    for part, made in lab_page.PARTS.items():
        english, chinese = made(name, "en"), made(name, "zh")
        assert english != chinese, part
        prose = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|```.*?```", "", chinese, flags=re.DOTALL)
        assert not re.search(r"[a-z]+ [a-z]+ [a-z]+", prose), part
        assert english.count(" ± ") == chinese.count(" ± ")


def test_a_text_without_chinese_is_named():
    with pytest.raises(ValueError, match=r"no Chinese in lab_words\.toml for: a new arm"):
        lab_words.word("a new arm", "zh")
    assert lab_words.word("a new arm", "en") == "a new arm"


def test_charts_are_in_the_colours_of_the_page_with_text_as_text():
    for name in NAMES:
        for chart in drawn_charts(lab_records.record(name)):
            english, chinese = (draw(language, name, chart.name) for language in ("en", "zh"))
            for drawn in (english, chinese):
                ElementTree.fromstring(drawn)
                widths = [float(width) for width in re.findall(r'viewBox="0 0 ([\d.]+)', drawn)]
                assert max(widths) <= 352  # a phone's, so that letters keep their size
                assert min(map(float, re.findall(r'font-size="([\d.]+)"', drawn))) >= 12
                colours = re.findall(r"(?:fill|stroke):([^;\"]+)", drawn) + re.findall(
                    r'fill="([^"]+)"', drawn
                )
                assert all(colour == "none" or colour.startswith("var(--") for colour in colours)
            assert english != chinese


def test_a_chart_shows_every_run_or_interval():
    record = lab_records.record("norm")
    drawn = draw("en", "norm", "loss")
    assert drawn.count('r="2.6"') == len(record.runs)  # faint dots
    assert drawn.count("<path") == len(record.arms)  # bars
    assert "LayerNorm" in drawn and "held-out loss (nats a token)" in drawn
    with pytest.raises(ValueError, match="norm has no chart 'losses', only loss, time, curves"):
        draw("en", "norm", "losses")


def test_the_failed_trainings_learned_how_frequent_tokens_are_and_no_more():
    """The page says so; the numbers of the text are those of `building.lab_corpus`."""
    record = lab_records.record("norm-placement")
    losses = record.values("Post-LN, no warm-up, 12 layers", "loss")
    assert sum(loss > 5 for loss in losses) == 2 and max(losses) - sorted(losses)[1] < 0.01


def test_tables_of_benchmarks_have_ranges():
    def engine(*runs):
        ordered = sorted(runs)
        return {"load_seconds": ordered[len(runs) // 2], "runs": [{"load_seconds": run} for run in runs]}

    own, peer = engine(1.0, 2.0, 3.0), engine(2.0, 2.0, 4.0)
    assert value(own, "load_seconds", "s") == "2 s (1–3)"
    assert value(engine(2.0), "load_seconds", "s") == "2 s (one run)"
    assert value({}, "load_seconds", "s") == "–"
    assert value(engine(0.5, 1.5, 1.0), "load_seconds", "s") == "1 s (500 ms–1.5 s)"
    assert ratio(own, peer, "load_seconds") == "1.00 × (0.50–1.00)"
    assert ratio(own, {}, "load_seconds") == "–"
    assert level(5) == "94 %" and level(3) == "75 %"
    both = {"long": 4.0, "short": 2.0, "runs": [{"long": 4.0, "short": 2.0}, {"long": 4.0, "short": 1.0}]}
    assert quotient(both, "long", "short") == "2.0 (2.0–4.0)"
    assert rows({"engines": {"zoo": own, "peer": peer}}) == [
        ["", "zoo", "peer", "zoo / peer"],
        ["loading", "2 s (1–3)", "2 s (2–4)", "1.00 × (0.50–1.00)"],
    ]


def test_lines_of_a_tables_numbers_break_before_a_bracket_or_after_a_comma():
    assert in_whole_parts("12 ms (9 ms–1 s)").split(" ") == ["12\xa0ms", "(9\xa0ms–\u20601\xa0s)"]
    assert in_whole_parts("0.9 of 1.1, met").split(" ") == ["0.9\xa0of\xa01.1,", "met"]
    assert in_whole_parts("zoo, 2 ranks (one run)") == "zoo, 2 ranks (one run)"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_series_that_sets_the_scale_alone_is_left_out_of_a_second_picture(language):
    without = {"en": "without: Post-LN, no warm-up", "zh": "不含 Post-LN、无预热"}[language]
    drawn = {
        (name, chart.name): draw(language, name, chart.name)
        for name in NAMES
        for chart in lab_records.record(name).charts
    }
    assert [place for place, text in drawn.items() if without in text] == [("norm-placement", "depth")]
    assert drawn["norm-placement", "depth"].count("<svg") == 3  # all, the others, what the lines are
