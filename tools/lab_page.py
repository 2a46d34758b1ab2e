"""The page docs/lab.md, and the figures on it, from the records in docs/records/lab.

python tools/lab_page.py            write the page anew
python tools/lab_page.py --figures  draw the figures anew, too
"""

from __future__ import annotations

import sys
from pathlib import Path

from zoo.host.registry import default_registry
from zoo.lab.figures import draw, drawn_charts
from zoo.lab.page import section
from zoo.lab.saving import read

DOCS = Path(__file__).parent.parent / "docs"
RECORDS = DOCS / "records" / "lab"

HEAD = """# The lab

```console
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

The models have about 0.2 million parameters and see some hundred batches. What is seen here is seen *here*: whether it
holds for large models is what the sources are for. An experiment can be yours: [zoo_experiments](plugins/hooks.md).

What follows was made from the records in `docs/records/lab`, by `tools/lab_page.py`. A mean stands with its 95 % interval;
in the figures, bands and bars are the same intervals.
"""


def page() -> str:
    """The page: every experiment of the zoo that has a record, in the order of their registration."""
    parts = [HEAD]
    for name in ORDER:
        record = read(RECORDS / f"{name}.json")
        parts.append(section(record, drawn_charts(record), "records/lab"))
    return "\n".join(parts)


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
    (DOCS / "lab.md").write_text(page(), encoding="utf-8")
