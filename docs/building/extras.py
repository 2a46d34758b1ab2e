"""`{extras}`: the extras that pyproject.toml declares, what each is for, and the packages that it installs."""

from __future__ import annotations

import tomllib
from html import escape

from docutils import nodes
from packaging.requirements import Requirement

from building.build_cache import ROOT
from building.directive import ZooDirective, html
from building.markdown import table

HEADS = {"en": ("Extra", "What it is for", "Packages"), "zh": ("extra", "用途", "软件包")}
USES = {
    "fast": (
        "MKL on Linux with an x86-64 processor, in the place of OpenBLAS where the processor is Intel's",
        "Linux、x86-64 上的 MKL：处理器是 Intel 的时，用它代替 OpenBLAS",
    ),
    "serve": ("<code>zoo serve</code>: models over HTTP", "<code>zoo serve</code>：通过 HTTP 提供模型"),
    "eval": (
        "<code>zoo evaluate</code> with the tasks of lm-eval, and the scores chrF and BLEU",
        "<code>zoo evaluate</code> 中 lm-eval 的任务，以及 chrF 和 BLEU 分数",
    ),
    "plots": (
        "the figures of <code>zoo lab</code>",
        "<code>zoo lab</code> 的图",
    ),
    "docs": (
        "building this site: <code>make docs</code>",
        "生成本站：<code>make docs</code>",
    ),
    "test": (
        "the tests, the linter and the type checker: <code>make test</code>, <code>make lint</code>, <code>make types</code>",
        "测试、代码检查和类型检查：<code>make test</code>、<code>make lint</code>、<code>make types</code>",
    ),
    "pages": (
        "the tests of this site in a browser: <code>make pages</code>",
        "在浏览器中测试本站：<code>make pages</code>",
    ),
    "parity": (
        "the comparison with transformers, torch and mlx-lm: <code>make parity</code>",
        "与 transformers、torch 和 mlx-lm 的对照测试：<code>make parity</code>",
    ),
    "clients": (
        "the tests of the server with the libraries of others: <code>make clients</code>",
        "用其他软件的客户端库测试服务器：<code>make clients</code>",
    ),
}


def rows(declared: dict[str, list[str]], language: str) -> list[list[str]]:
    """A row of HTML for each extra, those that a user needs first. ValueError where one has no words here, or none is declared."""
    if unlike := sorted(declared.keys() ^ USES.keys()):
        raise ValueError(f"pyproject.toml and building/extras.py differ in: {', '.join(unlike)}")
    found = []
    for name, words in USES.items():
        packages = (str(_named(line)) for line in declared[name])
        found.append(
            [
                f"<code>{escape(name)}</code>",
                words[language == "zh"],
                ", ".join(f"<code>{escape(package)}</code>" for package in packages),
            ]
        )
    return found


def _named(line: str) -> str:
    """The package that a requirement names, with its extras, without versions."""
    found = Requirement(line)
    return f"{found.name}[{','.join(sorted(found.extras))}]" if found.extras else found.name


def declared() -> dict[str, list[str]]:
    """The extras of this repository: their requirements by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    return extras


class Extras(ZooDirective):
    """The table."""

    def made(self) -> list[nodes.Node]:
        self.env.note_dependency(str(ROOT / "pyproject.toml"))
        head = HEADS[self.language]
        return [html(table(list(head), rows(declared(), self.language), "zoo-sheet", head[0]))]


def setup(app: object) -> None:
    """Add the directive."""
    app.add_directive("extras", Extras)  # type: ignore[attr-defined]
