"""Where mutations begin: pieces of golden and made-up stores, cut out at run time, and a few texts."""

from __future__ import annotations

import struct
from pathlib import Path

from store_core.codecs import compress
from tests.fuzz.targets import PLACE, SLOTS
from tests.golden_stores import Golden
from tests.oracle import Row, log_files, read_parts, read_store
from tests.synthetic import Message, build_store

__all__ = ["seeds"]

STORES = ("plain-4.9.7", "mixed-5.3.3", "ipv6-5.3.3", "batchcq-5.3.3", "crc-5.5.0", "longtopic-5.3.3", "lmq-5.3.3")
EACH = 10
SMALL = 3000

JSON = (
    b'{"a":[1,-2.5e3,true,null,"x\\u00e9\\ud83d\\ude00"],"b":{}}',
    b'{"offsetTable":{"T@G":{0:250,1:13,-2:0}},"dataVersion":{"counter":3}}',
    b'{"topicConfigTable":{"T":{"topicName":"T","perm":6,"readQueueNums":4,"attributes":{"+queue.type":"BatchCQ"}}}}',
    b'{"subscriptionGroupTable":{"G":{"brokerId":0,"consumeEnable":true,"retryMaxTimes":16}}}',
    b'{"k":"{0:1}, \\"{1:2","x":[{3:4},{5:{6:"7"}}]}',
)
PROPERTIES = (
    b"brokerName=broker-a\nstorePathCommitLog=/a:/b\n",
    b"# comment\n! too\n\nkey : value\\\n   goes on\nuni=\\u00e9\\t\\n\\\\\nempty\n",
    b"a\\=b\\:c=\\ud83d\\ude00\r\nlast=\\",
)


def seeds(folder: Path, golden: Golden | None = None) -> dict[str, list[bytes]]:
    """Seeds by target; stores are unpacked and built in `folder`."""
    golden = Golden(folder) if golden is None else golden
    rows = [row for name in STORES for row in some(read_store(golden(name)))]
    moved = [row["rawRecord"][:28] + struct.pack(">q", PLACE) + row["rawRecord"][36:] for row in rows]
    configs = [f.read_bytes() for name in STORES[:2] for f in sorted((golden(name) / "config").glob("*.json"))]
    configs = [data for data in configs if len(data) <= SMALL]
    many = [
        Message(
            topic=("Orders", "T" * 130)[n % 5 == 0],
            body=b"body" * (n % 4),
            properties=(("KEYS", f"k{n % 9} x{n}"), ("UNIQ_KEY", f"{n:032X}"), ("DELAY", "3")),
            storeTimestamp=1_735_901_092_000 + 700 * n,
            queueOffset=n,
            compression=(None, None, "zlib", "lz4", "zstd")[n % 5],
            bornHost=("10.0.0.1:1", "[::1]:1")[n % 7 == 0],
        )
        for n in range(24)
    ]
    sizes = {"mappedFileSizeCommitLog": 8192, "maxHashSlotNum": SLOTS, "maxIndexNum": 90, "mappedFileSizeConsumeQueue": 400}
    stores = [
        build_store(folder / "plain", many, **sizes).root,
        build_store(folder / "dledger", many, layout="dledger", **sizes).root,
        build_store(folder / "stale", many, stale_tail="record", stale_blanks=True, index_tags=True, **sizes).root,
    ]
    indexes = [file.read_bytes() for root in stores for file in sorted((root / "index").iterdir())]
    bodies = [b"", b"x", bytes(3000), b"the body of a message, " * 20, "消息 🚀".encode() * 9]
    batched = sorted((golden("batchcq-5.3.3") / "batchconsumequeue").glob("*/*/*"))[:2]
    queues = [file.read_bytes()[:800] for root in stores for file in sorted(root.glob("consumequeue/*/*/*"))[:3]]
    queues += [file.read_bytes()[: 46 * 12] for file in batched]
    logs = [file.read_bytes() for root in stores for file in log_files(root)]
    return {
        "record": moved,
        "log": logs,
        "properties": [read_parts(row["rawRecord"])["propertiesString"] for row in rows],
        "queueunits": queues,
        "queue": queues,
        "index": indexes,
        "checkpoint": [(golden(name) / "checkpoint").read_bytes()[:64] for name in STORES[:2]],
        "fastjson": [*JSON, *configs],
        "config": [*JSON[1:4], *configs],
        "javaproperties": list(PROPERTIES),
        "body": [bytes([kind]) + compress(data, name) for data in bodies for kind, name in enumerate(("zlib", "lz4", "zstd"))],
    }


def some(rows: list[Row]) -> list[Row]:
    return rows[:: max(len(rows) // EACH, 1)][:EACH]
