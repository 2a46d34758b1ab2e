"""`zoo new`: what it writes installs and passes its own tests, and what it refuses leaves nothing behind."""

import ast
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import version
from inspect import ismodule
from pathlib import Path

import pytest

from tests.helpers.architectures import each_architecture, smallest_recipe
from zoo.errors import SourceError
from zoo.host.plugins import Plugin
from zoo.host.registry import Registry, default_registry, isolated
from zoo.recipe import Decoder
from zoo.testing import CHECKS, outcome, subject
from zoo_new.parts import ScaffoldError, named
from zoo_new.write_plugin import create, imported, zoo_source

BASES = [name for name, entry in default_registry().architectures.items() if entry.task != "classify"]
DECODERS = [name for name in BASES if isinstance(smallest_recipe(name), Decoder)]
NORMED = ("bloom", "nanochat")  # whose embeddings have a norm
PACKAGES = {
    "my-arch": dict(base="llama"),
    "my-blocked": dict(base="gpt2", block="norm"),
    "my-mixed": dict(base="mistral", block="mixer"),
    "my-fed": dict(base="qwen3-moe", block="feedforward"),
    "my-routed": dict(base="mixtral", block="router"),
    "my-plain": {},
    "my-encoder": dict(kind="encoder"),
    "my-translator": dict(kind="encoder-decoder"),
    "my-bert": dict(base="bert"),
    "my-bart": dict(base="bart", kind="encoder-decoder"),
    "my-t5": dict(base="t5"),
    "my-experts": dict(base="qwen3-moe"),
    "plain.2-block": dict(block="norm"),
    "plain-mixer": dict(block="mixer"),
    "plain-feedforward": dict(block="feedforward"),
    "plain-router": dict(block="router"),
    "my-norm": dict(kind="block"),
    "own-mixer": dict(kind="block", block="mixer"),
    "own-feedforward": dict(kind="block", block="feedforward"),
    "own-router": dict(kind="block", block="router"),
    "no-twice": dict(kind="strategy"),
    "counts": dict(kind="command"),
}
# Of this one the own tests run in each run, those of the others nightly. The wheel's check has others of each kind.
EACH_RUN = ("own-mixer",)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A package of each kind as it was written, by a Python that may write bytecode; nothing is run in them."""
    where = tmp_path_factory.mktemp("packages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", False)
        for name, settings in PACKAGES.items():
            assert create(name, where=where, **settings) == where / name
    return where


@pytest.fixture(scope="module")
def installed(packages, tmp_path_factory):
    """Copies of the packages, to be run: Python, pytest and ruff leave files of their own beside what they read."""
    return Path(shutil.copytree(packages, tmp_path_factory.mktemp("installed") / "packages"))


@pytest.fixture(scope="module")
def site(installed, make_site, tmp_path_factory):
    """A site where the copies are installed by their own pyproject.toml."""
    found = make_site(tmp_path_factory.mktemp("site"))
    for folder in installed.iterdir():
        found.install(folder)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in EACH_RUN else pytest.mark.nightly) for name in PACKAGES]
)
def test_a_package_passes_its_tests_as_written(name, installed, site):
    done = subprocess.run(
        [sys.executable, *["-m", "pytest", "-p", "zoo_pytest", "-p", "no:cacheprovider"], installed / name],
        capture_output=True,
        text=True,
        env={**os.environ, **site.environment},
    )
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 2


@pytest.mark.slow
def test_every_plugin_is_loaded_and_of_use(site, command):
    listed = command("plugins", environment=site.environment).stdout
    for name in PACKAGES:
        (line,) = (line for line in listed.splitlines() if line.startswith(f"{name} "))
        assert " loaded " in line, line
    answer = command("run", "my-arch", "The capital city of China is", environment=site.environment)
    assert answer.stdout.startswith(" Beijing") and "served by the plugin zoo-my-arch" in answer.stderr
    strategic = command(
        *("run", "llama", "The capital city of China is", "--strategy", "no-twice", "--max-tokens", "3"),
        environment=site.environment,
    )
    assert strategic.stdout.startswith(" Beijing"), strategic.stderr
    counted = command("counts", "llama", environment=site.environment)
    assert counted.stdout == "llama  1,049,728\n"


@pytest.mark.parametrize("name", PACKAGES)
def test_the_package_is_whole(packages, name):
    folder = packages / name
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    names = named(name)
    tests = f"tests/test_{names.module.removeprefix('zoo_')}.py"
    wanted = {"pyproject.toml", "README.md", ".gitignore", ".github/workflows/test.yml", tests}
    assert wanted | {f"{names.module}/__init__.py"} <= files
    assert not any("jinja" in file or "pycache" in file for file in files)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == names.distribution and project["entry-points"]["zoo"] == {name: names.module}
    assert project["dependencies"] == [f"mlx-zoo>={'.'.join(version('mlx-zoo').split('.')[:2])}"]
    readme = (folder / "README.md").read_text()
    assert re.search(r"<!-- card -->\n.*\| .*<!-- end -->", readme, re.DOTALL)
    assert not (folder.stat().st_mode & 0o055) ^ 0o055, "others may read it"


@pytest.mark.parametrize("name", PACKAGES)
def test_the_package_is_clean_python(installed, name):
    ruff = shutil.which("ruff", path=os.path.dirname(sys.executable)) or shutil.which("ruff")
    if ruff is None:
        pytest.fail("ruff is part of the extra `test`")
    for arguments in (
        ["check", "--select", "E,F,I,UP,B", "--line-length", "110"],
        ["format", "--check", "--line-length", "110"],
    ):
        done = subprocess.run(
            [ruff, *arguments, "--isolated", "--no-cache", "."],
            cwd=installed / name,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", PACKAGES)
def test_the_readme_and_the_workflow_link_no_page(packages, name):
    for file in (packages / name / "README.md", packages / name / ".github/workflows/test.yml"):
        assert not re.search(r"https?://(?!…)", file.read_text())


@pytest.mark.parametrize("wheel", [None, "wheels/mlx_zoo.whl"])
def test_the_workflow_installs_the_zoo_from_where_its_variable_says(packages, tmp_path, wheel):
    text = (packages / "my-arch" / ".github/workflows/test.yml").read_text()
    default = re.search(r"  MLX_ZOO: \$\{\{ vars.MLX_ZOO \|\| '(.*)' \}\}\n", text)[1]
    steps = re.findall(r"^ +- run: (.*)$", text, re.MULTILINE)
    assert steps[-2:] == ["zoo plugins", "pytest"]
    (tmp_path / "pip").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "pip").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/bin:/usr/bin", "MLX_ZOO": wheel or default}
    script = "\n".join(steps[:-2])
    done = subprocess.run(["sh", "-ec", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["install", wheel or "mlx-zoo", "install", "-e", ".[test]", ""]


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (None, "mlx-zoo"),
        ({"url": "file:///somewhere", "dir_info": {"editable": True}}, "mlx-zoo"),
        (
            {"url": "https://host/mlx_zoo-1.0-py3-none-any.whl"},
            "mlx-zoo @ https://host/mlx_zoo-1.0-py3-none-any.whl",
        ),
        (
            {"url": "https://host/zoo.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "mlx-zoo @ git+https://host/zoo.git@abc",
        ),
    ],
)
def test_the_workflow_installs_the_zoo_from_where_it_was_installed_here(monkeypatch, origin, source):
    class Installed:
        def read_text(self, name):
            return origin and json.dumps(origin)

    monkeypatch.setattr("zoo_new.write_plugin.distribution", lambda name: Installed())
    assert zoo_source() == source


def imports_of(path):
    """What a file takes from the zoo: modules with names, and the attributes of the packages that it imports whole."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    whole = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "zoo":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            whole |= {
                alias.asname or alias.name: alias.name for alias in node.names if alias.name.startswith("zoo")
            }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in whole:
            yield whole[node.value.id], node.attr


@pytest.mark.parametrize("name", PACKAGES)
def test_the_package_imports_only_what_is_promised(packages, plugin_pages, name):
    pages, own = plugin_pages, named(name).module
    found = [(path, *names) for path in (packages / name).rglob("*.py") for names in imports_of(path)]
    assert found
    for path, module, what in found:
        if module.startswith("zoo_"):  # recipe functions, rules, and where the package is
            promised = (
                module == own or what in ("WEIGHTS", "MLX_WEIGHTS", "__file__") or "weights" in what.lower()
            )
            function = getattr(sys.modules.get(module), what, None)
            assert promised or callable(function) or ismodule(function), f"{path}: {module}.{what}"
        else:
            assert module in pages.PROMISED and what in pages.promised(module), f"{path}: {module}.{what}"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("my-arch", "Embeddings are multiplied by 12."),
        ("my-t5", "mbeddings are multiplied by 12."),
        (
            "my-bert",
            "Scores are divided by 2.",
        ),  # a norm follows BERT's embedding, which undoes its scale
        ("my-bart", "cores are divided by 2."),
        ("my-experts", "2.5"),
    ],
)
def test_the_change_is_one_that_does_something_to_its_base(packages, name, change):
    _, differs, told = (packages / name / "README.md").read_text().partition("What differs from")
    assert differs and change in told.partition("<!-- end -->")[0]


def test_it_is_told_as_a_difference(packages):
    code = (packages / "my-arch" / "zoo_my_arch" / "__init__.py").read_text()
    assert "zoo_llama.llama(config)" in code and 'num_attention_heads"' not in code
    readme = (packages / "my-arch" / "README.md").read_text()
    assert "- Embeddings are multiplied by 12." in readme and "embedding_multiplier" in code


@pytest.mark.slow
@pytest.mark.parametrize("base", each_architecture([name for name in DECODERS if name not in NORMED]))
def test_any_decoder_is_a_base(base, tmp_path):
    folder = create("child", base=base, block="norm", where=tmp_path)
    with imported("zoo_child", folder) as module:
        known = isolated(module)
        made = subject("child", registry=known)
        wanted = ("parameters_equal_the_recipes", "saved_and_loaded_is_identical")
        for check in CHECKS:
            if check.name in wanted:
                assert outcome(check, made).passed, outcome(check, made).message
    assert made.recipe.embedding.norm.name == "child"


@pytest.mark.slow
@pytest.mark.parametrize("base", each_architecture(BASES))
def test_any_architecture_is_a_base_for_a_change(base, tmp_path):
    folder = create("child", base=base, where=tmp_path)
    with imported("zoo_child", folder) as module:
        made = subject("child", registry=isolated(module))
        check = next(check for check in CHECKS if check.name == "saved_and_loaded_is_identical")
        assert outcome(check, made).passed, outcome(check, made).message
        assert module.zoo_architectures and made.recipe != subject(base).recipe


@pytest.mark.slow
@pytest.mark.parametrize("block", ["mixer", "feedforward", "router"])
@pytest.mark.parametrize("base", each_architecture(DECODERS))
def test_any_decoder_with_such_a_part_takes_a_block(base, block, tmp_path):
    recipe = smallest_recipe(base)
    field = {"router": "feedforward.router"}.get(block, block)
    if not any(re.fullmatch(rf"layers\.\d+\.{field}", path) for path, _ in recipe.walk()):
        with pytest.raises(ScaffoldError, match=f'`base="{base}"`: its layers have no {block}'):
            create("child", base=base, block=block, where=tmp_path)
        return
    folder = create("child", base=base, block=block, where=tmp_path)
    with imported("zoo_child", folder) as module:
        made = subject("child", registry=isolated(module))
        check = next(check for check in CHECKS if check.name == "saved_and_loaded_is_identical")
        assert outcome(check, made).passed, outcome(check, made).message
    assert any(part.block() == f"{block}/child" for _, part in made.recipe.walk())
    assert made.numbers.get("model_type", "child") == "child"


def test_a_third_partys_architecture_whose_parts_have_no_name_is_a_base(site_here, tmp_path):
    site_here.add(
        "zoo-other",
        "other_plugin",
        "import dataclasses, zoo_llama\nfrom zoo.architecture import hookimpl\n@hookimpl\n"
        "def zoo_architectures():\n    llama = next(zoo_llama.zoo_architectures())\n"
        "    yield dataclasses.replace(llama, name='other', model_types=(), weights=tuple(list(llama.weights)),"
        " recipe=lambda config: llama.recipe(config))\n",
    )
    from zoo.host.plugins import load_plugins

    known = Registry(load_plugins({}))
    folder = create("child", base="other", where=tmp_path, registry=known)
    code = (folder / "zoo_child" / "__init__.py").read_text()
    assert 'BASE = next(a for a in other_plugin.zoo_architectures() if a.name == "other")' in code
    assert '"zoo-other>=1.2"' in (folder / "pyproject.toml").read_text()
    test = (folder / "tests" / "test_child.py").read_text()
    assert "zoo_registry(other_plugin, zoo_child)" in test and "zoo_child.BASE.recipe(config)" in test


@pytest.fixture
def site_here(make_site, tmp_path, monkeypatch):
    found = make_site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(found.path))
    yield found
    sys.modules.pop("other_plugin", None)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("My-Arch", {}, "'My-Arch' is not a name for a plugin: small letters"),
        ("my arch", {}, "is not a name"),
        ("my_arch", {}, "is not a name"),
        ("2fast", {}, "is not a name"),
        ("../up", {}, "is not a name"),
        ("-x", {}, "is not a name"),
        ("", {}, "is not a name"),
        ("x" * 61, {}, "is not a name"),
        ("llama", {}, "'llama' is taken: it is an architecture or model_type"),
        ("zoo-llama", {}, "is taken"),
        ("gpt", {}, "is taken"),
        ("beam", {"kind": "strategy"}, "'beam' is taken: it is a strategy"),
        ("run", {"kind": "command"}, "'run' is taken: it is a command"),
        ("rmsnorm", {"kind": "block"}, "'rmsnorm' is taken: it is a block"),
        ("rnn", {}, "'rnn' is taken: the plugin rnn"),
        ("pytest", {}, "Python has a module zoo_pytest already"),
        (
            "child",
            {"base": "bert", "kind": "encoder-decoder"},
            "it is of the kind encoder, and not encoder-d",
        ),
        ("child", {"base": "llama", "kind": "encoder"}, "it is of the kind decoder, and not encoder"),
        (
            "child",
            {"base": "t5", "block": "norm"},
            "it is of the kind encoder-decoder; `block` is for a decoder",
        ),
        ("child", {"kind": "block", "base": "llama"}, "`base` is for an architecture, not for a block"),
        (
            "child",
            {"kind": "command", "block": "norm"},
            "`block` is for a decoder or a block, not for the kind command",
        ),
        ("child", {"block": "poem"}, '`block="poem"`: not one of norm, mixer, feedforward, router'),
        (
            "child",
            {"base": "mamba", "block": "feedforward"},
            '`base="mamba"`: its layers have no feedforward',
        ),
        ("child", {"base": "bloom", "block": "norm"}, '`base="bloom"`: its embedding has a norm already'),
        ("child", {"base": "bert-classifier"}, "it is bert with another head; begin from that"),
        ("child", {"base": "llama", "block": "router"}, '`base="llama"`: its layers have no router'),
        ("rmsnorm", {"kind": "block", "block": "norm"}, "'rmsnorm' is taken: it is a block"),
        ("attention", {"block": "mixer"}, "'attention' is taken: it is a block"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_written(tmp_path, name, settings, words):
    with pytest.raises(ScaffoldError, match=re.escape(words)):
        create(name, where=tmp_path, **settings)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_base_is_named(tmp_path):
    with pytest.raises(SourceError, match="did you mean llama"):
        create("child", base="lama", where=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", ["mkdir", "touch"])
def test_what_is_there_stays_as_it_is(tmp_path, make):
    getattr(tmp_path / "child", make)()
    with pytest.raises(ScaffoldError, match="child: already exists"):
        create("child", where=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["child"]


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match=r"file/child: cannot be written \(Not a directory\)"):
        create("child", where=tmp_path / "file")


@pytest.mark.parametrize("size", [0, 500, 1300])
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, size):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        with pytest.raises(SourceError, match=r"child: cannot be written \(File too large\)"):
            create("child", base="llama", where=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == [] and "zoo_child" not in sys.modules


def test_the_zoo_before_a_name_may_be_given(tmp_path):
    folder = create("zoo-child", base="llama", where=tmp_path)
    assert folder.name == "zoo-child" and (folder / "zoo_child").is_dir()
    assert 'name="child"' in (folder / "zoo_child" / "__init__.py").read_text()


def test_a_failure_half_way_leaves_nothing(tmp_path, monkeypatch):
    def fails(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("zoo_new.write_plugin.with_card", fails)
    with pytest.raises(KeyboardInterrupt):
        create("child", where=tmp_path)
    assert list(tmp_path.iterdir()) == [] and "zoo_child" not in sys.modules


@pytest.mark.parametrize("name", ["list", "lambda", "pocket", "class", "a.b", "import"])
def test_names_that_python_or_the_templates_use_are_no_trouble(tmp_path, name):
    folder = create(name, base="llama", where=tmp_path)
    names = named(name)
    with imported(names.module, folder) as module:
        assert getattr(module, names.function)(__import__("zoo.config").config.Config(module.POCKET))


def test_the_command_line(command, tmp_path):
    done = command("new", "my-arch", "--base", "llama")
    assert done.returncode == 0 and "Next: pip install -e my-arch && zoo test my-arch" in done.stdout
    summing = command("new", "my-sum", "--kind", "command")
    assert (
        "pip install -e 'my-sum[test]' && pytest" in summing.stdout
    )  # what a plain install has is recommended
    again = command("new", "my-arch")
    assert again.returncode == 1 and again.stderr == "zoo: error: my-arch: already exists\n"
    wrong = command("new", "other", "--kind", "poem")
    assert wrong.returncode == 2 and "poem" in wrong.stderr and not (tmp_path / "other").exists()


def test_the_kind_of_block_may_be_left_out(command, tmp_path):
    assert command("new", "my-arch", "--block").returncode == 0
    assert "class MyArchNorm" in (tmp_path / "my-arch" / "zoo_my_arch" / "__init__.py").read_text()
    assert command("new", "my-mixer", "--kind", "block", "--block", "mixer").returncode == 0
    assert "class MyMixerMixer" in (tmp_path / "my-mixer" / "zoo_my_mixer" / "__init__.py").read_text()


def test_a_taken_distribution_is_named(tmp_path):
    known = Registry([*default_registry().plugins, Plugin("other-name", "zoo-child", "2.0")])
    with pytest.raises(ScaffoldError, match=r"plugin other-name \(zoo-child 2.0\) is installed"):
        create("child", where=tmp_path, registry=known)
