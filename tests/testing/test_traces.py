"""Each check of traces notices a fault of its kind."""

import mlx.core as mx
import pytest

from zoo.blocks import attention
from zoo.inspect.tracing import block_probes, intervention, probe, traced_run
from zoo.inspect.tracing.probe import Traces, Value
from zoo.testing import CHECKS, checks_of, outcome, subject, traces


def forgets_a_class(patch):
    plain = probe.set_class

    def set_class(module, kind):
        if not (kind.__name__ == "RMSNorm" and isinstance(module, probe.Probe)):
            plain(module, kind)

    patch.setattr(probe, "set_class", set_class)


def doubles_heads(patch):
    plain = block_probes.PatternProbe.apply_pattern
    patch.setattr(block_probes.PatternProbe, "apply_pattern", lambda self, *inputs: plain(self, *inputs) * 2)


def tells_other_axes(patch):
    patch.setattr(block_probes.HeadProbe, "traces", Traces(Value("B V", "the logits")))


def tells_a_shorter_axis(patch):
    plain = block_probes.EmbeddingProbe.note
    patch.setattr(
        block_probes.EmbeddingProbe, "note", lambda self, name, x: plain(self, name, x[:, 1:]) if name else x
    )
    patch.setattr(block_probes.EmbeddingProbe, "vectors", lambda self, ids: _apart(self, ids))


def _apart(self, ids):
    x = super(block_probes.EmbeddingProbe, self).vectors(ids)
    self.note("vectors", x)
    return x


def sees_all_alike(patch):
    plain = block_probes.attention_pattern

    def uniform(attend, values):
        pattern = plain(attend, values)
        return mx.ones_like(pattern) / pattern.shape[-1]

    patch.setattr(block_probes, "attention_pattern", uniform)


def means_the_head_before(patch):
    plain = intervention.resolve

    def resolve(address, known):
        found, axis, index = plain(address, known)
        return found, axis, max(index - 1, 0)

    patch.setattr(intervention, "resolve", resolve)


def changes_without_being_asked(patch):
    plain = intervention._edit

    def edit(address, wanted, axis, index):
        change = plain(address, wanted, axis, index)
        return lambda value: change(value) * 1.01 if callable(wanted) else change(value)

    patch.setattr(intervention, "_edit", edit)


def normalises_heads(patch):
    """A `mix` whose result is no product of a pattern and the values."""
    plain = attention.MultiHeadAttention.mix
    patch.setattr(
        attention.MultiHeadAttention, "mix", lambda *given: mx.fast.rms_norm(plain(*given), None, 1e-5)
    )


def weighs_other_values(patch):
    """A replaced pattern weighs values that are not the block's."""
    plain = mx.repeat
    patch.setattr(block_probes.mx, "repeat", lambda values, *rest, **more: plain(values + 1, *rest, **more))


def hands_nothing_on(patch):
    patch.setattr(block_probes.EmbeddingProbe, "vectors", _apart)


def puts_columns_first(patch):
    def aligned(rows, axis, tokens, apart):
        return plain(rows, axis, [(0, count) for _, count in tokens], apart)

    plain = traced_run._aligned
    patch.setattr(traced_run, "_aligned", aligned)


# The architecture, the check, the fault, and a part of what the check must say.
FAULTS = [
    ("llama", "traced_equals_untraced", forgets_a_class, "its class is not its own again"),
    ("llama", "traced_equals_untraced", doubles_heads, "logits of the traced model differ"),
    ("llama", "traced_values_fit_together", tells_other_axes, "axes 'B V' of a value of shape"),
    ("llama", "traced_values_fit_together", tells_a_shorter_axis, "embedding.vectors: 23 along T"),
    ("llama", "traced_values_fit_together", sees_all_alike, "layers.0.mixer.heads, beside its pattern"),
    (
        "llama",
        "traced_values_fit_together",
        normalises_heads,
        "needs a probe of its own: docs/plugins/tracing.md",
    ),
    (
        "llama",
        "intervention_changes_what_follows_and_nothing_before",
        means_the_head_before,
        "zeros in part 3 changed another",
    ),
    (
        "llama",
        "intervention_changes_what_follows_and_nothing_before",
        changes_without_being_asked,
        "an intervention that changes no value changes the logits",
    ),
    (
        "llama",
        "intervention_changes_what_follows_and_nothing_before",
        weighs_other_values,
        "logits with every value replaced by its equal",
    ),
    ("llama", "every_value_takes_part", hands_nothing_on, "embedding.vectors set to zero changes no logit"),
    ("mistral", "cached_values_equal_the_full_forwards", puts_columns_first, "of a text read in pieces"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "check", "fault", "message"), FAULTS, ids=[fault.__name__ for _, _, fault, _ in FAULTS]
)
def test_a_fault_of_each_kind_is_noticed_by_its_check(name, check, fault, message, monkeypatch):
    made = subject(name)
    run = next(found for found in checks_of(made) if found.name == check)
    assert outcome(run, made).passed
    with monkeypatch.context() as patch:
        fault(patch)
        found = outcome(run, made)
    assert not found.passed and message in found.message, found


def test_no_check_is_left_out_of_these():
    assert {check.name for check in CHECKS if check.run.__module__ == traces.__name__} == {
        check for _, check, *_ in FAULTS
    }
