"""What stands in the repository, what pip installs of it, and what Spark finds there."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FORMATS = {
    "pyspark_rocketmq_bridge": "rocketmq-bridge",  # what the bridge's jar reads through
    "pyspark_rocketmq_commitlog": "rocketmq-commitlog",
    "pyspark_rocketmq_consumequeue": "rocketmq-consumequeue",
    "pyspark_rocketmq_indexfile": "rocketmq-indexfile",
    "pyspark_rocketmq_store": "rocketmq-store",
}
FOLDERS = {".ci", "benchmarks", "docs", "examples", "rmq_spark", "store_core", "tests"}
FILES = {".gitignore", "LICENSE", "Makefile", "README.md", "pyproject.toml", "setup.cfg"}
LARGEST = 2 << 20

# In pieces, so that this file does not hold what it looks for.
ELSEWHERE = re.compile(
    "|".join(
        [
            r"(?<![\w.])/(?:root|home|work|farm|tmp)/" + r"\w",  # a path of one machine
            r"(?<![\w.])/(?:Users|var/folders)/" + r"\w",
            r"pypi"
            + r"\.org|pythonhosted"
            + r"\.org|repo1?\.maven"
            + r"|registry\.npmjs"
            + r"|(?:deb|security)\.debian"
            + r"\.org",
        ]
    ).encode()
)


def kept_files() -> list[Path]:
    """The files that git has, or would take with `git add .`."""
    try:
        run = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no git checkout here")
    paths = [ROOT / name for name in run.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def project() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize(("module", "name"), FORMATS.items())
def test_a_module_makes_its_format_known(module: str, name: str) -> None:
    source = importlib.import_module(module).DefaultSource
    assert source.name() == name


def test_spark_finds_each_of_them_where_it_looks() -> None:
    """Spark lists the folders on the path; an import hook's modules would not be found (setup.cfg)."""
    assert set(FORMATS) <= {module.name for module in pkgutil.iter_modules()}


def test_the_top_level_holds_what_belongs_there() -> None:
    top = {path.relative_to(ROOT).parts[0] for path in kept_files()}
    modules = {f"{name}.py" for name in FORMATS}
    assert modules | {"LICENSE", "Makefile", "pyproject.toml", "setup.cfg"} <= top
    assert top <= FOLDERS | FILES | modules


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in kept_files():
        if path.suffix in (".gz", ".png", ".jpg"):
            continue
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            if hit := ELSEWHERE.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {hit[0].decode()}")
    assert not found


def test_no_file_is_large_or_built() -> None:
    for path in kept_files():
        assert path.stat().st_size <= LARGEST, path
        assert path.suffix not in (".pyc", ".class", ".so", ".whl", ".orig", ".rej", ".log"), path


def test_all_modules_and_packages_are_installed() -> None:
    tools = project()["tool"]["setuptools"]
    assert set(tools["py-modules"]) == {path.stem for path in ROOT.glob("pyspark_*.py")} == set(FORMATS)
    for package in ("rmq_spark", "store_core"):
        assert (ROOT / package / "py.typed").exists()
        for folder in {path.parent for path in (ROOT / package).rglob("*.py")}:
            assert (folder / "__init__.py").exists(), f"{folder} is not a package: its modules would not be installed"


def test_three_packages_are_needed_at_run_time() -> None:
    needed = {re.split(r"[<>=~! ]", each)[0] for each in project()["project"]["dependencies"]}
    assert needed == {"numpy", "pyarrow", "pyspark"}


def test_dev_takes_all_other_extras() -> None:
    extras = project()["project"]["optional-dependencies"]
    named = re.search(r"\[(.*)\]", extras["dev"][0])
    assert named is not None
    # atheris has no wheel for every platform and Python, and would not build on most: `make fuzz` does without it there
    assert set(named[1].split(",")) == set(extras) - {"dev", "fuzz"}


def test_the_license_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text and len(text) > 11_000
    assert project()["project"]["license"] == "Apache-2.0"


def test_make_help_names_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in shown.splitlines() if line.startswith("  ")} == set(targets)
    assert {"demo", "test"} <= set(targets)
