"""The README says what is true: each of its commands and code blocks runs, in order, in an empty folder."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.terminal import Terminal
from zoo.cli.program import GENERAL
from zoo.describe import describe
from zoo.host.registry import default_registry

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text):
    """Each block of code, in order: its language ("" for an indented one) and its lines."""
    language, lines = None, []
    for line in [*text.splitlines(), "end"]:
        if language not in (None, ""):  # within a fence
            if line.startswith("```"):
                yield language, lines
                language, lines = None, []
            else:
                lines.append(line)
        elif line.startswith("    ") or (language == "" and not line):
            language = ""
            lines.append(line[4:])
        else:
            if language == "":
                yield "", [line for line in lines if line]
                language, lines = None, []
            if line.startswith("```"):
                language = line[3:] or "text"


# For each shell: what a terminal's would have run before, what tells that it completes, and what that prints.
SHELLS = {
    "bash": ("", "complete -p zoo", "-F _zoo_completion zoo"),
    "zsh": ("autoload -Uz compinit && compinit -u -D\n", "echo $_comps[zoo]", "_zoo_completion"),
    "fish": ("", "complete -c zoo", "_zoo_completion"),
}
NEW_BASH = "[[ ${BASH_VERSINFO[0]}${BASH_VERSINFO[1]} -ge 44 ]] && echo yes || echo no"  # a Mac's own has no such thing


class Reader:
    """Somebody who types what the README shows, in an empty folder."""

    def __init__(self, folder, site):
        self.folder, self.site = folder, site
        tools = folder.parent / "bin"
        tools.mkdir()
        (tools / "zoo").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m zoo "$@"\n')
        (tools / "zoo").chmod(0o755)
        # An environment that installs nothing from a network, and finds what `pip install -e` would have installed.
        self.environment = {
            **os.environ,
            **site.environment,
            "HF_HUB_OFFLINE": "1",
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        }

    def type(self, line):
        match shlex.split(line, comments=True):
            case ["make", target]:
                # This very suite is what `make test` runs: that the target is there has to do.
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
            case ["git", "clone", "REPOSITORY", *_]:
                pass  # whose address the reader knows
            case [".", ".venv/bin/activate"]:
                assert "VENV := .venv\n" in (ROOT / "Makefile").read_text()
            case ["pip", "install", "."]:
                assert (ROOT / "pyproject.toml").exists()  # `make wheel` installs it in a new environment
            case ["pip", "install", "-e", ".[serve]"]:
                assert re.search(r"^serve = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
            case ["pip", "install", "-e", package]:
                self.site.install(self.folder / package)
            case ["zoo", "chat", "llama"]:
                self.talk()
            case ["zoo", "chat", name]:
                assert line.partition("#")[0].strip() == GENERAL  # there is no network here
                assert describe(name, default_registry()).preset.hub is not None
            case ["zoo", "serve", name]:  # which runs until it is stopped
                assert describe(name, default_registry()).preset.hub is not None
            case ["echo", text, ">", file]:
                (self.folder / file).write_text(text + "\n", encoding="utf-8")
            case ["zoo", "train", *arguments]:
                steps = arguments.index("--steps") + 1
                arguments[steps] = "1"  # as many as are shown would only take longer
                self.run([sys.executable, "-m", "zoo", "train", *arguments], line)
            case ["zoo", *arguments, ">", file]:
                text = self.run([sys.executable, "-m", "zoo", *arguments], line)
                (self.folder / file).write_text(text, encoding="utf-8")
            case ["zoo", *arguments]:
                return self.run([sys.executable, "-m", "zoo", *arguments], line)
            case _:
                pytest.fail(f"the README shows a command that this test does not know: {line}")

    def run(self, command, shown):
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        assert done.returncode == 0, f"{shown}\n{done.stderr}"
        return done.stdout

    def talk(self):
        with Terminal("chat", "llama", cwd=self.folder) as terminal:
            terminal.until(">>>")
            terminal.type("The capital of France is\r")
            terminal.until("Paris")
            terminal.until(">>>")
            terminal.type("/exit\r")
            assert terminal.end()[0] == 0

    def complete(self, shell, lines):
        """The lines for a shell; that shell reads them, where there is one that click knows how to serve."""
        script = "\n".join(lines)
        (inner,) = re.findall(r"_ZOO_COMPLETE=\w+ zoo", script)
        assert f"{shell}_complete" in self.run(["sh", "-c", inner], script)
        before, after, pattern = SHELLS[shell]
        if shutil.which(shell) and (
            shell != "bash" or self.run(["bash", "-c", NEW_BASH], NEW_BASH) == "yes\n"
        ):
            assert pattern in self.run([shell, "-c", f"{before}{script}\n{after}"], script)


@pytest.mark.slow
def test_all_of_it_runs_in_order_in_an_empty_folder(tmp_path, make_site):
    folder = tmp_path / "empty"
    folder.mkdir()
    reader = Reader(folder, make_site(tmp_path / "site"))
    shown = list(blocks(README))
    for language, lines in shown:
        if language == "":
            for line in lines:
                out = reader.type(line)
                if "--adapter" in line:
                    assert out.startswith(" Sennet"), line
                elif line.startswith(('zoo run llama "', "zoo run my-arch")):
                    assert out.startswith(" Beijing"), line
        elif language == "python":
            assert "北京" in reader.run([sys.executable, "-c", "\n".join(lines)], "the README's Python")
    assert [language for language, _ in shown].count("python") == 1
    commands = {
        line.split()[1] for language, lines in shown if not language for line in lines if line[:4] == "zoo "
    }
    assert {"run", "embed", "train", "tune", "convert", "new", "test", "doctor"} <= commands


@pytest.mark.slow
def test_shells_complete_by_the_lines_that_the_page_of_installation_gives(tmp_path, make_site):
    reader = Reader(tmp_path, make_site(tmp_path / "site"))
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    shown = [(language, lines) for language, lines in blocks(page) if language in SHELLS]
    assert [language for language, _ in shown] == list(SHELLS)
    for shell, lines in shown:
        reader.complete(shell, lines)


def test_its_tables_and_figures_are_those_of_the_registry_and_the_records():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "tools" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for page in module.PAGES:
        text = page.read_text(encoding="utf-8")
        assert module.rewrite(text) == text, "run: python tools/readme.py"
    assert "| `llama` |" in module.architectures()


def test_it_is_read_in_a_few_minutes():
    assert len(README.encode()) <= 9000


def test_its_links_lead_somewhere():
    links = re.findall(r"\]\((?!http)([^)#]+)", README)
    links += re.findall(r'(?:src|href)="(?!http)([^"#]+)"', README)
    assert links and all((ROOT / link).exists() for link in links)


def test_it_leads_with_a_picture_and_describes_each():
    first = README.split("## Run")[0]
    assert "docs/pictures/comparison.svg" in first
    shown = dict(re.findall(r'<img src="([^"]+)"[^>]* alt="([^"]+)"', README))
    assert set(shown) == {f"docs/pictures/{name}.svg" for name in ("comparison", "recording")}
    assert all(len(text.split()) > 10 for text in shown.values())
