"""Every registered architecture holds the conformance suite, and the suite notices what breaks it."""

from dataclasses import replace

import mlx.core as mx
import pytest

from tests.helpers.architectures import each_architecture
from zoo.architecture import Rename
from zoo.assemble import assemble
from zoo.checkpoint.open import make_recipe
from zoo.host.registry import default_registry
from zoo.testing import (
    CHECKS,
    checks_of,
    generation_checks,
    model_checks,
    outcome,
    randomise,
    subject,
    tuning_checks,
)
from zoo.training import adapters


@pytest.mark.parametrize("name", each_architecture())
def test_conforms(name):
    made = subject(name)
    checks = [check for check in checks_of(made) if check.run.__module__ != tuning_checks.__name__]
    assert "parameters_equal_the_recipes" in {check.name for check in checks}
    assert [result for check in checks if not (result := outcome(check, made)).passed] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", each_architecture())
def test_is_tuned(name):
    made = subject(name)
    checks = [check for check in checks_of(made) if check.run.__module__ == tuning_checks.__name__]
    assert len(checks) == 4
    assert [result for check in checks if not (result := outcome(check, made)).passed] == []


class Changed:
    """A model with some of its methods changed; everything else is the model's own."""

    def __init__(self, model, **methods):
        self.model, self.methods = model, methods

    def __getattr__(self, name):
        return self.methods.get(name) or getattr(self.model, name)

    def __call__(self, *arguments, **settings):
        return self.methods.get("call", self.model)(*arguments, **settings)


class OneWay(Rename):
    """A rule that does not undo what it did."""

    def backward(self, source, target, recipe, join):
        super().backward(source, target, recipe, join)
        target[self.source] = target[self.source] * 2


def moved_when_cached(model):
    """Logits of another token where the cache holds some already, whether whole or by backbone and head."""

    def changed(function):
        def call(tokens, cache=None, *arguments, **settings):
            old = cache is not None and cache[0].offset > 0
            found = function(tokens, cache, *arguments, **settings)
            return mx.roll(found, 1, axis=-1) if old else found

        return call

    return Changed(model, call=changed(model), backbone=changed(model.backbone))


def without_memory_mask(model):
    """A decoder that sees its source's padding."""

    def decode(target, memory, cache=None, memory_mask=None, mask=None):
        return model.decode(target, memory, cache, None, mask)

    return Changed(model, decode=decode, call=lambda source, target, mask=None: model(source, target))


def moved_when_translating(model):
    """Logits of another token where the cache holds some already."""

    def decode(target, memory, cache=None, *masks):
        old = cache is not None and cache[0].offset > 0
        logits = model.decode(target, memory, cache, *masks)
        return mx.roll(logits, 1, axis=-1) if old else logits

    return Changed(model, decode=decode)


def blind_to_the_first(model):
    """A translator that replaces the first token of the source."""

    def call(source, target, mask=None):
        return model(mx.concatenate([mx.ones_like(source[:, :1]), source[:, 1:]], axis=1), target, mask)

    return Changed(model, call=call)


def without_selection(model):
    """Caches that stay as they are when some of their rows are asked for, and get as many as are decoded."""

    def make_cache(policy=None):
        caches = model.make_cache(policy)
        for cache in caches:
            plain = cache.select
            object.__setattr__(
                cache, "select", lambda rows, plain=plain: plain(mx.arange(len(rows)) % (rows.max() + 1))
            )
        return caches

    return Changed(model, make_cache=make_cache)


def infinite_in_float16(model):
    def call(tokens, *arguments, **settings):
        logits = model(tokens, *arguments, **settings)
        return logits * 1e9 if logits.dtype == mx.float16 else logits

    return Changed(model, call=call)


def always_float32(model):
    return Changed(model, call=lambda *arguments: model(*arguments).astype(mx.float32))


def with_mask(made, mask):
    made.model.mask = mask
    return made


def causal_translator(made):
    made.model.decoder.mask = lambda *arguments: None
    return made


def forgets_padding(made):
    plain = type(made.model).mask

    def mask(queries, window, cache, padding, prefix):
        if cache is not None:
            cache.padding = None
        return plain(made.model, queries, window, cache, None, prefix)

    return with_mask(made, mask)


def sees_a_whole_chunk(made):
    """Within a chunk after the first, each token sees all that are there."""
    plain = type(made.model).mask

    def mask(queries, window, cache, padding, prefix):
        later = cache is not None and cache.length > queries
        return None if later else plain(made.model, queries, window, cache, padding, prefix)

    return with_mask(made, mask)


def model(change):
    return lambda made: replace(made, model=change(made.model))


def with_more_parameters(made):
    made.model.extra = mx.zeros((3,))
    return made


def with_a_rule_of_one_way(made):
    first = OneWay("model.norm.weight", "norm.weight")
    return replace(made, architecture=replace(made.architecture, weights=(first, *made.architecture.weights)))


def ignores_its_mask(plain):
    return Changed(plain, call=lambda tokens, mask=None: plain(tokens))


def with_a_misspelled_base(made):
    return replace(made, architecture=replace(made.architecture, base="lama"))


def with_a_wide_activation(made):
    made.model.layers[1].feedforward.activation = lambda x: x.astype(mx.float32)
    return made


def without_a_feedforward(made):
    del made.model.layers[1].feedforward
    return made


# The architecture, the check, what makes the fault, and a part of what the check must say.
FAULTS = [
    ("llama", "model_runs", without_a_feedforward, "layers.1: KeyError: 'feedforward' ("),
    ("mistral", "base_is_an_architecture", with_a_misspelled_base, "'lama' is unknown; did you mean llama"),
    ("llama", "parameters_equal_the_recipes", with_more_parameters, "the model holds 127,427 parameters"),
    ("llama", "cached_decode_equals_full_forward", model(moved_when_cached), "logits: largest difference"),
    ("llama", "chunked_prefill_equals_whole", sees_a_whole_chunk, "logits: largest difference"),
    ("llama", "padded_row_equals_the_row_alone", forgets_padding, "logits of row 1, uncached"),
    ("llama", "text_beside_others_equals_the_text_alone", forgets_padding, "text 0: token"),
    ("llama", "drafted_text_equals_the_text_alone", sees_a_whole_chunk, "the drafted text: token"),
    (
        "llama",
        "later_token_changes_no_earlier_logit",
        lambda made: with_mask(made, lambda *_: None),
        "before the",
    ),
    ("llama", "saved_and_loaded_is_identical", with_a_rule_of_one_way, "norm.weight changed between saving"),
    ("llama", "greedy_stream_follows_the_full_forward", model(moved_when_cached), "below the largest"),
    ("llama", "half_precision_runs", model(infinite_in_float16), "float16 logits are not finite"),
    ("bert", "blocks_keep_16_bits", with_a_wide_activation, "layers.1.feedforward (MLP) widens"),
    ("bert", "padded_text_equals_the_text_alone", model(ignores_its_mask), "the shorter text: largest"),
    (
        "llada",
        "later_token_changes_earlier_logits",
        lambda made: with_mask(made, lambda *_: "causal"),
        "does not reach position 0",
    ),
    (
        "prefix-lm",
        "prefix_is_free_within_and_causal_after",
        lambda made: with_mask(made, lambda *_: "causal"),
        "last token does not reach its first",
    ),
    (
        "transformer",
        "cached_decode_equals_full_forward",
        model(moved_when_translating),
        "logits: largest",
    ),
    (
        "transformer",
        "padded_source_equals_the_source_alone",
        model(without_memory_mask),
        "padded on the right",
    ),
    ("transformer", "later_token_changes_no_earlier_logit", causal_translator, "before the changed token"),
    (
        "transformer",
        "every_source_token_reaches_every_logit",
        model(blind_to_the_first),
        "source token 0 does not",
    ),
    ("transformer", "selected_rows_go_on_as_they_were", model(without_selection), "after the choice of rows"),
    (
        "transformer",
        "greedy_translation_follows_the_full_forward",
        model(moved_when_translating),
        "below the largest",
    ),
    ("transformer", "half_precision_translates", model(always_float32), "give logits of mlx.core.float32"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "check", "fault", "message"), FAULTS, ids=[f"{name}-{check}" for name, check, *_ in FAULTS]
)
def test_a_fault_of_each_kind_is_noticed_by_its_check(name, check, fault, message):
    made = subject(name)
    run = next(found for found in checks_of(made) if found.name == check)
    assert outcome(run, made).passed
    result = outcome(run, fault(made))
    assert not result.passed and message in result.message, result


def test_no_check_is_left_out_of_these():
    noticed = {check for _, check, *_ in FAULTS}
    homes = {module.__name__ for module in (generation_checks, model_checks)}
    every = {check.name for check in CHECKS if check.run.__module__ in homes}
    # Three need a plugin of their own: see test_faulty_plugins, test_testing and test_strategies.
    assert every - noticed == {
        "quantized_and_loaded_is_identical",
        "importing_the_plugin_imports_nothing_heavy",
        "strategies_end_as_they_must",
    }


def without_learning(monkeypatch):
    monkeypatch.setattr("mlx.optimizers.MultiOptimizer.update", lambda *arguments: None)


def with_a_changed_file(monkeypatch):
    """The files of adapters have other numbers than the model."""

    plain = adapters.adapter_files

    def files(*arguments):
        tensors, config = plain(*arguments)
        return {name: tensor * 1.1 for name, tensor in tensors.items()}, config

    monkeypatch.setattr("zoo.training.adapters.adapter_files", files)


def without_seeds(monkeypatch):
    """Dropout does not follow from the step."""
    monkeypatch.setattr("zoo.training.loop.mx.random.seed", lambda seed: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (without_learning, "no weight has changed in 6 steps"),
        (with_a_changed_file, "logits with the loaded adapter"),
        (without_seeds, "is another after an interruption"),
    ],
)
def test_a_fault_of_tuning_is_noticed(llama, monkeypatch, fault, message):
    check = next(check for check in checks_of(llama) if check.name == "lora_learns_and_is_kept")
    fault(monkeypatch)
    result = outcome(check, llama)
    assert not result.passed and message in result.message, result


@pytest.fixture
def llama():
    return subject("llama")


def test_a_failed_check_is_reported_with_what_differed(llama):
    llama.model.extra = mx.zeros((3,))
    check = next(check for check in CHECKS if check.name == "parameters_equal_the_recipes")
    result = outcome(check, llama)
    assert not result.passed and result.reason == check.reason
    assert result.message == "the model holds 127,427 parameters, the recipe counts 127,424"
    del llama.model.extra
    assert outcome(check, llama).passed


SCALINGS = [
    dict(rope_type="linear", factor=4.0),
    dict(rope_type="dynamic", factor=4.0),  # within its context, beyond which the angles depend on the length
    dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0),
    dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8),
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling["rope_type"])
@pytest.mark.parametrize("name", ["cached_decode_equals_full_forward", "chunked_prefill_equals_whole"])
def test_scaled_rotary_positions_hold_with_a_cache(llama, scaling, name):
    recipe = make_recipe(
        llama.architecture, dict(llama.numbers) | {"rope_scaling": scaling}, default_registry()
    )
    assert recipe.layers[0].mixer.rope.scaling is not None
    model = assemble(recipe, default_registry())
    randomise(model)
    next(check for check in CHECKS if check.name == name).run(replace(llama, recipe=recipe, model=model))
