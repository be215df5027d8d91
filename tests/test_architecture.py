"""The rules of docs/architecture.md that a program can check: layers, what may touch a disk, names, sizes."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from store_core.options import OPTIONS

ROOT = Path(__file__).parent.parent

CHECKS = ("verify_units", "verify_keys", "verify_log", "verify_queue", "verify_index", "verify_store", "verify")
# From the bottom up: a module imports only from its own layer and from those before it.
LAYERS: dict[str, tuple[str, ...]] = {
    "values": (
        "errors",
        "layout",
        "schema",
        "findings",
        "segments",
        "steps",
        "described",
        "fastjson",
        "javaproperties",
        "optiontypes",
        "selection",
        "options",
        "writeoptions",
        "predicates",
    ),
    "bytes": (
        "ragged",
        "codecs",
        "hashing",
        "properties",
        "framing",
        "decode",
        "checksums",
        "innerbatch",
        "consumequeue",
        "indextable",
        "describe",
    ),
    "encoding": ("refusal", "topicrules", "bodies", "propertymerge", "incoming", "encode", "placing", "patching"),
    "files": (
        "files",
        "writefiles",
        "journal",
        "checkpoint",
        "config",
        "configwrite",
        "broker",
        "listing",
        "records",
        "reading",
        "queues",
        "boundaries",
        "queueslots",
        "indexfile",
    ),
    "access": ("coverage", "lookup", "light", "onekey"),
    "plans": ("plan", "estimate", "rows", "tables", "asked", "planparts", "planner", "tableplans", *CHECKS, "execute"),
    "building": ("walklog", "queuebuild", "indexbuild"),
    "writing": ("locks", "recovery", "rebuilding", "staging", "existing", "logwrite", "commit", "publish", "writing"),
    "store": ("info", "store", "__init__"),
    "command line": ("__main__",),
}
CLI_MODULES = (
    "parser",
    "terminal",
    "targets",
    "rows",
    "about",
    "messages",
    "trace",
    "diff",
    "export",
    "figures",
    "report",
    "check",
    "rebuild",
    "main",
)
"""From the bottom up, too. They import what they like of the core; nothing of the core imports them, but `__main__`."""
PURE_LAYERS = ("values", "bytes", "encoding")
SPARK_MODULES = ("errors", "columns", "pushed", "stores", "reader", "writer", "source", "session", "lookups")

DISK_AND_CLOCK = {"glob", "io", "mmap", "os", "pathlib", "random", "shutil", "socket", "subprocess", "tempfile", "time"}
PATHS_ONLY = {"segments", "optiontypes"}
"""Pure modules that import os for what paths are: os.path.join and dirname, os.PathLike."""
OS_WITHOUT_DISK = {
    "PathLike",
    "fspath",
    "path.abspath",
    "path.basename",
    "path.dirname",
    "path.join",
    "path.relpath",
    "path.split",
}
INSIDE_FUNCTIONS = {("plan", "execute")}
"""Imports that wait until a function runs: `Plan.read` is a convenience that reaches up."""

LONGEST = 400
LONGER = {"decode": 450, "indexfile": 600, "queues": 480, "store": 420}
"""Modules of one subject that are longer for good reasons; none may grow beyond this."""
WORTH_A_LOOK = 300

RUN_TIME = {"numpy", "pyarrow"}
SPARK_RUN_TIME = RUN_TIME | {"py4j", "pyspark"}


def modules(package: str) -> dict[str, ast.Module]:
    return {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / package).glob("*.py"))}


CORE = modules("store_core")
CLI = modules("store_core/cli")
SPARK = modules("rmq_spark")
TOP = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("pyspark_*.py"))}
ALL = [
    *((f"store_core.{n}", m) for n, m in CORE.items()),
    *((f"store_core.cli.{n}", m) for n, m in CLI.items()),
    *((f"rmq_spark.{n}", m) for n, m in SPARK.items()),
    *TOP.items(),
]


def imported(node: ast.AST) -> Iterator[str]:
    """Full names of what an import statement brings, if it is one: `store_core.errors`, `numpy.typing`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield whole if node.module in ("store_core", "rmq_spark", "store_core.cli") else node.module or ""


def at_import(module: ast.Module) -> Iterator[str]:
    """What is imported when the module is: not inside functions, not for the type checker alone."""
    for node in module.body:
        yield from imported(node)


def anywhere(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        yield from imported(node)


def core_name(full: str) -> str | None:
    """`lookup` for `store_core.lookup`; `__init__` for a name that the package itself offers."""
    parts = full.split(".")
    if parts[0] != "store_core":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in CORE else "__init__"


def layer_of(name: str) -> int:
    found = [i for i, names in enumerate(LAYERS.values()) if name in names]
    assert found, f"store_core/{name}.py is in no layer: put it into LAYERS here and into docs/architecture.md"
    return found[0]


def test_every_module_has_a_layer() -> None:
    assert sorted(name for names in LAYERS.values() for name in names) == sorted(CORE)
    assert sorted(CLI_MODULES) == sorted(name for name in CLI if name != "__init__")
    assert sorted(SPARK_MODULES) == sorted(name for name in SPARK if name != "__init__")


@pytest.mark.parametrize("name", CORE)
def test_imports_go_down(name: str) -> None:
    for full in at_import(CORE[name]):
        other = core_name(full)
        if other is not None:
            assert layer_of(other) <= layer_of(name), f"{name} imports {other}, of a layer above its own"


def test_what_functions_import_is_known() -> None:
    inside = set()
    for name, module in CORE.items():
        for function in (n for n in ast.walk(module) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))):
            inside |= {(name, core_name(full)) for full in anywhere(ast.Module(function.body, [])) if core_name(full)}
    assert inside <= INSIDE_FUNCTIONS


@pytest.mark.parametrize("name", CLI_MODULES)
def test_the_command_line_stands_on_top(name: str) -> None:
    for full in anywhere(CLI[name]):
        if full.startswith("store_core.cli."):
            other = full.split(".")[2]
            assert CLI_MODULES.index(other) < CLI_MODULES.index(name), f"cli/{name} imports {other}, which is above it"
    for core, module in CORE.items():
        assert core == "__main__" or not [full for full in anywhere(module) if full.startswith("store_core.cli")], core


WRITES = {"open", "os.replace", "os.unlink", "os.fsync"}
READS_OF_THE_OS = {"os.path.isdir", "os.path.exists", "os.getpid", "os.environ.get", "os.path.dirname"}


@pytest.mark.parametrize("name", CLI_MODULES)
def test_only_targets_writes_files_and_nothing_else_of_the_command_line_touches_the_disk(name: str) -> None:
    """The core's rule holds here as well: stores are read through `files`. What is written is opened in `targets` alone."""
    module = CLI[name]
    assert not {full.split(".")[0] for full in anywhere(module)} & (DISK_AND_CLOCK - {"os", "time", "shutil"})
    calls = {ast.unparse(node.func) for node in ast.walk(module) if isinstance(node, ast.Call)}
    touched = {call for call in calls if call == "open" or call.startswith(("os.", "shutil.", "np.fromfile", "np.load"))}
    if name == "targets":
        assert "open" in touched and touched <= WRITES | READS_OF_THE_OS
    elif name == "main":
        assert touched <= {"os.dup2", "os.open"}, "only /dev/null, for a pipe whose reader has gone"
    else:
        assert touched <= READS_OF_THE_OS | {"shutil.get_terminal_size"}
    assert name == "messages" or "time" not in set(anywhere(module)), "only tail -f waits"


@pytest.mark.parametrize("name", CORE)
def test_the_core_knows_nothing_of_spark(name: str) -> None:
    assert not {full for full in anywhere(CORE[name]) if full.split(".")[0] in ("pyspark", "rmq_spark", "py4j")}


@pytest.mark.parametrize("name", [name for layer in PURE_LAYERS for name in LAYERS[layer]])
def test_pure_modules_have_no_disk_and_no_clock(name: str) -> None:
    found = {full.split(".")[0] for full in anywhere(CORE[name])} & DISK_AND_CLOCK
    assert found <= ({"os"} if name in PATHS_ONLY else set())
    calls = {ast.unparse(node.func) for node in ast.walk(CORE[name]) if isinstance(node, ast.Call)}
    assert not calls & {"open", "datetime.now", "datetime.utcnow", "date.today"}


@pytest.mark.parametrize("name", [name for name in CORE if name not in ("files", "writefiles")])
def test_only_files_and_writefiles_touch_the_disk(name: str) -> None:
    module = CORE[name]
    assert not {full.split(".")[0] for full in anywhere(module)} & (DISK_AND_CLOCK - {"os", "time"})
    used = {ast.unparse(node).removeprefix("os.") for node in ast.walk(module) if isinstance(node, ast.Attribute)
            and re.fullmatch(r"os\.(path\.)?\w+", ast.unparse(node))} - {"path"}  # fmt: skip
    assert used <= OS_WITHOUT_DISK
    calls = {ast.unparse(node.func) for node in ast.walk(module) if isinstance(node, ast.Call)}
    assert not calls & {"open", "np.fromfile", "np.memmap", "np.load"}


def test_nothing_is_mapped() -> None:
    for name, module in ALL:
        assert not {full for full in anywhere(module) if full == "mmap"}, name
        assert not [n for n in ast.walk(module) if isinstance(n, ast.Attribute) and n.attr in ("memmap", "memory_map")], name


@pytest.mark.parametrize(
    ("package", "allowed"), [(CORE, RUN_TIME), (CLI, RUN_TIME), (SPARK, SPARK_RUN_TIME)], ids=["store_core", "cli", "rmq_spark"]
)
def test_run_time_packages(package: dict[str, ast.Module], allowed: set[str]) -> None:
    own = {"store_core", "rmq_spark"}
    for name, module in package.items():
        foreign = {full.split(".")[0] for full in anywhere(module)} - set(sys.stdlib_module_names) - own
        assert foreign <= allowed, name


@pytest.mark.parametrize(("name", "module"), ALL, ids=[name for name, _ in ALL])
def test_a_module_says_what_it_is_and_what_it_offers(name: str, module: ast.Module) -> None:
    assert ast.get_docstring(module)
    offered = [
        ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value
        and ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target) == "__all__"
    ]  # fmt: skip
    assert len(offered) == 1, "one __all__"
    defined = set()
    for node in [*module.body, *(n for block in module.body if isinstance(block, ast.If) for n in block.body)]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
            if not node.name.startswith("_"):
                assert node.name in offered[0], f"{node.name} is public and not in __all__"
        elif isinstance(node, ast.Assign):
            defined |= {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.AnnAssign):
            defined.add(ast.unparse(node.target))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            defined |= {alias.asname or alias.name for alias in node.names}
    assert set(offered[0]) <= defined


@pytest.mark.parametrize(("name", "module"), ALL, ids=[name for name, _ in ALL])
def test_public_functions_and_classes_say_what_they_do(name: str, module: ast.Module) -> None:
    silent = [
        node.name
        for node in module.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert len(silent) <= 3, f"{name}: {silent}"


def test_sizes() -> None:
    long = []
    for package in ("store_core", "store_core/cli", "rmq_spark"):
        for path in sorted((ROOT / package).glob("*.py")):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            assert lines <= LONGER.get(path.stem, LONGEST), f"{path.name} has {lines} lines: has it one reason to change?"
            if lines > WORTH_A_LOOK:
                long.append(f"{path.stem} {lines}")
    if long:
        warnings.warn(f"modules over {WORTH_A_LOOK} lines: {', '.join(long)}", stacklevel=1)


def test_names_say_what_a_thing_is() -> None:
    vague = re.compile(r"manager|helper|util", re.IGNORECASE)
    for name, module in ALL:
        assert not vague.search(name)
        for node in ast.walk(module):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                assert not vague.search(node.name), f"{name}: {node.name}"


def test_options_are_documented() -> None:
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)
    for option in OPTIONS:
        assert option.doc.endswith("."), option.name
        assert option.tables, option.name
        if option.choices and option.default is not None:
            assert option.default in option.choices
