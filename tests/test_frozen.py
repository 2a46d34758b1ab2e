"""Frozen dataclasses whose methods are not compiled for each class."""

import dataclasses
import inspect
from typing import ClassVar

import pytest

from zoo.frozen import Frozen, frozen


@frozen()
class Point(Frozen):
    kind: ClassVar[str] = "point"
    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list)
    hidden: int = dataclasses.field(default=0, repr=False)


@frozen(kw_only=True)
class Named(Point):
    name: str
    y: int = 7

    def __post_init__(self):
        if not self.name:
            raise ValueError("no name")


@dataclasses.dataclass(frozen=True)
class Ordinary(Point):
    z: int = 3


@frozen()
class Below(Ordinary):
    w: int = 4


def test_fields_are_given_by_position_by_name_or_by_default():
    point = Point(1, tags=["a"])
    assert (point.x, point.y, point.tags, point.hidden) == (1, 2, ["a"], 0)
    assert repr(point) == "Point(kind='point', x=1, y=2, tags=['a'])"
    assert list(vars(point)) == ["x", "y", "tags", "hidden"]
    assert Point(1).tags is not Point(1).tags
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "Point.__init__() is missing the argument 'x'"),
        ((1,), {"colour": 1}, "Point.__init__() got an unexpected keyword argument 'colour'"),
        ((1,), {"x": 1}, "Point.__init__() takes each of x, y, tags, hidden once"),
        ((1, 2, [], 3, 4), {}, "Point.__init__() takes each of x, y, tags, hidden once"),
    ],
)
def test_wrong_arguments_are_named(args, kwargs, words):
    with pytest.raises(TypeError) as raised:
        Point(*args, **kwargs)
    assert str(raised.value) == words


def test_help_shows_the_arguments():
    assert str(inspect.signature(Point)).startswith("(x: int, y: int = 2, tags: list[str] = <")
    assert str(inspect.signature(Named)).endswith("hidden: int = 0, *, y: int = 7, name: str)")


def test_a_subclass_overrides_a_default_and_is_checked_when_it_is_made():
    assert (Named(1, name="n").y, Point(1).y) == (7, 2)
    assert Named.__match_args__ == ("x", "tags", "hidden")
    with pytest.raises(ValueError, match="no name"):
        Named(1, name="")


def test_nothing_can_be_assigned_or_deleted():
    for change in (lambda p: setattr(p, "x", 3), lambda p: setattr(p, "new", 3), lambda p: delattr(p, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change(Point(1))


def test_two_are_equal_when_class_and_fields_are():
    assert Point(1) == Point(1, 2) and Point(1) != Point(2) and Point(1) != Ordinary(1)
    assert len({Named(1, tags=(), name="n"), Named(1, tags=(), name="n")}) == 1


def test_the_functions_of_dataclasses_know_them():
    assert [field.name for field in dataclasses.fields(Named)] == ["x", "y", "tags", "hidden", "name"]
    assert dataclasses.replace(Point(1), x=5) == Point(5)
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 2, "tags": [], "hidden": 0}
    assert not hasattr(Point, "tags") and Point.hidden == 0 and Point.y == 2


def test_an_ordinary_frozen_dataclass_may_stand_between_two():
    assert Ordinary(1, z=9).z == 9
    assert Below(1, z=9, w=8) == Below(1, z=9, w=8) and Below(1, w=8).w == 8
    with pytest.raises(dataclasses.FrozenInstanceError):
        Ordinary(1).z = 2
