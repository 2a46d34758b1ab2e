"""The examples of clients in the guide, run as they are printed, but for the server's address and the model's name."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # read as it is imported: else it asks the network

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "serve.md"
BLOCK = re.compile(r"^```(python|yaml|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(GUIDE.read_text(encoding="utf-8").partition("\n## Clients\n")[2].partition("\n## ")[0])
PYTHON = {re.findall(r"(?:import|from) (\w+)", code)[0]: code for kind, code in BLOCKS if kind == "python"}


@pytest.fixture
def adapted(smollm2, smollm2_file):
    """The function that puts this server and its model into an example."""

    def change(code):
        assert "http://127.0.0.1:8080" in code and "smollm2" in code
        return code.replace("http://127.0.0.1:8080", smollm2.url).replace("smollm2", smollm2_file.name)

    return change


def test_the_guide_has_an_example_of_each_client():
    assert PYTHON.keys() == {"openai", "anthropic", "ollama", "litellm"}
    assert [kind for kind, code in BLOCKS if kind != "python"] == ["yaml", ""]


@pytest.mark.parametrize("library", PYTHON)
def test_an_example_in_python_prints_an_answer(adapted, capsys, library):
    exec(compile(adapted(PYTHON[library]), str(GUIDE), "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_example_of_llm_prints_an_answer(adapted, smollm2_file, tmp_path):
    settings, command = (code for kind, code in BLOCKS if kind != "python")
    (tmp_path / "extra-openai-models.yaml").write_text(adapted(settings))
    arguments = shlex.split(command.replace("smollm2", smollm2_file.name))
    environment = {
        **os.environ,
        "LLM_USER_PATH": str(tmp_path),
        "OPENAI_API_KEY": "none",
        "LLM_LOAD_PLUGINS": "",
    }
    answer = subprocess.run(
        [sys.executable, "-m", *arguments],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert answer.stdout.strip()
