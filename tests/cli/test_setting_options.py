"""The settings that strategies declare: options of `zoo run`, checked, and given to the strategy that serves."""

import json
import os
import subprocess
import sys

import click
import pytest

import zoo
from zoo.architecture import Setting, Strategy, hookimpl
from zoo.cli.run import run
from zoo.cli.setting_options import given_settings, options_of
from zoo.errors import PluginError, PromptError
from zoo.host.plugins import load_plugins
from zoo.host.registry import Registry, isolated, using

PROMPT = "The capital of France is"
PLUGIN = """
    from zoo.architecture import Setting, Strategy, hookimpl

    @hookimpl
    def zoo_strategies():
        yield Strategy(
            "echo",
            "echo_strategy:stream",
            tasks=("generate",),
            settings=(
                "max_tokens",
                Setting("times", int, 2, minimum=1, maximum=9, help="How often it says it."),
                Setting("mark", str, choices=("dot", "dash"), help="What stands between."),
            ),
        )
"""
STRATEGY = """
    import json
    from zoo.generation import Step
    from zoo.generation.loop.prompt import encode_prompt

    def stream(loaded, prompt, **settings):
        ids = encode_prompt(loaded, prompt)
        return iter([Step(ids[-1], json.dumps(settings, sort_keys=True), finish_reason="stop")])
"""


@pytest.fixture
def echo(site):
    site.add("zoo-echo", "echo_plugin", PLUGIN)
    site.add("zoo-echo-strategy", "echo_strategy", STRATEGY, entry="nothing_to_load")
    return site


def sections(text):
    """The sections of a command's help, each with its lines joined."""
    found, title = {}, ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            title = line.rstrip(":")
        found[title] = f"{found.get(title, '')} {line.strip()}"
    return found


@pytest.mark.slow
def test_a_strategys_own_settings_are_options_of_the_command(echo, command):
    how = dict(environment=echo.environment)
    helped = sections(command("run", "--help-all", **how).stdout)
    own = helped["Settings of echo (plugin echo_plugin)"]
    assert "--times INTEGER" in own and "How often it says it. Default: 2." in own
    assert "--mark DOT|DASH" in own and "What stands between." in own
    assert "--times" not in helped["Sampling"] and "--times" not in helped["Options"]
    assert "--times" not in command("run", "--help", **how).stdout
    asked = ("run", "llama", PROMPT, "--strategy", "echo")
    done = command(*asked, "--times", "3", "--mark", "dash", "--max-tokens", "5", **how)
    assert json.loads(done.stdout) == {"mark": "dash", "max_tokens": 5, "times": 3}, done.stderr
    assert json.loads(command(*asked, **how).stdout) == {"times": 2}  # its default; one without is left out
    refused = command(*asked, "--times", "10", **how)
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr == (
        "zoo: error: Invalid value for '--times': expected a whole number from 1 to 9, got 10\n"
    )
    with using(Registry(load_plugins({}))):
        for options, words in (
            (("--times", "two"), "expected a whole number from 1 to 9, got 'two'"),
            (("--mark", "star"), "expected one of dot, dash, got 'star'"),
        ):
            with pytest.raises(click.BadParameter, match=words):
                run.make_context("run", ["llama", PROMPT, *options])
    refused = command("run", "llama", PROMPT, "--times", "3", "--strategy", "autoregressive", **how)
    assert refused.returncode == 1 and refused.stdout == ""
    assert refused.stderr == (
        "zoo: error: --times: autoregressive generation has no such setting; it is a setting of echo\n"
    )


def test_the_same_settings_reach_it_from_python(echo):
    llama = zoo.load("llama", registry=Registry(load_plugins({})))

    def reached(**settings):
        return json.loads(zoo.generate(llama, PROMPT, strategy="echo", **settings).text)

    assert reached(times=3, mark="dot", max_tokens=7) == {"mark": "dot", "max_tokens": 7, "times": 3}
    assert reached(mark=None) == {"times": 2}
    for settings, words in (
        ({"times": 10}, "`times` must be a whole number from 1 to 9, got 10"),
        ({"times": 2.5}, "`times` must be a whole number"),
        ({"times": True}, "`times` must be a whole number"),
        ({"mark": "star"}, "`mark` must be one of dot, dash, got 'star'"),
        ({"max_tokens": 0}, "`max_tokens` must be a whole number of at least 1"),
        ({"tims": 1}, "`tims`: echo generation has no such setting; did you mean `times`"),
    ):
        with pytest.raises(PromptError, match=words):
            zoo.stream(llama, PROMPT, strategy="echo", **settings)
    with pytest.raises(
        PromptError, match="`times`: beam generation has no such setting; it is a setting of ech"
    ):
        zoo.stream(llama, PROMPT, strategy="beam", times=3)
    # The settings choose the strategy, too, where the architecture's own cannot take them.
    with pytest.raises(
        PromptError, match="`steps`: autoregressive generation has no such setting; it is a setting of m"
    ):
        zoo.stream(llama, PROMPT, steps=3)


def test_options_are_made_without_mlx_or_any_strategys_module(echo):
    code = (
        "import sys\n"
        "from zoo.cli.run import run\n"
        "from zoo.cli.setting_options import EVERYTHING\n"
        "context = __import__('click').Context(run)\n"
        "context.meta[EVERYTHING] = True\n"
        "print(run.get_help(context))\n"
        "loaded = [name for name in sys.modules if name.partition('.')[0] in ('mlx', 'echo_strategy', 'numpy')]\n"
        "loaded += [name for name in sys.modules if name.startswith(('zoo.generation', 'zoo_llada.unmask'))]\n"
        "print(loaded)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **echo.environment}
    )
    assert "--times" in done.stdout and done.stdout.splitlines()[-1] == "[]", done.stderr


def giving(*strategies):
    """A registry with a plugin of these strategies."""

    class Giving:
        @hookimpl
        def zoo_strategies(self):
            yield from strategies

    return isolated(Giving())


def strategy(name, *settings):
    return Strategy(name, "nowhere:stream", ("generate",), settings=settings)


def by_flag(registry, taken=()):
    return {option.opts[0]: option for option in options_of(registry, frozenset(taken))}


def test_two_strategies_share_an_option_of_one_kind():
    registry = giving(
        strategy("a", Setting("depth", int, minimum=1, maximum=5, help="Of a.")),
        strategy("b", Setting("depth", int, minimum=3, maximum=9, help="Of b.")),
    )
    option = by_flag(registry)["--depth"]
    assert option.help == "Of a. Of b."
    assert option.type.convert("9", option, None) == 9  # for b; a refuses it by itself
    for value in ("0", "10"):
        with pytest.raises(click.BadParameter):
            option.type.convert(value, option, None)


def test_settings_of_one_name_and_different_kinds_are_asked_for_by_their_strategies():
    registry = giving(strategy("a", Setting("depth", int)), strategy("b", Setting("depth", str)))
    options = by_flag(registry)
    assert "--depth" not in options
    given = given_settings(list(options.values()), {"b_depth": "deep", "strategy": None})
    assert given == {"depth": "deep"}
    params = {"a_depth": 3, "strategy": None}
    given_settings(list(options.values()), params)
    assert params == {"strategy": "a"}, "the option chooses the strategy"
    with pytest.raises(click.UsageError, match="--a-depth is a setting of the strategy a"):
        given_settings(list(options.values()), {"a_depth": 3, "strategy": "b"})


def test_a_setting_cannot_take_the_place_of_another_option_of_the_command():
    with using(giving(strategy("mine", Setting("json", str), Setting("help", str)))):
        context = run.make_context("run", ["llama", "x", "--json", "--mine-json", "y", "--mine-help", "z"])
    assert context.params["as_json"] is True
    assert (context.params["mine_json"], context.params["mine_help"]) == ("y", "z")


def test_a_strategys_own_setting_comes_before_the_shared_one():
    own = strategy("mine", Setting("temperature", float, 7.0, minimum=5))
    assert own.arguments({}) == {"temperature": 7.0}
    with pytest.raises(PromptError, match="`temperature` must be a number of at least 5, got 1"):
        own.arguments({"temperature": 1})
    option = by_flag(giving(own))["--temperature"]
    assert option.type.convert("0.5", option, None) == 0.5  # of other strategies


def test_a_setting_of_several_parts_is_one_text_with_commas():
    context = run.make_context("run", ["llama", "x", "--exponential-decay-length-penalty", "20,1.05"])
    assert context.params["exponential_decay_length_penalty"] == (20, 1.05)
    for value in ("20", "-1,1.05", "20,0", "20,1.05,3", "a,b"):
        with pytest.raises(click.BadParameter, match=r"expected a list of start \(a whole number .* got '"):
            run.make_context("run", ["llama", "x", "--exponential-decay-length-penalty", value])
    helps = {
        o.opts[0]: o.make_metavar(context) for o in run.get_params(context) if isinstance(o, click.Option)
    }
    assert helps["--exponential-decay-length-penalty"] == "START,DECAY"
    assert (helps["--negative-prompt"], helps["--draft-model"]) == ("TEXT", "SOURCE")
    assert "--logits-processors" not in helps


def test_a_flag_that_is_true_or_false_has_both_spellings():
    option = by_flag(giving(strategy("mine", Setting("loud", bool))))["--loud"]
    assert option.secondary_opts == ["--no-loud"]
    context = run.make_context("run", ["llama", "x", "--early-stopping", "never"])
    assert context.params["early_stopping"] == "never"
    assert (
        run.make_context("run", ["llama", "x", "--early-stopping", "TRUE"]).params["early_stopping"] is True
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: strategy("x", Setting("n", int), Setting("n", int)), "settings declares n twice"),
        (lambda: strategy("x", Setting("prompt", str)), "no setting can be called prompt"),
        (
            lambda: Strategy("x", "a:b", ("generate",), settings=(3,)),
            "settings is a tuple of text or Setting",
        ),
        (
            lambda: Strategy("x", "a:b", ("generate",), batch="many"),
            'batch: expected "package.module:attribute"',
        ),
        (
            lambda: Strategy("x", "a:b", ("generate",), ("max_tokns",)),
            "strategy x: settings names 'max_tokns', which is no shared setting; did you mean max_tokens",
        ),
        (
            lambda: Strategy("x", "a:b", ("generate",), ("tempo_of_the_text",)),
            "'tempo_of_the_text', which is no shared setting: declare it as a `Setting`",
        ),
        (lambda: Setting("n", int, choices=[1]), "choices is a tuple of values"),
        (lambda: Setting("n", int, 3, choices=(1, 2)), "its default: `n` must be one of 1, 2, got 3"),
    ],
)
def test_a_record_that_is_wrong_is_refused_when_it_is_made(make, words):
    with pytest.raises(PluginError, match=words):
        make()
