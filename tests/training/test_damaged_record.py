"""A run's state whose record is wrong: each value is refused by its key, and nothing else ends a resumed run."""

import copy
import json
import random

import mlx.core as mx
import pytest

from zoo.errors import CheckpointError, ConfigError, ZooError
from zoo.training.adapters import AdapterSettings
from zoo.training.record import TrainingSettings
from zoo.training.run import train_folder
from zoo.training.run_folder import open_state, settings_to_resume, state_path
from zoo_tune.run import TuneSettings, tune_folder

WRONG = [None, True, -1, 1.5, 10**30, 1e308, float("nan"), "", "x", [], [1], [[1]], {}, {"a": 1}]
LINES = [{"prompt": f"The capital of {n}", "completion": f" is {n}"} for n in range(6)]


@pytest.fixture
def trained(tokenizer_folder, text, numbers, tmp_path):
    """The folder of a run of `zoo train`, and a function that goes on with it."""
    settings = TrainingSettings(steps=2, batch=2, length=16, warmup=1, corpus=str(text))
    train_folder("llama", tmp_path / "out", settings, tokenizer=tokenizer_folder, config=numbers)
    out = tmp_path / "out"
    return out, lambda: train_folder(None, out, settings_to_resume(out, {"steps": 3}), resume=True)


@pytest.fixture
def tuned(tmp_path):
    """The folder of a run of `zoo tune`, and a function that goes on with it."""
    data, out = tmp_path / "data.jsonl", tmp_path / "out"
    data.write_text("\n".join(map(json.dumps, LINES)))

    def go(steps, **how):
        settings = TuneSettings(AdapterSettings(rank=2, parts=("mixer.query",)), training={"steps": steps})
        return tune_folder("llama", out, data, settings, **how)

    go(2)
    return out, lambda: go(3, resume=True)


def change(out, record=None, metadata=(), **arrays):
    """Write the state anew, with another record, other metadata or arrays."""
    path = state_path(out)
    held, before = mx.load(str(path), return_metadata=True)
    mx.eval(held)
    changed = before | dict(metadata) | ({} if record is None else {"record": json.dumps(record)})
    mx.save_safetensors(str(path), held | arrays, metadata=changed)
    return before


WHOLE = {  # by their places, values of no use there
    "architecture": [True, 1, None, []],
    "parameters": [-1, "x", 1.5, None, {}],
    "documents": [1, None],
    "tokenizer": [1, "x", [1]],
    "losses": [None, 1, {}, [1], [[1]], [[1, 2, 3]], [["a", 1]], [[1, None]], [[0.5, 1]], [[9, 1.0]]],
    "validation": [None, "x", [[1, float("inf")]], [[1, 10**400]]],
    "tokens": [None, -1, "x", 1.5, 10**30],
    "seconds": [None, -1, "x", float("nan"), []],
    "versions": [None, 1, [], {"mlx": 1}, {"mlx": None}],
    "settings": [None, 1, [], {}],
    "settings.steps": [None, 0, -1, 1.5, 10**30, "x", True, [1]],
    "settings.batch": [None, 0, 10**30, "2"],
    "settings.length": [None, 0, 10**30],
    "settings.rate": [None, 0, -1, "x", float("nan"), float("inf"), True],
    "settings.warmup": [None, -1, 10**30, "x"],
    "settings.decay": [None, -1, float("inf")],
    "settings.clip": [None, 0, "x"],
    "settings.schedule": [None, 1, "steep", []],
    "settings.accumulate": [None, 0, 10**30, 1.5, "x"],
    "settings.checkpoint": [None, 0, "x"],
    "settings.seed": [None, -1, 2**64, 1.5],
    "settings.corpus": [1, []],
    "settings.objective": [1, True],
    "settings.packed": [None, 1],
    "settings.ends": [None, "x", [0], [1.5], [2], [1, 1], {"a": 1}],
    "settings.config": [None, 1, "x", []],
    "settings.adapter": [None, 1, []],
    "settings.options": [None, 1, []],
}


def test_each_wrong_value_is_named_by_its_key(trained):
    out, _ = trained
    whole = open_state(state_path(out)).record
    for key, values in WHOLE.items():
        for value in values:
            record = copy.deepcopy(whole)
            *outer, last = key.split(".")
            (record[outer[0]] if outer else record)[last] = value
            change(out, record)
            with pytest.raises(ConfigError) as caught:
                open_state(state_path(out))
            said = str(caught.value)
            assert said.startswith(f"{state_path(out)}: {key}") and "\n" not in said, (key, value, said)
    for key in ("architecture", "settings", "losses", "validation", "tokens", "seconds"):
        change(out, {name: value for name, value in whole.items() if name != key})
        with pytest.raises(ConfigError, match=f"{key} is missing"):
            open_state(state_path(out))
    change(out, whole)
    assert open_state(state_path(out)).record == whole


def test_a_step_that_the_run_does_not_have_and_a_record_that_is_none_are_refused(trained):
    out, _ = trained
    wrong = [({"step": step}, r"state\.safetensors") for step in ("-1", "3", "9" * 30, "x", "")]
    wrong += [
        ({"record": text}, "the record is no JSON object") for text in ("[]", "3", '"x"', "null", "[[]]")
    ]
    wrong += [({"record": "[" * 100_000}, "the state is damaged")]
    for metadata, words in wrong:
        before = change(out, metadata=metadata)
        with pytest.raises((CheckpointError, ConfigError), match=words):
            open_state(state_path(out))
        change(out, metadata=before)


def test_arrays_of_other_shapes_and_types_are_refused(trained):
    out, go_on = trained
    held = mx.load(str(state_path(out)))
    mx.eval(held)
    for prefix in ("model.", "optimizer.states.0"):
        name = next(name for name, array in held.items() if name.startswith(prefix) and array.ndim == 2)
        for wrong in (mx.zeros((3, 3)), held[name].astype(mx.int32)):
            change(out, **{name: wrong})
            with pytest.raises(ZooError, match="of the run and of the model differ"):
                go_on()
            change(out, **{name: held[name]})
    assert len(go_on().losses) == 3


def places(value, path=()):
    """The places of all values in a record."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return (
        [path, *(place for key, item in inner for place in places(item, (*path, key)))]
        if path
        else [place for key, item in inner for place in places(item, (key,))]
    )


def mutated(record, draw):
    """The record with one value replaced or removed at random."""
    record = copy.deepcopy(record)
    *outer, last = draw.choice(places(record))
    within = record
    for key in outer:
        within = within[key]
    if draw.random() < 0.2:
        del within[last]
    else:
        within[last] = draw.choice(WRONG)
    return record


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trained", "tuned"])
def test_a_record_changed_at_random_goes_on_or_is_an_error_of_one_line(kind, request):
    out, go_on = request.getfixturevalue(kind)
    data = state_path(out).read_bytes()
    draw, whole, refused = random.Random(5), open_state(state_path(out)).record, 0
    for _ in range(60):
        state_path(out).write_bytes(data)
        change(out, mutated(whole, draw))
        try:
            go_on()
        except ZooError as error:
            refused += 1
            assert "\n" not in str(error)
    assert 20 < refused < 60
