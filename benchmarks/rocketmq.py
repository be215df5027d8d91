"""RocketMQ's own code: its jars (from Maven, once), and the programs in java/ that use them as peers.

The tests against real brokers (tests/interop) take jars, options and classes from here too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cache import cached
from benchmarks.process import Program

__all__ = ["OPENS", "VERSION", "classes", "command", "jars", "java", "program", "source_digest"]

VERSION = os.environ.get("RMQ_VERSION", "5.3.3")

_SOURCES = Path(__file__).with_name("java")
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{}</artifactId><version>{}</version></dependency>"""
OPENS = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.lang.reflect", "java.nio", "java.util", "jdk.internal.ref", "sun.nio.ch")
    ),
]
"""Options of Java: RocketMQ unmaps files by what the JDK does not export any more."""


def java(name: str = "java") -> str:
    """The path of `java` or `javac`: JAVA_HOME's, else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"RocketMQ's own code needs {name}: install a JDK of version 17 or later, or set JAVA_HOME to one")
    return found


def jars(version: str = VERSION) -> Path:
    """The folder of a version's jars; SystemExit with what to do where they can't be fetched."""

    def fetch(folder: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise SystemExit("RocketMQ's jars are fetched with Maven, and there is no mvn on the PATH: install it")
        names = ("broker", "namesrv", "client")
        (folder / "pom.xml").write_text(_POM.format(dependencies="".join(_DEPENDENCY.format(n, version) for n in names)))
        print(f"fetching RocketMQ {version} with Maven", flush=True)
        goal = ["dependency:copy-dependencies", "-DoutputDirectory=jars"]
        done = subprocess.run([maven, "--quiet", "--batch-mode", *goal], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"Maven can't fetch RocketMQ {version}:\n{(done.stdout + done.stderr)[-2000:]}")

    return cached(f"rocketmq-{version}", fetch) / "jars"


def classes(folder: Path = _SOURCES, version: str = VERSION) -> Path:
    """The folder of the classes of the Java programs in `folder`."""
    sources = sorted(folder.glob("*.java"))

    def build(target: Path) -> None:
        options = ["-nowarn", "-Xlint:-deprecation", "-cp", f"{jars(version)}/*", "-d", str(target)]
        done = subprocess.run([java("javac"), *options, *map(str, sources)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"javac does not compile {folder.name}/*.java with RocketMQ {version}:\n{done.stderr}")

    return cached(f"classes-{version}-{_digest(sources)}", build)


def source_digest(*programs: str) -> str:
    """A name that changes with these Java programs."""
    return _digest([_SOURCES / f"{name}.java" for name in programs])


def _digest(sources: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:8]


def command(main: str, *arguments: str, heap: str = "4g") -> list[str]:
    return [java(), f"-Xmx{heap}", *OPENS, "-cp", f"{classes()}{os.pathsep}{jars()}/*", main, *arguments]


def program(main: str, *arguments: str) -> Program:
    """One of our Java programs, waiting for lines."""
    return Program(command(main, *arguments))
