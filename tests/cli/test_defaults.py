"""A person's defaults: an option that is given, then the environment, then the file, then the checkpoint."""

import json

import pytest

PROMPT = "The capital city of China is"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Write the file of defaults."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(text):
        path = tmp_path / "config" / "zoo" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def generated(command, *options):
    done = command("run", "llama", PROMPT, "--json", *options)
    return json.loads(done.stdout)["generated_tokens"], done.stderr


def test_each_source_comes_before_the_next(command, config, monkeypatch):
    assert generated(command)[0] > 3
    config("[run]\nmax-tokens = 3\n[chat]\nmax_tokens = 7\n")
    assert generated(command)[0] == 3
    monkeypatch.setenv("ZOO_RUN_MAX_TOKENS", "2")
    assert generated(command)[0] == 2
    assert generated(command, "--max-tokens", "1")[0] == 1
    monkeypatch.setenv("ZOO_RUN_MAX_TOKENS", "")
    assert generated(command)[0] == 3


def test_values_of_every_kind_are_taken(command, config):
    config(
        '[run]\nstop = ["Bei"]\ntemperature = 0\nraw = true\nlogit_bias = { 5 = -1.5 }\ndtype = "float32"\n'
    )
    done = command("run", "llama", PROMPT)
    assert done.returncode == 0 and "Bei" not in done.stdout, done.stderr
    config("[run]\nguidance_scale = 2\nnegative_prompt = 'A'\nexponential_decay_length_penalty = [0, 9.0]\n")
    assert len(command("run", "llama", PROMPT).stdout) < 10
    config("[list]\njson = true\n")
    assert json.loads(command("list").stdout)


def test_a_trace_takes_its_own_defaults(command, config):
    config("[trace]\nmax_tokens = 1\n[run]\nmax_tokens = 3\n")
    traced = json.loads(command("trace", "llama", PROMPT, "--json").stdout)
    assert sum(piece["origin"] == "generated" for piece in traced["tracks"][0]["pieces"]) == 1


def test_a_default_that_a_model_does_not_take_is_left_out_and_an_option_is_refused(command, config):
    config("[run]\ntemperature = 0.5\nmax_tokens = 4\n")
    masked = "[MASK] is the capital of France."
    assert command("run", "bert", masked).returncode == 0
    refused = command("run", "bert", masked, "--temperature", "0.5")
    assert refused.returncode == 1 and "--temperature" in refused.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[run]\ntemperatur = 1\n",
            "run.temperatur: `zoo run` has no such option; did you mean temperature?",
        ),
        ('[run]\ntemperature = "hot"\n', "run.temperature: expected a number of at least 0"),
        ("[run]\nraw = 3\n", "run.raw: "),
        ('[run]\ndtype = "int3"\n', "run.dtype: 'int3' is not one of"),
        ("[rum]\n", "[rum] is no command; did you mean run?"),
        ("temperature = 1\n", "temperature is in no table"),
        ("[run\n", "cannot be read as TOML"),
    ],
)
def test_a_mistake_in_the_file_names_it(command, config, text, words):
    path = config(text)
    done = command("run", "llama", PROMPT)
    assert done.returncode == 2 and done.stdout == ""
    assert str(path) in done.stderr and words in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_mistake_in_a_variable_names_it(command, monkeypatch):
    monkeypatch.setenv("ZOO_RUN_TOP_P", "2")
    done = command("run", "llama", PROMPT)
    assert (
        done.returncode == 2
        and "ZOO_RUN_TOP_P: expected a number of more than 0 and at most 1" in done.stderr
    )
    monkeypatch.delenv("ZOO_RUN_TOP_P")
    monkeypatch.setenv("ZOO_RUN_TOP_Q", "2")
    assert (
        "ZOO_RUN_TOP_Q: `zoo run` has no such option; did you mean top_p?" in command("run", "llama").stderr
    )
    monkeypatch.setenv("ZOO_CONFIG", "/nowhere/config.toml")
    assert "ZOO_CONFIG names /nowhere/config.toml, which is not there" in command("list").stderr


def test_commands_within_a_command_have_tables_within_its_table(command, config, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty"))
    config("[cache.remove]\nyes = true\n")
    helped = command("cache", "--help")
    assert helped.returncode == 0
    config("[cache.remove]\nno_such_option = true\n")
    told = command("cache", "remove", "x").stderr
    assert "cache.remove.no_such_option: `zoo cache remove` has no such option" in told
    assert command("cache", "--help").returncode == 0


def test_doctor_says_which_file_is_read(command, config, monkeypatch):
    path = config("[run]\nseed = 1\n")
    monkeypatch.setenv("ZOO_CHAT_SEED", "2")
    found = json.loads(command("doctor", "--json").stdout)["defaults"]
    assert found == f"{path} (run), ZOO_CHAT_SEED"
    path.unlink()
    assert json.loads(command("doctor", "--json").stdout)["defaults"].startswith(f"{path} (not there)")
