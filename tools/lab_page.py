"""The pages in docs/lab, and the figures on them, from the records in docs/records/lab.

python tools/lab_page.py            write the pages anew
python tools/lab_page.py --figures  draw the figures anew, too
"""

from __future__ import annotations

import sys
from pathlib import Path

from zoo.architecture import Experiment
from zoo.host.registry import default_registry
from zoo.inspect.interval import LEVEL
from zoo_lab.figures import draw, drawn_charts
from zoo_lab.record import ExperimentRecord, file_name
from zoo_lab.report import alt_text, line, page, read

DOCS = Path(__file__).parent.parent / "docs"
PAGES, RECORDS = DOCS / "lab", DOCS / "records" / "lab"

HEAD = f"""# The lab

```text
$ zoo lab                        # the experiments, what each asks, and how long it takes
$ zoo lab experts --quick        # a tiny version, which shows that everything runs
$ zoo lab experts                # a record and figures, in the folder lab
$ zoo lab experts --seeds 5      # two more runs of each arm: those that are recorded are kept
$ zoo lab --figures lab/experts.json
```

An experiment trains or runs small models on this machine, each arm several times. What it asks, what is expected and by
which source, and every claim that is tested stand in its code before it is run; which of the claims were seen is computed
from the numbers. Ctrl-C keeps what was run, and the same command goes on. Figures need matplotlib, `pip install
'mlx-zoo[plots]'`; without it the record is written all the same.

The models are small and see some hundred batches. What is seen here is seen *here*: whether it holds for large models is
what the sources are for. An experiment can be yours: [zoo_experiments](../plugins/hooks.md).

Each page is made from its record. A mean stands with its {100 * LEVEL:.0f} % interval; in the figures, bands and bars are
the same intervals.
"""

FIGURE = """```{{drawing}} lab_chart {file}
:alt: {alt}
```"""

CODE = """## Its code

```{{code-of}} {target}
```"""


def pages() -> dict[str, str]:
    """The pages by the names of their files: the list, and every experiment of the zoo that has a record."""
    records = [read(RECORDS / f"{name}.json") for name in ORDER]
    names = "\n".join(["```{toctree}", ":hidden:", "", *ORDER, "```"])
    found = {"index.md": "\n".join([HEAD, "\n".join(map(line, records)), "", names, ""])}
    return found | {f"{record.experiment}.md": _page(record) for record in records}


def _page(record: ExperimentRecord) -> str:
    charts = drawn_charts(record)
    figures = [
        FIGURE.format(file=f"{file_name(record.experiment)}-{chart.name}", alt=alt_text(record, chart))
        for chart in charts
    ]
    code = CODE.format(target=default_registry().table(Experiment).require(record.experiment).target)
    return page(record, figures, f"../records/lab/{file_name(record.experiment)}.json", code)


ORDER = tuple(
    name
    for plugin in default_registry().plugins
    if plugin.first_party
    for name in (record.name for record in plugin.records.get("zoo_experiments", ()))
    if (RECORDS / f"{name}.json").is_file()
)


if __name__ == "__main__":
    if "--figures" in sys.argv[1:]:
        for name in ORDER:
            draw(read(RECORDS / f"{name}.json"), RECORDS, formats=("svg",))
    PAGES.mkdir(exist_ok=True)
    for file, text in pages().items():
        (PAGES / file).write_text(text, encoding="utf-8")
