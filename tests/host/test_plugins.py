"""Plugins in isolation: one that fails is set aside and named, and the commands work on."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

import zoo
import zoo_llama
from tests.helpers.waiting import PATIENCE
from zoo.describe import base_of, describe
from zoo.errors import PluginError
from zoo.host import plugins as loader
from zoo.host.registry import Registry, default_registry
from zoo.testing import subject

HOOK = (
    "from zoo.architecture import Architecture, Block, Command, Corpus, Objective, Quantizer, Rename, Strategy, hookimpl\n"
    "@hookimpl\n"
)
GOOD = (
    HOOK
    + """def zoo_architectures():
    yield Architecture(name="{name}", summary="s", recipe=lambda config: None, weights=(), model_types=("{name}",))
"""
)


def made(**changes):
    """The code of a plugin whose architecture has these fields changed, given as code."""
    fields = {"name": "'odd'", "summary": "''", "recipe": "lambda config: None", "weights": "()"} | changes
    given = ", ".join(f"{key}={value}" for key, value in fields.items())
    return HOOK + f"def zoo_architectures():\n    yield Architecture({given})\n"


SPEC = (
    "from dataclasses import dataclass\nfrom typing import ClassVar\nfrom zoo.recipe import Spec\n{}\n"
    "class X(Spec):\n    kind, name = '{}', 'x'\n    recurrent: ClassVar[bool] = True\n    rank: int\n    scale: float = 1.0\n"
    + HOOK
    + "def zoo_blocks():\n    yield Block(X, 'm:X')\n"
)

# Code, what the error says, and, where it is no module of its own name, what the entry point names.
BROKEN = {
    "raises on import": ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
    "raises with two lines": ("raise ValueError('one\\ntwo')", "ValueError: one two"),
    "syntax error": ("def", "SyntaxError: invalid syntax"),
    "imports a missing module": ("import not_there_at_all", "No module named 'not_there_at_all'"),
    "names a missing module": ("", "No module named 'not_there_either'", "not_there_either"),
    "names a missing attribute": ("", "has no attribute 'plugin'", "{module}:plugin"),
    "entry point is no name": ("", "", "not a name!"),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "interrupts": ("raise KeyboardInterrupt('now')", "KeyboardInterrupt: now"),
    "interrupts in a hook": (HOOK + "def zoo_blocks():\n    raise KeyboardInterrupt", "KeyboardInterrupt"),
    "raises what is no exception": ("class Odd(BaseException): pass\nraise Odd('one')", "Odd: one"),
    "raises an error without words": (
        "class Odd(ImportError):\n    def __str__(self): raise KeyboardInterrupt\nraise Odd",
        "Odd",
    ),
    "gives architectures without end": (
        HOOK + "def zoo_architectures():\n    import itertools\n"
        "    for n in itertools.count():\n        yield Architecture(f'many{n}', '', len, ())",
        "zoo_architectures gave more than 10000 records",
    ),
    "exits in a hook": (HOOK + "def zoo_blocks():\n    raise SystemExit", "SystemExit"),
    "gives a number": (HOOK + "def zoo_architectures():\n    return 7", "zoo_architectures gave int"),
    "gives text": (HOOK + "def zoo_architectures():\n    yield 'llama'", "gave 'llama', not a record"),
    "gives another record": (HOOK + "def zoo_blocks():\n    yield Command('c', 'm:f')", "of type Block"),
    "fails half way": (
        GOOD.format(name="half") + "    raise ValueError('then this')",
        "ValueError: then this",
    ),
    "exits half way": (GOOD.format(name="half") + "    exit()", "SystemExit"),
    "gives a name twice": (
        GOOD.format(name="same") + "    yield Architecture('same', '', len, ())",
        "two records named 'same'",
    ),
    "misspells a hook": (
        HOOK + "def zoo_architecture():\n    return []",
        "no hook zoo_architecture; did you mean zoo_architectures?",
    ),
    "forgets the mark": ("def zoo_blocks():\n    return []", "zoo_blocks is not marked: write @hookimpl"),
    "wants more arguments": (
        HOOK + "def zoo_resolve(config, folder):\n    return None",
        "zoo_resolve(config, folder): Argument(s) {'folder'}",
    ),
    "unknown field": (made(heads="3"), "unexpected keyword argument 'heads'"),
    "year without a month": (
        made(published="'2024'"),
        "architecture odd: published is a month such as \"2017-06\", not '2024'",
    ),
    "unknown task": (made(task="'dance'"), "architecture odd: task 'dance' is not one of generate"),
    "name with a space": (made(name="'an odd one'"), "'an odd one': a name is letters"),
    "recipe is no function": (made(recipe="{}"), "architecture odd: recipe is a function"),
    "weights in a list": (made(weights="[Rename('*', '*')]"), "weights is a tuple of Rule"),
    "model types as one text": (made(model_types="'odd'"), "model_types is a tuple of text"),
    "block without a spec": (HOOK + "def zoo_blocks():\n    yield Block(int, 'm:C')", "subclass of Spec"),
    "block of a misspelled kind": (
        SPEC.format("@dataclass(frozen=True)", "feed-forward"),
        "block feed-forward/x: kind 'feed-forward' is none of the zoo's; did you mean feedforward?",
    ),
    "spec that is no dataclass": (
        SPEC.format("", "mixer"),
        "block mixer/x: rank, scale of X: no fields without @dataclass(frozen=True) above the class",
    ),
    "target is no target": (HOOK + "def zoo_commands():\n    yield Command('c', 'm')", "package.module:attr"),
    "strategy for no task": (
        HOOK + "def zoo_strategies():\n    yield Strategy('s', 'm:f', tasks=('paint',))",
        "'paint'",
    ),
    "corpus for an unknown task": (
        HOOK + "def zoo_corpora():\n    yield Corpus('c', 'm:f', tasks=('paint',))",
        "corpus c: task 'paint' is not one of generate",
    ),
    "objective for an unknown task": (
        HOOK + "def zoo_objectives():\n    yield Objective('o', 'm:f', tasks=('paint',))",
        "objective o: task 'paint' is not one of generate",
    ),
    "corpus for no task": (
        HOOK + "def zoo_corpora():\n    yield Corpus('c', 'm:f', tasks=())",
        "corpus c: documents are texts or translations",
    ),
    "corpus that is an objective": (
        HOOK + "def zoo_corpora():\n    yield Objective('o', 'm:f', tasks=('generate',))",
        "not a record of type Corpus",
    ),
    "quantizer whose budget is a number": (
        HOOK + "def zoo_quantizers():\n    yield Quantizer('q', 'm:f', budget=4)",
        "quantization method q: budget is True or False, not 4",
    ),
    "error whose class has no name": (
        "class Nameless(type):\n    __name__ = property(lambda cls: 1 / 0)\n"
        "class Odd(Exception, metaclass=Nameless):\n    pass\n"
        "raise Odd('a reason')",
        "Odd: a reason",
    ),
    "objective without a target": (
        HOOK + "def zoo_objectives():\n    yield Objective('o', 'm', tasks=('generate',))",
        'objective o: expected "package.module:attribute"',
    ),
}
NEWER = {
    "newer contract": (made(api="99"), "odd needs contract version 99; this zoo has 1: upgrade mlx-zoo"),
    "newer contract, then a failure": (made(api="2") + "    raise NameError('later')", "contract version 2"),
}
# Those that load and can do harm later: none of them may.
TREACHEROUS = {
    "prints when imported": "import sys\nprint('hello from a plugin'); sys.__stdout__.write('hello once more')",
    "program that prints": "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'print(\"hello from a program\")'])",
    "command that is not there": HOOK
    + "def zoo_commands():\n    yield Command('gone', 'nowhere:gone', 'Gone.')",
    "run that is not there": HOOK + "def zoo_commands():\n    yield Command('run', 'nowhere:run', 'Mine.')",
    "a list of its own": HOOK + "def zoo_commands():\n    yield Command('list', 'json:dumps', 'Mine.')",
    "another list": HOOK + "def zoo_commands():\n    yield Command('list', 'json:loads', 'Mine.')",
    "claims a name": GOOD.format(name="claimed"),
    "claims the same name": GOOD.format(name="claimed"),
    "resolver that raises": HOOK + "def zoo_resolve(config):\n    raise KeyError('mark')",
    "resolver that lies": HOOK + "def zoo_resolve(config):\n    return 'no-such-architecture'",
    "resolver that interrupts": HOOK + "def zoo_resolve(config):\n    raise KeyboardInterrupt('me')",
    "resolver that exits": HOOK + "def zoo_resolve(config):\n    raise SystemExit(4)",
}


def module_of(kind):
    return "bad_" + "".join(char if char.isalnum() else "_" for char in kind)


def python(code, site):
    """What `python -c code` leaves, with the plugins of `site` installed."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **site.environment},
    )


@pytest.fixture(scope="module")
def wreck(make_site, tmp_path_factory):
    """All bad plugins, installed at once."""
    found = make_site(tmp_path_factory.mktemp("wreck"))
    for kind, (code, _, *entry) in (BROKEN | NEWER).items():
        module = module_of(kind)
        found.add(f"zoo-{module}", module, code, *(text.format(module=module) for text in entry))
    for kind, code in TREACHEROUS.items():
        found.add(f"zoo-{module_of(kind)}", module_of(kind), code)
    found.add("zoo-nameless", "bad_nameless", "", metadata=False)
    return found


@pytest.fixture(scope="module")
def listed(wreck):
    """What `zoo plugins --json` prints with all of them installed, by the plugin's name; and its error stream."""
    done = python(
        "import sys; sys.argv = ['zoo', 'plugins', '--json']; import zoo.cli; zoo.cli.main()", wreck
    )
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}, done.stderr


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_set_aside_with_its_own_words(listed, kind):
    row = listed[0][module_of(kind)]
    assert row["state"] == "broken"
    assert BROKEN[kind][1] in row["error"] and "\n" not in row["error"] and row["error"]
    assert row["gives"] == []
    assert row["distribution"] == f"zoo-{module_of(kind)}" and row["version"] == "1.2"


@pytest.mark.parametrize("kind", NEWER)
def test_a_newer_contract_is_incompatible(listed, kind):
    row = listed[0][module_of(kind)]
    assert row["state"] == "incompatible" and NEWER[kind][1] in row["error"] and row["gives"] == []


def test_the_others_are_loaded_beside_them(listed):
    rows, errors = listed
    ours = [row for row in rows.values() if row["distribution"] == "mlx-zoo"]
    assert len(ours) > 10 and {row["state"] for row in ours} == {"loaded"}
    assert set(rows["llama"]) == {"name", "distribution", "version", "state", "gives", "contested", "error"}
    assert rows["llama"]["error"] is None and "mistral" in rows["llama"]["gives"]
    assert "strategy/masked-diffusion" in rows["llada"]["gives"]
    assert {rows[module_of(kind)]["state"] for kind in TREACHEROUS} == {"loaded"}
    assert rows["bad_nameless"]["distribution"] == "" and rows["bad_nameless"]["state"] == "loaded"
    for words in ("hello from a plugin", "hello once more", "hello from a program"):
        assert words in errors


COMMANDS = [
    "run llama Hello --max-tokens 2",
    "run llama --help",
    "list",
    "plugins",
    "show llama",
    "compare llama gpt2",
    "embed --help",
    "train --help",
    "evaluate --help",
    "doctor",
    "--help",
]


@pytest.mark.slow
def test_every_command_works_beside_them(wreck, folder):
    code = (
        "import contextlib, io, json, sys, warnings\nimport zoo.cli\n"
        "warnings.showwarning = lambda message, *_, **__: zoo.cli.notice(message)\n"
        "outputs = []\n"
        f"for line in {[*COMMANDS, f'run {folder()} Hello --max-tokens 2']!r}:\n"
        "    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), 'utf-8')) as output:\n"
        "        status = zoo.cli.cli.main(line.split(), 'zoo', standalone_mode=False)\n"
        "    output.flush()\n"
        "    outputs.append([line, status, output.buffer.getvalue().decode()])\n"
        "print(json.dumps(outputs))"
    )
    done = python(code, wreck)
    assert done.returncode == 0, done.stderr
    for line, status, output in json.loads(done.stdout):
        assert status in (None, 0) and output, line
    assert "nowhere:run" in done.stderr and "zoo's own command is used" in done.stderr
    assert "command 'list' is claimed by several plugins" in done.stderr
    for words in (
        "zoo_resolve: KeyError: 'mark'",
        "no-such-architecture",
        "SystemExit: 4",
        "KeyboardInterrupt: me",
    ):
        assert words in done.stderr


def test_a_command_that_is_not_there_is_one_line(wreck, command):
    done = command("gone", environment=wreck.environment)
    assert done.returncode == 1 and done.stdout == ""
    # What plugins print may end without a line's end.
    lines = done.stderr.splitlines()
    errors = [line for line in lines if "cannot import nowhere:gone" in line]
    assert len(errors) == 1 and all("hello" in line for line in lines if line not in errors)


def test_the_table_shows_the_error_and_debug_its_traceback(site, command):
    site.add("zoo-bad", "bad_plugin", "def fail():\n    raise RuntimeError('no luck')\nfail()")
    done = command("plugins", environment=site.environment)
    row = next(line for line in done.stdout.splitlines() if line.startswith("bad_plugin"))
    assert "zoo-bad 1.2" in row and "broken" in row and "RuntimeError: no luck" in row
    assert "Traceback" not in done.stdout
    done = command("plugins", "--debug", environment=site.environment)
    assert "Traceback" in done.stdout and "bad_plugin.py" in done.stdout and "in fail" in done.stdout


def test_a_broken_plugin_names_the_line_of_its_own_code(site):
    site.add("zoo-bad", "bad_plugin", "import json\n\njson.loads('{')")
    site.add("zoo-far", "far_plugin", HOOK + "def zoo_commands():\n    return 3")
    found = loaded()
    assert found["bad_plugin"].error.endswith("bad_plugin.py, line 3)")
    assert found["far_plugin"].error == "zoo_commands gave int, not Command records"


def loaded(environ=None):
    return {plugin.name: plugin for plugin in loader.load_plugins(environ or {})}


def test_strict_raises(site):
    site.add("zoo-bad", "bad_plugin", "raise RuntimeError('no luck')")
    with pytest.raises(PluginError, match=r"bad_plugin \(zoo-bad 1.2\): RuntimeError: no luck"):
        loaded({"ZOO_STRICT": "1"})
    assert loaded({"ZOO_STRICT": "0"})["bad_plugin"].state == "broken"


@pytest.mark.parametrize("after", ["", "except: pass", "except BaseException: raise RuntimeError"])
def test_ctrl_c_while_a_plugin_is_imported_ends_the_program(site, after):
    press = "import signal\ntry: signal.raise_signal(signal.SIGINT)\n"
    site.add("zoo-slow", "slow_plugin", f"{press}{after or 'finally: pass'}\nraise ValueError")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            loaded()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_allow_and_block_lists(site):
    site.add("zoo-good", "good_plugin", GOOD.format(name="good"))
    for names in ("llama, good_plugin", "llama,zoo-good"):
        found = loaded({"ZOO_PLUGINS": names})
        assert {p.name for p in found.values() if p.state == "loaded"} == {"llama", "good_plugin"}
        assert found["gpt2"].state == "blocked" and "ZOO_PLUGINS" in found["gpt2"].error
    for name in ("good_plugin", "zoo-good"):
        del sys.modules["good_plugin"]
        found = loaded({"ZOO_BLOCK": name})
        assert found["good_plugin"].state == "blocked" and found["llama"].state == "loaded"
        assert "good_plugin" not in sys.modules, "a blocked plugin is not even imported"
        assert loaded()["good_plugin"].gives == ["good"]
    with pytest.warns(UserWarning, match="'lama', which is not a plugin"):
        loaded({"ZOO_BLOCK": "lama"})


def test_a_mistake_in_a_plugins_code_is_one_line_that_names_it(site, command):
    code = GOOD.format(name="odd").replace("config: None", "config: config['a'] + {}")
    site.add(
        "zoo-odd",
        "odd_plugin",
        code.replace("weights=()", "weights=(), presets=(Preset('p', config={'a': 1}),)").replace(
            "import Architecture", "import Preset, Architecture"
        ),
        requires=["mlx-zoo>=99"],
    )
    done = command("show", "odd", environment=site.environment)
    assert done.returncode == 1 and done.stdout == ""
    line = f"plugin odd_plugin (it requires mlx-zoo>=99, and this is mlx-zoo {zoo.__version__}: upgrade mlx-zoo): TypeE"
    assert done.stderr.count("\n") == 1 and line in done.stderr and "odd_plugin.py, line 4)" in done.stderr
    assert "Traceback" in command("--debug", "show", "odd", environment=site.environment).stderr


def forgets_to_return(config):
    zoo_llama.llama(config)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (forgets_to_return, "forgets_to_return returned NoneType, not a recipe: does it lack a `return`?"),
        (lambda config: zoo_llama.llama, "<lambda> returned function, not a recipe"),
    ],
)
def test_a_recipe_function_that_returns_no_recipe_is_named(recipe, words):
    odd = replace(default_registry().architecture("llama"), name="odd", recipe=recipe)
    plugin = loader.Plugin("odd", "zoo-odd", records={"zoo_architectures": [odd]})
    known = Registry([plugin])
    for asked in (
        lambda: describe("odd:pocket", known),
        lambda: subject("odd", registry=known),
        lambda: zoo.load(odd.preset("pocket").folder, architecture=odd),
    ):
        with pytest.raises(PluginError, match="architecture odd: its recipe function") as raised:
            asked()
        assert str(raised.value).endswith(words)


def test_a_base_that_no_plugin_has_is_named():
    odd = replace(default_registry().architecture("llama"), name="odd", base="lama")
    known = Registry([loader.Plugin("odd", "zoo-odd", records={"zoo_architectures": [odd]})])
    with pytest.warns(UserWarning, match="odd: its base 'lama' is unknown"):
        assert base_of(describe("odd:pocket", known), known) is None


def test_running_a_plugins_model_says_whose_it_is(site, command):
    site.add(
        "zoo-mine",
        "mine_plugin",
        HOOK + "def zoo_architectures():\n    import dataclasses, zoo_llama\n"
        "    llama = next(zoo_llama.zoo_architectures())\n"
        "    yield dataclasses.replace(llama, name='mine', model_types=())\n",
    )
    done = command(
        "run", "mine", "The capital city of China is", "--max-tokens", "3", environment=site.environment
    )
    assert done.stdout.startswith(" Beijing")
    assert "zoo: mine is served by the plugin zoo-mine 1.2\n" in done.stderr
    assert "served by" not in command("run", "llama", "The", "--max-tokens", "1").stderr


def test_fifty_plugins_are_listed_without_mlx(site):
    for number in range(50):
        site.add(f"zoo-many-{number}", f"many_{number}", GOOD.format(name=f"many-{number}"))
    code = (
        "import sys, zoo.cli\n"
        "for name in ('plugins', 'list'): zoo.cli.cli.main([name], 'zoo', standalone_mode=False)\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('mlx', 'mlx_lm', 'torch', 'numpy')])"
    )
    done = python(code, site)
    *output, heavy = done.stdout.splitlines()
    assert sum(line.startswith("many") for line in output) == 100
    assert heavy == "[]"
