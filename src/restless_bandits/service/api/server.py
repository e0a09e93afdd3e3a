"""The process behind ``restless serve``: opens the store, listens, and shuts down in order.

On SIGTERM or Ctrl-C, the service takes no more requests, answers the accepted requests, ends the streams, and exits
within five seconds. Every acknowledged operation is on disk before its acknowledgment.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import importlib.util
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import uvicorn

from restless_bandits._internal import background
from restless_bandits._internal.errors import ProblemError
from restless_bandits.service.api.app import build
from restless_bandits.service.api.auth import is_loopback
from restless_bandits.service.api.loop_bridge import BridgeThreads
from restless_bandits.service.api.middleware import ServiceMiddleware
from restless_bandits.service.dashboard.page import Codes
from restless_bandits.service.optional_dependencies import shown_store
from restless_bandits.service.quotas import Quotas
from restless_bandits.service.storage.store import open_store
from restless_bandits.service.writer import CommandProcessor

PORT = 8787
STORE = "restless.db"
ANSWERING, WRITING = 3.0, 1.5
"""Seconds in which all requests have to end, and the part of them for the writer."""


@dataclass(frozen=True)
class Settings:
    """The address of the service, the place of its store, and its options."""

    store: str = STORE
    host: str = "127.0.0.1"
    port: int = PORT
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    allow_hosts: tuple[str, ...] = ()
    demo: str | None = None
    speed: float = 5.0
    open_page: bool = False
    trust_modules: bool = False
    """Whether learners of the store may be named by ``module:Class``, which imports the module."""

    @property
    def scheme(self) -> str:
        return "http" if self.tls_cert is None else "https"


@dataclass(frozen=True)
class Started:
    """The facts to announce once the service answers; the token is present only if this start made it."""

    url: str
    store: str
    token: str | None
    token_file: str | None
    demo: str | None = None


def serve(settings: Settings, started: Callable[[Started], None]) -> None:
    """Run the service until it is stopped."""
    check(settings)
    configure_logs()
    listener = listen(settings.host, settings.port)
    with contextlib.closing(listener), contextlib.closing(open_store(settings.store)) as store:
        token, file = first_token(store, settings.store)
        writer = CommandProcessor(store, quotas=Quotas(), trust_modules=settings.trust_modules)
        server: Server | None = None
        writer.start()
        try:
            codes = Codes()
            middleware = build(writer, store.tokens, known_hosts=(settings.host, *settings.allow_hosts), codes=codes)
            url = f"{settings.scheme}://{_shown(listener)}"

            def ready() -> None:
                started(Started(url, shown_store(settings.store), token, file, settings.demo))
                if settings.open_page:
                    open_page(url, codes, token or kept_token(settings.store))

            server = Server(settings, middleware, writer, ready)
            with _demo(settings, writer):
                server.run(sockets=[listener])
        finally:
            if server is None or not server.stopped:
                writer.stop(WRITING)
            # Interrupted plans are made again on demand; Python would wait for the workers.
            background.close()


def check(settings: Settings) -> None:
    """Refuse settings that contradict each other or would send tokens unencrypted over the network."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ProblemError("--tls-cert and --tls-key belong together; give both or none")
    if settings.tls_cert is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or error
            raise ProblemError(
                f"{settings.tls_cert} and {settings.tls_key} are not a certificate and its key: {reason}"
            ) from None
    elif not is_loopback(settings.host) and not settings.behind_proxy:
        raise ProblemError(
            f"--host is {settings.host}, which others can reach, and tokens would travel in the clear; give --tls-cert "
            "and --tls-key, or --behind-proxy if a proxy with TLS stands in front"
        )
    if not 0 <= settings.port <= 65535:
        raise ProblemError(f"--port is {settings.port}; give one from 1 to 65535, or 0 for any that is free")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections; every obstacle is an error of one sentence."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        if kind != socket.SOCK_STREAM or family not in (socket.AF_INET, socket.AF_INET6):
            raise ProblemError(f"--host is {host}, on which nothing can listen")
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ProblemError(f"port {port} of {host} is taken, maybe by another service; give --port") from None
        raise ProblemError(f"cannot listen on port {port} of {host}: {error.strerror or error}") from None


def first_token(store: Any, place: str) -> tuple[str | None, str | None]:
    """Make the first token of a store without tokens, in a file beside the store that only the owner can read."""
    if store.tokens.list():
        return None, None
    token: str = store.tokens.make("admin", "made at the first start")
    if "://" in place and not place.startswith("sqlite:///"):
        return token, None
    path = Path(f"{place.removeprefix('sqlite:///')}.token")
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    return token, str(path)


def kept_token(place: str) -> str | None:
    """Return the first token of a store, if its file beside the store still exists."""
    with contextlib.suppress(OSError):
        return Path(f"{place.removeprefix('sqlite:///')}.token").read_text(encoding="utf-8").strip() or None
    return None


def open_page(url: str, codes: Codes, token: str | None) -> None:
    """Open the dashboard in a browser; with a token, a single-use code logs the browser in."""
    address = url if token is None else f"{url}/login?code={codes.make(token)}"

    def show() -> None:
        if not webbrowser.open(address):
            # Without the code: this line may end in a log.
            print(f"no browser can be opened here; open {url} and log in with the token", file=sys.stderr, flush=True)

    # Some browsers block the calling process.
    threading.Thread(target=show, daemon=True).start()


def configure_logs() -> None:
    """Send warnings and errors to stderr, a line each; requests are not logged, so no log holds a token."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    # A warning for all bytes that are not HTTP would let anybody fill the disk.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def http_protocol() -> type[asyncio.Protocol] | Literal["h11"]:
    """Return the protocol class of connections; the slower h11 protocol bounds heads by itself."""
    if not _is_installed("httptools"):
        return "h11"
    from restless_bandits.service.api.protocol import BoundedProtocol

    return BoundedProtocol


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


class Server(uvicorn.Server):
    """Uvicorn with a start notification, which ends streams and the process in order."""

    def __init__(
        self, settings: Settings, middleware: ServiceMiddleware, writer: CommandProcessor, ready: Callable[[], None]
    ) -> None:
        super().__init__(
            uvicorn.Config(
                middleware,
                loop="uvloop" if _is_installed("uvloop") else "auto",
                http=http_protocol(),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=settings.behind_proxy,
                forwarded_allow_ips="*" if settings.behind_proxy else None,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=int(ANSWERING),
            )
        )
        self._middleware, self._writer, self._ready = middleware, writer, ready
        self.stopped = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        gc.collect()
        gc.freeze()
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._middleware.stop()
        # The writer stops meanwhile, so that requests waiting for an unfinished plan are refused.
        ended = asyncio.ensure_future(BridgeThreads("stop", 1)(self._writer.stop, WRITING))
        await super().shutdown(sockets=sockets)
        await ended
        self.stopped = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals as uvicorn does, but a stop by signal is a success: the signal is not raised again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _demo(settings: Settings, writer: CommandProcessor) -> contextlib.AbstractContextManager[object]:
    if settings.demo is None:
        return contextlib.nullcontext()
    from restless_bandits.service.demo import Demo

    return Demo(writer, settings.demo, settings.speed)
