"""Names are never taken silently: two third parties ask for a choice, one beats the zoo's own and says so."""

import pytest

from zoo.architecture import (
    Architecture,
    Block,
    Command,
    Corpus,
    Objective,
    Preset,
    QuantizedFormat,
    Quantizer,
    Sampler,
    Setting,
    Strategy,
)
from zoo.architecture.settings import SHARED
from zoo.checkpoint.source import is_architecture, named_preset
from zoo.errors import ConfigError, PluginError, SourceError
from zoo.host.plugins import Plugin, load_plugins
from zoo.host.record_table import RecordTable
from zoo.host.registry import Registry, default_registry, using
from zoo.host.resolve import resolve
from zoo.recipe import LayerNorm, RMSNorm
from zoo.testing.subjects import numbers_of

FIRST_PARTY = [plugin for plugin in load_plugins({}) if plugin.first_party]


def architecture(name, *model_types):
    return Architecture(name, "", lambda config: None, (), model_types=model_types)


def plugin(distribution, *architectures, resolve=None, **records):
    """A loaded plugin of a third party."""
    given = {"zoo_architectures": list(architectures), "zoo_resolve": [resolve] if resolve else []} | records
    return Plugin(distribution, distribution, "1.2", records=given)


def known(*third_party):
    return Registry([*FIRST_PARTY, *third_party])


def test_a_third_partys_architecture_is_found_by_name_and_by_model_type():
    found = known(plugin("zoo-good", architecture("good", "good-type")))
    assert found.architecture("good") is found.architecture("zoo-good::good")
    assert resolve(found, {"model_type": "good-type"}).name == "good"
    assert "good" in found and "zoo-good::good" in found and "other" not in found
    with pytest.raises(ConfigError, match="'other'"):
        resolve(found, {"model_type": "other"})
    with pytest.raises(SourceError, match="zoo-other::good"):
        found.architecture("zoo-other::good")


def test_between_two_third_parties_neither_wins():
    found = known(plugin("zoo-one", architecture("same", "t")), plugin("zoo-two", architecture("same", "t")))
    with pytest.raises(
        PluginError, match=r"'same' is claimed by several.*ask for zoo-one::same or zoo-two::same"
    ):
        found.architecture("same")
    with pytest.raises(PluginError, match=r"model_type 't'.*`architecture` zoo-one::same or zoo-two::same"):
        resolve(found, {"model_type": "t"})
    assert {"zoo-one::same", "zoo-two::same"} <= set(found.architectures)
    assert "same" not in found.architectures
    assert found.plugin_of(found.architecture("zoo-two::same")).distribution == "zoo-two"


def test_two_architectures_of_one_model_type_are_told_by_their_own_names():
    found = known(plugin("zoo-one", architecture("a", "t")), plugin("zoo-two", architecture("b", "t")))
    with pytest.raises(PluginError, match="`architecture` zoo-one::a or zoo-two::b"):
        resolve(found, {"model_type": "t"})
    assert found.architecture("a").name == "a"


def with_alias(name, alias, preset="real"):
    presets = (Preset("first"), Preset(preset, hub="org/name", aliases=(alias,)))
    return Architecture(name, "", lambda config: None, (), presets=presets)


@pytest.mark.parametrize("alias", ["short", "short:1b"])
def test_an_alias_names_a_preset_without_its_architecture(alias):
    found = known(plugin("zoo-one", with_alias("long", alias)))
    for name in (alias, f"zoo-one::{alias}", "long:real"):
        assert is_architecture(name, found)
        architecture, preset = named_preset(name, found)
        assert (architecture.name, preset) == ("long", "real")
    assert alias not in found.architectures
    with pytest.raises(SourceError, match=f"did you mean .*{alias}"):
        named_preset("shot", found)
    with pytest.raises(SourceError, match=f"unknown architecture '{alias}'; it is the preset long:real"):
        found.architecture(alias)


def test_of_two_third_parties_with_one_alias_neither_gets_it():
    found = known(plugin("zoo-one", with_alias("a", "same")), plugin("zoo-two", with_alias("b", "same")))
    with pytest.raises(PluginError, match=r"alias 'same' is claimed.*zoo-one::same or zoo-two::same"):
        named_preset("same", found)
    assert named_preset("zoo-two::same", found)[0].name == "b"
    assert found.contested_names["alias/same"] == ["zoo-one::same", "zoo-two::same"]


def test_a_third_partys_alias_comes_before_the_zoos_and_an_architecture_before_both():
    found = known(plugin("zoo-mine", with_alias("mine", "smollm2")))
    with pytest.warns(UserWarning, match=r"'smollm2' is served by the plugin zoo-mine.*mlx-zoo::smollm2"):
        assert named_preset("smollm2", found)[0].name == "mine"
    found = known(plugin("zoo-mine", architecture("smollm2"), with_alias("mine", "smollm2")))
    assert named_preset("smollm2", found)[0].name == "smollm2"


@pytest.mark.parametrize("alias", ["a b", "a:b:c", "-a", "a::b", 3])
def test_an_alias_that_no_command_line_could_take_is_refused(alias):
    with pytest.raises(PluginError, match="alias"):
        with_alias("long", alias)


@pytest.mark.slow
def test_running_a_contested_name_asks_for_the_qualified_one(site, command):
    code = (
        "from zoo.architecture import hookimpl\n@hookimpl\ndef zoo_architectures():\n"
        "    import dataclasses, zoo_llama\n"
        "    yield dataclasses.replace(next(zoo_llama.zoo_architectures()), name='same')\n"
    )
    site.add("zoo-one", "one_plugin", code)
    site.add("zoo-two", "two_plugin", code)
    done = command("run", "same", "The", environment=site.environment)
    assert done.returncode == 1 and "ask for zoo-one::same or zoo-two::same" in done.stderr
    done = command("run", "zoo-two::same:pocket", "The", "--max-tokens", "1", environment=site.environment)
    assert done.returncode == 0 and "served by the plugin zoo-two 1.2" in done.stderr


def test_a_third_party_keeps_its_name_when_the_zoo_has_it_too():
    found = known(plugin("zoo-mine", architecture("llama", "gpt2")))
    with pytest.warns(UserWarning, match=r"'llama' is served by the plugin zoo-mine 1.2, .*mlx-zoo::llama"):
        assert found.plugin_of(found.architecture("llama")).distribution == "zoo-mine"
    with pytest.warns(
        UserWarning, match=r"model_type 'gpt2' is served by the plugin zoo-mine.*mlx-zoo::gpt2"
    ):
        assert resolve(found, {"model_type": "gpt2"}).name == "llama"
    assert found.plugin_of(found.architecture("mlx-zoo::llama")).first_party
    assert found.architectures["mlx-zoo::llama"] is not found.architectures["llama"]


def test_two_third_parties_and_the_zoo():
    found = known(plugin("zoo-one", architecture("llama")), plugin("zoo-two", architecture("llama")))
    with pytest.raises(PluginError, match="zoo-one::llama or zoo-two::llama"):
        found.architecture("llama")
    assert found.plugin_of(found.architecture("mlx-zoo::llama")).first_party


def marks(key, name):
    return lambda config: name if config.get(key) else None


def test_zoo_resolve_is_asked_before_model_types():
    found = known(plugin("zoo-good", architecture("good"), resolve=marks("mark", "good")))
    with pytest.warns(UserWarning, match="model_type 'llama' is served by the plugin zoo-good"):
        assert resolve(found, {"model_type": "llama", "mark": 1}).name == "good"
    assert resolve(found, {"mark": 1}).name == "good"
    assert resolve(found, {"model_type": "llama"}).name == "llama"
    with pytest.raises(ConfigError, match="model_type is missing"):
        resolve(found, {"other": 1})


@pytest.mark.parametrize("architecture", default_registry().architectures.values(), ids=lambda one: one.name)
def test_a_config_that_training_writes_leads_back_to_the_architecture(architecture):
    numbers = {"model_type": (architecture.model_types or [architecture.name])[0], **numbers_of(architecture)}
    assert resolve(default_registry(), numbers).name == architecture.name


def test_two_resolvers_that_differ_ask_for_a_choice():
    one = plugin("zoo-one", architecture("a"), resolve=marks("mark", "a"))
    two = plugin("zoo-two", architecture("b"), resolve=marks("mark", "b"))
    with pytest.raises(PluginError, match="zoo-one::a or zoo-two::b"):
        resolve(known(one, two), {"model_type": "x", "mark": 1})
    agreeing = plugin("zoo-two", resolve=marks("mark", "a"))
    assert resolve(known(one, agreeing), {"mark": 1}).name == "a"


def test_a_resolver_means_its_own_architecture_and_may_name_one_of_the_zoos():
    own = plugin("zoo-one", architecture("llama"), resolve=marks("mark", "llama"))
    found = known(own, plugin("zoo-two", architecture("llama")))
    assert found.plugin_of(resolve(found, {"mark": 1})).distribution == "zoo-one"
    assert resolve(known(plugin("zoo-odd", resolve=marks("mark", "llama"))), {"mark": 1}).name == "llama"


def test_a_later_resolver_of_the_zoo_takes_no_model_type_from_a_plugin():
    later = Plugin("later", "mlx-zoo", records={"zoo_resolve": [lambda config: "llama"]})
    found = Registry([*FIRST_PARTY, later, plugin("zoo-mine", architecture("mine", "mine"))])
    assert resolve(found, {"model_type": "mine"}).name == "mine"
    assert resolve(found, {"model_type": "unknown"}).name == "llama"


def test_a_resolver_that_fails_is_passed_over_or_raises_when_strict(monkeypatch):
    def fails(config):
        raise ValueError("odd")

    found = known(plugin("zoo-bad", resolve=fails))
    with pytest.warns(UserWarning, match="plugin zoo-bad: zoo_resolve: ValueError: odd; it is skipped"):
        assert resolve(found, {"model_type": "llama"}).name == "llama"
    monkeypatch.setenv("ZOO_STRICT", "1")
    with pytest.raises(PluginError, match="zoo-bad: zoo_resolve: ValueError"):
        resolve(found, {"model_type": "llama"})


class Other(RMSNorm):
    name = "layernorm"


def test_blocks_follow_the_same_rule():
    third_party = plugin("zoo-mine", zoo_blocks=[Block(Other, "json:loads")])
    found = known(third_party)
    with pytest.warns(UserWarning, match="block 'norm/layernorm' is served by the plugin zoo-mine"):
        assert found.block("norm/layernorm").spec is Other
    assert found.block("mlx-zoo::norm/layernorm").spec is LayerNorm
    assert found.module(LayerNorm).__name__ == "LayerNorm" and found.module(Other) is __import__("json").loads
    with pytest.raises(PluginError, match="no block 'norm/none'"):
        found.block("norm/none")


def test_nobody_elses_module_runs_a_block_of_ours():
    third_party = plugin("aaa", zoo_blocks=[Block(LayerNorm, "json:loads")])
    with pytest.warns(UserWarning, match="json:loads is skipped"):
        found = Registry([third_party, *FIRST_PARTY])
    assert found.module(LayerNorm).__name__ == "LayerNorm"


def strategy(name, *options, tasks=("generate",)):
    settings = tuple(name if name in SHARED else Setting(name, int) for name in options)
    return Strategy(name, "json:loads", tasks, settings)


def test_a_third_partys_strategy_runs_nothing_unasked():
    found = known(plugin("aaa", zoo_strategies=[strategy("mine", "max_tokens", "special")]))
    assert found.strategy("generate").name == "autoregressive"
    assert found.strategy("generate", ["beams"]).name == "beam"
    assert found.strategy("denoise").name == "masked-diffusion"
    assert found.strategy("generate", name="mine").name == "mine"
    assert found.strategy("generate", ["special"]).name == "mine"
    with pytest.raises(PluginError, match=r"'mine'.*'translate'; known: beam"):
        found.strategy("translate", name="mine")


def test_an_architecture_is_run_by_its_own_plugins_strategy():
    own = architecture("good")
    found = known(plugin("zoo-good", own, zoo_strategies=[strategy("mine")]))
    assert found.strategy("generate", architecture=own).name == "mine"
    assert found.strategy("generate", architecture=found.architecture("llama")).name == "autoregressive"


def test_between_two_third_parties_strategies_one_is_asked_for():
    found = known(
        plugin("zoo-one", zoo_strategies=[strategy("a", "special")]),
        plugin("zoo-two", zoo_strategies=[strategy("b", "special")]),
    )
    with pytest.raises(PluginError, match="zoo-one::a or zoo-two::b"):
        found.strategy("generate", ["special"])
    with pytest.raises(PluginError, match="no strategy serves the task 'encode'"):
        found.strategy("encode")


def test_a_record_of_a_plugins_own_subclass_is_its_plugins():
    class Own(Architecture):
        pass

    mine = Own("own", "", lambda config: None, ())
    found = known(plugin("zoo-own", mine))
    assert found.plugin_of(found.architecture("own")).distribution == "zoo-own"


def test_every_kind_that_is_asked_for_by_name_is_marked_when_contested():
    def records():
        target = "json:loads"
        return {
            "zoo_architectures": [architecture("same")],
            "zoo_strategies": [strategy("same")],
            "zoo_samplers": [Sampler("same", target)],
            "zoo_corpora": [Corpus("same", target, ("generate",))],
            "zoo_objectives": [Objective("same", target, ("generate",))],
            "zoo_commands": [Command("same", target)],
            "zoo_formats": [QuantizedFormat("same", target)],
            "zoo_quantizers": [Quantizer("same", target)],
        }

    one, two = (Plugin(name, name, records=records()) for name in ("zoo-one", "zoo-two"))
    found = known(one, two).contested_names
    assert sorted(found) == [
        *("corpus/same", "objective/same", "quantizer/same", "same", "sampler/same", "strategy/same"),
        "zoo same",
    ]
    assert set(found) <= set(one.gives)
    assert found["zoo same"] == ["zoo-one::same", "zoo-two::same"]
    assert found["sampler/same"] == ["zoo-one::same", "zoo-two::same"]


def test_a_registry_in_use_is_the_one_for_all():
    apart = Registry([])
    with using(apart):
        assert default_registry() is apart
    assert default_registry() is not apart and "llama" in default_registry()


def test_one_distribution_that_claims_a_name_twice_is_asked_about():
    claims = RecordTable("architecture", "ask for")
    for name in ("one", "two"):
        claims.add("same", Plugin(name, "zoo-both"), architecture(name))
    with pytest.raises(PluginError, match="several"):
        claims.get("same")
