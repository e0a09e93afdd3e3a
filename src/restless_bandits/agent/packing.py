"""Arrays as short texts for JSON: files and events of agents that observe very many arms.

A text is the type of the numbers, the shape, and the compressed bytes in base 64: ``"u1 200000 eJzt…"``. Integers are
kept in the smallest type that holds them. A column of states that follows a known column may be kept as its changes.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import IntArray

INTEGERS = ("u1", "i1", "u2", "i2", "u4", "i4", "i8")
TYPES = (*INTEGERS, "f8")
MOST_BYTES = 1 << 33
"""The largest unpacked array: that of the largest record."""


def packed(array: npt.ArrayLike) -> str:
    """Return an array of integers, truth values or doubles as a text."""
    given = np.asarray(array)
    if given.dtype.kind == "f":
        kind = "f8"
    else:
        low, high = (int(given.min()), int(given.max())) if given.size else (0, 0)
        kind = next(one for one in INTEGERS if np.iinfo(one).min <= low and high <= np.iinfo(one).max)
    raw = np.ascontiguousarray(given, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    shape = ",".join(map(str, given.shape))
    return f"{kind} {shape} {base64.b64encode(zlib.compress(raw, 1)).decode()}"


def unpacked(text: Any) -> npt.NDArray[Any]:
    """Return the array of a text, integers as 64-bit integers; another text is refused."""
    try:
        kind, shape, content = text.split(" ")
        sizes = tuple(int(size) for size in shape.split(",") if size)
        count = math.prod(sizes)
        if kind not in TYPES or min(sizes, default=0) < 0 or 8 * count > MOST_BYTES:
            raise ValueError
        length = count * np.dtype(kind).itemsize
        stream = zlib.decompressobj()
        raw = stream.decompress(base64.b64decode(content, validate=True), length + 1)
        found = np.frombuffer(raw, dtype=np.dtype(kind).newbyteorder("<"))
        if len(raw) != length or not stream.eof:
            raise ValueError
    except (AttributeError, ValueError, TypeError, binascii.Error, zlib.error):
        raise ProblemError(f"{shortened(text)} is no packed array of this version") from None
    return found.reshape(sizes).astype(np.float64 if kind == "f8" else np.int64)


def packed_change(before: IntArray, after: IntArray) -> dict[str, str]:
    """Return a column as its changes since an earlier column, or whole if that is shorter."""
    at = np.flatnonzero(before != after) if len(before) == len(after) else None
    if at is None or 2 * len(at) > len(after):
        return {"all": packed(after)}
    return {"at": packed(np.diff(at, prepend=0)), "to": packed(after[at])}


def unpacked_change(before: IntArray, change: Any) -> IntArray:
    """Return the column of ``packed_change``."""
    if not isinstance(change, dict) or change.keys() not in ({"all"}, {"at", "to"}):
        raise ProblemError(f"{shortened(change)} is no packed change of this version")
    if "all" in change:
        return np.asarray(unpacked(change["all"]))
    at, to = unpacked(change["at"]).cumsum(), unpacked(change["to"])
    if at.shape != to.shape or at.ndim != 1 or (len(at) and (at.min() < 0 or at.max() >= len(before))):
        raise ProblemError("a packed change does not fit its column")
    after = before.copy()
    after[at] = to
    return after
