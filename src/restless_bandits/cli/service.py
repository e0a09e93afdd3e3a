"""``restless serve``, ``audit``, ``backup`` and ``token``: the decision service and its store."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from restless_bandits.cli import completion, options, output
from restless_bandits.service.optional_dependencies import shown_store

if TYPE_CHECKING:
    from restless_bandits.service.api.server import Started
    from restless_bandits.service.storage.store import Store

DIFFERS = 1
"""The exit code of an audit that found a decision inconsistent with the log."""

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="The file of a service, or the URL of its database.")
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-modules", help="Accept stored learners named module:Class. Imports the module, which runs its code."
    ),
]
StoreOption = Annotated[
    str, typer.Option("--store", metavar="PATH|URL", help="The file of the service, or the URL of its database.")
]

token_app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


def serve(
    store: StoreOption = "restless.db",
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="The port; 0 for any that is free.")] = 8787,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate, with its chain, for https.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The private key of the certificate.")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="Accept plain http from a proxy that speaks https.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="An allowed host name of requests, as of a proxy; may be repeated."),
    ] = None,
    demo: Annotated[
        str | None,
        typer.Option(
            metavar="PROBLEM",
            help="Run a simulated user program, for a first look: a built-in name or a TOML file.",
            autocompletion=completion.problem,
        ),
    ] = None,
    speed: Annotated[float, typer.Option(metavar="X", help="Slots per second of the demo.")] = 5.0,
    open_page: Annotated[bool, typer.Option("--open", help="Open the dashboard in a browser, logged in.")] = False,
    trust_modules: TrustOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Keep agents, and answer programs that ask and tell over HTTP.

    The first start prints a token, which every request needs. Ctrl-C or SIGTERM ends the service after the answers to
    all accepted requests.

    Example: restless serve --store agents.db
    """
    _check_installed()
    from restless_bandits.service.api.server import Settings
    from restless_bandits.service.api.server import serve as run

    hosts = tuple(allow_host or ())
    settings = Settings(
        store, host, port, tls_cert, tls_key, behind_proxy, hosts, demo, speed, open_page, trust_modules
    )
    run(settings, lambda started: _greet(started, as_json))


def _greet(started: Started, as_json: bool) -> None:
    try:
        if as_json:
            output.emit(vars(started))
        else:
            if started.token is not None:
                print(f"token: {started.token}", flush=True)
                kept = "" if started.token_file is None else f"; kept in {started.token_file}, for your eyes only"
                print(f"This is the only time that it is shown{kept}.")
            print(f"Listening on {started.url}, store {started.store}. Ctrl-C stops it.")
        sys.stdout.flush()
    except BrokenPipeError:
        # The calling process read the token and closed its end; the service goes on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def audit(
    store: StoreArgument,
    stored_plans: Annotated[
        bool, typer.Option("--stored-plans", help="Follow the stored plans instead of making new plans; faster.")
    ] = False,
    trust_modules: TrustOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Replay the whole log, and compare every decision.

    Ends with exit code 1 at the first decision that differs. A store in use may be audited.

    Example: restless audit restless.db
    """
    _check_installed()
    from restless_bandits.service.audit import audit as play_again

    with _opened(store) as opened:
        found = play_again(opened, plans=not stored_plans, trust_modules=trust_modules, progress=_show_progress)
    if as_json:
        output.emit(vars(found) | {"store": shown_store(store), "same": found.same})
    else:
        print(output.plain_text(found.sentence))
    if not found.same:
        raise typer.Exit(DIFFERS)


def _show_progress(events: int) -> None:
    output.progress(f"{events} events")


def backup(
    store: StoreArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="Place of the copy: a new file, or an empty database.")
    ],
    as_json: options.JsonOption = False,
) -> None:
    """Copy a store to a file or database, while the service runs.

    The copy is a store: to restore the copy, stop the service and start it with --store FILE.

    Example: restless backup restless.db monday.db
    """
    _check_installed()
    from restless_bandits._internal.errors import ProblemError
    from restless_bandits.service.storage.copy_store import copy_store

    is_file = "://" not in file
    if is_file and Path(file).exists():
        raise ProblemError(f"{file} is there already; name a new file for the backup")
    answer: dict[str, Any] = {"store": shown_store(store), "file": shown_store(file)}
    with _opened(store) as opened:
        if is_file and opened.is_sqlite:
            opened.backup(file)
        else:
            answer["rows"] = copy_store(opened, file)
    if is_file:
        answer["bytes"] = Path(file).stat().st_size
    if as_json:
        output.emit(answer)
    else:
        size = f"{answer['bytes']} bytes" if is_file else f"{answer['rows']} rows"
        output.tell(f"{answer['file']}: {size}, a store of its own")


@token_app.command("make")
def make(
    role: Annotated[
        str, typer.Argument(metavar="ROLE", help="read, play, or admin; each includes the rights of the previous.")
    ],
    label: Annotated[str, typer.Option(metavar="TEXT", help="Purpose of the token, shown by list.")] = "",
    store: StoreOption = "restless.db",
    as_json: options.JsonOption = False,
) -> None:
    """Make a token and print it, this once.

    Example: restless token make play --label "the dispatcher"
    """
    _check_installed()
    with _opened(store) as opened:
        token = opened.tokens.make(role, label)
    if as_json:
        output.emit({"token": token, "role": role, "label": label})
    else:
        print(token)


@token_app.command("list")
def listed(store: StoreOption = "restless.db", as_json: options.JsonOption = False) -> None:
    """List the tokens of a store: ids, roles and labels.

    Example: restless token list
    """
    _check_installed()
    with _opened(store) as opened:
        found = [_readable(one) for one in opened.tokens.list()]
    if as_json:
        output.emit({"tokens": found})
        return
    table = output.new_table("id", "role", "label", "made", "revoked")
    for one in found:
        table.add_row(*(output.plain_text(str(one[key] or "")) for key in ("id", "role", "label", "made", "revoked")))
    output.show(table)


@token_app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id that list shows, or the token itself.")],
    store: StoreOption = "restless.db",
    as_json: options.JsonOption = False,
) -> None:
    """Revoke a token, with effect within a second.

    Example: restless token revoke 5f2a90c1
    """
    _check_installed()
    from restless_bandits._internal.errors import ProblemError

    wanted = name.split("-")[1] if name.startswith("rb-") and name.count("-") >= 2 else name
    with _opened(store) as opened:
        if not opened.tokens.revoke(wanted):
            where = shown_store(store)
            raise ProblemError(f"{where} has no token {wanted!r} in use; restless token list shows all tokens")
    if as_json:
        output.emit({"revoked": wanted})
    else:
        output.tell(f"{wanted} is revoked")


@token_app.callback()
def token() -> None:
    """Make, list and revoke the tokens of a service.

    Example: restless token make play
    """


def _readable(token: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a token, with times in the usual notation."""
    from datetime import UTC, datetime

    def shown(micros: int | None) -> str | None:
        return None if micros is None else datetime.fromtimestamp(micros // 1_000_000, UTC).isoformat()

    return token | {"made": shown(token["made"]), "revoked": shown(token["revoked"])}


def _check_installed() -> None:
    from restless_bandits._internal.optional_dependencies import check_installed
    from restless_bandits.service.optional_dependencies import NEEDED

    check_installed("the service", *NEEDED)


def _opened(store: str) -> Any:
    """Open an existing store: a misspelled name must not make a new store."""
    import contextlib

    from restless_bandits._internal.errors import ProblemError
    from restless_bandits.service.storage.store import open_store

    place = store.removeprefix("sqlite:///")
    if "://" not in place and not Path(place).is_file():
        raise ProblemError(f"there is no store {place}; restless serve makes one, --store names another")
    opened: contextlib.closing[Store] = contextlib.closing(open_store(store))
    return opened
