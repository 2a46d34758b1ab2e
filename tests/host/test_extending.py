"""What a plugin brings besides architectures: the page's sampler, tokenizer and quantized format, and the zoo's own."""

import os
import subprocess
import sys
from collections import Counter

import mlx.core as mx
import numpy as np
import pytest

import zoo
from zoo.architecture import QuantizedFormat, Sampler, Setting, TokenizerFormat
from zoo.architecture.setting import checked_settings
from zoo.errors import ConfigError, PluginError, PromptError, ZooError
from zoo.host.plugins import Plugin, load_plugins
from zoo.host.registry import Registry, default_registry, isolated, using

PROMPT = "The capital city of China is"


@pytest.fixture
def extras(extending, monkeypatch):
    """A registry that has the page's plugin."""
    monkeypatch.syspath_prepend(str(extending.path))
    import zoo_extras

    with using(isolated(zoo_extras)) as known:
        yield known
    for name in [name for name in sys.modules if name.startswith("zoo_extras")]:
        del sys.modules[name]


def test_a_plugins_sampler_narrows_the_draw(extras):
    loaded = zoo.load("llama")
    ids = {
        zoo.generate(
            loaded, PROMPT, max_tokens=1, temperature=50.0, seed=s, samplers={"at-least": {"share": 1}}
        ).tokens[0]
        for s in range(5)
    }
    assert ids == {zoo.generate(loaded, PROMPT, max_tokens=1).tokens[0]}
    free = {zoo.generate(loaded, PROMPT, max_tokens=1, temperature=50.0, seed=s).tokens[0] for s in range(5)}
    assert len(free) > 1


def test_a_stateful_sampler_follows_each_text(extras):
    loaded = zoo.load("llama")
    settings = dict(max_tokens=12, samplers={"no-echo": {"rest": 3}}, temperature=2.0, top_k=4)
    tokens = zoo.generate(loaded, "One", seed=1, **settings).tokens
    assert all(token not in tokens[max(at - 3, 0) : at] for at, token in enumerate(tokens))
    free = zoo.generate(loaded, "One", seed=1, **settings | {"samplers": {}}).tokens
    assert any(token in free[max(at - 3, 0) : at] for at, token in enumerate(free))
    # Texts side by side each have one of their own.
    engine = zoo.Engine(loaded)
    handles = [engine.add("One", seed=seed, **settings) for seed in (1, 2)]
    found = {handle: [] for handle in handles}
    for handle, step in engine.run():
        found[handle].append(step.token)
    assert found[handles[0]] == tokens != found[handles[1]]


def test_a_stateful_sampler_is_traced_as_it_ran(extras):
    loaded = zoo.load("llama")
    settings = dict(max_tokens=6, samplers={"no-echo": {"rest": 3}}, temperature=2.0, top_k=4, seed=1)
    trace = zoo.trace(loaded, "One", **settings)
    assert trace.tokens == zoo.generate(loaded, "One", **settings).tokens
    for at, choice in enumerate(trace.choices(loaded.recipe.embedding.vocab)):
        assert choice.stages[-1].name == "no-echo"
        after = dict(zip(choice.candidates, choice.stages[-1].probabilities, strict=True))
        assert not any(after[token] for token in trace.tokens[max(at - 3, 0) : at])


def test_a_processor_of_the_page_acts_in_a_greedy_run_and_in_a_beam_search(extras):
    loaded = zoo.load("llama")
    for more in ({}, dict(beams=2)):
        settings = dict(max_tokens=12, min_tokens=12, samplers={"rare": {"times": 1}}, **more)
        tokens = [
            *loaded.tokenizer.encode("One of the"),
            *zoo.generate(loaded, "One of the", **settings).tokens,
        ]
        assert len({*tokens}) == len(tokens)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("breaks", "sampler wrong: ValueError: no idea"),
        ("shrinks", r"sampler wrong returned \(1, 3\), expected logits \(1, \d+\)"),
        ("forgets", "sampler wrong returned NoneType, expected logits"),
    ],
)
def test_a_sampler_that_goes_wrong_is_named(monkeypatch, target, said):
    monkeypatch.setitem(sys.modules, "zoo_wrong", sys.modules[__name__])
    plugin = Plugin("p", records={"zoo_samplers": [Sampler("wrong", f"zoo_wrong:{target}")]})
    loaded = zoo.load("llama", registry=with_plugins(plugin))
    with pytest.raises(PluginError, match=said):
        zoo.generate(loaded, PROMPT, samplers={"wrong": {}})


@pytest.mark.parametrize("target", ["removes_all", "undefined"])
def test_a_sampler_that_leaves_no_token_is_named(monkeypatch, target):
    monkeypatch.setitem(sys.modules, "zoo_wrong", sys.modules[__name__])
    samplers = [Sampler("wrong", f"zoo_wrong:{target}"), Sampler("sound", "zoo_wrong:keeps")]
    loaded = zoo.load("llama", registry=with_plugins(Plugin("p", records={"zoo_samplers": samplers})))
    with pytest.raises(ZooError, match=r"token 1: no token is left to choose: sampler wrong$"):
        zoo.generate(loaded, PROMPT, samplers={"sound": {}, "wrong": {}})
    assert zoo.generate(loaded, PROMPT, samplers={"sound": {}}, max_tokens=2).tokens


def removes_all(logits):
    return mx.full(logits.shape, -mx.inf)


def undefined(logits):
    return logits * mx.nan


def keeps(logits):
    return mx.where(logits == logits.max(), logits, -mx.inf)


def breaks(logits):
    raise ValueError("no idea")


def shrinks(logits):
    return logits[:, :3]


def forgets(logits):
    """Gives nothing back."""


def test_a_sampler_alone_draws(extras):
    loaded = zoo.load("llama")
    prompt, settings = "The", {"at-least": {"share": 0.0}}
    drawn = {
        zoo.generate(loaded, prompt, max_tokens=1, seed=s, samplers=settings).tokens[0] for s in range(20)
    }
    assert len(drawn) > 1


@pytest.mark.parametrize(
    ("samplers", "said"),
    [
        ({"at-least": {"share": 2.0}}, "`share` must be a number from 0 to 1, got 2.0"),
        ({"at-least": {"share": "much"}}, "`share` must be a number"),
        ({"at-least": {"share": True}}, "`share` must be a number"),
        ({"at-least": {"share": float("nan")}}, "`share` must be a number"),
        ({"at-least": {"shared": 0.5}}, "no setting 'shared'; did you mean share"),
        ("at-least", "`samplers` must be settings by a sampler's name"),
        ({"at-least": 0.5}, "`samplers` must be settings by a sampler's name"),
    ],
)
def test_what_a_sampler_does_not_take_is_refused_before_the_first_token(extras, samplers, said):
    with pytest.raises(PromptError, match=said):
        zoo.stream(zoo.load("llama"), PROMPT, samplers=samplers)


def test_a_sampler_that_is_none(extras):
    with pytest.raises(PluginError, match="no sampler 'nothing'; there are: at-least"):
        zoo.stream(zoo.load("llama"), PROMPT, samplers={"nothing": {}})


def test_a_strategy_without_samplers_says_so(extras):
    with pytest.raises(PromptError, match="`samplers`: contrastive generation has no such setting"):
        zoo.stream(zoo.load("llama"), PROMPT, strategy="contrastive", samplers={"at-least": {}})


@pytest.mark.slow
def test_the_sampler_of_the_command(extending, command):
    how = dict(environment=extending.environment)
    done = command("run", "llama", PROMPT, "--max-tokens", "4", "--sampler", "at-least:share=1.0", **how)
    assert done.returncode == 0 and done.stdout.startswith(" Beijing"), done.stderr
    for wrong, said in (
        ("at-least:share=3", "from 0 to 1"),
        ("at-least:part=3", "'part=3'"),
        ("at-most", "at-most"),
    ):
        done = command("run", "llama", PROMPT, "--sampler", wrong, **how)
        assert done.returncode != 0 and said in done.stderr and done.stdout == ""
        assert len(done.stderr.strip().splitlines()) == 1
    listed = command("plugins", **how).stdout
    assert "sampler/at-least" in listed and "tokenizer/words" in listed and "format/int8-rows" in listed


def test_a_plugins_tokenizer_serves_the_folders_with_its_files(extras, folder):
    path = folder()
    (path / "words.txt").write_text("what\nthe\ncat\nsaw\n", encoding="utf-8")
    loaded = zoo.load(path)
    assert loaded.tokenizer.encode("the dog saw the cat") == [1, 0, 3, 1, 2]
    assert loaded.tokenizer.decode([1, 2]) == "the cat"
    generated = zoo.generate(loaded, "the cat", max_tokens=5)
    assert generated.text == loaded.tokenizer.decode([id for id in generated.tokens if id < 4])


def with_plugins(*third_party):
    """A registry of the zoo's own plugins and these."""
    return Registry([*load_plugins({"ZOO_PLUGINS": "mlx-zoo"}), *third_party])


def test_two_tokenizers_of_one_folder_are_both_named(folder):
    path = folder()
    (path / "words.txt").write_text("a\n")
    format = TokenizerFormat("words", "nowhere:read", files=("words.txt",))
    third_party = [
        Plugin(name, name, records={"zoo_tokenizers": [format]}) for name in ("zoo-one", "zoo-two")
    ]
    with pytest.raises(PluginError, match="zoo-one::words and zoo-two::words both serve it"):
        zoo.load(path, registry=with_plugins(*third_party))


def empty(folder, settings):
    """A plugin's function that gives no tokenizer."""
    return {}


def test_a_tokenizers_function_that_returns_something_else(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "zoo_empty", sys.modules[__name__])
    path = folder()
    (path / "words.txt").write_text("a\n")
    plugin = Plugin(
        "p", records={"zoo_tokenizers": [TokenizerFormat("e", "zoo_empty:empty", ("words.txt",))]}
    )
    with pytest.raises(PluginError, match=r"zoo_empty:empty gave dict, not a zoo\.tokenizer\.Backend"):
        zoo.load(path, registry=with_plugins(plugin))


def test_a_plugins_quantized_format_is_read(extras, folder):
    path = folder(changes={"quantization_config": {"quant_method": "int8-rows"}})
    tensors = mx.load(str(path / "model.safetensors"))
    expected = {}
    for name in [name for name, array in tensors.items() if name.endswith("_proj.weight")]:
        weight = np.array(tensors[name].astype(mx.float32))
        scale = np.abs(weight).max(axis=1, keepdims=True) / 127
        codes = np.round(weight / scale).astype(np.int8)
        tensors[name], tensors[f"{name}_scale"] = mx.array(codes), mx.array(scale)
        expected[name] = codes * scale
    mx.save_safetensors(str(path / "model.safetensors"), tensors, metadata={"format": "pt"})
    model = zoo.load(path).model
    layer = model.layers[0].mixer.query
    assert layer.bits == 8 and layer.weight.dtype == mx.uint32
    found = mx.dequantize(layer.weight, layer.scales, layer.biases, layer.group_size, layer.bits)
    assert np.allclose(np.array(found), expected["model.layers.0.self_attn.q_proj.weight"], atol=1e-6)
    del tensors["model.layers.0.self_attn.q_proj.weight"]
    mx.save_safetensors(str(path / "model.safetensors"), tensors)
    with pytest.raises(zoo.ZooError, match="q_proj"):
        zoo.load(path)


def test_a_format_that_nobody_brings(folder):
    path = folder(changes={"quantization_config": {"quant_method": "int8-rows"}})
    with pytest.raises(
        ConfigError, match=r"'int8-rows' cannot be loaded; known: MLX's own, auto-round, .*mxfp8"
    ):
        zoo.load(path)


def test_a_format_that_two_plugins_bring(folder):
    path = folder(changes={"quantization_config": {"quant_method": "same"}})
    third_party = [
        Plugin(name, name, records={"zoo_formats": [QuantizedFormat("same", "nowhere:read")]})
        for name in ("zoo-one", "zoo-two")
    ]
    with pytest.raises(PluginError, match=r"'same' is claimed by several plugins.*zoo-one::same"):
        zoo.load(path, registry=with_plugins(*third_party))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Setting("Share", float), "small letters"),
        (lambda: Setting("share", list), "is not int, float, bool, str, dict, tuple, Callable or object"),
        (
            lambda: Setting("share", float, 2.0, maximum=1),
            "its default: `share` must be a number of at most 1",
        ),
        (lambda: Setting("pair", tuple), "items are those of the kind tuple"),
        (lambda: Setting("share", float, items=(Setting("n", int),)), "items are those of the kind tuple"),
        (lambda: Sampler("x", "nowhere"), "package.module:attribute"),
        (lambda: Sampler("x", "a.b:c", ["s"]), "settings is a tuple of Setting"),
        (lambda: Sampler("x", "a.b:c", stateful="yes"), "stateful is True or False"),
        (lambda: TokenizerFormat("x", "a.b:c", files=()), "files names none"),
        (lambda: QuantizedFormat("", "a.b:c"), "its name is the quant_method"),
    ],
)
def test_a_record_that_is_wrong_is_refused_when_it_is_made(make, said):
    with pytest.raises(PluginError, match=said):
        make()


def test_settings_are_parsed_from_text_and_have_defaults():
    declared = (Setting("n", int, 3, minimum=1), Setting("on", bool, False), Setting("name", str, "a"))
    assert [s.parsed(t) for s, t in zip(declared, ("5", "TRUE", "b"), strict=True)] == [5, True, "b"]
    assert checked_settings("it", declared, {"n": 4}) == {"n": 4, "on": False, "name": "a"}
    for setting, text in zip(declared, ("0", "yes", "b"), strict=True):
        if setting.kind is not str:
            with pytest.raises(PromptError, match=setting.name):
                setting.parsed(text)
    pair = Setting("pair", tuple, items=declared[:2])
    assert [pair.parsed(text) for text in ("4,true", "[4, true]")] == [(4, True)] * 2
    assert pair.checked([2, False]) == (2, False)
    for wrong in ("4", "0,true", "4,true,1", "4;true"):
        with pytest.raises(
            PromptError,
            match=r"`pair` must be a list of n \(a whole number of at least 1\) and on \(true or f",
        ):
            pair.parsed(wrong)
    with pytest.raises(PromptError, match="needs its setting must"):
        checked_settings("it", (Setting("must", int),), {})


def kept(name, logits, **settings):
    filtered = default_registry().table(Sampler).require(name)
    out = np.array(filtered.load()(mx.array(logits), **settings))
    assert np.array_equal(out[np.isfinite(out)], np.array(logits, np.float32)[np.isfinite(out)])
    return [set(np.flatnonzero(np.isfinite(row)).tolist()) for row in out]


def distribution(size=50, rows=3, spread=2.0):
    logits = np.random.default_rng(0).normal(size=(rows, size)).astype(np.float32) * spread
    p = np.exp(logits.astype(np.float64))
    return logits, p / p.sum(-1, keepdims=True)


@pytest.mark.parametrize("cutoff", [0.0, 0.003, 0.02, 1.0])
def test_epsilon_keeps_the_tokens_that_are_likely_enough(cutoff):
    logits, probabilities = distribution()
    wanted = [set(np.flatnonzero((p >= cutoff) | (p == p.max())).tolist()) for p in probabilities]
    assert kept("epsilon", logits, cutoff=cutoff) == wanted


@pytest.mark.parametrize("cutoff", [0.0, 0.0003, 0.02, 1.0])
def test_eta_lowers_the_bound_where_the_entropy_is_high(cutoff):
    for spread in (0.3, 2.0, 6.0):
        logits, probabilities = distribution(spread=spread)
        entropy = -(probabilities * np.log(probabilities)).sum(-1, keepdims=True)
        least = np.minimum(cutoff, np.sqrt(cutoff) * np.exp(-entropy))
        best = probabilities == probabilities.max(-1, keepdims=True)
        wanted = [set(np.flatnonzero(row).tolist()) for row in (probabilities >= least) | best]
        assert kept("eta", logits, cutoff=cutoff) == wanted


@pytest.mark.parametrize("name", ["epsilon", "eta"])
def test_a_token_that_was_removed_stays_so(name):
    assert kept(name, [[0.0, 1.0, -float("inf"), 0.5]], cutoff=0.0003) == [{0, 1, 3}]


def test_the_zoos_own_parts_come_by_the_same_hooks():
    core = next(plugin for plugin in default_registry().plugins if plugin.name == "core")
    assert Counter(map(type, core.records["zoo_formats"]))[QuantizedFormat] >= 7
    assert core.records["zoo_blocks"] and core.records["zoo_strategies"]


def test_importing_the_pages_plugin_imports_no_mlx(extending):
    code = "import zoo_extras, sys; sys.exit('mlx.core' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env={**os.environ, **extending.environment}).returncode
        == 0
    )
