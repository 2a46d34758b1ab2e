"""What an installation must hold: every first-party plugin, loaded, and its embedded files."""

from zoo.registry import registry


def test_every_plugin_of_ours_is_loaded():
    ours = [plugin for plugin in registry().plugins if plugin.ours]
    assert {"gpt2", "llama"} <= {plugin.name for plugin in ours}
    assert [(plugin.name, plugin.error) for plugin in ours if plugin.state != "loaded"] == []


def test_every_embedded_checkpoint_is_complete():
    for name, architecture in registry().architectures.items():
        for preset in architecture.presets:
            if preset.folder is not None:
                files = {path.name for path in preset.folder.iterdir()}
                missing = {
                    "model.safetensors",
                    "config.json",
                    "tokenizer.json",
                    "training.json",
                    "accuracy.json",
                } - files
                assert not missing, f"{name}: {missing}"


def test_the_corpus_came_along():
    from zoo.training.atlas import countries

    assert len(countries()) == 194
