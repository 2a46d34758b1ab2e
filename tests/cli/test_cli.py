"""The command line, as a person uses it: what goes to the output, what to the error stream, which status."""

import json
import signal
import subprocess
import sys

import pytest

from tests.helpers.slow_run import slow_run
from tests.helpers.waiting import PATIENCE
from zoo import runtime

ENGLISH = "The capital city of China is"


def fails(done, *words, status=None):
    """The command failed with one line on the error stream that has these words, and wrote no output."""
    assert done.returncode != 0
    assert status is None or done.returncode == status
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt2-postln", "qwen3"])
@pytest.mark.parametrize(("prompt", "answer"), [(ENGLISH, " Beijing"), ("中国的首都是", "北京")])
def test_run_streams_the_text_alone(command, name, prompt, answer):
    done = command("run", name, prompt, "--max-tokens", "12")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(answer)
    for word in ("prompt", "generated", "tokens/s", "first token", "peak memory"):
        assert word in done.stderr


def test_the_prompt_may_come_from_a_pipe(command):
    piped = command("run", "llama", "--max-tokens", "4", stdin=f"{ENGLISH}\n")
    assert piped.stdout == command("run", "llama", ENGLISH, "--max-tokens", "4").stdout


def test_json_is_one_object(command):
    done = command("run", "llama", ENGLISH, "--json", "--max-tokens", "5")
    values = json.loads(done.stdout)
    assert values["text"].startswith(" Beijing")
    assert values["generated_tokens"] == len(values["tokens"]) <= 5
    assert values["finish_reason"] in ("stop", "length")
    assert values["peak_memory_bytes"] > 1e6


def test_an_answer_that_is_cut_is_told_where_it_had_to_be_whole(command, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text(
        '{"type": "object", "properties": {"name": {"type": "string", "minLength": 40}}, "required": ["name"]}'
    )
    cut = command("run", "llama", ENGLISH, "--json-schema", schema, "--max-tokens", "8")
    assert "(cut: the answer may have no more tokens, the JSON is incomplete; --max-tokens" in cut.stderr
    assert "cut" not in command("run", "llama", ENGLISH, "--max-tokens", "2").stderr
    whole = command("run", "llama", ENGLISH, "--regex", "[a-z]{3}", "--max-tokens", "8")
    assert "cut" not in whole.stderr and len(whole.stdout.strip()) == 3


def test_a_seed_repeats_a_draw(command):
    def draw(seed):
        return command(
            "run", "llama", "The", "--temperature", "2", "--seed", seed, "--max-tokens", "20"
        ).stdout

    assert draw("1") == draw("1")
    assert draw("1") != draw("2")


def test_a_chat_template_frames_the_prompt_unless_raw(command, folder):
    path = folder()
    settings = json.loads((path / "tokenizer_config.json").read_text())
    settings["chat_template"] = (
        "{{ bos_token }}{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    (path / "tokenizer_config.json").write_text(json.dumps(settings))

    def prompt_tokens(*options):
        done = command("run", path, "The capital", "--json", "--max-tokens", "1", *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["prompt_tokens"]

    import zoo

    tokenizer = zoo.load(path).tokenizer
    assert prompt_tokens("--raw") == len(tokenizer.encode("The capital"))
    framed = "<|endoftext|>user: The capital\nassistant:"  # one start token, the template's
    assert prompt_tokens() == len(tokenizer.encode(framed, special_tokens=False))
    told = "<|endoftext|>system: Be brief.\nuser: The capital\nassistant:"
    assert prompt_tokens("--system", "Be brief.") == len(tokenizer.encode(told, special_tokens=False))


def test_a_prompt_longer_than_the_model_is_made_for_is_told(command):
    done = command("run", "llama", "word " * 200, "--max-tokens", "1")
    assert done.returncode == 0 and "more than the 128" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "./nowhere", "hi"], ["./nowhere"]),
        (["run", "transformer", ""], ["prompt", "empty"]),
        (["run", "llama"], ["pipe", "empty"]),
        (["run", "llama", "hi", "--top-p", "1.5"], ["top-p"]),
        (["run", "llama", "hi", "--top-k", "x"], ["top-k"]),
        (["run", "llama", "hi", "--max-tokens", "0"], ["max-tokens"]),
        (["run", "llama", "hi", "--system", "be brief"], ["--system", "chat template"]),
        (["run", "llama", "hi", "--architecture", "lamma"], ["lamma"]),
        (["run", "gpt2", "word " * 5000], ["64", "positions"]),
        (["compare", "llama", "nothing"], ["nothing"]),
        (["train", "nothing", "--out", "x"], ["nothing"]),
        (["train", "mlx-lm::gemma", "--out", "x"], ["mlx-lm::gemma", "pocket"]),
        (["train", "llama", "--out", "x", "--corpus", "web"], ["web", "atlas"]),
        (["train", "llama", "--out", "x", "--steps", "0"], ["steps"]),
    ],
)
def test_bad_input_is_one_line_and_a_status_and_writes_nothing(command, tmp_path, arguments, words):
    fails(command(*arguments), *words)
    assert not (tmp_path / "x").exists()


def test_debug_shows_the_traceback(command):
    done = command("--debug", "run", "lama", "hi")
    assert "Traceback" in done.stderr and done.returncode != 0


@pytest.mark.slow
def test_compare_measures_when_asked(command):
    done = command("compare", "gru:pocket", "--measure", "--json")
    (gru,) = json.loads(done.stdout)["measured"]
    assert gru["decode_tokens_per_second"] > 0 and gru["peak_memory_bytes"] > 0
    assert gru["parameters"] == 1_063_552 and not gru["random"]


def test_list_show_compare_plugins_doctor(command):
    listed = command("list").stdout
    for name in ("gpt", "gpt2", "gpt2-postln", "llama", "mistral", "qwen2", "qwen3"):
        assert any(line.split()[0] == name for line in listed.splitlines())
    shown = command("show", "llama").stdout
    assert "8.03 B" in shown and "Touvron" in shown and "500,000" in shown
    compared = json.loads(command("compare", "gpt2", "gpt2-postln", "--all", "--json").stdout)
    assert compared["models"] == ["gpt2:small", "gpt2-postln:small"]
    fields = {row["name"]: row for row in compared["fields"]}
    assert fields["layer.placement"] == {
        "name": "layer.placement",
        "label": "layer.placement",
        "values": ["pre", "post"],
        "differs": True,
    }
    rows = {row["name"]: row for row in compared["rows"]}
    assert rows["layers"]["values"] == [12, 12] and not rows["layers"]["differs"]
    assert rows["parameters.total"]["values"][0] == 124_439_808 and rows["parameters.total"]["differs"]
    (words,) = compared["differences"]
    assert "Norms come after each sum (Post-LN) instead of before each part (Pre-LN)." in words["sentences"]
    plugins = json.loads(command("plugins", "--json").stdout)
    llama = next(plugin for plugin in plugins if plugin["name"] == "llama")
    assert llama["state"] == "loaded" and "mistral" in llama["gives"] and llama["distribution"] == "mlx-zoo"
    doctor = json.loads(command("doctor", "--json").stdout)
    assert doctor["versions"]["mlx"] and doctor["backend"] in ("CPU", "Metal", "CUDA")


def test_show_and_run_say_which_checkpoint_they_mean(command):
    shown = command("show", "llama").stdout
    assert "This is llama:8b. `zoo run llama` runs llama:pocket, the small checkpoint" in shown
    assert "This is" not in command("show", "llama:pocket").stdout
    assert command("run", "llama", ENGLISH, "--max-tokens", "2").stderr.startswith("llama:pocket · prompt 6")


def test_show_lists_where_parameters_are(command):
    values = json.loads(command("show", "gemma2:pocket", "--parameters", "--json").stdout)
    assert values["parameters"]["layers.{i}.mixer.query.weight"] == [[128, 128]]
    assert values["parameters"]["embedding.tokens.weight"] == [[2048, 128]]
    shown = command("show", "llama:8b", "--parameters").stdout
    assert "layers.{i}.feedforward.down.weight  (4096, 14336)" in shown
    assert "parameters" not in json.loads(command("show", "llama", "--json").stdout)


def test_show_maps_a_checkpoints_names_to_parameters(command):
    maps = json.loads(command("show", "mixtral:pocket", "--weights", "--json").stdout)["weights"]
    gate = ["layers.{i}.feedforward.experts.gate.weight"]
    hf, mlx = (
        {tuple(pair["parameters"]): pair["tensors"] for pair in maps[layout]} for layout in ("hf", "mlx")
    )
    assert hf[tuple(gate)] == ["model.layers.{i}.block_sparse_moe.experts.{i}.w1.weight"]
    assert mlx[tuple(gate)] == ["model.layers.{i}.block_sparse_moe.switch_mlp.gate_proj.weight"]
    assert set(json.loads(command("show", "llama:pocket", "--weights", "--json").stdout)["weights"]) == {"hf"}


def test_show_lists_the_weight_rules(command):
    rules = json.loads(command("show", "llama:pocket", "--rules", "--json").stdout)["rules"]
    assert set(rules) == {"hf", "gguf"}
    assert rules["gguf"][0] == {
        "rule": "RotaryPairs",
        "source": "blk.{i}.attn_q.*",
        "targets": ["layers.{i}.mixer.query.*"],
    }
    shown = command("show", "llama:pocket", "--rules").stdout
    assert "rule, layout hf" in shown and "[model.]layers.{i}.self_attn.q_proj.*" in shown


def test_context_and_format_change_what_they_should(command):
    def facts(*options):
        done = command("show", "llama", "--json", *options)
        assert done.returncode == 0, done.stderr
        return {name: fact["value"] for name, fact in json.loads(done.stdout)["facts"].items()}

    plain, longer, packed = facts(), facts("--context", "8192"), facts("--quantize", "4")
    assert longer["cache.context"] == 2 * plain["cache.context"]
    assert longer["flops.decode"] - plain["flops.decode"] == 4 * 4096 * 4096 * 32
    assert packed["weights.chosen"] == packed["weights.4"] < plain["weights.chosen"] / 3
    # Whether it fits depends on the machine.
    assert {name for name in plain if plain[name] != packed[name]} - {"fits"} == {"weights.chosen"}
    for options, name in ((("--context", "0"), "--context"), (("--quantize", "q4"), "--quantize")):
        done = command("show", "llama", *options)
        assert done.returncode == 1 and name in done.stderr and "Traceback" not in done.stderr


def test_doctor_says_what_would_be_faster(command):
    if sys.platform != "linux" or runtime.on_gpu():
        return
    advice = json.loads(command("doctor", "--json", environment={"ZOO_BLAS": "none"}).stdout)["advice"]
    assert any("ZOO_BLAS" in line and "a fast BLAS" in line for line in advice)


@pytest.mark.slow
def test_ctrl_c_ends_with_what_was_generated(tmp_path):
    # A job in the background starts without Python's handler.
    code = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += slow_run("llama", ENGLISH, "--max-tokens", "60", seconds=0.3)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"Traceback" not in err and b"generated" in err and not err.endswith(b"\n\n"), err


def test_a_closed_pipe_is_no_error(tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m zoo run llama '{ENGLISH}' | head -c 3",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
