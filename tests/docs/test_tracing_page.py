"""The page about traces: its code runs, in order, and shows what it says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "trace.md"


def test_the_pages_examples_run_and_show_what_they_say(capsys):
    known = {}
    for code in re.findall(
        r"^<!-- run python[^\n]*-->\n```python\n(.*?)^```",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    ):
        exec(code, known)
    assert known["about"].axes == "B H T S" and known["pattern"].ndim == 3
    assert 0.5 < known["whole"] <= 1 and min(known["without"].values()) < known["whole"]
    # The last layer's stream holds the other prompt's answer, the first one's not yet.
    assert known["answers"][0].startswith(" Bei") and known["answers"][-1].startswith(" Tok")
    assert "layers.3" in capsys.readouterr().out


def test_every_value_of_the_table_is_noted_by_some_probe():
    from zoo.host.registry import default_registry

    plugins = default_registry().plugins
    records = [record for plugin in plugins for record in plugin.records.get("zoo_probes", ())]
    known = {name for record in records for name in record.load().traces.values}
    rows = re.findall(r"^\| [A-Za-z][^|]* \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)} - {"positions"}
    assert named and named <= known, named - known
