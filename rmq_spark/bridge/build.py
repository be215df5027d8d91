"""Builds the bridge's jar out of its Java sources: `make bridge`, or `python -m rmq_spark.bridge.build`. Needs JDK 17 or later.

The jar is the same byte for byte wherever the same javac made it, and says in its manifest which sources it is made of.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from rmq_spark.bridge import JAR, SPARK_VERSIONS

__all__ = ["build", "compile_classes", "javac", "javac_version", "sources", "sources_digest"]

_JAVA_RELEASE = "17"
"""What Spark 4 itself needs."""
_SERVICES = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_FORMATS = ("Store", "CommitLog", "ConsumeQueue", "IndexFile")


def sources() -> list[Path]:
    return sorted((JAR.parent / "java").rglob("*.java"))


def sources_digest() -> str:
    """SHA-256 over the names and contents of the sources."""
    digest = hashlib.sha256()
    for file in sources():
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def javac() -> str | None:
    """JAVA_HOME's, else the PATH's; None where there is but a JRE."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "javac").exists():
        return str(Path(home) / "bin" / "javac")
    return shutil.which("javac")


def javac_version(compiler: str) -> str:
    """The major version, as `17`: compilers of one major version give the same classes."""
    said = subprocess.run([compiler, "-version"], capture_output=True, text=True, check=True)
    found = re.search(r"javac (\d+)", said.stdout + said.stderr)
    if found is None:
        raise RuntimeError(f"{compiler} -version says {said.stdout + said.stderr!r}, which names no version")
    return found[1]


def compile_classes(compiler: str) -> dict[str, bytes]:
    """The classes by their path in the jar, compiled against the Spark that pyspark carries."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars" / "*"
    with tempfile.TemporaryDirectory() as folder:
        options = ["--release", _JAVA_RELEASE, "-Xlint:all,-path", "-Werror", "-encoding", "UTF-8"]
        command = [compiler, *options, "-cp", str(jars), "-d", folder, *map(str, sources())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{compiler} failed:\n{done.stdout}{done.stderr}")
        return {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(Path(folder).rglob("*.class"))}


def build(target: Path = JAR) -> None:
    """Compiles and packs. Errors: RuntimeError without a JDK, or where a source does not compile."""
    compiler = javac()
    if compiler is None:
        raise RuntimeError("no javac in JAVA_HOME or on the PATH: install a JDK of version 17 or later")
    manifest = {
        "Manifest-Version": "1.0",
        "Built-By-Javac": javac_version(compiler),
        "Sources-SHA-256": sources_digest(),
        "Spark-Versions": " ".join(SPARK_VERSIONS),
    }
    content = {
        "META-INF/MANIFEST.MF": "".join(f"{name}: {value}\r\n" for name, value in manifest.items()).encode() + b"\r\n",
        _SERVICES: "".join(f"rmqspark.Format${name}\n" for name in _FORMATS).encode(),
        **compile_classes(compiler),
    }
    with zipfile.ZipFile(target, "w") as jar:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, data)


if __name__ == "__main__":
    build()
    print(f"{JAR}: {JAR.stat().st_size:,} bytes, for Spark {', '.join(SPARK_VERSIONS)}")
