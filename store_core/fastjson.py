"""JSON as fastjson writes it (`RemotingSerializable#toJson`): a map's integer keys stand without quotes, `{0:250,1:13}`."""

from __future__ import annotations

import json
import re
from typing import Any

from store_core.errors import CorruptStoreError

__all__ = ["loads_fastjson"]

# A string literal is matched first and kept, so that what looks like a key inside of one is left alone. One without an end is
# kept too: it would be looked for again from each quote in it.
_STRING_OR_KEY = re.compile(r'("(?:\\.|[^"\\])*"?)|(?<=[{,])(\s*)(-?\d+)(\s*):')


def loads_fastjson(data: bytes) -> Any:
    """The value in `data`, UTF-8 JSON; integer keys, quoted or not, come as strings. The last of equal keys counts, as in Java.

    Errors: CorruptStoreError; its offset is the byte in `data` that is no UTF-8, and None for a fault in the JSON (the reason
    says the line).
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise CorruptStoreError(f"byte 0x{data[e.start]:02x} is not UTF-8, and JSON was expected", offset=e.start) from None
    quoted = _STRING_OR_KEY.sub(lambda m: m[1] or f'{m[2]}"{m[3]}"{m[4]}:', text)
    try:
        return json.loads(quoted, parse_constant=_no_constant)
    except json.JSONDecodeError as e:
        raise CorruptStoreError(f"no JSON: {e.msg} in line {e.lineno}") from None
    except RecursionError:
        raise CorruptStoreError("no JSON that a broker writes: objects nested too deep") from None
    except ValueError as e:  # a number of thousands of digits
        raise CorruptStoreError(f"no JSON that a broker writes: {e}") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")
