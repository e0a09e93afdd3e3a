"""Packages that some tests need and the package does not."""

import pytest


def needed(module):
    """Return a module, or skip the test with the command that installs the module."""
    reason = f"{module} cannot be imported; pip install -e '.[dev]'"
    return pytest.importorskip(module, reason=reason, exc_type=ImportError)
