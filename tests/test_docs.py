"""The documents against the code: tables of layouts, columns, options and modules; commands; links.

`python -m tests.test_docs` writes the README's table of options anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rmq_spark.columns import spark_schema
from store_core import layout
from store_core.options import OPTIONS, markdown_table
from store_core.schema import EXTRA_COLUMNS, INDEX, MESSAGES, QUEUE, VERIFY
from store_core.writeoptions import WRITE_OPTIONS, write_markdown_table
from tests.test_architecture import CLI_MODULES, LAYERS, SPARK_MODULES

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCUMENTS = sorted([README, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
LAYOUTS: dict[str, np.dtype[np.void]] = {
    "RECORD_HEADS[0]": layout.RECORD_HEADS[0],
    **{name: value for name, value in vars(layout).items() if isinstance(value, np.dtype) and not name.startswith("_")},
}
COLUMNS = {
    "messages": MESSAGES,
    "extra": EXTRA_COLUMNS,
    "consumequeue": QUEUE,
    "index": pa.schema([field for i, field in enumerate(INDEX) if i <= INDEX.get_field_index("key")]),
    "verify": VERIFY,
}


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def table(document: str, mark: str) -> list[list[str]]:
    """The cells of the Markdown table behind the comment `<!-- mark -->`, without its two head lines."""
    _, found, rest = document.partition(f"<!-- {mark} -->\n")
    assert found, f"no <!-- {mark} -->"
    lines = rest.split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def type_name(kind: np.dtype[Any]) -> str:
    """`i32` for >i4; the parts of a structure, and bytes, as they are said in the docs."""
    if kind.names:
        return " + ".join(type_name(kind[name]) for name in kind.names)
    return f"{kind.itemsize} bytes" if kind.kind == "V" else f"{kind.kind}{8 * kind.itemsize}"


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_stands_in_the_docs_as_it_is(name: str) -> None:
    kind = LAYOUTS[name]
    rows = table(text(ROOT / "docs" / "format.md"), f"layout: {name}")
    expected = [[str(kind.fields[field][1]), f"`{field}`", type_name(kind[field])] for field in kind.names or () if kind.fields]
    assert [row[:3] for row in rows] == expected


def test_the_docs_constants_are_the_codes() -> None:
    document = text(ROOT / "docs" / "format.md")
    for constant in (layout.MAGIC_V1, layout.MAGIC_V2, layout.BLANK_MAGIC, layout.FILLER_SIZE):
        assert f"0x{constant & 0xFFFFFFFF:08X}" in document
    assert str(layout.EXT_ADDRESS_MAX) in document
    assert f"smallest record has {layout.MIN_RECORD_SIZE} bytes" in document
    assert f"each ipv6 host adds {layout.HOST_V6_GROWTH} bytes" in document.lower()
    assert f"{layout.CHECKPOINT_SIZE} bytes" in document


@pytest.mark.parametrize("name", COLUMNS)
def test_the_columns_stand_in_the_readme_as_they_are(name: str) -> None:
    rows = table(text(README), f"columns: {name}")
    expected = [[f"`{field.name}`", field.dataType.simpleString()] for field in spark_schema(COLUMNS[name])]
    assert [row[:2] for row in rows] == expected


def test_the_index_table_goes_on_with_the_messages_columns() -> None:
    own = COLUMNS["index"].names
    assert INDEX.names == own + [name for name in MESSAGES.names if name not in own]


def test_the_options_stand_in_the_readme_as_they_are() -> None:
    assert with_options(text(README)) == text(README), "python -m tests.test_docs writes the table anew"


def with_options(readme: str) -> str:
    """The README with both tables of options as they are."""
    for name, made in (("options", markdown_table()), ("write options", write_markdown_table())):
        part = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->\n)", flags=re.DOTALL)
        (found,) = part.finditer(readme)
        readme = readme[: found.end(1)] + made + readme[found.start(2) :]
    return readme


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_in_the_documents_are_real(path: Path) -> None:
    named = set(re.findall(r"""option\(["'](\w+)["']""", text(path)))
    assert named <= {option.name for option in (*OPTIONS, *WRITE_OPTIONS)} | {"x"}


def test_the_modules_stand_in_the_architecture_as_they_are() -> None:
    document = text(ROOT / "docs" / "architecture.md")
    rows = [row[0] for row in table(document, "modules")]
    expected = [
        line for layer, names in LAYERS.items() for line in [f"**{layer}**", *(f"`{n}`" for n in names if n != "__init__")]
    ]
    assert rows == expected
    assert [row[0] for row in table(document, "modules: store_core/cli")] == [f"`{name}`" for name in CLI_MODULES]
    assert [row[0] for row in table(document, "modules: rmq_spark")] == [f"`{name}`" for name in SPARK_MODULES]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_are_real(path: Path) -> None:
    targets = set(re.findall(r"^\.PHONY: (.+)$", text(ROOT / "Makefile"), flags=re.MULTILINE))
    # `make x` as code, not the word in a sentence
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text(path), flags=re.MULTILINE))
    assert named <= targets
    if path == README:
        assert {"demo", "test"} <= named


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(path: Path) -> None:
    document = text(path)
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document):
        assert re.match(r"https?://", link) or (path.parent / link).exists(), link
    for named in re.findall(r"`((?:tests|docs|examples|store_core|rmq_spark|\.ci)/[\w./-]+)`", document):
        assert (ROOT / named).exists(), named


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_blocks_are_closed(path: Path) -> None:
    assert len(re.findall(r"^```", text(path), flags=re.MULTILINE)) % 2 == 0


if __name__ == "__main__":
    README.write_text(with_options(text(README)), encoding="utf-8")
