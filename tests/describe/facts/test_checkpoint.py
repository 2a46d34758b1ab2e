"""What is told of a small checkpoint: what lies beside it, and what a record has."""

import json

from zoo.architecture import Preset
from zoo.describe.described import NOT_MEASURED, pocket_facts
from zoo.host.registry import default_registry


def told(facts):
    return {fact.name: fact.text for fact in facts}


def test_answers_are_those_beside_the_checkpoint():
    architecture = default_registry().architecture("llama")
    folder = architecture.preset("pocket").folder
    scores = json.loads((folder / "accuracy.json").read_text())["scores"]
    right, questions = (sum(score[key] for score in scores) for key in ("right", "questions"))
    facts = told(pocket_facts(architecture))
    assert facts["right"] == f"{100 * right / questions:.1f} % ({right:,} / {questions:,})"
    assert facts["corpus"] == "atlas"


def test_what_no_record_has_was_not_measured():
    facts = told(pocket_facts(default_registry().architecture("llama")))
    assert facts["peak"] == facts["bits"] == NOT_MEASURED


def test_a_record_gives_the_figures_and_what_cannot_be():
    record = {"bits_per_byte": None, "peak_memory_bytes": 5_200_000}
    facts = told(pocket_facts(default_registry().architecture("bert"), record))
    assert facts["peak"] == "5.2 MB" and facts["bits"] == "–"


def test_speeds_without_intervals_are_not_told():
    record = {"decode_tokens_per_second": 1234.5, "prefill_tokens_per_second": 300.0}
    facts = pocket_facts(default_registry().architecture("llama"), record)
    assert facts and not any(fact.unit == "tokens/s" for fact in facts)


def test_without_a_checkpoint_there_is_nothing():
    assert pocket_facts(default_registry().architecture("mistral")) == ()


def test_a_checkpoint_without_records_was_not_measured(tmp_path):
    architecture = default_registry().architecture("llama")
    bare = type(architecture)(
        "bare", "", architecture.recipe, architecture.weights, presets=(Preset("pocket", folder=tmp_path),)
    )
    assert told(pocket_facts(bare))["right"] == NOT_MEASURED
