"""What an installation must hold: every first-party plugin, loaded, and its embedded files."""

from zoo.host.registry import default_registry

# Named one by one, so that one left out of a package is missed.
EMBEDDED = {
    *("gpt2", "gpt2-postln", "llama", "qwen3", "gemma2", "mixtral", "qwen3-moe", "gpt-oss"),
    *("transformer", "gru", "lstm", "deepseek-v3", "prefix-lm", "mamba", "llada", "bert"),
}


def test_every_plugin_of_ours_is_loaded():
    ours = [plugin for plugin in default_registry().plugins if plugin.first_party]
    assert {"gpt2", "llama"} <= {plugin.name for plugin in ours}
    assert [(plugin.name, plugin.error) for plugin in ours if plugin.state != "loaded"] == []


def test_every_embedded_checkpoint_is_there_and_complete():
    found = set()
    for name, architecture in default_registry().architectures.items():
        for preset in architecture.presets:
            if preset.embedded:
                found.add(name)
                files = {path.name for path in preset.folder.iterdir()}
                wanted = {
                    "model.safetensors",
                    "config.json",
                    "tokenizer.json",
                    "training.json",
                    "accuracy.json",
                }
                assert not wanted - files, f"{name}: {wanted - files}"
    assert found == EMBEDDED


def test_the_corpus_came_along():
    from zoo_corpora.atlas import countries

    assert len(countries()) == 194


def test_type_checkers_are_told_that_there_are_types():
    from importlib.resources import files

    assert (files("zoo") / "py.typed").is_file()
