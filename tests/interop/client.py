"""RocketMQ's Java client (`java/BrokerClient.java`) as a Python object; what it finds has the columns' names and units."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks import rocketmq
from tests.oracle import Row

__all__ = ["MAX_TIME", "BrokerClient", "ClientError"]

MAX_TIME = 2**63 - 2
"""Later than any message; one less than what 5.x takes for "no end given"."""
_ANSWER_SECONDS = 90
_OF_THE_PULL = ("MIN_OFFSET", "MAX_OFFSET")
"""Properties that the client adds to what it has pulled."""


class ClientError(Exception):
    """What the client, or the broker through it, answered instead of messages."""


class BrokerClient:
    """A client of one broker (its name and address), in a JVM of its own. Close it, or use it in a `with`."""

    def __init__(self, version: str, name_server: str, broker: tuple[str, str], log: Path) -> None:
        classes = rocketmq.classes(Path(__file__).with_name("java"), version)
        path = f"{classes}:{rocketmq.jars(version)}/*"
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *rocketmq.OPENS]
        silent = [f"-Duser.home={log.parent}", "-Drocketmq.client.logLevel=ERROR"]
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [rocketmq.java(), *options, *silent, "-cp", path, "BrokerClient", name_server, *broker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
            )

    def __enter__(self) -> BrokerClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        """A queue's first offset, and the one behind its last."""
        answer = self._ask("ends", topic, queue_id)[-1]
        return answer["minOffset"], answer["maxOffset"]

    def pull(self, topic: str, queue_id: int) -> list[Row]:
        """Every message of a queue, in order."""
        return self._messages("pull", topic, queue_id)

    def consume(self, group: str, topic: str, count: int, seconds: int = 60) -> list[Row]:
        """What a new group of push consumers is given, until it is `count` messages or the time is up."""
        return self._messages("consume", group, topic, count, seconds)

    def query(self, topic: str, key: str, begin: int = 0, end: int = MAX_TIME, most: int = 64) -> list[Row]:
        """The messages found by key. The broker's answer: at most 64, hash collisions counted, times rounded to seconds."""
        return self._messages("query", topic, key, begin, end, most)

    def unique(self, topic: str, uniq_key: str) -> Row:
        """The message with a UNIQ_KEY, found through the index."""
        (message,) = self._messages("unique", topic, uniq_key)
        return message

    def view(self, topic: str, offset_msg_id: str) -> Row:
        """The message of an offsetMsgId. The client asks the broker at the address that is in the id."""
        (message,) = self._messages("view", topic, offset_msg_id)
        return message

    def send(self, topic: str, queue_id: int, body: bytes, tags: str = "", keys: str = "") -> Row:
        """Sends to that queue: msgId, offsetMsgId and queueOffset."""
        answer = self._ask("send", topic, queue_id, tags, keys, base64.b64encode(body).decode())[-1]
        assert answer["status"] == "SEND_OK", answer
        return answer

    def _messages(self, *words: object) -> list[Row]:
        rows = self._ask(*words)[:-1]
        for row in rows:
            row["body"] = base64.b64decode(row["body"])
            for name in _OF_THE_PULL:
                row["properties"].pop(name, None)
        return rows

    def _ask(self, *words: object) -> list[dict[str, Any]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        # A broker that does not answer shall not hang the tests
        guard = threading.Timer(_ANSWER_SECONDS, self._process.kill)
        guard.start()
        try:
            print(*words, sep="\t", file=self._process.stdin, flush=True)
            answers = []
            for line in self._process.stdout:
                if not line.startswith("{"):
                    continue  # RocketMQ's own loggers
                answers.append(json.loads(line))
                if "error" in answers[-1]:
                    raise ClientError(f"{words[:3]}: {answers[-1]['error']}")
                if "done" in answers[-1]:
                    return answers
        except BrokenPipeError:
            pass
        finally:
            guard.cancel()
        said = self._log.read_text()[-3000:]
        raise ClientError(f"the client ended, or was killed after {_ANSWER_SECONDS} s, in {words[:3]}: {said}")
