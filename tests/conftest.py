"""Small model folders that the tests load, run and damage."""

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import tomllib
from pathlib import Path

import pytest

from tests.helpers import one_core  # isort: skip (before mlx)
from tests.helpers.pretended_gpu import PRETENDED, pretend  # isort: skip (before mlx)
import zoo  # noqa: F401 (before mlx, so that the fast BLAS is loaded)

if PRETENDED:
    pretend()
from tests.helpers.loopback_hub import ID, Hub, Repository
from tests.helpers.waiting import PATIENCE
from zoo import runtime
from zoo.checkpoint.convert import save
from zoo.host.registry import default_registry
from zoo.runtime import device
from zoo.testing import subject

# Before huggingface_hub is imported, which reads them once: no test may see, or fill, the cache of who runs it.
os.environ.pop("COLUMNS", None)  # in a pipe tables then have all the room they want
if importlib.util.find_spec("hypothesis"):  # not where the wheel alone is tested, or parity
    import hypothesis

    hypothesis.settings.register_profile("zoo", deadline=None, database=None)  # a busy machine is no failure
    hypothesis.settings.load_profile("zoo")
if runtime.on_gpu() and not PRETENDED:  # tolerances are those of float32, embedded checkpoints have halves
    _compute_dtype = runtime.compute_dtype
    runtime.compute_dtype = lambda asked=None: _compute_dtype(asked or "float32")
    runtime.dequantized_dtype = lambda: runtime.compute_dtype()
_HOME = tempfile.TemporaryDirectory(prefix="zoo-tests-")
os.environ["HF_HOME"] = _HOME.name
os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_STATE_HOME"] = _HOME.name  # nor their settings and history
for _name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
    os.environ.pop(_name, None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One more than there are cores: many tests wait, for a process of their own or for a clock."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config):
    """Keep each process of the ordinary and the slow tests on one core. Browsers, and what other suites start, need more."""
    if config.option.markexpr in ("not slow", "slow and not nightly"):
        one_core.use_one_core()


def tool(name):
    """A script of the folder tools, imported."""
    path = Path(__file__).parent.parent / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def plugin_pages():
    """The script that makes pages about plugins from the code, and knows what these promise."""
    return tool("plugin_pages")


@pytest.fixture
def cpu(monkeypatch):
    """The CPU, on a machine with a GPU too."""
    import mlx.core as mx

    if PRETENDED:
        pytest.skip("is about the CPU's own means")
    default = mx.default_device()
    for module in (device, runtime):
        monkeypatch.setattr(module, "on_gpu", lambda: False)
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(default)


@pytest.fixture
def process(tmp_path):
    """Run `zoo …` as a user would, in a process of its own; gives the finished process, output as text."""

    def call(*arguments, stdin="", environment=None, timeout=PATIENCE):
        return subprocess.run(
            [sys.executable, "-m", "zoo", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout,
            cwd=tmp_path,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})},
        )

    return call


@pytest.fixture
def command(tmp_path, process):
    """Like `process`, but within this one, which is faster, unless its environment is to be another one."""
    from tests.helpers.invoked import invoke

    def call(*arguments, stdin="", environment=None):
        if environment and not environment.keys() <= {"COLUMNS"}:
            return process(*arguments, stdin=stdin, environment=environment)
        return invoke(tmp_path, [*map(str, arguments)], stdin, environment)

    return call


class Site:
    """A folder of installed distributions, each with one plugin, as pip would leave them."""

    def __init__(self, path):
        path.mkdir(parents=True, exist_ok=True)
        self.path = path

    @property
    def environment(self):
        """What makes a new process find them."""
        return {"PYTHONPATH": os.pathsep.join([str(self.path), os.environ.get("PYTHONPATH", "")])}

    def add(self, distribution, module, code, entry=None, metadata=True, requires=()):
        """A distribution whose plugin `module` has this code; `entry` is what its entry point names."""
        (self.path / f"{module}.py").write_text(textwrap.dedent(code))
        self.register(distribution, f"{module} = {entry or module}", metadata, requires)

    def install(self, folder):
        """A package as its own pyproject.toml says, its modules linked."""
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        points = project["project"]["entry-points"]["zoo"]
        self.register(project["project"]["name"], "\n".join(f"{k} = {v}" for k, v in points.items()))
        for module in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
            (self.path / module).symlink_to(folder / module)

    def register(self, distribution, points, metadata=True, requires=()):
        """The metadata of a distribution with these entry points of the group `zoo`, and what it requires."""
        info = self.path / f"{distribution.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        if metadata:
            lines = [
                f"Name: {distribution}",
                "Version: 1.2",
                *(f"Requires-Dist: {line}" for line in requires),
            ]
            (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
        (info / "entry_points.txt").write_text(f"[zoo]\n{points}\n")


@pytest.fixture(scope="session")
def make_site():
    """The function that makes an empty `Site` in a folder, which processes with its `environment` see."""
    return Site


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An empty `Site` that this process sees too; what it imported from there is forgotten afterwards."""
    default_registry()  # made once a process, of what is installed without this site
    found = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(found.path))
    yield found
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(found.path)):
            del sys.modules[name]


@pytest.fixture(scope="session")
def tutorial(make_site, tmp_path_factory):
    """The files that the tutorial tells a reader to write, and a site where its package is installed."""
    where = tmp_path_factory.mktemp("tutorial")
    tool("tutorial_files").write(where)
    found = make_site(tmp_path_factory.mktemp("site"))
    found.install(where / "zoo-gptj")
    return where, found


@pytest.fixture(scope="session")
def extending(make_site, tmp_path_factory):
    """A site where the package is installed that the page on samplers, tokenizers and formats tells a reader to write."""
    where = tmp_path_factory.mktemp("extending")
    tool("tutorial_files").write(where, "extending")
    found = make_site(tmp_path_factory.mktemp("site"))
    found.install(where / "zoo-extras")
    return found


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory):
    """A folder with a small tokenizer, trained now: nothing embedded is needed for it."""
    from itertools import islice

    from zoo.training.vocabulary import save_tokenizer, train_tokenizer
    from zoo_corpora.atlas import documents

    path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(train_tokenizer(islice(documents("train"), 300), 400), path)
    return path


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """The folder of a small random model, in Hugging Face's layout; written at the first call, and not to be changed."""

    @functools.cache
    def written(name, preset):
        made = subject(name, preset)
        path = tmp_path_factory.mktemp("random") / "model"
        save(path, made.model, made.architecture, made.recipe, made.numbers)
        return path

    return written


@pytest.fixture
def folder(tmp_path, random_model):
    """Write a small random model as a Hugging Face folder; gives its path. Extra keys change its config.json."""

    def write(name="llama", changes=None, tokenizer=True, where="model", preset=None):
        path = tmp_path / where
        source = random_model(name, "pocket" if tokenizer else preset)
        shutil.copytree(source, path, dirs_exist_ok=True)
        if changes:
            config = json.loads((path / "config.json").read_text())
            config |= changes
            (path / "config.json").write_text(json.dumps(config))
        if tokenizer:
            pocket = default_registry().architecture("llama").preset("pocket").folder
            for file in ("tokenizer.json", "tokenizer_config.json"):
                (path / file).write_bytes((pocket / file).read_bytes())
        return path

    return write


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with nothing in it, an empty cache, and this process's huggingface_hub pointed at both."""
    from huggingface_hub import constants

    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "home" / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the pauses between tries
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    server.environment = {
        "HF_ENDPOINT": server.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_CACHE": str(tmp_path / "home" / "hub"),
        "HF_HUB_OFFLINE": "0",
    }
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def pocket():
    """The files of a small model, by name."""
    folder = default_registry().architecture("llama").preset("pocket").folder
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def repository(hub, pocket):
    """The small model on the hub, among files that nobody needs."""
    made = Repository()
    needless = (
        *(
            "README.md",
            "modeling.py",
            "pytorch_model.bin",
            "consolidated.safetensors",
            "model.fp16.safetensors",
        ),
        *("original/consolidated.00.pth", "original/params.json", "onnx/model.onnx", "model.Q4_K_M.gguf"),
        *("vocab.json", "merges.txt", "tokenizer.model", "training_args.bin"),
    )
    made.commit({**dict.fromkeys(needless, b"no need of this"), **pocket})
    hub.repositories[ID] = made
    return made
