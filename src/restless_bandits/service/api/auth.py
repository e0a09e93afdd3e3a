"""Authentication and authorization: tokens, sessions and their roles, and the host names that a request may use.

Roles are ``read`` < ``play`` < ``admin``. The store keeps hashes of tokens. The role of a token is cached for a second,
so a request usually costs no query. A token that any process revokes is therefore refused at most a second later.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from restless_bandits.service.api.loop_bridge import BridgeThreads
from restless_bandits.service.operations import ROLES

REMEMBERED = 1.0
MOST_REMEMBERED = 10_000
COOKIE = "restless_session"
SESSION_SECONDS = 24 * 3600
OPEN_PATHS = ("/", "/health", "/login", "/logout", "/favicon.ico")
OPEN_FOLDER = "/assets/"
PLAYS = ("ask", "tell", "skip", "batch")


class TokenRoles(Protocol):
    """The part of the token store that the authenticator reads."""

    def role_of(self, token: str) -> str | None: ...


class TokenAuthenticator:
    """The token authenticator: maps a token to its role."""

    def __init__(self, tokens: TokenRoles, threads: BridgeThreads) -> None:
        self._tokens, self._threads = tokens, threads
        self._known: dict[bytes, tuple[str | None, float]] = {}

    async def role(self, token: str) -> str | None:
        """Return the role of a token, None for an unknown token."""
        key = _hash(token)
        known = self._known.get(key)
        now = time.monotonic()
        if known is not None and known[1] > now:
            return known[0]
        role = await self._threads(self._tokens.role_of, token)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[key] = (role, now + REMEMBERED)
        return role


@dataclass(frozen=True)
class LoginSession:
    """A browser session after login."""

    token: str
    until: float


class Sessions:
    """Sessions of browsers by random ids, with the role ``read``.

    A session ends when it expires, at logout, when its token is revoked, and with the process. Sessions are kept in
    memory under the hashes of their ids. A new session beyond a quota ends the oldest session of its token, or of all
    tokens.
    """

    def __init__(self, authenticator: TokenAuthenticator, most: int, most_of_token: int) -> None:
        self._authenticator, self._most, self._most_of_token = authenticator, most, most_of_token
        self._sessions: dict[bytes, LoginSession] = {}

    def __len__(self) -> int:
        """Return the number of sessions in memory."""
        return len(self._sessions)

    def begin(self, token: str) -> str:
        """Return the id of a new session."""
        now = time.monotonic()
        self._sessions = {key: one for key, one in self._sessions.items() if one.until > now}
        same = [key for key, one in self._sessions.items() if one.token == token]
        for key in same[: max(0, len(same) - self._most_of_token + 1)]:
            del self._sessions[key]
        if len(self._sessions) >= self._most:
            del self._sessions[next(iter(self._sessions))]
        name = secrets.token_urlsafe(32)
        self._sessions[_hash(name)] = LoginSession(token, now + SESSION_SECONDS)
        return name

    def end(self, name: str) -> None:
        """End a session; an unknown id changes nothing."""
        self._sessions.pop(_hash(name), None)

    async def role(self, name: str) -> str | None:
        """Return ``read`` for a session whose token is still valid, else None."""
        session = self._sessions.get(_hash(name))
        if session is None:
            return None
        if session.until <= time.monotonic() or await self._authenticator.role(session.token) is None:
            self.end(name)
            return None
        return "read"


def cookie_name(scheme: str) -> str:
    """Return the name of the session cookie; over TLS its prefix keeps other hosts and plain HTTP from setting it."""
    return f"__Host-{COOKIE}" if scheme == "https" else COOKIE


def session_in(scope: Mapping[str, Any]) -> str | None:
    """Return the session id in the cookie of a request."""
    wanted = cookie_name(scope["scheme"])
    for key, value in scope["headers"]:
        if key == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                name, _, content = pair.strip().partition("=")
                if name == wanted and content:
                    return str(content)
    return None


def _hash(secret: str) -> bytes:
    # A lookup by hash reveals nothing about nearly correct secrets through its duration.
    return hashlib.sha256(secret.encode(errors="replace")).digest()


def enough(role: str, needed: str) -> bool:
    return ROLES.index(role) >= ROLES.index(needed)


def needed_role(method: str, path: str) -> str | None:
    """Return the least role that a request needs, None for a public path."""
    if path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
        return None
    if method in ("GET", "HEAD"):
        return "read"
    parts = path.split("/")
    if method == "POST" and len(parts) == 4 and parts[1] == "agents":
        # A ranking changes nothing, and is no GET because its states may be long.
        return "read" if parts[3] == "rank" else "play" if parts[3] in PLAYS else "admin"
    return "admin"


class AllowedHosts:
    """The allowed host names of this machine.

    In a DNS rebinding attack, a page of a foreign site points its own host name at this machine. The browser then sends
    requests of the page here. The ``Host`` header must therefore hold an allowed name. An IP address cannot be rebound
    and is always allowed.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = {"localhost", *(name.lower().rstrip(".") for name in known)}
        self._fine: set[bytes] = set()

    def __contains__(self, host: object) -> bool:
        if not isinstance(host, bytes):
            return False
        if host in self._fine:
            return True
        name = host.decode("latin-1").lower()
        if name.startswith("["):
            name, bracket, port = name[1:].partition("]")
            port = port.removeprefix(":") if bracket and port[:1] in ("", ":") else "x"
        else:
            name, _, port = name.partition(":")
        fine = (not port or (port.isascii() and port.isdigit())) and (
            name.rstrip(".") in self._known or is_address(name)
        )
        if fine and len(self._fine) < 100:
            self._fine.add(host)
        return fine


def is_address(name: str) -> bool:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False


def is_loopback(host: str) -> bool:
    """Return whether a listening address is reachable from this machine only."""
    if host.lower() == "localhost":
        return True
    return is_address(host) and ipaddress.ip_address(host).is_loopback
