"""The conformance suite: checks that every architecture must pass, a third party's included.

    from zoo.testing import check_architecture
    check_architecture("llama")

Each check has a name and a reason; one that fails says what differed. Models are small, their weights random:
the checks hold for any weights, and `subject_of` holds a loaded checkpoint to them. Axes: B batch, T length,
V vocabulary.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zoo.compiled_step import compiled_step
from zoo.errors import ZooError
from zoo.host.plugins import error_with_place
from zoo.host.registry import Registry, default_registry
from zoo.testing import (
    cache_checks,
    generation_checks,
    model_checks,
    rank_checks,
    subjects,
    traces,
    tuning_checks,
)
from zoo.testing.generation_checks import check_strategy
from zoo.testing.model_checks import imports_nothing_heavy
from zoo.testing.subjects import TOLERANCE, Check, Subject, numbers_of, randomise, same, subject, subject_of

__all__ = [
    "CHECKS",
    "TOLERANCE",
    "Check",
    "CheckResult",
    "Subject",
    "check_architecture",
    "check_card",
    "check_strategy",
    "checks_of",
    "imports_nothing_heavy",
    "numbers_of",
    "outcome",
    "randomise",
    "results_of",
    "run_checks",
    "same",
    "subject",
    "subject_of",
]


# Every check by its function, and the models that it applies to. All need the first to pass.
APPLIES: dict[Callable[[Subject], None], Callable[[Subject], bool]] = {
    model_checks.model_runs: lambda s: True,
    model_checks.parameters_equal_the_recipes: lambda s: True,
    model_checks.base_is_an_architecture: lambda s: s.architecture.base is not None,
    model_checks.cached_decode_equals_full_forward: subjects.sees_no_later_token,
    model_checks.chunked_prefill_equals_whole: subjects.is_causal,
    model_checks.padded_row_equals_the_row_alone: lambda s: subjects.decodes(s) and "left" in s.model.padding,
    model_checks.padded_text_equals_the_text_alone: lambda s: not s.model.decodes,  # an encoder
    model_checks.later_token_changes_no_earlier_logit: subjects.sees_no_later_token,
    model_checks.later_token_changes_earlier_logits: lambda s: s.architecture.causality == "full",
    model_checks.prefix_is_free_within_and_causal_after: lambda s: (
        subjects.decodes(s) and s.architecture.causality == "prefix"
    ),
    model_checks.saved_and_loaded_is_identical: subjects.is_saved,
    model_checks.quantized_and_loaded_is_identical: subjects.can_be_quantized,
    model_checks.greedy_stream_follows_the_full_forward: subjects.streams,
    generation_checks.text_beside_others_equals_the_text_alone: subjects.writes,
    generation_checks.drafted_text_equals_the_text_alone: generation_checks.takes_drafts,
    model_checks.half_precision_runs: lambda s: subjects.decodes(s) and not s.trained,
    model_checks.blocks_keep_16_bits: lambda s: not s.trained,
    model_checks.importing_the_plugin_imports_nothing_heavy: subjects.is_third_party,
    cache_checks.caches_hold_what_the_recipe_counts: lambda s: (
        subjects.writes(s) and not s.architecture.bridged
    ),
    cache_checks.chunks_meet_without_a_seam: lambda s: (
        subjects.writes(s) and bool(cache_checks.borders(s.recipe, cache_checks.decoder_of(s)))
    ),
    cache_checks.compiled_step_equals_the_model: lambda s: (
        subjects.writes(s) and compiled_step(s.model) is not None
    ),
    generation_checks.strategies_end_as_they_must: lambda s: bool(generation_checks.strategies_of(s)),
    model_checks.padded_source_equals_the_source_alone: subjects.translates,
    model_checks.every_source_token_reaches_every_logit: subjects.translates,
    model_checks.selected_rows_go_on_as_they_were: subjects.translates,
    model_checks.greedy_translation_follows_the_full_forward: subjects.translates,
    model_checks.half_precision_translates: subjects.translates,
    rank_checks.shares_make_up_the_whole: rank_checks.is_divided,
    rank_checks.ranks_compute_what_one_does: rank_checks.is_divided,
    rank_checks.experts_compute_what_one_does: rank_checks.has_experts_divided,
    rank_checks.stages_compute_what_one_does: rank_checks.is_staged,
    rank_checks.packed_ranks_compute_what_one_does: rank_checks.is_divided_packed,
    traces.traced_equals_untraced: lambda s: True,
    traces.traced_values_fit_together: lambda s: True,
    traces.intervention_changes_what_follows_and_nothing_before: lambda s: True,
    traces.every_value_takes_part: lambda s: True,
    tuning_checks.lora_learns_and_is_kept: tuning_checks.is_tuned,
    tuning_checks.dora_learns_and_is_kept: tuning_checks.is_tuned,
    tuning_checks.full_tuning_learns_and_is_kept: tuning_checks.is_tuned,
    tuning_checks.lora_of_a_quantized_model_learns_and_is_kept: lambda s: (
        tuning_checks.is_tuned(s) and subjects.can_be_quantized(s)
    ),
    traces.cached_values_equal_the_full_forwards: subjects.sees_no_later_token,
}
CHECKS = tuple(Check.of(function, applies) for function, applies in APPLIES.items())


@dataclass(frozen=True)
class CheckResult:
    """The result of one check: `message` says what differed when it failed, `traceback` where code raised."""

    name: str
    reason: str
    passed: bool
    message: str = ""
    traceback: str = ""


def checks_of(subject: Subject) -> list[Check]:
    """The checks that apply to a subject. The others need the first to pass: that the model runs."""
    return [check for check in CHECKS if check.applies(subject)]


def outcome(check: Check, subject: Subject) -> CheckResult:
    """Run one check; an error in the model's code fails it, too."""
    try:
        check.run(subject)
    except (AssertionError, ZooError) as error:
        # The first line: pytest adds others to an assertion of a module that it has rewritten.
        return CheckResult(check.name, check.reason, False, str(error).partition("\n")[0])
    except Exception as error:
        message = error_with_place(error, subject.registry.plugins)
        return CheckResult(check.name, check.reason, False, message, traceback.format_exc())
    return CheckResult(check.name, check.reason, True)


def results_of(subject: Subject) -> Iterator[CheckResult]:
    """The result of each check that applies; of the first alone where the model does not run."""
    first, *others = checks_of(subject)
    result = outcome(first, subject)
    yield result
    if result.passed:
        yield from (outcome(check, subject) for check in others)


def run_checks(name: str, preset: str | None = None, registry: Registry | None = None) -> list[CheckResult]:
    """Run every check that applies to the architecture `name`, on a small model of random weights."""
    return list(results_of(subject(name, preset, registry)))


def check_card(readme: Path | str, name: str, registry: Registry | None = None) -> None:
    """Raise AssertionError, with the command that rewrites it, unless a README has the present card of the plugin `name`."""
    from zoo.describe.plugin_card import card

    registry, path = registry or default_registry(), Path(readme)
    text = card(registry.plugin(name), registry)
    assert text in path.read_text(encoding="utf-8"), (
        f"{path.name}: its card is not what the plugin gives; zoo plugins --card {name} --into {path.name}"
    )


def check_architecture(
    name: str, preset: str | None = None, registry: Registry | None = None
) -> list[CheckResult]:
    """Run the suite on the architecture `name`; AssertionError names each check that failed and what differed.

    The model is a small one of random weights, of the numbers of `preset`. PluginError where there is no such architecture.

    >>> from zoo.testing import check_architecture
    >>> all(result.passed for result in check_architecture("llama"))
    True
    """
    results = run_checks(name, preset, registry)
    failed = [f"{r.name}: {r.message} ({r.reason})" for r in results if not r.passed]
    assert not failed, f"{name}: " + "; ".join(failed)
    return results
