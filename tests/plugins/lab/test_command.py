"""`zoo lab` as a person types it: a third party's experiment is listed, run, stopped, resumed and drawn."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.helpers.waiting import PATIENCE

pytestmark = pytest.mark.slow

CODE = """
    import os
    import time
    from zoo.architecture import Experiment, hookimpl
    from zoo_lab.plan import Arm, Chart, Metric, Plan, Result, lower

    def heights(scale):
        def arm(name, height):
            def run(trial):
                if name == "high" and os.environ.get("SLOW"):
                    time.sleep(60)
                return Result({"height": height + 0.01 * trial.seed})
            return Arm(name, run)
        return Plan(
            (arm("low", 1.0), arm("high", 2.0)),
            (Metric("height", "height", "m"),),
            charts=(Chart("heights", "dots", "height"),),
            claims=(lower("Low is lower than high", "low", "high", "height"),),
        )

    def broken(scale):
        raise RuntimeError("no such thing")

    @hookimpl
    def zoo_experiments():
        yield Experiment(name="heights", target="zoo_heights:heights", question="Is low lower?", expected="Yes.")
        yield Experiment(name="broken", target="zoo_heights:broken", question="Does it work?", expected="No.")
"""


@pytest.fixture
def run(command, site):
    """`zoo …` where a third party's experiments are installed."""
    site.add("zoo-heights", "zoo_heights", CODE)
    return lambda *arguments, **settings: command(*arguments, environment={**site.environment, **settings})


def test_a_third_partys_experiments_are_listed_with_where_they_come_from(run):
    done = run("lab")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("heights")]
    assert "Is low lower?" in line and "zoo-heights" in line
    assert any(line.startswith("norm-placement") and "mlx-zoo" in line for line in done.stdout.splitlines())
    rows = {row["name"]: row for row in json.loads(run("lab", "--json").stdout)}
    assert rows["heights"]["seconds"] is None and rows["norm"]["seconds"] > 0


def test_an_experiment_runs_writes_and_is_drawn_again(run, tmp_path):
    done = run("lab", "heights", "--out", "there")
    assert done.returncode == 0, done.stderr
    assert "seen: Low is lower than high" in done.stdout and "Claims seen: 1 of 1." in done.stdout
    assert "6/6 high, 2" in done.stderr
    names = {path.name for path in (tmp_path / "there").iterdir()}
    assert names == {"heights.json", "heights-heights.svg", "heights-heights.png"}
    drawn = (tmp_path / "there" / "heights-heights.svg").read_bytes()
    (tmp_path / "there" / "heights-heights.svg").unlink()
    again = run("lab", "--figures", "there/heights.json")
    assert again.returncode == 0 and "heights-heights.svg" in again.stdout
    assert (tmp_path / "there" / "heights-heights.svg").read_bytes() == drawn
    as_json = run("lab", "heights", "--out", "there", "--json")
    assert json.loads(as_json.stdout)["findings"][0]["verdict"] == "seen"
    assert "6 of 6 runs were done before" in as_json.stderr


def test_ctrl_c_keeps_what_was_run(run, site, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "zoo", "lab", "heights"],
        cwd=tmp_path,
        env={**os.environ, **site.environment, "SLOW": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A background job, which these tests may be, ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    record = tmp_path / "lab" / "heights.json"
    deadline = time.monotonic() + 60
    while not record.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "1 of 6 runs are kept" in said and "Traceback" not in said
    assert [path.name for path in record.parent.iterdir()] == ["heights.json"]
    done = run("lab", "heights")
    assert done.returncode == 0 and "1 of 6 runs were done before" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("broken",), "experiment broken: RuntimeError: no such thing"),
        (("heigths",), "no experiment 'heigths'"),
        (("heights", "--seeds", "0"), "--seeds must be from 1"),
        (("heights", "--steps", "0"), "--steps must be at least 1"),
        (("heights", "--out", "/proc/none"), "/proc/none"),
        (("--figures", "none.json"), "none.json: missing"),
        (("heights", "--figures", "none.json"), "leave NAME out"),
    ],
)
def test_a_mistake_is_one_line(run, arguments, said):
    done = run("lab", *arguments)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert said in done.stderr.splitlines()[-1]


def test_without_matplotlib_the_record_is_written_and_the_extra_named(run, site, tmp_path):
    (site.path / "matplotlib.py").write_text("raise ImportError('none here')\n")
    done = run("lab", "heights")
    assert done.returncode == 0 and "mlx-zoo[plots]" in done.stderr.splitlines()[-1]
    assert [path.name for path in (tmp_path / "lab").iterdir()] == ["heights.json"]
