"""Parts of the pages of fits: numbers with errors, slots with dates, rows of tests."""

from __future__ import annotations

import math
from collections.abc import Iterable

from restless_bandits.logs.checks import Finding, shown_probability
from restless_bandits.logs.traces import Trace


def about(value: float, error: float) -> str:
    """Return a number with its standard error, to two digits of the error."""
    if not error > 0:
        return f"{value:.4g}"
    digits = min(6, max(0, 1 - math.floor(math.log10(error))))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def when(trace: Trace, slot: int) -> str:
    """Return a slot, as a time where slots are on a clock."""
    return str(slot) if trace.clock is None or trace.clock.origin is None else trace.clock.show(slot)


def test_rows(tests: Iterable[Finding]) -> list[list[str]]:
    """Return the rows of a table of tests."""
    return [
        [test.kind, test.arm or "all", f"{test.effect:.2f}", shown_probability(test.adjusted)[2:].lstrip("= ")]
        for test in tests
    ]
