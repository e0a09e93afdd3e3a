"""Access tokens with the roles read, play and admin; the store holds the hashes of the tokens only.

A token has the form ``rb-<id>-<secret>``. The id selects the row. The secret of 256 random bits is hashed, and the
hashes are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, insert, select, update

from restless_bandits._internal.errors import check_known
from restless_bandits.service import clock
from restless_bandits.service.operations import ROLES
from restless_bandits.service.storage.schema import tokens

_FORM = re.compile(r"rb-([0-9a-f]{8})-([A-Za-z0-9_-]{43})")
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


class Tokens:
    """Access tokens of a store."""

    def __init__(self, connect: Callable[..., AbstractContextManager[Connection]]) -> None:
        self._connect = connect

    def make(self, role: str, label: str = "") -> str:
        """Return a new token; the store cannot show the token again."""
        check_known(role, ROLES, "the role of a token is")
        name, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        with self._connect(writes=True) as connection:
            row = {"id": name, "role": role, "label": label, "hash": _hash(secret), "made": clock.now()}
            connection.execute(insert(tokens), row)
        return f"rb-{name}-{secret}"

    def role_of(self, token: str) -> str | None:
        """Return the role of a token; None for an unknown or revoked token."""
        form = _FORM.fullmatch(token) if isinstance(token, str) else None
        name, secret = form.groups() if form else ("", "")
        with self._connect() as connection:
            of = select(tokens.c.role, tokens.c.hash).where(tokens.c.id == name, tokens.c.revoked.is_(None))
            row = connection.execute(of).first()
        same = hmac.compare_digest(_NOBODY if row is None else row.hash, _hash(secret))
        return None if row is None or not same else str(row.role)

    def list(self) -> list[dict[str, Any]]:
        """Return the id, role, label and times of every token, the oldest first."""
        with self._connect() as connection:
            columns = (tokens.c.id, tokens.c.role, tokens.c.label, tokens.c.made, tokens.c.revoked)
            return [dict(row) for row in connection.execute(select(*columns).order_by(tokens.c.made)).mappings()]

    def revoke(self, name: str) -> bool:
        """Revoke a token with immediate effect; return whether the id belonged to an active token."""
        with self._connect(writes=True) as connection:
            change = update(tokens).where(tokens.c.id == name, tokens.c.revoked.is_(None)).values(revoked=clock.now())
            return connection.execute(change).rowcount == 1


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
