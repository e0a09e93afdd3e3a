"""Blocks of rows: array expressions over millions of rows are faster if their intermediate results fit the cache."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from restless_bandits._internal.validation import Array

NUMBERS = 1 << 14
"""Numbers of a block: 128 KB of doubles."""
SHORT_ROW = 7
"""Numbers of a row up to which NumPy adds one after the other."""


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Yield slices of consecutive rows of ``width`` numbers each."""
    step = max(1, NUMBERS // max(1, width))
    for first in range(0, rows, step):
        yield slice(first, min(rows, first + step))


def row_max(table: Array) -> Array:
    """Return the maximum of each row; for short rows faster than a reduction of NumPy."""
    return np.asarray(reduce(np.maximum, table.T) if table.shape[1] <= SHORT_ROW else table.max(axis=1))


def last_sums(table: Array) -> Array:
    """Return the sums over the last axis, to the bit those of NumPy; faster for a short axis."""
    if not 0 < table.shape[-1] <= SHORT_ROW:
        return np.asarray(table.sum(axis=-1))
    return np.asarray(reduce(np.add, np.moveaxis(table, -1, 0)))
