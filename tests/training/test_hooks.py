"""A plugin's own corpus and objective: found, chosen, checked, and trained with."""

from types import SimpleNamespace

import pytest

import zoo
from zoo.architecture import Architecture, Corpus, Objective, Setting, hookimpl
from zoo.errors import PluginError, PromptError, ZooError
from zoo.host.plugins import Plugin
from zoo.host.registry import Registry, isolated
from zoo.training.example_objective import ExampleObjective
from zoo.training.examples import TextExample
from zoo.training.objective import NEXT_TOKEN, TrainingObjective, example_objective, objective_of
from zoo.training.record import TrainingSettings
from zoo.training.run import settings_of, train_folder
from zoo_corpora.accuracy import questions_of, scores
from zoo_corpora.question import Question


def counting(split, seed):
    """Two numbers that follow each other; "train" ends, and is begun again."""
    return iter([f"{n} and one is {n + 1}." for n in range(seed, seed + (40 if split == "train" else 4))])


def nothing(split, seed):
    return iter(())


def numbers_alone(split, seed):
    return iter([3])


def two(every):
    return [
        Question("1 and one is", " 2", ".", "sum", "en", every),
        Question("x", "y", "", "sum", "en", False),
    ]


def half(model, *batch):
    return 0.5 * NEXT_TOKEN.loss(model, *batch)


def half_of(loaded, share=0.5):
    return share


def halved(loaded, share=0.5):
    """An objective that only tunes; the record declares no default of `share`."""

    def loss(model, *batch):
        return share * NEXT_TOKEN.loss(model, *batch)

    return ExampleObjective((TextExample,), lambda *given: [], lambda *given: (), loss)


HALF = TrainingObjective(
    NEXT_TOKEN.training, NEXT_TOKEN.validation, half, corpus="counting", steps=2, running=True
)

ME = __name__


class Mine:
    @hookimpl
    def zoo_corpora(self):
        yield Corpus("counting", f"{ME}:counting", tasks=("generate",), questions=f"{ME}:two")
        yield Corpus("nothing", f"{ME}:nothing", tasks=("generate",))
        yield Corpus("numbers", f"{ME}:numbers_alone", tasks=("generate",))
        yield Corpus("gone", f"{ME}:not_there", tasks=("generate",))

    @hookimpl
    def zoo_objectives(self):
        yield Objective("half", f"{ME}:HALF", tasks=("generate",))
        yield Objective("wrong", f"{ME}:ME", tasks=("generate",))
        yield Objective("halved", f"{ME}:halved", tasks=("generate",), settings=(Setting("share", float),))
        yield Objective("halved-wrongly", f"{ME}:half_of", tasks=("generate",))


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """This module by the name that its records give."""
    import sys

    monkeypatch.setitem(sys.modules, ME, sys.modules.get(ME) or _self())


def _self():
    return SimpleNamespace(**globals())


@pytest.fixture
def mine():
    """A registry with the plugin; the one of what is installed lacks it, so whoever asks that one fails."""
    return isolated(Mine())


def test_a_plugins_corpus_and_objective_train_a_model(mine, tmp_path, tokenizer_folder, numbers):
    def trained(out, **given):
        settings = TrainingSettings(steps=2, batch=2, length=16, corpus="counting", **given)
        how = dict(config=numbers, tokenizer=tokenizer_folder, registry=mine)
        return train_folder("llama", out, settings, **how)

    whole, halved = trained(tmp_path / "whole"), trained(tmp_path / "half", objective="half")
    assert halved.losses[0][1] == pytest.approx(whole.losses[0][1] / 2, abs=1e-3)
    assert settings_of("llama", {"objective": "half"}, mine).steps == HALF.steps
    assert halved.settings["objective"] == "half" and halved.settings["corpus"] == "counting"
    loaded = zoo.load(tmp_path / "half", registry=mine)
    (score,) = scores(loaded, questions_of(loaded.architecture, "counting", registry=mine))
    assert (score.relation, score.questions) == ("sum", 2)
    assert [q.held_out for q in questions_of(loaded.architecture, "counting", True, mine)] == [True, False]


def test_questions_that_are_none_are_said(mine, monkeypatch):
    llama = mine.architecture("llama")
    with pytest.raises(ZooError, match="the corpus nothing has no questions to ask"):
        questions_of(llama, "nothing", registry=mine)
    with pytest.raises(
        ZooError, match="the corpus phrasebook has no questions for a model that does generate"
    ):
        questions_of(llama, "phrasebook", registry=mine)
    for given, words in (([], "gave no question"), (["what?"], "gave str, not a Question")):
        monkeypatch.setattr("zoo_corpora.atlas.examination", lambda every, given=given: given)
        with pytest.raises(PluginError, match=f"corpus atlas: .*examination {words}"):
            questions_of(llama, registry=mine)


def test_the_zoos_own_stays_the_choice_unless_asked(mine):
    llama = mine.architecture("llama")
    assert objective_of(llama, registry=mine) is NEXT_TOKEN and objective_of(llama, "half", mine) is HALF
    with pytest.raises(PluginError, match=r"objective 'half': none of that name trains .*: fill-mask"):
        objective_of(mine.architecture("bert"), "half", mine)
    with pytest.raises(
        PluginError, match=r"objective .haff.: none of that name.*known: .*half, .*next-token"
    ):
        objective_of(llama, "haff", mine)


def test_an_objective_that_only_tunes_is_made_with_its_checked_options(mine):
    loaded = SimpleNamespace(architecture=mine.architecture("llama"), registry=mine)
    made = example_objective(loaded, "halved", {"share": 1})
    assert isinstance(made, ExampleObjective) and made.takes == (TextExample,)
    assert isinstance(example_objective(loaded, "halved"), ExampleObjective)
    for options, words in (
        ({"share": "much"}, "`share` must be a number, got 'much'"),
        ({"share": 1, "shar": 1}, "objective halved has no setting 'shar'; did you mean share"),
    ):
        with pytest.raises(PromptError, match=words):
            example_objective(loaded, "halved", options)
    with pytest.raises(
        PluginError, match=r"objective halved-wrongly: .* gave float, not an ExampleObjective"
    ):
        example_objective(loaded, "halved-wrongly")
    assert example_objective(loaded, "half") is None


def test_an_objective_trains_the_architectures_of_its_own_distribution():
    own = Architecture("own", "", lambda config: None, ())
    other = Architecture("other", "", lambda config: None, ())
    record = Objective("mine", f"{ME}:HALF", tasks=("generate",))
    theirs = Plugin("p", "zoo-p", records={"zoo_architectures": [own], "zoo_objectives": [record]})
    known = Registry([theirs, Plugin("q", "zoo-q", records={"zoo_architectures": [other]})])
    assert known.objective(own) is record
    assert known.objective(other).name == "next-token"


def test_between_two_third_parties_neither_wins_and_the_zoos_own_gives_way():
    def plugin(name, *corpora):
        return Plugin(name, name, records={"zoo_corpora": list(corpora)})

    first, second, atlas = (Corpus(name, "m:f", tasks=("generate",)) for name in ("same", "same", "atlas"))
    ours = Plugin(
        "corpora", "mlx-zoo", records={"zoo_corpora": [Corpus("atlas", "n:f", tasks=("generate",))]}
    )
    known = Registry([plugin("zoo-one", first), plugin("zoo-two", second, atlas), ours])
    with pytest.raises(PluginError, match="corpus 'same' is claimed by several plugins"):
        known.table(Corpus).require("same")
    assert known.table(Corpus).require("zoo-two::same") is second
    with pytest.warns(UserWarning, match="corpus 'atlas' is served by the plugin zoo-two"):
        assert known.table(Corpus).require("atlas") is atlas


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (dict(corpus="nothing"), "corpus nothing: .* gave no document to train on"),
        (dict(corpus="numbers"), "corpus numbers: .* gave int, not a text"),
        (dict(corpus="gone"), "cannot import .*not_there"),
        (dict(objective="wrong"), "objective wrong: .* is str, not a TrainingObjective"),
        (dict(objective="halved"), "objective halved trains on the examples of a data file: use `zoo tune`"),
    ],
)
def test_what_a_plugin_gives_wrong_is_one_line(mine, tmp_path, tokenizer_folder, numbers, given, words):
    settings = TrainingSettings(**{"steps": 2, "batch": 2, "length": 16, "corpus": "counting"} | given)
    with pytest.raises(ZooError, match=words):
        how = dict(config=numbers, tokenizer=tokenizer_folder, registry=mine)
        train_folder("llama", tmp_path / "out", settings, **how)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Corpus("a b", "m:f", tasks=("generate",)), "a name is letters"),
        (lambda: Corpus("a", "m", tasks=("generate",)), 'expected "package.module:attribute"'),
        (lambda: Corpus("a", "m:f", tasks=["generate"]), "tasks is a tuple of text"),
        (lambda: Corpus("a", "m:f", tasks=()), "'translate' goes with no other task"),
        (lambda: Corpus("a", "m:f", tasks=("translate", "generate")), "goes with no other task"),
        (lambda: Corpus("a", "m:f", tasks=("generate",), questions="x"), "corpus a: questions: expected"),
        (lambda: Objective("a", "m:f", ("generate",), ("sideways",)), "causality 'sideways' is not one of"),
        (lambda: Objective("a", 3, ("generate",)), "expected"),
        (lambda: Objective("a", "m:f", ("generate",), settings=("b",)), "settings is a tuple of Setting"),
    ],
)
def test_a_record_is_checked_when_it_is_made(make, words):
    with pytest.raises(PluginError, match=words):
        make()


def test_the_zoos_objectives_are_records_too(mine):
    assert {"next-token", "answer", "hidden-words", "diffusion", "translation"} <= set(mine.table(Objective))
    for record in mine.table(Objective).listed().values():
        if record.target.startswith("zoo."):
            assert isinstance(record.load(), TrainingObjective)
