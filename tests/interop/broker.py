"""Real brokers: RocketMQ's name server and broker from Maven's jars, on loopback and free ports, on the store a test gives."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import random
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks import cache, rocketmq
from tests.interop.client import BrokerClient

__all__ = ["Broker", "LogRecord", "free_port", "one_at_a_time"]

_START_SECONDS = 90
_STOP_SECONDS = 60
_LOG_RECORD = re.compile(r"^(\d\d:\d\d:\d\d\.\d{3})\|(\w+) *\|([^|]*)\|(.*)$")
_LOGBACK = """<configuration>
  <appender name="file" class="{package}core.FileAppender">
    <file>{file}</file>
    <append>true</append>
    <encoder><pattern>%d{{HH:mm:ss.SSS}}|%p|%logger|%m%n</pattern><charset>UTF-8</charset></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""
_SETTINGS: dict[str, object] = {
    "brokerClusterName": "DefaultCluster",
    "brokerId": 0,
    "brokerIP1": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    # Neither the age of a test's files nor a full disk of the machine is what the tests are about
    "fileReservedTime": 1_000_000,
    "diskMaxUsedSpaceRatio": 99,
    "cleanFileForciblyEnable": "false",
    "osPageCacheBusyTimeOutMills": 60_000,
    "haListenPort": 0,
    # Small, for small machines
    "flushDelayOffsetInterval": 10_000,
    "sendMessageThreadPoolNums": 2,
    "pullMessageThreadPoolNums": 2,
    "queryMessageThreadPoolNums": 2,
    "defaultTopicQueueNums": 4,
    "reviveQueueNum": 1,  # stopping takes a second for each
}
_numbers = itertools.count()


@dataclass(frozen=True)
class LogRecord:
    """One record of a broker's log. text: its message, and the lines of a stack trace below it."""

    time: str
    level: str
    logger: str
    text: str

    def __str__(self) -> str:
        return f"{self.time} {self.level} {self.logger}: {self.text}"


def free_port() -> int:
    """For a broker's `listenPort`: two ports below it and one above are free too, since brokers take them as well."""
    numbers = random.Random()
    for _ in range(1000):
        port = numbers.randrange(20_000, 32_000)
        with contextlib.ExitStack() as held:
            try:
                for each in range(port - 2, port + 2):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", each))
            except OSError:
                continue
            return port
    raise RuntimeError("no free ports for a broker between 20,000 and 32,000")


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Holds a lock of this machine, so that test processes side by side neither fetch the same jars nor run two brokers."""
    root = cache.root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / "interop.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        yield


class Broker:
    """A broker (and a name server of its own) on `store`: started at once, ready when the constructor returns.

    version: of RocketMQ. home: an empty folder for its configuration and logs, not the store.
    port: what `free_port` gave, where the store's messages name it in their storeHost. settings: lines of broker.conf.
    RuntimeError with the end of the log when it refuses to start.
    """

    def __init__(self, version: str, store: Path, home: Path, *, port: int | None = None, **settings: object) -> None:
        self.version = version
        self.store = store
        self.name = f"broker-{next(_numbers)}"
        self.port = port or free_port()
        self._home = home
        self._log_file = home / "broker.log"
        self._client: BrokerClient | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._write_configuration(settings)
        try:
            self._start("namesrv", "namesrv.NamesrvStartup", "boot success", "64m")
            self._start("broker", "broker.BrokerStartup", "boot success", "256m")
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """A broker that was neither stopped nor killed is stopped, or, when the test has failed, killed."""
        if error is not None:
            self.kill()
        else:
            self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def client(self) -> BrokerClient:
        """The Java client of this broker's version, started when it is first asked for."""
        if self._client is None:
            self._client = BrokerClient(self.version, self._name_server, (self.name, self.address), self._home / "client.out")
        return self._client

    def log(self) -> list[LogRecord]:
        """All that the broker has logged, from INFO on."""
        records: list[LogRecord] = []
        for line in self._log_file.read_text(errors="replace").splitlines():
            if found := _LOG_RECORD.match(line):
                records.append(LogRecord(*found.groups()))
            elif records:
                last = records.pop()
                records.append(LogRecord(last.time, last.level, last.logger, f"{last.text}\n{line}"))
        return records

    def stop(self) -> None:
        """A clean shutdown; RuntimeError when it does not come to its end."""
        self._close_client()
        while self._processes:
            process = self._processes.pop()  # the broker before the name server
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self.kill()
                raise RuntimeError(f"a broker {self.version} did not stop within {_STOP_SECONDS} s:\n{self._tail()}") from None

    def kill(self) -> None:
        """SIGKILL: the store stays as it is at this moment, `abort` included."""
        while self._processes:
            process = self._processes.pop()
            process.kill()
            process.wait()
        self._close_client()

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _write_configuration(self, settings: dict[str, object]) -> None:
        name_server_port = free_port()
        self._name_server = f"127.0.0.1:{name_server_port}"
        conf = self._home / "conf"
        conf.mkdir(parents=True)
        silent = '<configuration><root level="OFF"/></configuration>'
        # 4.x reads the first names; 5.x, with a copy of logback in packages of its own, the others
        for name, prefix in (("logback_{}.xml", ""), ("rmq.{}.logback.xml", "org.apache.rocketmq.logging.")):
            (conf / name.format("namesrv")).write_text(silent)
            package = f"{prefix}ch.qos.logback."
            (conf / name.format("broker")).write_text(_LOGBACK.format(package=package, file=self._log_file))
        (self._home / "namesrv.conf").write_text(f"listenPort={name_server_port}\n")
        lines = _SETTINGS | {
            "brokerName": self.name,
            "namesrvAddr": self._name_server,
            "listenPort": self.port,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            **settings,
        }
        (self._home / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def _start(self, name: str, main: str, ready: str, heap: str) -> None:
        out = self._home / f"{name}.out"
        options = [
            f"-Xmx{heap}",
            "-XX:MaxDirectMemorySize=256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # they live for seconds
            "-Dtls.server.mode=disabled",
            f"-Duser.home={self._home}",
            f"-Drocketmq.home.dir={self._home}",
            f"-Drmq.logback.configurationFile={self._home}/conf/rmq.{name}.logback.xml",
        ]
        command = [rocketmq.java(), *options, *rocketmq.OPENS, "-cp", f"{rocketmq.jars(self.version)}/*"]
        command += [f"org.apache.rocketmq.{main}", "-c", str(self._home / f"{name}.conf")]
        with out.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "ROCKETMQ_HOME": str(self._home)},
            )
        self._processes.append(process)
        until = time.monotonic() + _START_SECONDS
        while ready not in out.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > until:
                said = out.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"RocketMQ's {name} {self.version} does not start:\n{said}\n{self._tail()}")
            time.sleep(0.1)

    def _tail(self) -> str:
        return "\n".join(map(str, self.log()[-20:])) if self._log_file.exists() else "(no log)"
