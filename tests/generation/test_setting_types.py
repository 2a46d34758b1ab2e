"""The types of settings: those of the declarations, and a misspelt setting is found by mypy."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import pytest

from zoo.architecture.settings import SHARED
from zoo.generation.prefix_cache import PromptCache
from zoo.generation.setting_types import (
    EngineSettings,
    GenerateSettings,
    SharedSettings,
    StrategySettings,
    StreamSettings,
)
from zoo.host.registry import default_registry
from zoo.inspect.tracing.traced_run import TraceSettings

BESIDE = {"samplers", "prompt_cache", "checkpoints", "report"}  # which no `Setting` declares
KINDS = {dict: Mapping[Any, Any] | str, tuple: Sequence[float], Callable: Callable[..., Any], object: Any}


def hints(kind):
    return get_type_hints(kind, localns={"PromptCache": PromptCache})


def expected(setting):
    """The type of a setting's values."""
    kind = KINDS.get(setting.kind, setting.kind)
    if kind is Any:
        return Any
    kind = kind | Sequence[kind] if setting.several else kind
    for extra in setting.also:
        kind = kind if isinstance(extra, bool | int) and setting.kind in (int, float) else kind | type(extra)
    return kind | None


def own():
    """The strategies of the zoo."""
    registry = default_registry()
    return [s for s in registry.strategies.values() if registry.plugin_of(s).first_party]


def test_every_setting_has_a_type_and_every_type_is_of_a_setting():
    names = {name for strategy in own() for name in strategy.setting_names}
    assert set(hints(GenerateSettings)) == names | {"strategy"}
    assert set(hints(StreamSettings)) == names - {"report"}
    assert set(hints(TraceSettings)) == (names | {"strategy"}) - {"max_tokens"}
    assert set(hints(StrategySettings)) == names - {"report", "max_tokens"}
    assert set(hints(EngineSettings)) == {*SHARED, "samplers"}
    assert set(hints(SharedSettings)) == {*SHARED, "samplers"} - {"max_tokens"}


def test_types_are_those_that_the_declarations_name():
    declared = SHARED | {
        s.name: s for strategy in own() for s in strategy.own_settings if s.name not in SHARED
    }
    types = hints(GenerateSettings)
    assert {name: types[name] for name in declared} == {name: expected(s) for name, s in declared.items()}
    assert set(types) - set(declared) == BESIDE | {"strategy"}


GOOD = """
from typing import Any

import zoo

loaded = zoo.load("llama")
answer = zoo.generate(loaded, "The", temperature=1, stop=["a", "b"], prompt_cache=zoo.PromptCache(loaded))
count: int = answer.prompt.cached_tokens
steps = [*zoo.stream(loaded, "The", max_tokens=3), *zoo.chat(loaded, [], top_p=0.5)]
traced = zoo.trace(loaded, "The", max_tokens=2, beams=2)
more: dict[str, Any] = {"of_a_plugin": 2}
step = next(zoo.stream(loaded, "The", strategy="a-plugins", **more))
handle = zoo.Engine(loaded).add("The", seed=1)
answers = zoo.batch(loaded, ["The"], strategy="best-of", best_of=3)
"""
BAD = """
import zoo

loaded = zoo.load("llama")
zoo.generate(loaded, "The", temprature=1)
zoo.stream(loaded, "The", top_k="many")
zoo.chat(loaded, [], max_token=3)
zoo.trace(loaded, "The", tempature=1)
zoo.Engine(loaded).add("The", beams=2)
zoo.batch(loaded, ["The"], seeds=2)
"""


@pytest.mark.slow
def test_mypy_finds_a_misspelt_setting_and_no_fault_in_the_guides_words(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--ignore-missing-imports",
            "--follow-imports=silent",
            "good.py",
            "bad.py",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [error.partition(": error:")[0] for error in errors] == [
        f"bad.py:{line}" for line in range(5, 11)
    ], done.stdout + done.stderr
