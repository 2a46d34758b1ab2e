"""The suite as a tool: `zoo test`, `pytest --zoo-arch`, references, and registries apart from what is installed."""

import os
import re
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pytest

import zoo
from zoo.architecture import Architecture, hookimpl
from zoo.errors import PluginError, SourceError, ZooError
from zoo.host.registry import default_registry, isolated, using
from zoo.testing import CHECKS, Check, checks_of, imports_nothing_heavy, outcome, subject, subject_of
from zoo.testing.reference import agreement

# An architecture whose layer adds a number to its cache's position, and one whose layer raises.
PLUGIN = """
from dataclasses import dataclass, replace
import zoo_llama
from zoo.architecture import Block, hookimpl
from zoo.recipe import Attention

@dataclass(frozen=True)
class Forgetful(Attention):
    kind, name = "mixer", "forgetful"

@dataclass(frozen=True)
class Raising(Attention):
    kind, name = "mixer", "raising"

def changed(kind):
    def recipe(config):
        return zoo_llama.llama(config).change_layers(
            lambda index, layer: dict(mixer=kind(heads=layer.mixer.heads, rope=layer.mixer.rope)))
    return recipe

@hookimpl
def zoo_blocks():
    yield Block(Forgetful, "bad_blocks:Forgetful")
    yield Block(Raising, "bad_blocks:Raising")

@hookimpl
def zoo_architectures():
    llama = next(zoo_llama.zoo_architectures())
    for kind in (Forgetful, Raising):
        yield replace(llama, name=kind.name, model_types=(), recipe=changed(kind))
"""
BLOCKS = """
from zoo.blocks.attention import Attention

class Forgetful(Attention):
    def __call__(self, x, mask=None, cache=None):
        return super().__call__(x, mask, None)  # each token by itself

class Raising(Attention):
    def __call__(self, x, mask=None, cache=None):
        return x + {}
"""


def refuses(subject):
    raise ZooError("no luck")


REFUSING = Check("refuses", "it always does", refuses, lambda subject: True)


@pytest.fixture
def bad(site):
    site.add("zoo-bad", "bad_plugin", PLUGIN)
    (site.path / "bad_blocks.py").write_text(BLOCKS)
    return site


@pytest.mark.slow
def test_a_good_architecture_is_reported_check_by_check(command):
    done = command("test", "llama")
    assert done.returncode == 0, done.stderr
    head, *lines, total = done.stdout.splitlines()
    assert head.startswith("llama (mlx-zoo ") and "127,424 random parameters" in head
    assert all(line.startswith("  ok  ") for line in lines)
    assert any("cached decode equals full forward: decoding from the cache" in line for line in lines)
    assert total == f"{len(lines)} checks, none failed"


@pytest.mark.slow
def test_a_failed_check_says_what_differed_and_sets_the_status(bad, command):
    done = command("test", "forgetful", environment=bad.environment)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    index = next(i for i, line in enumerate(lines) if "FAILED  cached decode equals full forward" in line)
    assert "largest difference" in lines[index + 1] and "allowed" in lines[index + 1]
    assert any(line.startswith("  ok      saved and loaded") for line in lines)
    failed = sum("FAILED" in line for line in lines)
    assert lines[-1].endswith(f"checks, {failed} failed") and 1 < failed < len(lines) - 2


def test_an_error_in_the_models_code_is_shown_once_with_the_path_of_the_block_and_the_plugins_line(
    bad, command
):
    done = command("--debug", "test", "raising", environment=bad.environment)
    assert done.returncode == 1
    assert done.stdout.count("layers.0.mixer: ValueError: Cannot perform addition") == 1
    assert re.search(r"\(\S+/bad_blocks.py, line 10\)", done.stdout) and "mlx/nn" not in done.stdout
    assert "Traceback" in done.stdout and "return x + {}" in done.stdout
    assert done.stdout.endswith("1 check, 1 failed; the others need a model that runs\n")


def test_an_error_of_several_checks_is_shown_once(bad, command, monkeypatch):
    checks = [CHECKS[0], REFUSING, REFUSING]
    monkeypatch.setattr("zoo.testing.checks_of", lambda subject: checks)
    shown = command("test", "llama").stdout.splitlines()
    assert sum("no luck" in line for line in shown) == 1
    assert shown[-2].split() == ["as", "refuses", "does"]


def test_a_plugin_that_imports_mlx_is_told(site):
    site.add("zoo-heavy", "heavy_plugin", "import mlx.core\n")
    with pytest.raises(AssertionError, match="importing heavy_plugin imports mlx"):
        imports_nothing_heavy("heavy_plugin")
    with pytest.raises(AssertionError, match="cannot be imported: ModuleNotFoundError"):
        imports_nothing_heavy("no_such_plugin")
    imports_nothing_heavy("zoo_llama")


def test_a_third_partys_architecture_must_leave_mlx_out(bad):
    import bad_plugin

    heavy = "importing_the_plugin_imports_nothing_heavy"
    made = subject("forgetful", registry=isolated(bad_plugin))
    (check,) = (check for check in checks_of(made) if check.name == heavy)
    assert outcome(check, made).passed
    assert heavy not in {check.name for check in checks_of(subject("lstm"))}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lama"], ["lama", "llama"]),
        (["llama:8b"], ["8,030,261,248 parameters"]),
        (["llama:none"], ["none"]),
        (["./nowhere"], ["./nowhere"]),
        (["llama", "--tolerance", "0.1"], ["--tolerance", "--reference"]),
        (["llama", "--reference", "nowhere.npz"], ["nowhere.npz"]),
        (["mistral", "--reference", "nowhere.npz"], ["mistral"]),
    ],
)
def test_what_cannot_be_tested_is_one_line(command, arguments, words):
    done = command("test", *arguments)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    for word in words:
        assert word in line


@pytest.fixture
def llama():
    return subject_of(zoo.load("llama", dtype="float32"))


def tokens_of(made, rows=2, length=7):
    return np.random.default_rng(0).integers(0, made.vocab, (rows, length))


@pytest.mark.slow
def test_a_checkpoint_is_held_to_the_suite_and_to_a_reference(llama, tmp_path, command):
    tokens = tokens_of(llama)
    off = np.array(llama.model(mx.array(tokens)))
    np.savez(tmp_path / "good.npz", tokens=tokens, logits=off, other=1)
    assert agreement(llama, tmp_path / "good.npz").passed
    off[1, 3, 5] += 0.01 * np.ptp(off)
    np.savez(tmp_path / "off.npz", tokens=tokens, logits=off)
    folder = llama.architecture.preset().folder
    assert agreement(llama, tmp_path / "off.npz", 0.02).passed
    done = command("test", folder, "--reference", "off.npz", "--tolerance", "0.005")
    assert done.returncode == 1 and "at (1, 3, 5)" in done.stdout
    assert "the checkpoint " in done.stdout and "half precision" not in done.stdout


def test_another_folder_of_the_same_model(llama, folder):
    assert agreement(llama, llama.architecture.preset().folder).passed
    other = folder(changes={"rms_norm_eps": 1e-5})
    found = agreement(llama, other)
    assert not found.passed and "largest difference" in found.message
    with pytest.raises(SourceError, match="vocabulary of 256 is not the model's, 2048"):
        agreement(llama, folder("mistral", where="mistral", tokenizer=False))


def test_padding_is_not_compared(llama, tmp_path):
    tokens = tokens_of(llama)
    mask = np.array([[1] * 7, [0, 0, 1, 1, 1, 1, 1]])
    alone = np.array(llama.model(mx.array(tokens[1:, 2:])))
    logits = np.array(llama.model(mx.array(tokens)))
    logits[1, :2], logits[1, 2:] = 100.0, alone[0]
    np.savez(tmp_path / "masked.npz", tokens=tokens, mask=mask, logits=logits)
    assert agreement(llama, tmp_path / "masked.npz").passed
    np.savez(tmp_path / "unmasked.npz", tokens=tokens, logits=logits)
    assert not agreement(llama, tmp_path / "unmasked.npz").passed


def test_a_translators_reference_has_a_target(tmp_path):
    made = subject("transformer")
    source, target = made.tokens, made.tokens[:, 3:9]
    given = dict(tokens=np.array(source), logits=np.array(made.model(source, target)))
    np.savez(tmp_path / "both.npz", **given, target=np.array(target))
    assert agreement(made, tmp_path / "both.npz").passed
    np.savez(tmp_path / "source.npz", **given)
    with pytest.raises(SourceError, match="needs an array 'target'"):
        agreement(made, tmp_path / "source.npz")


IDS, LOGITS = np.ones((2, 5), int), np.ones((2, 5, 2048), np.float32)
BAD = {
    "no logits": (dict(tokens=IDS), "no array 'logits'; it has: tokens"),
    "no tokens": (dict(logits=LOGITS), "no array 'tokens'"),
    "tokens of floats": (dict(tokens=IDS * 0.5, logits=LOGITS), "tokens must be whole numbers"),
    "tokens of one row": (dict(tokens=IDS[0], logits=LOGITS[0]), "tokens must be whole numbers"),
    "strange ids": (dict(tokens=IDS * 2048, logits=LOGITS), "outside the model's vocabulary of 2048"),
    "other length": (dict(tokens=IDS, logits=LOGITS[:, :4]), "do not go with tokens"),
    "other mask": (dict(tokens=IDS, logits=LOGITS, mask=IDS[:1]), "mask of shape"),
    "objects": (dict(tokens=np.array([{}, None]), logits=LOGITS), "not an npz file of arrays"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_reference_that_does_not_fit_is_one_line(llama, tmp_path, kind):
    arrays, words = BAD[kind]
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(SourceError, match=words) as raised:
        agreement(llama, tmp_path / "bad.npz")
    assert "bad.npz" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 torn"])
def test_a_file_that_is_no_npz_is_one_line(llama, tmp_path, content):
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(SourceError, match=r"bad\.npz: not an npz file"):
        agreement(llama, tmp_path / "bad.npz")
    np.save(tmp_path / "single.npy", IDS)
    with pytest.raises(SourceError, match="it is a single array"):
        agreement(llama, tmp_path / "single.npy")


def run_pytest(tmp_path, *arguments, environment=None):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "zoo_pytest", "-p", "no:cacheprovider", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **(environment or {})},
    )


@pytest.mark.slow
def test_pytest_runs_the_suite_of_an_architecture(bad, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    done = run_pytest(
        work,
        "--zoo-arch",
        "llama",
        "--zoo-arch",
        "raising",
        "-v",
        "-k",
        "cached_decode",
        environment=bad.environment,
    )
    assert done.returncode == 1
    assert "llama::cached_decode_equals_full_forward PASSED" in done.stdout
    assert "raising::cached_decode_equals_full_forward FAILED" in done.stdout
    assert "the model does not run: see raising::model_runs" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    done = run_pytest(work, "--zoo-arch", "raising", environment=bad.environment)
    failures, _, summary = done.stdout.partition("short test summary info")
    assert failures.count("return x + {}") == 1 and "bad_blocks.py, line 10" in failures
    assert "raising::model_runs - layers.0.mixer: ValueError" in summary
    done = run_pytest(work, "--zoo-arch", "lama")
    assert done.returncode == 4 and "unknown architecture 'lama'; did you mean llama" in done.stderr


@pytest.mark.slow
def test_plain_pytest_pays_nothing(tmp_path):
    (tmp_path / "test_plain.py").write_text(
        "import sys\ndef test_plain():\n    found = {name.partition('.')[0] for name in sys.modules}\n"
        "    assert 'zoo_pytest' in found and not found & {'zoo', 'mlx', 'numpy', 'click', 'pluggy_zoo'}\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_fixture_leaves_out_what_is_installed(site, tmp_path):
    code = (
        "from zoo.architecture import Strategy, hookimpl\n@hookimpl\ndef zoo_strategies():\n"
        "    yield Strategy('{}', 'm:f', ('generate',))\n"
    )
    site.add("zoo-installed", "installed_plugin", code.format("installed"))
    work = tmp_path / "work"
    work.mkdir()
    (work / "mine.py").write_text(code.format("mine"))
    (work / "test_mine.py").write_text(
        "from zoo.host.registry import default_registry\nimport mine\n"
        "def test_apart(zoo_registry):\n"
        "    known = zoo_registry(mine)\n"
        "    assert default_registry() is known and 'llama' in known\n"
        "    assert 'mine' in known.strategies and 'installed' not in known.strategies\n"
        "def test_after():\n"
        "    assert 'installed' in default_registry().strategies and 'mine' not in default_registry().strategies\n"
    )
    done = run_pytest(work, environment=site.environment)
    assert done.returncode == 0, done.stdout


class Mine:
    """A plugin that is an object."""

    @hookimpl
    def zoo_architectures(self):
        yield Architecture("mine", "", len, ())


def test_an_isolated_registry_has_the_zoos_own_and_the_given():
    known = isolated(Mine())
    assert {"mine", "llama"} <= set(known.architectures)
    assert known.plugin_of(known.architecture("mine")).distribution == "Mine"
    with using(known):
        assert default_registry().architecture("mine").name == "mine"
    with pytest.raises(PluginError, match="no hook zoo_model"):
        isolated(type("Bad", (), {"zoo_model": hookimpl(lambda self: None)})())


def test_a_model_too_large_for_a_test_is_refused():
    with pytest.raises(ZooError, match=r"7b has .* too many for a test"):
        subject("mistral", "7b")
