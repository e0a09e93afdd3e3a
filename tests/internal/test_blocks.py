"""Blocks of rows cover all rows once, and sums and maxima of short rows are those of NumPy, to the bit."""

import numpy as np
import pytest

from restless_bandits._internal.blocks import NUMBERS, blocks, last_sums, row_max


@pytest.mark.parametrize(("rows", "width"), [(0, 4), (1, 4), (NUMBERS, 2), (3, 2 * NUMBERS), (10_001, 9)])
def test_all_rows_once(rows, width):
    covered = [row for part in blocks(rows, width) for row in range(rows)[part]]
    assert covered == list(range(rows))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 30])
def test_the_same_bits(n):
    rng = np.random.default_rng(n)
    table = rng.random((500, n, n)) * 10.0 ** rng.integers(-9, 9, (500, 1, n))
    for given in (table, table.transpose(0, 2, 1)):
        assert (last_sums(given) == given.sum(axis=-1)).all()
        assert (row_max(given[:, 0]) == given[:, 0].max(axis=1)).all()
