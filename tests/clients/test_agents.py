"""Coding agents read a file with their own tool and say its first line, with the settings that the guide gives.

They are programs of their own: `CODING_AGENTS` is a folder of `npm install @openai/codex @anthropic-ai/claude-code
opencode-ai`, or a folder of links to their commands and to aider's. A program that is not there is skipped.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers import scripted_agent
from tests.helpers.serving import serving

ASKED = "Read the file note.txt and say its first line."
FOLDER = Path(os.environ.get("CODING_AGENTS", "/nowhere"))
CODEX = """\
model = "zoo-model"
model_provider = "zoo"

[model_providers.zoo]
name = "zoo"
base_url = "{url}/v1"
wire_api = "responses"
"""
OPENCODE = """{{
  "provider": {{
    "zoo": {{
      "npm": "@ai-sdk/openai-compatible",
      "options": {{"baseURL": "{url}/v1", "apiKey": "none"}},
      "models": {{"zoo-model": {{}}}}
    }}
  }}
}}
"""


@pytest.fixture(scope="module")
def server():
    with serving(
        ["zoo-model"],
        load=scripted_agent.load,
        settings={"strategy": "scripted"},
    ) as made:
        made.url = f"http://127.0.0.1:{made.port}"
        yield made


@pytest.fixture
def run(server, tmp_path, monkeypatch):
    """The function that runs a program in a folder with a file, at a home of its own; it returns what was printed."""
    project, home = tmp_path / "project", tmp_path / "home"
    for folder in (project, home):
        folder.mkdir()
    (project / "note.txt").write_text(f"{scripted_agent.LINE}\nIt is long.\n")
    monkeypatch.chdir(project)  # the stand-in names files of it

    def run(program, *arguments, files=(), **variables):
        found = shutil.which(program, path=os.pathsep.join(map(str, (FOLDER, FOLDER / "node_modules/.bin"))))
        if found is None:
            pytest.skip(f"{program} is not in CODING_AGENTS")
        for name, text in files:
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(url=server.url))
        environment = {
            **{name: os.environ[name] for name in ("PATH",)},
            **{"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "IS_SANDBOX": "1"},
            **{name: value.format(url=server.url) for name, value in variables.items()},
        }
        done = subprocess.run(
            [found, *arguments],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=150,
        )
        return done.stdout

    return run


def test_codex_reads_a_file(run):
    printed = run(
        "codex",
        "exec",
        "--skip-git-repo-check",
        "--sandbox",
        "danger-full-access",
        ASKED,
        files=[(".codex/config.toml", CODEX)],
    )
    assert scripted_agent.ANSWER in printed


def test_claude_code_reads_a_file(run):
    printed = run(
        "claude",
        "-p",
        ASKED,
        "--allowedTools",
        "Read",
        ANTHROPIC_BASE_URL="{url}",
        ANTHROPIC_API_KEY="none",
        ANTHROPIC_MODEL="zoo-model",
        ANTHROPIC_DEFAULT_HAIKU_MODEL="zoo-model",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )
    assert printed.strip() == scripted_agent.ANSWER


def test_opencode_reads_a_file(run):
    printed = run(
        "opencode",
        "run",
        "-m",
        "zoo/zoo-model",
        ASKED,
        files=[(".config/opencode/opencode.json", OPENCODE)],
        OPENCODE_DISABLE_AUTOUPDATE="1",
        OPENCODE_DISABLE_MODELS_FETCH="1",
    )
    assert scripted_agent.ANSWER in printed


def test_aider_reads_a_file(run):
    printed = run(
        "aider",
        "--model",
        "openai/zoo-model",
        "--read",
        "note.txt",
        "--message",
        ASKED,
        "--no-git",
        "--yes-always",
        "--no-check-update",
        "--no-show-model-warnings",
        "--no-analytics",
        OPENAI_API_BASE="{url}/v1",
        OPENAI_API_KEY="none",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
    )
    assert scripted_agent.ANSWER in printed
