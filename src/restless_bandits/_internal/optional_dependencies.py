"""Optional dependencies: the command that installs an extra, from a clone of the repository or from an index."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from restless_bandits._internal.errors import ProblemError

PROJECT = "restless-bandits"


def install_command(extra: str) -> str:
    """Return the command that installs an extra: by the path of a clone if the package runs from a clone."""
    clone = Path(__file__).parents[3]
    return f"pip install '{clone if (clone / 'pyproject.toml').is_file() else PROJECT}[{extra}]'"


def missing_extra(what: str, module: str, extra: str) -> str:
    """Return the sentence that names a missing module and the command that installs it."""
    return f"{what} needs {module.replace('_', '-')}; {install_command(extra)} brings it"


def check_installed(what: str, *modules: str, extra: str = "service") -> None:
    """Refuse to start without the modules of an extra."""
    for module in modules:
        if find_spec(module) is None:
            raise ProblemError(missing_extra(what, module, extra))
