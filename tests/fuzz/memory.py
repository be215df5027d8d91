"""Files that are in memory, for targets that read whole files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from store_core.errors import StoreChangedError
from store_core.files import Entry

__all__ = ["MemoryFiles"]


class MemoryFiles:
    """`store_core.files.Files` over a mapping from paths to bytes."""

    def __init__(self, content: Mapping[str, bytes]) -> None:
        self.content = content
        self.bytes_read = 0
        self.reads = 0

    def list(self, folder: str) -> list[Entry]:
        found: dict[str, Entry] = {}
        for path, data in self.content.items():
            if path.startswith(folder + "/"):
                name, below, _ = path[len(folder) + 1 :].partition("/")
                found[name] = Entry(name, f"{folder}/{name}", 0 if below else len(data), bool(below))
        return [found[name] for name in sorted(found)]

    def folder(self, path: str) -> str | None:
        return path if any(each.startswith(path + "/") for each in self.content) else None

    def size(self, path: str) -> int | None:
        data = self.content.get(path)
        return None if data is None else len(data)

    def read(self, path: str, position: int, length: int) -> bytes:
        if position < 0 or length < 0:
            raise OSError(22, "a negative position or length")
        return self.content[path][position : position + length]

    def read_into(self, path: str, position: int, buffer: memoryview) -> int:
        data = self.read(path, position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_spans(self, path: str, spans: Iterable[tuple[int, int, int]], buffer: memoryview) -> None:
        for position, begin, end in spans:
            if self.read_into(path, position, buffer[begin:end]) != end - begin:
                raise StoreChangedError(path)

    def next_data(self, path: str, position: int) -> int | None:
        return position if position < len(self.content[path]) else None

    def data_size(self, path: str, start: int, stop: int) -> int:
        return max(min(stop, len(self.content[path])) - start, 0)
