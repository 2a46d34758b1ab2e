"""A lazy package runs when it is used, and is then what it always is."""

import subprocess
import sys
import textwrap
from importlib import import_module
from types import ModuleType

import pytest

from zoo.runtime.lazy_packages import LazyPackage, import_lazily


@pytest.fixture
def slow_package(tmp_path, monkeypatch):
    """A package that notes that it ran, with a package in it that does, too, and a module that needs neither."""
    inner = tmp_path / "slow_package" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text(
        "__version__ = '7'\nfrom .inner.part import value\nran = True\n"
    )
    (inner / "__init__.py").write_text("ran = True\n")
    (inner / "part.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "slow_package"
    for name in [name for name in sys.modules if name.startswith("slow_package")]:
        del sys.modules[name]


def test_a_submodule_is_imported_without_its_packages(slow_package):
    import_lazily(slow_package, f"{slow_package}.inner")
    part = import_module(f"{slow_package}.inner.part")
    package, inner = sys.modules[slow_package], sys.modules[f"{slow_package}.inner"]
    assert part.value == 3 and type(package) is type(inner) is LazyPackage
    assert not hasattr(package, "__wrapped__") and "ran" not in vars(package)
    assert package.ran and package.value == 3 and package.__version__ == "7"
    assert type(package) is ModuleType and type(inner) is LazyPackage
    assert package.inner is inner and inner.part is part and inner.ran
    with pytest.raises(AttributeError, match="slow_package"):
        package.unknown  # noqa: B018


def test_what_is_imported_stays_as_it_is(slow_package):
    package = import_module(slow_package)
    import_lazily(slow_package)
    assert sys.modules[slow_package] is package and type(package) is ModuleType


def test_a_package_that_fails_says_so_each_time(slow_package, tmp_path):
    (tmp_path / slow_package / "__init__.py").write_text("raise OSError('no such device')\n")
    import_lazily(slow_package)
    for _ in range(2):
        with pytest.raises(OSError, match="no such device"):
            sys.modules[slow_package].value  # noqa: B018


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        import_lazily("no_such_package")


@pytest.mark.slow
def test_tuning_imports_no_transformers_and_mlx_lm_is_whole_when_it_is_used():
    code = """
        import sys
        import zoo.training.adapters
        assert not {"transformers", "torch", "mlx_lm.utils"} & set(sys.modules)
        from mlx_lm import generate
        import mlx_lm
        assert callable(generate) and callable(mlx_lm.load) and callable(mlx_lm.tuner.linear_to_lora_layers)
        assert mlx_lm.__version__ and "transformers" in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
