"""What the service needs beyond the library, and what brings it."""

from __future__ import annotations

from importlib.util import find_spec

from restless_bandits.errors import ProblemError

NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client")


def check_installed(what: str, *modules: str) -> None:
    """Refuse to begin what needs packages that are not installed."""
    for module in modules:
        if find_spec(module) is None:
            raise ProblemError(
                f"{what} needs {module.replace('_', '-')}; pip install 'restless-bandits[service]' brings it"
            )
