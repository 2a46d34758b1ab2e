"""Importing submodules of a package without running the `__init__.py` of the package.

`import mlx_lm.models.cache` first runs `mlx_lm/__init__.py`, which imports transformers, and with it PyTorch where that is
installed: seconds, for a module that needs neither.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package whose `__init__.py` runs at the first access to a name that is not an imported submodule."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":  # what Python itself asks of every module
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None and self.__spec__.loader is not None
        try:
            self.__spec__.loader.exec_module(self)
        except BaseException:
            self.__class__ = LazyPackage  # the next access tries again, and says again what is wrong
            raise
        return getattr(self, name)


def import_lazily(*names: str) -> None:
    """Make these packages lazy unless they are imported already. A parent must come before its subpackages.

    ModuleNotFoundError for a package that is not installed.
    """
    for name in names:
        if name in sys.modules:
            continue
        spec = find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        package = module_from_spec(spec)
        package.__class__ = LazyPackage
        sys.modules[name] = package
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, package)
