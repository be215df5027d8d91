"""RocketMQ's own code as a peer: its jars (from Maven, once), and the programs in java/ that use them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.cache import cached
from benchmarks.process import Program

__all__ = ["VERSION", "command", "java", "program", "source_digest"]

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
# RocketMQ unmaps files by what the JDK does not export any more
_OPENS = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.lang.reflect", "java.nio", "java.util", "jdk.internal.ref", "sun.nio.ch")
    ),
]


def java(name: str = "java") -> str:
    """The path of `java` or `javac`: JAVA_HOME's, else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"the benchmarks need {name}: install a JDK of version 17 or later, or set JAVA_HOME to one")
    return found


def _jars() -> Path:
    def fetch(folder: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise SystemExit("the benchmarks fetch RocketMQ's jars with Maven, and there is no mvn on the PATH: install it")
        names = ("broker", "namesrv", "client")
        (folder / "pom.xml").write_text(_POM.format(dependencies="".join(_DEPENDENCY.format(n, VERSION) for n in names)))
        print(f"fetching RocketMQ {VERSION} with Maven", flush=True)
        subprocess.run(
            [maven, "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=jars"], cwd=folder, check=True
        )

    return cached(f"rocketmq-{VERSION}", fetch) / "jars"


def _classes() -> Path:
    sources = sorted(_SOURCES.glob("*.java"))

    def build(folder: Path) -> None:
        options = ["-nowarn", "-Xlint:-deprecation", "-cp", f"{_jars()}/*", "-d", str(folder)]
        subprocess.run([java("javac"), *options, *map(str, sources)], check=True, stderr=subprocess.PIPE)

    return cached(f"classes-{VERSION}-{source_digest(*(s.stem for s in sources))}", build)


def source_digest(*programs: str) -> str:
    """A name that changes with these Java programs."""
    return hashlib.sha256(b"".join((_SOURCES / f"{name}.java").read_bytes() for name in programs)).hexdigest()[:8]


def command(main: str, *arguments: str, heap: str = "4g") -> list[str]:
    return [java(), f"-Xmx{heap}", *_OPENS, "-cp", f"{_classes()}{os.pathsep}{_jars()}/*", main, *arguments]


def program(main: str, *arguments: str) -> Program:
    """One of our Java programs, waiting for lines."""
    return Program(command(main, *arguments))
