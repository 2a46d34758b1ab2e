"""Weight rules: an invertible algebra from a checkpoint's tensor names to parameter paths. Imports no mlx.

A pattern is a tensor name in which `{i}` stands for one dotted step, `*` for the rest of the name, and
`[model.]` for a prefix that some checkpoints leave out (it is written on export). Placeholders mean the same
in source and target; an invalid pattern is refused when the rule is made. The rules run forward to load and backward to
export, on any array type that has `shape`, `T`, `swapaxes`, `reshape` and slicing; `join` (concatenation) is passed in,
so that nothing here needs mlx.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from zoo.errors import CheckpointError, PluginError
from zoo.frozen import Frozen, frozen
from zoo.recipe.models import Model
from zoo.recipe.spec import Spec
from zoo.recipe.vocabulary import Embedding
from zoo.weights.patterns import check_pair, check_pattern, fill, matcher, matches

Tensors = MutableMapping[str, Any]
Join = Callable[[Sequence[Any], int], Any]

TABLE = "embedding.tokens.weight"


class Rule(Frozen):
    """A weight rule. `forward` moves the tensors it matches from `source` to `target`; `backward` undoes it.

    `recipe` is the model's, for rules that depend on it (a tied head). Each tensor is taken by one rule. One that is not
    `exact` computes with the numbers, and may round them.
    """

    exact: ClassVar[bool] = True

    def forward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        """Take tensors by their checkpoint names out of `source`, put parameters into `target`."""
        raise NotImplementedError

    def backward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        """Take parameters out of `source`, put tensors under their checkpoint names into `target`."""
        raise NotImplementedError

    def holder(self, path: str) -> str | None:
        """The name of the tensor that holds the parameter at `path` among others, for an error message."""
        return None


@frozen()
class Rename(Rule):
    """A tensor under another name. A subclass may change the tensor too: `loaded` on the way in, `saved` on the way out."""

    source: str
    target: str

    def __post_init__(self) -> None:
        check_pair(self, self.source, self.target)

    def loaded(self, tensor: Any) -> Any:
        """The parameter that a tensor of the checkpoint becomes."""
        return tensor

    def saved(self, parameter: Any) -> Any:
        """The inverse of `loaded`."""
        return parameter

    def forward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        for name, values in matches(self.source, source):
            _put(target, fill(self.target, values), self.loaded(source.pop(name)), name)

    def backward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        for name, values in matches(self.target, source):
            _put(target, fill(self.source, values), self.saved(source.pop(name)), name)


@frozen()
class Transpose(Rename):
    """A matrix stored (in, out), as GPT-2's Conv1D does, where a linear layer has (out, in); each of stacked ones."""

    def loaded(self, tensor: Any) -> Any:
        return _transpose(tensor)

    def saved(self, parameter: Any) -> Any:
        return _transpose(parameter)


@frozen()
class Depthwise(Rename):
    """A depthwise convolution's weight, stored with one input channel at `axis`: (E, 1, K), or (E, K, 1) where it is 2.

    The parameter is (K, E), that of `zoo.blocks.convolution.Convolution`: E channels, K values of each.
    """

    axis: int = 1

    def loaded(self, tensor: Any) -> Any:
        if len(tensor.shape) != 3 or tensor.shape[self.axis] != 1:
            return tensor  # whose shape is refused later
        return (tensor[:, 0] if self.axis == 1 else tensor[:, :, 0]).T

    def saved(self, parameter: Any) -> Any:
        return parameter.T[:, None] if self.axis == 1 else parameter.T[:, :, None]


@frozen()
class Split(Rule):
    """One fused tensor to its parts along the output axis; `transpose` when it is stored (in, out).

    The parts are equal, or in the proportions of `sizes`. With `groups` the outputs are so many blocks, each of which
    holds its share of every part in turn. A size, or the number of groups, is a whole number or the name of one in the
    spec whose parameters the targets are: "kv_heads" of `layers.{i}.mixer`. One unit of the proportions is what the
    tensor's shape leaves for it. `axis` is where the outputs are: 1 in matrices stacked over experts, (E, out, in).
    """

    source: str
    targets: tuple[str, ...]
    transpose: bool = False
    axis: int = 0
    sizes: tuple[int | str, ...] | None = None
    groups: int | str = 1

    def __post_init__(self) -> None:
        parts = len(self.targets) if isinstance(self.targets, tuple) else 0
        if parts < 2 or len(set(self.targets)) < parts:
            why = "targets are a tuple of two patterns or more, no two alike"
            raise PluginError(f"weight rule {self!r}: {why}")
        if type(self.transpose) is not bool or type(self.axis) is not int or self.axis < 0:
            raise PluginError(f"weight rule {self!r}: transpose is True or False, axis a whole number from 0")
        for target in self.targets:
            check_pair(self, self.source, target)
        label = f"Split({self.source!r})"
        if self.sizes is not None and not (isinstance(self.sizes, tuple) and len(self.sizes) == parts):
            raise PluginError(f"{label}: sizes is a tuple of {parts}, one a target, not {self.sizes!r}")
        for number in (*(self.sizes or ()), self.groups):
            named = isinstance(number, str) and number.isidentifier()
            if not named and (type(number) is not int or number < 1):
                why = "is neither a whole number above zero nor a field's name"
                raise PluginError(f"{label}: {number!r} {why}")

    def forward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        for name, values in matches(self.source, source):
            paths = [fill(pattern, values) for pattern in self.targets]
            numbers = self._numbers(recipe, paths[0])
            if numbers is None:
                continue  # of no layer: left over, and named as that
            groups, *sizes = numbers
            whole = source.pop(name)
            whole = _transpose(whole) if self.transpose else whole
            outputs = whole.shape[self.axis] if self.axis < len(whole.shape) else 1
            unit, odd = divmod(outputs, sum(sizes))
            if odd or any(size * unit % groups for size in sizes):
                parts = _parts_in_words(sizes, groups)
                raise CheckpointError(f"{name}: shape {tuple(whole.shape)} does not split into {parts}")
            whole = _divide(whole, self.axis, groups)
            before = (slice(None),) * (self.axis + (groups > 1))
            ends = accumulate((size * unit // groups for size in sizes), initial=0)
            for path, span in zip(paths, pairwise(ends), strict=True):
                _put(target, path, _undivide(whole[(*before, slice(*span))], self.axis, groups), name)

    def backward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        for name, values in matches(self.targets[0], source):
            groups = (self._numbers(recipe, name) or [1])[0]
            names = [name, *(fill(pattern, values) for pattern in self.targets[1:])]
            parts = [_divide(source.pop(part), self.axis, groups) for part in names]
            whole = _undivide(join(parts, self.axis + (groups > 1)), self.axis, groups)
            target[fill(self.source, values)] = _transpose(whole) if self.transpose else whole

    def holder(self, path: str) -> str | None:
        fitting = (match for pattern in self.targets if (match := matcher(pattern).fullmatch(path)))
        return next((fill(self.source, match.groupdict()) for match in fitting), None)

    def _numbers(self, recipe: Model, path: str) -> list[int] | None:
        """The groups, then each part's size, for the parameter at `path`; None when the recipe has no such place."""
        wanted = (self.groups, *(self.sizes or (1,) * len(self.targets)))
        named = [number for number in wanted if isinstance(number, str)]
        spec: Any = owner(recipe, path) if named else None
        if named and spec is None:
            return None
        counts: dict[Any, Any] = {name: getattr(spec, name, None) for name in named}
        for name, number in counts.items():
            if type(number) is not int or number < 1:
                raise PluginError(f"Split({self.source!r}): {spec.block()} at {path} has no number {name!r}")
        return [counts.get(number, number) for number in wanted]


def _transpose(matrix: Any) -> Any:
    """(…, in, out) to (…, out, in) and back; a vector as it is."""
    return matrix.T if len(matrix.shape) < 3 else matrix.swapaxes(-1, -2)


def _divide(whole: Any, axis: int, groups: int) -> Any:
    """The outputs at `axis` as groups of them: (…, O, …) to (…, groups, O / groups, …)."""
    if groups == 1:
        return whole
    shape = tuple(whole.shape)
    return whole.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def _undivide(whole: Any, axis: int, groups: int) -> Any:
    """The inverse of `_divide`."""
    if groups == 1:
        return whole
    shape = tuple(whole.shape)
    return whole.reshape(*shape[:axis], groups * shape[axis + 1], *shape[axis + 2 :])


def _parts_in_words(sizes: Sequence[int], groups: int) -> str:
    """The parts of a fused tensor in words."""
    equal = len(set(sizes)) == 1
    parts = f"{len(sizes)} equal parts" if equal else f"parts as {' : '.join(map(str, sizes))}"
    return parts if groups == 1 else f"{groups} groups of {parts}"


def owner(recipe: Model, path: str) -> Spec | None:
    """The innermost spec on the path of a parameter; None for a layer that does not exist."""
    found: Spec = recipe
    here: Any = recipe
    for step in path.split("."):
        if isinstance(here, tuple):
            if not (step.isdecimal() and len(step) < 10 and int(step) < len(here)):
                return None
            here = here[int(step)]
        else:
            here = getattr(here, step, None)
        if isinstance(here, Spec):
            found = here
        elif not isinstance(here, tuple):
            break
    return found


@frozen()
class Stack(Rule):
    """Tensors numbered by `{e}`, one an expert, to one with the experts along a new first axis: (E, …)."""

    source: str
    target: str

    def __post_init__(self) -> None:
        if "{e}" not in check_pattern(self, self.source):
            raise PluginError(f"weight rule {self!r}: its source has no {{e}}, the number of the expert")
        check_pair(self, self.source, self.target, only_source="{e}")

    def forward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        groups: dict[str, dict[int, str]] = {}
        for name, values in matches(self.source, source):
            if values["e"].isdecimal():
                groups.setdefault(fill(self.target, values), {})[int(values["e"])] = name
        for new, names in groups.items():
            numbers = sorted(names)
            if numbers != list(range(len(numbers))):
                if len(numbers) > 1:
                    gap = next(number for number in range(len(numbers)) if number not in names)
                    raise CheckpointError(
                        f"{names[numbers[0]]}: of its like, the tensor of expert {gap} is missing"
                    )
                continue  # one tensor by itself, looked at for an error message
            if len({tuple(source[name].shape) for name in names.values()}) > 1:
                raise CheckpointError(f"{names[0]}: the experts' tensors have different shapes")
            _put(target, new, join([source.pop(names[number])[None] for number in numbers], 0), names[0])

    def backward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        for name, values in matches(self.target, source):
            whole = source.pop(name)
            for number in range(whole.shape[0]):
                target[fill(self.source, values | {"e": str(number)})] = whole[number]


@frozen()
class OfBlock(Rule):
    """Rules for the parameters of blocks of one kind, `spec`, where others have parameters of the same names.

    In a hybrid the `output` of layers that attend has another name in the checkpoint than that of layers with a state. Rules
    that stand later take the parameters of other blocks.
    """

    spec: type[Spec]
    rules: tuple[Rule, ...]

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Whether all its rules are."""
        return all(rule.exact for rule in self.rules)

    def forward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        for rule in self.rules:
            rule.forward(source, target, recipe, join)

    def backward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        own = {path: source.pop(path) for path in list(source) if isinstance(owner(recipe, path), self.spec)}
        for rule in self.rules:
            rule.backward(own, target, recipe, join)
        source.update(own)

    def holder(self, path: str) -> str | None:
        return next(filter(None, (rule.holder(path) for rule in self.rules)), None)


@frozen()
class OutputHead(Rename):
    """The head's matrix and bias; where the recipe ties it to the embedding, or has no head, the checkpoint's matrix is dropped.

    A copy that differs has made the recipe's head untied. One that stands alone is the embedding's table: a writer that
    keeps one name of a shared matrix may keep this one. The bias of a tied head is `head.bias`, that of a head with a matrix
    of its own `head.output.bias`: "lm_head.*" to "head.output.*" serves both.
    """

    def forward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        for rule in self._rules(recipe, alone=TABLE not in target):
            rule.forward(source, target, recipe, join)

    def backward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        for rule in self._rules(recipe):
            rule.backward(source, target, recipe, join)

    def _rules(self, recipe: Model, alone: bool = False) -> Iterator[Rule]:
        """Yields the rules for the head of this recipe. `alone`: no tensor has become the embedding's table."""
        head = recipe.head
        if head is not None and not head.ties_embedding:
            yield Rename(self.source, self.target)
            return
        if getattr(head, "bias", False) and self.source.endswith(".*") and self.target.endswith(".output.*"):
            yield Rename(f"{self.source[:-1]}bias", f"{self.target.removesuffix('output.*')}bias")
        if alone and self.target.startswith("head.") and isinstance(owner(recipe, TABLE), Embedding):
            yield Rename(self.source.replace(".*", ".weight"), TABLE)
        yield Ignore(self.source)


@frozen()
class Ignore(Rule):
    """Tensors that the model does not need: computed buffers, masks, a prediction layer that is not run."""

    source: str

    def __post_init__(self) -> None:
        check_pattern(self, self.source)

    def forward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        for name, _ in matches(self.source, source):
            del source[name]

    def backward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        pass


def behind(prefix: str, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules for tensors whose names have `prefix`, "language_model.", before them, or not."""

    def change(rule: Any) -> Rule:
        inner = rule.rules if isinstance(rule, OfBlock) else None
        values = (
            dict(source=f"[{prefix}]{rule.source}") if inner is None else dict(rules=behind(prefix, inner))
        )
        return replace(rule, **values)

    return tuple(map(change, rules))


def _put(target: Tensors, name: str, tensor: Any, origin: str) -> None:
    """Add a tensor made of the one called `origin`; CheckpointError where the name is taken."""
    if name in target:
        raise CheckpointError(f"{origin}: a second tensor for {name}")
    target[name] = tensor


def apply(
    rules: Sequence[Rule], tensors: Mapping[str, Any], recipe: Model, join: Join
) -> tuple[Tensors, Tensors]:
    """Run the rules forward: the parameters by path, and the tensors that no rule took.

    Of two rules that match a tensor the first takes it, so a rule that is listed twice does no more than one.
    """
    source: Tensors = dict(tensors)
    target: Tensors = {}
    for rule in rules:
        rule.forward(source, target, recipe, join)
    return target, source


def invert(
    rules: Sequence[Rule], parameters: Mapping[str, Any], recipe: Model, join: Join
) -> tuple[Tensors, Tensors]:
    """Run the rules backward: the tensors by checkpoint name, and the parameters that no rule took."""
    source: Tensors = dict(parameters)
    target: Tensors = {}
    for rule in rules:
        rule.backward(source, target, recipe, join)
    return target, source
