"""A live broker on a copy of a store: RocketMQ's own name server and broker, with their default settings, on free ports."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import rocketmq
from benchmarks.cache import cached
from benchmarks.stores import QUEUES, TOPICS, GeneratedStore

__all__ = ["live_broker", "topics"]

_START_SECONDS = 90
_SILENT = '<configuration><root level="OFF"/></configuration>'


def topics() -> list[str]:
    return [f"topic-{i}" for i in range(TOPICS)]


@contextlib.contextmanager
def live_broker(store: GeneratedStore) -> Iterator[str]:
    """The name server's address, while the broker runs. The broker has a copy of the store: it writes into its own."""
    source = store.path()
    home = cached(f"broker-{store.name}", lambda folder: _prepare(Path(source), folder))
    name_server, broker = _free_ports()
    (home / "namesrv.conf").write_text(f"listenPort={name_server}\n")
    settings = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "namesrvAddr": f"127.0.0.1:{name_server}",
        "listenPort": broker,
        "storePathRootDir": home / "store",
        "storePathCommitLog": home / "store" / "commitlog",
        "fileReservedTime": 1_000_000,
        "diskMaxUsedSpaceRatio": 99,
    }
    (home / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with contextlib.ExitStack() as running:
        running.enter_context(_running(home, "namesrv.NamesrvStartup", "namesrv.conf", "512m", name_server))
        running.enter_context(_running(home, "broker.BrokerStartup", "broker.conf", "2g", broker))
        yield f"127.0.0.1:{name_server}"


def _prepare(source: Path, home: Path) -> None:
    subprocess.run(["cp", "-r", "--sparse=always", "--reflink=auto", str(source), str(home / "store")], check=True)
    config = home / "store" / "config"
    config.mkdir()
    table = {
        name: {"topicName": name, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        for name in topics()
    }
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table, "dataVersion": {"counter": 1, "timestamp": 1}}))
    (home / "conf").mkdir()
    for name in ("broker", "namesrv"):
        (home / "conf" / f"rmq.{name}.logback.xml").write_text(_SILENT)


def _free_ports() -> Sequence[int]:
    """For the name server and the broker, which takes the ports next to its own as well."""
    for port in range(20_000 + os.getpid() % 5_000, 32_000, 10):
        with contextlib.ExitStack() as held:
            try:
                for number in (port, *range(port + 3, port + 6)):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", number))
            except OSError:
                continue
        return port, port + 5
    raise RuntimeError("no free ports for a broker between 20,000 and 32,000")


@contextlib.contextmanager
def _running(home: Path, main: str, config: str, heap: str, port: int) -> Iterator[None]:
    log = home / f"{config}.out"
    command = rocketmq.command(f"org.apache.rocketmq.{main}", "-c", str(home / config), heap=heap)
    options = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", "-XX:MaxDirectMemorySize=2g"]
    with log.open("w") as out:
        process = subprocess.Popen([command[0], *options, *command[1:]], stdout=out, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + _START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{main} does not listen on port {port}:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
