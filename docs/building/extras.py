"""The extras that pyproject.toml declares, what each is for, and the packages that it installs. Needs no Sphinx."""

from __future__ import annotations

import tomllib

from packaging.requirements import Requirement

from building.build_cache import ROOT

HEADS = {"en": ("Extra", "What it is for", "Packages"), "zh": ("extra", "用途", "软件包")}
USES = {
    "fast": (
        "MKL on Linux with an x86-64 processor, in the place of OpenBLAS where the processor is Intel's",
        "Linux、x86-64 上的 MKL：处理器是 Intel 的时，用它代替 OpenBLAS",
    ),
    "serve": ("`zoo serve`: models over HTTP", "`zoo serve`：通过 HTTP 提供模型"),
    "eval": (
        "`zoo evaluate` with the tasks of lm-eval, and the scores chrF and BLEU",
        "`zoo evaluate` 中 lm-eval 的任务，以及 chrF 和 BLEU 分数",
    ),
    "plots": (
        "the figures of `zoo lab`",
        "`zoo lab` 的图",
    ),
    "docs": (
        "building this site: `make docs`",
        "生成本站：`make docs`",
    ),
    "test": (
        "the tests, the linter and the type checker: `make test`, `make lint`, `make types`",
        "测试、代码检查和类型检查：`make test`、`make lint`、`make types`",
    ),
    "pages": (
        "the tests of this site in a browser: `make pages`",
        "在浏览器中测试本站：`make pages`",
    ),
    "parity": (
        "the comparison with transformers, torch and mlx-lm: `make parity`",
        "与 transformers、torch 和 mlx-lm 的对照测试：`make parity`",
    ),
    "clients": (
        "the tests of the server with the libraries of others: `make clients`",
        "用其他软件的客户端库测试服务器：`make clients`",
    ),
}


def rows(declared: dict[str, list[str]], language: str) -> list[list[str]]:
    """A row of Markdown for each extra, those that a user needs first. ValueError where one has no words here, or none is declared."""
    if unlike := sorted(declared.keys() ^ USES.keys()):
        raise ValueError(f"pyproject.toml and building/extras.py differ in: {', '.join(unlike)}")
    found = []
    for name, words in USES.items():
        packages = (str(_named(line)) for line in declared[name])
        found.append(
            [
                f"`{name}`",
                words[language == "zh"],
                ", ".join(f"`{package}`" for package in packages),
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


def table_of(language: str) -> str:
    """The table, in Markdown."""
    head = HEADS[language]
    lines = [list(head), ["---"] * len(head), *rows(declared(), language)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
