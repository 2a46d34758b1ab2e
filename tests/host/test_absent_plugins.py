"""A folder whose plugin is blocked, broken or gone says which it needs; what is contested or too new is marked."""

import json
import warnings
from pathlib import Path

import pytest

import zoo
from tests.helpers import gguf_files
from zoo.checkpoint.convert import convert, save
from zoo.checkpoint.gguf.gguf_checkpoint import GGUFCheckpoint
from zoo.checkpoint.source import find
from zoo.config import Config
from zoo.errors import ConfigError, PluginError, RecipeError, SourceError
from zoo.host.plugins import load_plugins
from zoo.host.registry import Registry, default_registry, using
from zoo.host.resolve import recipe_from_json, resolve
from zoo.loading import Loaded
from zoo.testing import subject, subject_of

PLUGIN = """
from dataclasses import replace
import zoo_llama
from zoo.architecture import hookimpl

@hookimpl
def zoo_architectures():
    llama = next(zoo_llama.zoo_architectures())
    yield replace(llama, name="humming", model_types=("humming",), base="llama")
"""


CONFIG = {"model_type": "humming", "zoo_plugin": "zoo-humming 1.2"}


@pytest.fixture
def humming(site):
    """A third party's plugin, installed."""
    site.add("zoo-humming", "humming_plugin", PLUGIN)
    return site


def refusal(config, **environment):
    """Why nothing serves a config when plugins are loaded so."""
    with pytest.raises(ConfigError) as raised:
        resolve(Registry(load_plugins(environment)), config)
    return str(raised.value)


def test_a_folder_says_which_plugin_wrote_it(humming, folder, tmp_path):
    source = folder("llama", changes={"model_type": "humming"}, tokenizer=False)
    known = Registry(load_plugins({}))
    with using(known):
        convert(source, tmp_path / "converted")
        loaded = zoo.load(source)
        save(tmp_path / "saved", loaded.model, loaded.architecture, loaded.recipe, loaded.config)
        ours = default_registry().architecture("llama")
        save(tmp_path / "ours", loaded.model, ours, loaded.recipe, {})
    for name, writer in (("converted", "zoo-humming 1.2"), ("saved", "zoo-humming 1.2"), ("ours", None)):
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert config.get("zoo_plugin") == writer, name


def test_a_blocked_plugin_is_named(humming):
    line = refusal(CONFIG, ZOO_BLOCK="zoo-humming")
    assert line == (
        "config.json: model_type 'humming' is of the plugin humming_plugin (zoo-humming 1.2), "
        "which is blocked: ZOO_BLOCK names it"
    )
    with pytest.raises(SourceError, match="unknown architecture 'humming'; the plugin humming_plugin"):
        Registry(load_plugins({"ZOO_PLUGINS": "mlx-zoo"})).architecture("humming")


def test_the_command_names_it(humming, command):
    done = command("run", "humming", "hi", environment=humming.environment | {"ZOO_BLOCK": "humming_plugin"})
    assert done.returncode == 1
    assert "'humming' is no architecture, folder or hub id; the plugin humming_plugin" in done.stderr


def test_a_broken_plugin_is_named_with_its_error(humming):
    (humming.path / "humming_plugin.py").write_text(PLUGIN + "\n1 / 0\n")
    assert "the plugin humming_plugin (zoo-humming 1.2), which is broken: ZeroDivisionError" in refusal(
        CONFIG
    )


BROKEN_PLUGIN = """
from dataclasses import replace
import not_there
import zoo_llama
from zoo.architecture import hookimpl

@hookimpl
def zoo_architectures():
    yield replace(next(zoo_llama.zoo_architectures()), name="gran" + "ite", model_types=TYPES)
"""


@pytest.mark.parametrize("name", ["humming", "zoo-humming", "zoo_humming", "Humming", "zoo-humming::other"])
def test_a_broken_plugin_is_named_when_it_is_asked_for_by_its_own_name(site, name):
    site.add("zoo-humming", "zoo_humming", BROKEN_PLUGIN)
    known = Registry(load_plugins({}))
    line = r"the plugin zoo_humming \(zoo-humming 1.2\) is broken and not loaded: ModuleNotFoundError"
    with pytest.raises(SourceError, match=line):
        known.architecture(name)
    with pytest.raises(SourceError, match=line):
        find(f"{name}:tiny", known)
    assert "did you mean" in known.suggestion("lama")


def test_what_no_plugin_has_names_the_plugins_that_are_not_loaded(site):
    site.add("zoo-odd", "odd_plugin", "def broken(:\n")
    line = "'hum' is of no architecture that the zoo has; the plugin odd_plugin (zoo-odd 1.2) "
    assert f"{line}is broken and not loaded: SyntaxError" in refusal({"model_type": "hum"})
    known = Registry(load_plugins({}))
    with pytest.raises(SourceError, match="unknown architecture 'qqqq'; the plugin odd_plugin"):
        known.architecture("qqqq")
    # The name may be one that the plugin would have given.
    not_loaded = "(the plugin odd_plugin is not loaded: `zoo plugins` says why)"
    assert known.suggestion("lama") == f"; did you mean llama or llama4? {not_loaded}"
    both = refusal({"model_type": "hum"}, ZOO_BLOCK="rnn")
    assert both.endswith("the plugins rnn, odd_plugin are not loaded: `zoo plugins` says why")
    alone = refusal({"model_type": "hum"}, ZOO_PLUGINS="llama")
    assert alone.endswith("is of no architecture that the zoo has")


def test_the_zoos_own_says_that_it_runs_what_a_broken_plugin_wrote(site):
    site.add("zoo-odd", "odd_plugin", "import not_there")
    known = Registry(load_plugins({}))
    line = r"odd_plugin .*not_there' .*line 1\); the zoo's own llama runs it instead"
    with pytest.warns(UserWarning, match=line):
        assert resolve(known, {"model_type": "llama", "zoo_plugin": "zoo-odd 1.1"}).name == "llama"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolve(known, {"model_type": "llama"}).name == "llama"


def bridged_folder(known, model_type):
    """A folder of `model_type`, loaded as mlx-lm's code runs it; its model is never called."""
    recipe = subject("llama").recipe
    config = {"model_type": model_type}
    return Loaded(None, None, known.bridged["mlx-lm::helium"], recipe, config, Path("it"), registry=known)


def test_mlx_lms_code_is_not_tested_in_the_place_of_a_broken_plugin(site):
    site.add("zoo-nemotron", "nemotron_plugin", BROKEN_PLUGIN)
    known = Registry(load_plugins({}))
    with pytest.raises(
        PluginError,
        match=r"it: model_type 'nemotron' is of the plugin nemotron_plugin .* is not tested",
    ):
        subject_of(bridged_folder(known, "nemotron"))
    with pytest.warns(UserWarning, match="mlx-lm's code is tested, without the plugin nemotron_plugin"):
        assert subject_of(bridged_folder(known, "humming")).trained
    blocked = Registry(load_plugins({"ZOO_BLOCK": "zoo-nemotron"}))
    assert subject_of(bridged_folder(blocked, "nemotron")).trained


def test_a_plugin_that_is_gone_is_named():
    assert refusal(CONFIG) == (
        "config.json: model_type 'humming' is of the plugin zoo-humming 1.2, by which this folder was written "
        "and which is not installed"
    )


@pytest.mark.parametrize(
    ("model_type", "code"), [("helium", "mlx-lm's code"), ("llama", "the zoo's own llama")]
)
def test_what_takes_the_place_of_a_plugin_that_is_gone_is_told(model_type, code):
    config = {"model_type": model_type, "zoo_plugin": "zoo-humming 1.2"}
    with pytest.warns(UserWarning, match=f"zoo-humming 1.2, .* not installed; {code} runs it instead"):
        resolve(Registry(load_plugins({})), config)


@pytest.mark.parametrize("writer", ["\x1b[31mevil\nline", "x" * 300, 7, None, "mlx-zoo 0.1"])
def test_what_no_plugin_is_called_is_not_repeated(writer):
    assert refusal(CONFIG | {"zoo_plugin": writer}).endswith("is of no architecture that the zoo has")


def test_one_of_the_zoos_own_that_is_blocked():
    assert "the plugin rnn (mlx-zoo" in refusal({"model_type": "lstm"}, ZOO_BLOCK="rnn")
    with pytest.warns(
        UserWarning, match="which is blocked: ZOO_BLOCK names it; mlx-lm's code runs it instead"
    ):
        found = resolve(Registry(load_plugins({"ZOO_BLOCK": "llama"})), {"model_type": "llama"})
    assert found.name == "mlx-lm::llama"


def test_a_gguf_file_names_it_too(tmp_path):
    gguf_files.write(
        tmp_path / "model.gguf", default_registry().architecture("llama").preset("pocket").folder
    )
    known = Registry(load_plugins({"ZOO_BLOCK": "llama,mixtral,gemma"}))
    with pytest.raises(ConfigError, match="that the zoo reads from GGUF; it is named by the plugin"):
        assert GGUFCheckpoint(tmp_path / "model.gguf", registry=known).architecture


def test_a_recipe_names_the_plugin_that_has_its_block():
    mamba = default_registry().architecture("mamba")
    recipe = mamba.recipe(Config(mamba.preset("pocket").config)).to_json()
    known = Registry(load_plugins({"ZOO_BLOCK": "mamba"}))
    with pytest.raises(RecipeError) as raised:
        recipe_from_json(recipe, known)
    where, _, line = str(raised.value).partition(": ")
    assert where == "layers.0.block"
    assert line.startswith("no installed plugin has the block 'layer/mixer-only'; the plugin mamba ")
    assert line.endswith(") is blocked and not loaded: ZOO_BLOCK names it")
    with pytest.raises(ConfigError, match=r"config.json: recipe\.layers\.0\.block: no .*'layer/mixer-only'"):
        resolve(known, {"model_type": "zoo-recipe", "recipe": recipe})


def states(command, site):
    done = command("plugins", "--json", environment=site.environment)
    return {found["name"]: found for found in json.loads(done.stdout)}


NEWER_RECORD = "from zoo.architecture import Preset, Rename\nPreset('x', colour=1)\n"
NEWER_VALUE = """
from zoo.architecture import Architecture, hookimpl

@hookimpl
def zoo_architectures():
    yield Architecture("new", "", len, (), task="summarise")
"""


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (NEWER_RECORD, "TypeError: Preset.__init__() got an unexpected keyword argument 'colour'"),
        (NEWER_VALUE, "architecture new: task 'summarise' is not one of"),
    ],
)
def test_a_plugin_that_fails_and_requires_a_later_zoo_is_incompatible_by_that_requirement(site, code, why):
    site.add("zoo-new", "new_plugin", code, requires=["numpy", "mlx_zoo >=99.1 ; python_version > '3'"])
    site.add("zoo-wrong", "wrong_plugin", code, requires=["mlx-zoo>=0.1", "mlx-zoo>99; python_version < '3'"])
    site.add("zoo-damaged", "damaged_plugin", code, requires=["mlx-zoo >>> 3"])
    site.add("zoo-lacking", "lacking_plugin", code, requires=["numpy", "no-such-package>=2"])
    found = {plugin.name: plugin for plugin in load_plugins({})}
    assert found["new_plugin"].state == "incompatible"
    line = f"it requires mlx-zoo>=99.1, and this is mlx-zoo {zoo.__version__}: upgrade mlx-zoo ({why}"
    assert found["new_plugin"].error.startswith(line)
    line = f"it requires no-such-package>=2, which is not installed ({why}"
    assert found["lacking_plugin"].state == "broken" and found["lacking_plugin"].error.startswith(line)
    for name in ("wrong_plugin", "damaged_plugin"):
        assert found[name].state == "broken" and found[name].error.startswith(why)


@pytest.mark.slow
def test_contested_names_are_marked(site, command):
    code = (
        PLUGIN
        + "\n@hookimpl\ndef zoo_commands():\n    from zoo.architecture import Command\n    yield Command('hum', 'm:f')\n"
    )
    site.add("zoo-one", "one_plugin", code)
    site.add("zoo-two", "two_plugin", code)
    shown = command("plugins", environment=site.environment).stdout
    assert shown.count("humming*") == 2 and shown.count("zoo hum*") == 2
    assert (
        "* humming is claimed by several plugins, and neither has it: ask for zoo-one::humming or zoo-two::humming"
        in shown
    )
    assert "ask for zoo zoo-one::hum or zoo zoo-two::hum" in shown
    site.add(
        "zoo-three",
        "three_plugin",
        PLUGIN.replace('name="humming"', 'name="third"').replace("humming", "shared"),
    )
    site.add(
        "zoo-four",
        "four_plugin",
        PLUGIN.replace('name="humming"', 'name="fourth"').replace("humming", "shared"),
    )
    shown = command("plugins", environment=site.environment).stdout
    assert "* model_type shared is claimed by several plugins" in shown
    assert "ask for --architecture zoo-four::fourth or --architecture zoo-three::third" in shown
    found = states(command, site)
    assert found["one_plugin"]["contested"] == ["humming", "zoo hum"] and found["llama"]["contested"] == []
