"""What a strategy must yield: held where one is run, so that a user sees one line, and by the suite."""

from dataclasses import replace
from importlib import import_module

import pytest

import zoo
import zoo_llama
from tests.helpers import faulty_strategies
from zoo.architecture import Strategy, hookimpl
from zoo.errors import PluginError, PromptError
from zoo.host.registry import isolated
from zoo.testing import check_strategy, checks_of, outcome, run_checks, subject

WORDS = {
    "nothing": "strategy nothing of the plugin tests.helpers.faulty-strategies yielded no step",
    "endless": "ended with a step that has no finish_reason",
    "texts": "yielded a value of type str, not a zoo.Step",
    "no-text": "yielded a step whose text is None",
    "late": "yielded a step after the one whose finish_reason is 'stop'",
    "none": "gave None, not an iterator of zoo.Step",
}
OTHERS = {
    "too-long": "too-long: 9 tokens where max_tokens is 8",
    "strange": "token 1000000 lies outside the vocabulary",
    "lazy": "lazy: an empty prompt must be a PromptError when it is called, not while it runs",
}


@pytest.fixture(scope="module")
def known():
    return isolated(faulty_strategies)


@pytest.fixture(scope="module")
def llama(known):
    return zoo.load("llama", registry=known)


@pytest.mark.parametrize("name", WORDS)
def test_what_a_strategy_does_wrong_is_one_line_where_it_is_run(known, llama, name):
    with pytest.raises(PluginError) as raised:
        zoo.generate(llama, "The capital", strategy=name)
    assert WORDS[name] in str(raised.value) and "faulty-strategies" in str(raised.value)


@pytest.mark.parametrize("name", WORDS | OTHERS)
def test_the_suite_rejects_it(known, name):
    with pytest.raises((AssertionError, PluginError)) as raised:
        check_strategy(name, registry=known)
    assert (WORDS | OTHERS)[name] in str(raised.value)


def test_a_sound_one_passes_by_either_name(known):
    for name in ("sound", "tests.helpers.faulty-strategies::sound"):
        assert len(check_strategy(name, registry=known, max_tokens=3)) == 3


@pytest.mark.parametrize(
    "name", ["autoregressive", "beam", "best-of", "contrastive", "fill-mask", "masked-diffusion"]
)
def test_the_zoos_own_pass(name):
    assert check_strategy(name)


def test_the_strategy_of_the_documentation_holds(extending, monkeypatch):
    monkeypatch.syspath_prepend(str(extending.path))
    registry = isolated(import_module("zoo_extras"))
    assert len(check_strategy("cooling", registry=registry, max_tokens=3)) == 3
    loaded, prompt = zoo.load("llama", registry=registry), "The capital city of China is"

    def drawn(**settings):
        return zoo.generate(loaded, prompt, strategy="cooling", max_tokens=8, **settings)

    assert drawn(hot=0, cold=0).tokens == zoo.generate(loaded, prompt, max_tokens=8).tokens
    assert drawn(hot=50.0, cold=50.0).tokens != drawn(hot=50.0, cold=50.0, seed=1).tokens
    assert drawn(hot=50.0, cold=0.0).finish_reason in ("stop", "length")
    with pytest.raises(PromptError, match="`cold` must be a number of at least 0, got -1"):
        drawn(cold=-1)


def test_giving_a_stream_up_ends_the_strategy(llama):
    steps = zoo.stream(llama, [1, 2, 3], strategy="sound")
    next(steps)
    faulty_strategies.CLOSED.clear()
    steps.close()
    assert faulty_strategies.CLOSED == [3]


def test_the_command_shows_one_line(site, command):
    site.add(
        "zoo-mute",
        "mute_plugin",
        """
        from zoo.architecture import Strategy, hookimpl

        def stream(loaded, prompt):
            return iter(())

        @hookimpl
        def zoo_strategies():
            yield Strategy("mute", "mute_plugin:stream", ("generate",))
        """,
    )
    done = command("run", "llama", "The capital", "--strategy", "mute", environment=site.environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "zoo: error: strategy mute of the plugin mute_plugin yielded no step; the last step must have a finish_reason"
    )


class WithItsOwn:
    """An architecture that comes with a strategy of its own, a faulty one."""

    @hookimpl
    def zoo_architectures(self):
        yield replace(next(zoo_llama.zoo_architectures()), name="mumbling", model_types=())

    @hookimpl
    def zoo_strategies(self):
        yield Strategy("mumble", "tests.helpers.faulty_strategies:endless", ("generate",), ("max_tokens",))


def of_strategies(plugin):
    """The outcome of the check of an architecture's strategies, None where the suite has none."""
    made = subject("mumbling", registry=isolated(plugin))
    checks = {check.name: check for check in checks_of(made)}
    return outcome(check, made) if (check := checks.get("strategies_end_as_they_must")) else None


def test_an_architectures_own_strategy_is_part_of_its_suite():
    found = of_strategies(WithItsOwn())
    assert not found.passed and "strategy mumble of the plugin WithItsOwn ended" in found.message


class Demanding(WithItsOwn):
    """The same with one that cannot run without a setting."""

    @hookimpl
    def zoo_strategies(self):
        yield faulty_strategies.DEMANDING


def test_a_strategy_that_needs_a_setting_is_checked_with_it_and_not_by_the_suite():
    known = isolated(Demanding())
    assert of_strategies(Demanding()) is None
    assert len(check_strategy("demanding", registry=known, draft="llama")) == 8
    with pytest.raises(PromptError, match="draft"):
        check_strategy("demanding", registry=known)


class Twin:
    """A second claim on names that others have."""

    @hookimpl
    def zoo_architectures(self):
        yield replace(next(zoo_llama.zoo_architectures()), name="mumbling", model_types=())
        yield next(zoo_llama.zoo_architectures())

    @hookimpl
    def zoo_strategies(self):
        yield Strategy("autoregressive", "tests.helpers.faulty_strategies:nothing", ("generate",))
        yield Strategy("beam", "tests.helpers.faulty_strategies:nothing", ("translate",))


class Rival(WithItsOwn):
    """And a third."""

    @hookimpl
    def zoo_strategies(self):
        yield Strategy("autoregressive", "tests.helpers.faulty_strategies:nothing", ("generate",))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "Twin::mumbling",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("mlx-zoo::llama", "transformer")),
    ],
)
def test_a_contested_name_breaks_no_check(name):
    results = run_checks(name, registry=isolated(Twin(), Rival()))
    wrong = {result.name: result.message for result in results if not result.passed}
    # The strategies of these plugins are faulty, and found to be.
    assert set(wrong) <= {"strategies_end_as_they_must"}, wrong
    wanted = {"saved_and_loaded_is_identical", "quantized_and_loaded_is_identical"}
    assert wanted <= {result.name for result in results}
