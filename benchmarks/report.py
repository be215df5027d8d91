"""Figures as JSON, to compare runs, and as Markdown, to read; both say on what machine and with what software."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from benchmarks import rocketmq
from benchmarks.figures import Figure

__all__ = ["environment", "to_json", "to_markdown"]


def environment(*, quick: bool) -> dict[str, str]:
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    version = subprocess.run([rocketmq.java(), "-version"], capture_output=True, text=True).stderr.splitlines()[0]
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "pyarrow", "pyspark"))
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{cpu.group(1) if cpu else platform.machine()}, {os.cpu_count()} CPUs, {memory / 2**30:.0f} GiB",
        "load average at the start": ", ".join(f"{each:.1f}" for each in os.getloadavg()),
        "software": f"Python {platform.python_version()}, {packages}; {version}; RocketMQ {rocketmq.VERSION}",
        "stores": "a tenth of the messages (--quick): not to be published" if quick else "full size",
    }


def to_json(about: Mapping[str, str], figures: Sequence[Figure]) -> str:
    return json.dumps({"environment": about, "figures": [{**asdict(f), "met": f.met} for f in figures]}, indent=1)


def to_markdown(about: Mapping[str, str], figures: Sequence[Figure]) -> str:
    lines = [*(f"- {name}: {value}" for name, value in about.items()), ""]
    lines += ["| measured | figure | target | from |", "|---|---|---|---|"]
    for figure in figures:
        target = "" if figure.target is None else f"{'>=' if figure.at_least else '<='} {_number(figure.target)}"
        verdict = {True: " met", False: " **missed**", None: ""}[figure.met]
        detail = "; ".join(f"{name}: {value}" for name, value in figure.detail.items())
        lines.append(f"| {figure.name} | {_number(figure.value)} {figure.unit} | {target}{verdict} | {detail} |")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
