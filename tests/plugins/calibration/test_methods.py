"""`zoo convert --calibrate`: every method, for every kind of model, and what is refused."""

import json
from dataclasses import replace

import mlx.core as mx
import pytest
from click.testing import CliRunner

from tests.helpers.architectures import representatives
from zoo.architecture import Quantizer, hookimpl
from zoo.checkpoint.calibration import Calibration
from zoo.checkpoint.convert import convert, save
from zoo.checkpoint.parameters import parameters_of
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo.cli.convert import convert as convert_command
from zoo.errors import PluginError, ZooError
from zoo.generation.sampling.logits import logprobs
from zoo.host.registry import default_registry, isolated
from zoo.inspect.perplexity import kl_divergence
from zoo.loading import load
from zoo.testing import subject
from zoo.testing.subjects import numbers_of
from zoo_calibration.sensitivity import Option, allocate
from zoo_calibration.text import inputs_of

METHODS = ("gptq", "awq", "sensitivity")
GROUP = 32


def specs_of(folder):
    found = parameters_of(load(folder).model)
    return {path: one.quantization for path, one in found.items() if isinstance(one, QuantizedMatrix)}


def held_out_divergence(name, folder, text):
    """The mean KL divergence of a folder's predictions from a pocket's on a text, read as that model reads one."""
    source, found = load(name), load(folder)
    passes = inputs_of(source, Calibration(text, rows=16, length=48))
    each = [
        kl_divergence(*(logprobs(one.model(*inputs)) for one in (source, found))).mean() for inputs in passes
    ]
    return sum(each).item() / len(each)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "bits"), [("gptq", "3"), ("awq", "3"), ("sensitivity", "4")])
def test_a_calibrated_pocket_is_nearer_to_its_source_at_equal_bytes(
    method, bits, calibration, texts, tmp_path
):
    how = dict(quantize=bits, group_size=GROUP)
    plain = convert("llama", tmp_path / "plain", **how)
    done = convert("llama", tmp_path / "out", **how, calibration=calibration(method, rows=32))
    assert done.bytes <= plain.bytes
    new, old = (
        held_out_divergence("llama", one.folder, texts("generate", "validation")) for one in (done, plain)
    )
    assert new < old
    if method != "sensitivity":
        assert done.bytes == plain.bytes and specs_of(done.folder) == specs_of(plain.folder)


def small(name, folder):
    """A folder of a small random model, and inputs for it in the place of a text."""
    found = subject(name)
    save(folder, found.model, found.architecture, found.recipe, dict(numbers_of(found.architecture)))
    inputs = (found.tokens, found.tokens) if found.model.translates else (found.tokens,)
    return [inputs, tuple(side[:, ::-1] for side in inputs)]


ARCHITECTURES = list(default_registry().architectures)


# Each architecture by one of the methods, these by all.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(name, method, marks=[] if name in representatives() else pytest.mark.nightly)
        for number, name in enumerate(ARCHITECTURES)
        for index, method in enumerate(METHODS)
        if name in ("llama", "bert", "transformer") or number % len(METHODS) == index
    ],
)
def test_every_architecture_is_quantized(name, method, calibration, monkeypatch, tmp_path):
    inputs = small(name, tmp_path / "model")
    for user in ("run", "sensitivity"):
        monkeypatch.setattr(f"zoo_calibration.{user}.inputs_of", lambda *_: inputs)
    plain = convert(tmp_path / "model", tmp_path / "plain", quantize="4", group_size=GROUP)
    how = dict(quantize="4", group_size=GROUP, calibration=calibration(method))
    if not specs_of(plain.folder):  # nothing of it divides into groups
        with pytest.raises(ZooError, match="no matrix can be quantized"):
            convert(tmp_path / "model", tmp_path / "out", **how)
        return
    done = convert(tmp_path / "model", tmp_path / "out", **how)
    assert done.bytes <= plain.bytes
    if method != "sensitivity":
        assert specs_of(done.folder) == specs_of(plain.folder)
    assert mx.isfinite(load(done.folder).model(*inputs[0])).all().item()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bert", "llada", "transformer", pytest.param("mixtral", marks=pytest.mark.nightly)]
)
def test_a_text_is_read_as_each_kind_of_model_reads_it(name, calibration, texts, tmp_path):
    task = default_registry().architecture(name).task
    how = dict(quantize="3", group_size=GROUP)
    plain = convert(name, tmp_path / "plain", **how)
    done = convert(name, tmp_path / "out", **how, calibration=calibration("gptq", task))
    new, old = (held_out_divergence(name, one.folder, texts(task, "validation")) for one in (done, plain))
    assert new < old


def test_sensitivity_keeps_to_its_budget_and_mixes_bits(calibration, tmp_path):
    bits = 5.3
    done = convert(
        "llama", tmp_path / "out", quantize="4", calibration=calibration("sensitivity", bits=bits, rows=4)
    )
    assert bits - 0.1 < done.bits <= bits
    assert len({spec.bits for spec in specs_of(done.folder).values()}) > 1
    config = json.loads((done.folder / "config.json").read_text())
    assert any(isinstance(value, dict) for value in config["quantization"].values())


def test_the_bits_that_save_most_for_their_bytes_are_bought_first():
    four, eight = QuantizationSpec(4, 64), QuantizationSpec(8, 64)
    options = {
        ("steep",): [Option(four, 100, 9.0), Option(eight, 200, 1.0)],
        ("flat",): [Option(four, 100, 2.0), Option(eight, 200, 1.0)],
        ("large",): [Option(four, 1000, 10.0), Option(eight, 2000, 1.0)],
    }
    found = {path: option.spec for (path,), option in allocate(options, 1399).items()}
    assert found == {"steep": eight, "flat": four, "large": four}
    assert all(option.spec == eight for option in allocate(options, 2400).values())


class Mine:
    """A third party's methods."""

    @hookimpl
    def zoo_quantizers(self):
        for name in ("values", "wrong-path", "no-dict"):
            yield Quantizer(name, f"{__name__}:{name.replace('-', '_')}", "mine")


def values(task):
    assert task.calibration.rows == 7
    found = [path for path in task.quantizations if path.endswith("mixer.value.weight")]
    return dict.fromkeys(found, QuantizationSpec(8, 64))


def wrong_path(task):
    return {"layers.99.mixer.value.weight": mx.zeros((4, 4))}


def no_dict(task):
    return [1]


def test_a_third_partys_method_chooses_bits(texts, tmp_path):
    mine = isolated(Mine())
    calibration = Calibration(texts("generate"), "values", rows=7)
    convert("llama", tmp_path / "out", quantize="4", calibration=calibration, registry=mine)
    bits = {path: spec.bits for path, spec in specs_of(tmp_path / "out").items()}
    assert {bits[path] for path in bits if path.endswith("value.weight")} == {8}
    assert {bits[path] for path in bits if not path.endswith("value.weight")} == {4}


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("wrong-path", r"layers\.99\.mixer\.value\.weight \(4, 4\), which is no parameter of the model"),
        ("no-dict", "gave list, not a dict"),
    ],
)
def test_what_a_method_gives_is_checked(method, line, texts, tmp_path):
    calibration = Calibration(texts("generate"), method)
    with pytest.raises(PluginError, match=line):
        convert("llama", tmp_path / "out", quantize="4", calibration=calibration, registry=isolated(Mine()))
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return convert("llama", tmp_path_factory.mktemp("packed") / "out", quantize="4").folder


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("-q 4 --method gptq", "--method needs --calibrate"),
        ("-q 4 --calibration-rows 3", "--calibration-rows needs --calibrate"),
        ("--calibrate TEXT", "--calibrate says how --quantize rounds"),
        ("-q none --calibrate TEXT", "--calibrate says how --quantize rounds"),
        ("-q 4 --calibrate none.txt", "none.txt is no file or folder"),
        ("-q 4 --calibrate EMPTY", "empty.txt: is empty"),
        (
            "-q 4 --calibrate TEXT --method gtpq",
            "no quantization method 'gtpq'; there are: awq, gptq, sensitivity",
        ),
        ("-q 4 --calibrate TEXT --bits 4.5", "--bits: gptq gives every matrix the bits of --quantize"),
        (
            "-q 4 --calibrate TEXT --calibration-rows 1 --method sensitivity --bits 2",
            "--bits 2: this model can have from 3.5",
        ),
        ("-q 4 --calibrate TEXT --calibration-rows 1 --method sensitivity --bits 9", "to 8.5"),
        ("-q 4 --calibrate TEXT --method sensitivity --bits nan", "--bits must be from 0 to 32"),
        ("-q 4 --calibrate TEXT --calibration-rows 0", "--calibration-rows must be at least 1, got 0"),
        ("-q mxfp4 --calibrate TEXT", "gptq has no mxfp4"),
        ("-q 4 --calibrate TEXT --adapter .", "--calibrate reads a model without an adapter"),
        ("PACKED -q 4 --calibrate TEXT", "is quantized already, and --calibrate rounds floats: give those"),
    ],
)
def test_what_cannot_be_is_one_line(options, line, packed, texts, tmp_path, command):
    (tmp_path / "empty.txt").write_text("")
    places = {"TEXT": texts("generate"), "EMPTY": tmp_path / "empty.txt", "PACKED": packed}
    source, *rest = [str(places.get(word, word)) for word in options.split()]
    words = [source, "out", *rest] if source == str(packed) else ["llama", "out", source, *rest]
    done = command("convert", *words)
    assert done.returncode != 0 and done.stderr.count("\n") == 1, done.stderr
    assert line in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_tokenizer_is_refused(calibration, tmp_path):
    small("llama", tmp_path / "model")
    with pytest.raises(ZooError, match="has no tokenizer to read the text of `calibrate` with"):
        convert(
            tmp_path / "model", tmp_path / "out", quantize="4", group_size=32, calibration=calibration("gptq")
        )


def test_the_command_says_what_it_wrote(texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--calibrate", str(texts("generate")), "--calibration-rows", "4", "--calibration-length", "32"]
    result = CliRunner().invoke(
        convert_command, ["llama", "out", "-q", "4", *options], catch_exceptions=False
    )
    assert result.output.startswith("out: 1,049,728 parameters, 0.6 MB, 4.51 bits a weight")


def test_progress_is_reported(calibration, tmp_path):
    seen = []
    asked = replace(calibration("gptq", rows=4), report=lambda done, total: seen.append((done, total)))
    convert("llama", tmp_path / "out", quantize="4", calibration=asked)
    assert seen == [(number, len(seen)) for number in range(1, len(seen) + 1)]
