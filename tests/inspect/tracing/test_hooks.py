"""A model has hooks for as long as a block asks for them, each model its own, and third-party probes cannot harm it."""

import re
import sys
from pathlib import Path
from textwrap import dedent

import mlx.core as mx
import numpy as np
import pytest

import zoo
from zoo.errors import PluginError
from zoo.host.registry import isolated
from zoo.inspect.tracing.probe import Probe, Recorder, hooked, modules_of, values_of
from zoo.inspect.tracing.traced_run import join_rows
from zoo.testing import check_architecture, subject
from zoo.testing.subjects import loaded_of

ROOT = Path(__file__).parents[3]
PROMPT = "The capital city of China is"
IDS = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def llama():
    return zoo.load("llama")


def classes(model):
    return {path: type(module) for path, module in modules_of(model).items()}


def has_hooks(model):
    return any(isinstance(module, Probe) for module in modules_of(model).values())


def test_two_models_have_hooks_at_once_each_its_own(llama):
    other = zoo.load("llama")
    first, second = Recorder(), Recorder()
    with hooked(llama.model, first, llama.registry), hooked(other.model, second, other.registry):
        llama.model(mx.array([IDS]))
        assert first.passes and not second.passes
        other.model(mx.array([IDS[:2]]))
    assert [p.tokens for p in second.passes] == [IDS[:2]]
    assert not has_hooks(llama.model) and not has_hooks(other.model)


def test_trace_within_an_intervention_sees_what_it_changed(llama):
    before = classes(llama.model)
    with zoo.intervene(llama, {"layers.1.mixer": 0}):
        with zoo.intervene(llama, {"layers.2.mixer": 0}):
            both = zoo.trace(llama, PROMPT, max_tokens=1)
        one = zoo.trace(llama, PROMPT, max_tokens=1)
        assert has_hooks(llama.model)
    assert not both["layers.1.mixer"].any() and not both["layers.2.mixer"].any()
    assert not one["layers.1.mixer"].any() and one["layers.2.mixer"].any()
    assert classes(llama.model) == before and not has_hooks(llama.model)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_model_is_released_whatever_ends_the_block(llama, error):
    before = classes(llama.model)

    def fail(value):
        raise error("in the middle of a pass")

    with pytest.raises(error), zoo.intervene(llama, {"layers.1": fail}):
        zoo.generate(llama, PROMPT, max_tokens=1)
    assert classes(llama.model) == before
    assert zoo.generate(llama, PROMPT, max_tokens=4).text == " Beijing."


def test_stream_that_is_not_exhausted_goes_on_without_the_intervention(llama):
    with zoo.intervene(llama, {"layers.0": lambda value: value * 2}):
        steps = zoo.stream(llama, PROMPT, max_tokens=4)
        next(steps)
    assert not has_hooks(llama.model)
    assert len(list(steps)) >= 1


@pytest.mark.parametrize("folder", ["zoo/blocks", "zoo/generation"])
def test_blocks_and_generation_know_nothing_of_traces(folder):
    for file in (ROOT / folder).rglob("*.py"):
        assert not re.search(r"\btrac(e|ing)\b|\bprobe|insight", file.read_text(encoding="utf-8")), file.name


def test_plugins_name_their_probes_and_import_none():
    for file in (ROOT / "plugins").glob("zoo_*/*.py"):
        if file.name != "probe.py" and file.parent.name != "zoo_calibration":  # it watches modules itself
            found = re.search(
                r"^\s*(from|import) zoo\.inspect\.tracing", file.read_text("utf-8"), re.MULTILINE
            )
            assert not found, file


def test_columns_of_all_passes_stand_at_their_positions():
    first, second = (
        np.array([[1, 0], [2, 3]]),
        np.array([[4, 5]]),
    )  # two tokens, then one that sees the last two
    assert join_rows([first, second], ["T", "S"], [(0, 2), (2, 1)]).tolist() == [
        [1, 0, 0],
        [2, 3, 0],
        [0, 4, 5],
    ]
    assert join_rows([np.array([1, 2]), np.array([2, 3])], ["S"], [(0, 2), (2, 1)]).tolist() == [1, 2, 3]
    assert join_rows([np.array([1, 2]), np.array([3])], [], [(0, 2), (2, 1)]).tolist() == [1, 2, 3]
    assert join_rows([np.array([1, 2]), np.array([3, 4])], ["M"], [(0, 2), (2, 1)]).tolist() == [3, 4]


PLUGIN = """
    from dataclasses import dataclass
    import zoo_llama
    from zoo.architecture import Architecture, Block, Preset, ModuleProbe, hookimpl
    from zoo.recipe import Spec

    @dataclass(frozen=True)
    class Gated(Spec):
        kind, name = "feedforward", "third-gated"
        hidden: int

        def own_parameters(self, dim):
            return 3 * dim * self.hidden

    def recipe(config):
        made = zoo_llama.llama(config)
        return made.change_layers(lambda i, layer: dict(feedforward=Gated(layer.feedforward.hidden)))

    @hookimpl
    def zoo_blocks():
        yield Block(Gated, "NAME.block:Gated")

    @hookimpl
    def zoo_architectures():
        yield Architecture(
            "third", "", recipe, zoo_llama.WEIGHTS, presets=(Preset("tiny", config=zoo_llama.TINY),)
        )
"""
BLOCK = """
    import mlx.nn as nn

    class Gated(nn.Module):
        def __init__(self, spec, *, dim, index=0):
            super().__init__()
            self.gate, self.up = (nn.Linear(dim, spec.hidden, bias=False) for _ in range(2))
            self.down = nn.Linear(spec.hidden, dim, bias=False)

        def opening(self, x):
            return nn.silu(self.gate(x))

        def __call__(self, x):
            return self.down(self.opening(x) * self.up(x))
"""
HOOK = """
    @hookimpl
    def zoo_probes():
        yield ModuleProbe("NAME.block:Gated", "NAME.probe:GatedProbe")
"""
PROBE = """
    from zoo.inspect.tracing.probe import Probe, Traces, Value

    class GatedProbe(Probe):
        traces = Traces(
            Value("B T D", "what the gated feed-forward adds"),
            {"opening": Value("B T F", "how far each neuron is open", item_axis="F")},
        )

        def opening(self, x):
            return BODY
"""


@pytest.fixture
def third(tmp_path, monkeypatch):
    """A function from the source of a probe module, or None, to the registry of a plugin that has it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "third_gated"

    def make(probe=None):
        folder = tmp_path / name
        folder.mkdir()
        plugin = dedent(PLUGIN) + (dedent(HOOK) if probe else "")
        (folder / "__init__.py").write_text(plugin.replace("NAME", name))
        (folder / "block.py").write_text(dedent(BLOCK))
        if probe:
            (folder / "probe.py").write_text(dedent(probe))
        return isolated(__import__(name))

    yield make
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


def traced(registry):
    return zoo.trace(loaded_of(subject("third", registry=registry)), IDS, max_tokens=2)


def test_block_without_a_probe_is_traced_from_outside(third):
    trace = traced(third())
    assert trace["layers.0.feedforward"].shape == trace["layers.0.resid_mid"].shape
    assert (
        trace["layers.0.feedforward.gate"].shape[0] == 6 - 1
        and trace.about("layers.0.feedforward").axes == ""
    )


@pytest.mark.slow
def test_block_with_a_probe_conforms_and_can_be_intervened_in(third):
    registry = third(PROBE.replace("BODY", 'self.note("opening", super().opening(x))'))
    check_architecture("third", registry=registry)
    loaded = loaded_of(subject("third", registry=registry))
    assert "layers.0.feedforward.opening" in values_of(loaded.model, registry)
    with zoo.intervene(loaded, {"layers.0.feedforward.opening": 0}):
        assert not zoo.trace(loaded, IDS, max_tokens=1)["layers.0.feedforward"].any()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('self.note("opened", super().opening(x))', "third_gated.probe:GatedProbe notes 'opened', which its"),
        (
            "x + nothing",
            r"plugin third-gated: a probe of third_gated.probe failed: NameError: name 'nothing'",
        ),
    ],
)
def test_mistake_of_a_probe_is_one_line_that_names_it(third, body, message):
    registry = third(PROBE.replace("BODY", body))
    loaded = loaded_of(subject("third", registry=registry))
    with pytest.raises(PluginError, match=message) as caught:
        zoo.trace(loaded, IDS, max_tokens=1)
    assert "\n" not in str(caught.value)
    assert not has_hooks(loaded.model) and zoo.generate(loaded, IDS, max_tokens=2).tokens


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ("class GatedProbe: pass", "third_gated.probe:GatedProbe is no probe: it must derive from"),
        ("import nowhere_at_all", "cannot import third_gated.probe:GatedProbe: ModuleNotFoundError"),
    ],
)
def test_what_is_no_probe_is_refused_by_name(third, probe, message):
    registry = third(probe)
    loaded = loaded_of(subject("third", registry=registry))
    with pytest.raises(PluginError, match=message):
        zoo.trace(loaded, IDS, max_tokens=1)
    assert zoo.generate(loaded, IDS, max_tokens=2).tokens
