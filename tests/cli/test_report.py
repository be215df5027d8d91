"""The HTML report: its figures are those of `verify` and of the log, in the JSON that it carries and in what it draws."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import store_core
from store_core.cli.main import main
from tests import damage
from tests.golden_stores import Golden

MIXED = "mixed-5.3.3"


class Page(HTMLParser):
    """The elements of a page, and its JSON."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.stray: list[str] = []
        self.figures: dict[str, Any] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.stray.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.figures = json.loads(data)

    def inside(self, svg: str, attribute: str) -> list[dict[str, str]]:
        """Elements with `attribute` in the picture of that name."""
        found, here = [], False
        for tag, attributes in self.elements:
            if tag == "svg":
                here = attributes["id"] == svg
            elif here and attribute in attributes:
                found.append(attributes)
        return found


def damaged(root: Path) -> Path:
    places = store_core.open_store(root).scan(columns=["commitLogOffset"]).read_all()["commitLogOffset"].to_pylist()
    log = root / "commitlog" / f"{0:020d}"
    damage.flip_bit(log, places[100] + 4, 0)
    damage.flip_bit(log, places[200] + 95, 3)
    damage.zero(root / "consumequeue" / "Orders" / "1" / f"{0:020d}", 200, 60)
    (root / "abort").write_bytes(b"")
    return root


def written(root: Path, target: Path) -> Page:
    main(["verify", str(root), "--html", str(target)])
    return Page(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize("damage_it", [False, True])
def test_the_figures_are_those_of_verify_and_of_the_log(fresh_golden: Any, tmp_path: Path, damage_it: bool) -> None:
    root = fresh_golden(MIXED)
    if damage_it:
        damaged(root)
    page = written(root, tmp_path / "report.html")
    store = store_core.open_store(root)
    rows = store.verify().to_pylist()
    figures = page.figures
    assert figures["findings"] == rows and bool(rows) == damage_it
    assert figures["severities"] == dict(Counter(row["severity"] for row in rows))
    assert figures["kinds"] == dict(Counter(row["kind"] for row in rows))
    messages = store.scan(mode="DROPMALFORMED", columns=["topic", "storeSize"]).read_all().to_pylist()
    assert figures["messages"] == sum(figures["counts"]) == len(messages)
    assert figures["messagesOfTopics"] == dict(Counter(row["topic"] for row in messages))
    sizes: Counter[str] = Counter()
    for row in messages:
        sizes[row["topic"]] += row["storeSize"]
    assert figures["bytes"] == dict(sizes)
    queues = {(topic, queue_id, q["minOffset"], q["maxOffset"]) for topic, t in store.info()["topics"].items()
              for queue_id, q in t["queues"].items()}  # fmt: skip
    assert {tuple(queue) for queue in figures["queues"]} == queues


def test_what_is_drawn_are_the_figures(fresh_golden: Any, tmp_path: Path) -> None:
    root = damaged(fresh_golden(MIXED))
    page = written(root, tmp_path / "report.html")
    figures = page.figures
    bars = page.inside("timeline", "data-count")
    assert [int(bar["data-count"]) for bar in bars] == [count for count in figures["counts"] if count]
    in_log = {i for i, row in enumerate(figures["findings"]) if "/commitlog/" in row["file"]}
    in_queues = {i for i, row in enumerate(figures["findings"]) if "/consumequeue/" in row["file"]}
    assert in_log and in_queues
    for picture, wanted in (("timeline", in_log), ("commitlog", in_log), ("queues", in_queues)):
        marks = page.inside(picture, "data-row")
        assert {int(mark["data-row"]) for mark in marks} == wanted and len(marks) == len(wanted)
        for mark in marks:
            assert mark["class"] == f"mark {figures['findings'][int(mark['data-row'])]['severity']}"
    assert sum(int(bar["data-bytes"]) for bar in page.inside("topics", "data-bytes")) == sum(figures["bytes"].values())
    assert sum(int(bar["data-bytes"]) for bar in page.inside("commitlog", "data-bytes")) == sum(figures["bytes"].values())
    drawn = sorted(int(bar["data-messages"]) for bar in page.inside("queues", "data-messages"))
    assert drawn == sorted((stop - first for _, _, first, stop in figures["queues"]), reverse=True)[::-1][-len(drawn) :]
    kinds = {a["data-kind"]: int(a["data-count"]) for tag, a in page.elements if tag == "section"}
    assert kinds == figures["kinds"]


def test_the_page_needs_nothing_else_and_is_whole(golden: Golden, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    page = written(golden(MIXED), target)
    assert page.open == [] and page.stray == []
    text = target.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href|@import|url\()\s*=?\s*["']?(?!#)""", text.partition("<script")[0])
    assert not [attributes for tag, attributes in page.elements if tag in ("link", "img", "iframe") or "src" in attributes]


def test_names_from_a_store_are_text_in_the_page(tmp_path: Path) -> None:
    from tests.synthetic import Message, build_store

    built = build_store(tmp_path / "store", [Message(topic="<script>alert(1)<script>", body=b"x")])
    (built.root / "abort").write_bytes(b"")
    page = written(built.root, tmp_path / "report.html")
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert list(page.figures["bytes"]) == ["<script>alert(1)<script>"]


def test_an_empty_log_has_a_report(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    page = written(tmp_path / "store", tmp_path / "report.html")
    assert page.figures["messages"] == 0 and page.open == []


def test_a_report_is_not_written_over(golden: Golden, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("mine")
    assert main(["verify", str(golden(MIXED)), "--html", str(target)]) == 2
    assert target.read_text() == "mine"
    assert main(["verify", str(golden(MIXED)), "--html", str(target), "--force"]) == 0
