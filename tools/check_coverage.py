"""Compare measured coverage with the number of the README: ``python tools/check_coverage.py`` after ``pytest --cov``.

Kernels run as machine code and are not counted. A coverage more than one percent below the README's is an error.
"""

import io
import re
import sys
from pathlib import Path

import coverage

ROOT = Path(__file__).parent.parent
TOLERANCE = 1.0
"""Percent by which the coverage may be below the README's number: branches by release and by processor."""


def stated() -> int:
    """Return the coverage that the README states, in percent."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"(\d+) % of lines covered", text)
    if found is None:
        sys.exit("README.md states no coverage; say 'N % of lines covered'")
    return int(found[1])


def measured() -> float:
    """Return the coverage of the last test run, in percent."""
    data = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    data.load()
    return data.report(file=io.StringIO())


if __name__ == "__main__":
    share, promised = measured(), stated()
    print(f"coverage: {share:.1f} % of lines, {promised} % by the README")
    sys.exit(1 if share < promised - TOLERANCE else 0)
