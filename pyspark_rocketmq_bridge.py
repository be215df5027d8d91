"""Makes known what the bridge reads through, where only its jar is given to Spark (`--jars`) and nobody calls `register`."""

from __future__ import annotations

from rmq_spark.source import BridgeSource as DefaultSource

__all__ = ["DefaultSource"]
