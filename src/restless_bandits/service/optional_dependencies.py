"""The optional dependencies of the service, and the display name of a store."""

from __future__ import annotations

NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client")


def shown_store(place: str) -> str:
    """Return the place of a store without the password of a database."""
    scheme, mark, rest = place.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{mark}{user.partition(':')[0]}{at}{host}" if mark and at else place
