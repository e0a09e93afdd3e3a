"""The optional dependencies of the service, the extras that install them, and the display name of a store."""

from __future__ import annotations

from importlib.util import find_spec

from restless_bandits._internal.errors import ProblemError

NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client")


def check_installed(what: str, *modules: str) -> None:
    """Refuse to start without the packages that the service needs."""
    for module in modules:
        if find_spec(module) is None:
            raise ProblemError(
                f"{what} needs {module.replace('_', '-')}; pip install 'restless-bandits[service]' brings it"
            )


def shown_store(place: str) -> str:
    """Return the place of a store without the password of a database."""
    scheme, mark, rest = place.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{mark}{user.partition(':')[0]}{at}{host}" if mark and at else place
