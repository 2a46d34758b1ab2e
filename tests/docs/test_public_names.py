"""Every public name is listed, has an example, and says what it raises."""

import ast
import doctest
import inspect
import re
import textwrap

import pytest

import zoo
from tests.helpers.public_names import LISTED, named
from zoo import errors

NAMES = [name for _, name in LISTED]
FUNCTIONS = [name for kind, name in LISTED if kind == "function"]
CLASSES = [name for kind, name in LISTED if kind == "class"]
SAYS = re.compile(r"\b(\w+Error)\b|[Rr]aises nothing")


def raised_in(thing):
    """The names of the errors that the public methods of a class raise."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    methods = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (node.name[0] != "_" or node.name == "__getitem__")
    ]
    return {
        node.exc.func.id
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
    }


def test_all_that_the_package_gives_is_listed():
    assert {f"zoo.{name}" for name in zoo.__all__} <= set(NAMES)


def test_every_kind_of_error_that_running_a_model_can_give_is_listed():
    classes = (thing for thing in vars(errors).values() if inspect.isclass(thing))
    kinds = {kind.__name__ for kind in classes if issubclass(kind, errors.ZooError)}
    kinds -= {"ZooError"}
    assert kinds == {name.rpartition(".")[2] for name in NAMES if name.startswith("zoo.errors.")}


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("zoo.errors.")])
def test_it_has_an_example(name):
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(named(name)))
    assert examples, f"{name} has no example"
    assert not any(example.options for example in examples), f"{name} has an example that is not run"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_raises(name):
    said = SAYS.findall(inspect.getdoc(named(name)))
    assert said, f"{name} does not say what it raises"
    unknown = {kind for kind in said if kind} - set(vars(errors)) - {"AssertionError"}
    assert not unknown, f"{name} names errors that there are not: {unknown}"


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_says_what_its_methods_raise(name):
    missing = raised_in(named(name)) - set(SAYS.findall(inspect.getdoc(named(name))))
    assert not missing, f"{name} raises {missing} and does not say so"


def test_what_is_raised_in_a_class_is_found():
    assert raised_in(named("zoo.Trace")) == {"PromptError"}
