"""Who plays: the workers of a Dask cluster, on this machine or on others.

What goes over is text, bytes and numbers, so that the scheduler needs nothing but Dask, and a worker that cannot read
the bytes can say so. A problem and a cell go over once each, as tasks of their own; a piece names them and brings
nothing but the numbers of its runs. A worker that has none of them fetches them from another one, and where the one
that had them has died, the scheduler has them still.

What may go wrong on the way to the same numbers as here, and what is done about it:

* A worker dies. Dask gives its pieces to others. It gives up on a piece under which several workers have died, lest the
  piece be what kills them; on machines that are taken away at will that happens to innocent pieces, so such a piece is
  sent again a few times before it is an error.
* A worker has another version of this package, or of a library whose arithmetic or random streams its runs depend on.
  All workers are asked at the start, and every piece asks again, because workers come and go.
* A learner is somebody else's. Its module goes along with it where it is not installed.
* All workers are gone, or the scheduler is: the pieces under way fail with a sentence, and what is finished is stored.

Imported only where it is asked for: Dask is an extra of this package.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import pickle
import platform
import re
import signal
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import cache, lru_cache, partial
from importlib.metadata import version
from typing import Any

from restless_bandits import __version__
from restless_bandits.errors import ProblemError
from restless_bandits.registry import is_foreign, is_installed
from restless_bandits.simulation.cells import Cell, PlayedRun, play_runs
from restless_bandits.simulation.storage import fingerprint
from restless_bandits.workers import begin_worker

try:
    import cloudpickle
    import dask
    import distributed
    from distributed.client import ClosedClientError
    from distributed.comm import CommClosedError
    from distributed.versions import VersionMismatchWarning
except ImportError as missing:
    raise ProblemError(
        f"the engine dask needs {missing.name}, which is not installed; pip install 'restless-bandits[dask]'"
    ) from None

CONNECT_SECONDS = 10.0
"""How long to wait for a scheduler to answer, and then for it to have a worker."""
WORKERLESS_SECONDS = 60.0
"""How long a cluster may be without workers, or its scheduler silent, before the simulation gives up."""
LOOK_SECONDS = 1.0
"""How often the workers are counted."""
CLOSE_SECONDS = 3.0
SENT_AGAIN = 3
"""How often a piece is sent again on which Dask has given up."""
ADDRESS = re.compile(r"(?:(?:tcp|tls|ws|wss)://)?(?:\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+):(\d{1,5})")
LOGGERS = ("distributed", "distributed.client", "distributed.gc", "tornado", "tornado.application")
"""Those to which Dask gives a handler on stderr."""
ASK = f"__import__({__name__!r}, fromlist=['versions']).versions()"
PLAY = f"__import__({__name__!r}, fromlist=['play_piece']).play_piece(wanted, problem, rest, numbers)"
"""What workers evaluate."""


@cache
def versions() -> dict[str, str]:
    """Return what the numbers of a run depend on."""
    found = {"restless-bandits": f"{__version__}, code {fingerprint()}"}
    found |= {name: version(name) for name in ("numpy", "scipy", "numba")}
    # What cloudpickle makes of a function given as an option is bytecode.
    return found | {"Python": ".".join(platform.python_version_tuple()[:2])}


def dask_setup(_: object) -> None:
    """Begin a worker of a local cluster: Dask calls this by its name."""
    begin_worker()


class DaskPool:
    """The workers of a cluster; one of this machine, in processes that end with this one, where no address is given.

    All that is sent and all that is known of it lives in the event loop of Dask's client, which is a thread of its own;
    the methods here are called from outside of it.
    """

    def __init__(self, address: str | None, jobs: int) -> None:
        self._jobs = jobs
        self._address = None if address is None else _checked(address)
        self._scheduler = f"the scheduler {self._address or 'of the local cluster'}"
        self._threads = 0
        self._cluster: distributed.LocalCluster | None = None
        self._client: Any = None
        self._count = itertools.count()
        self._sent: dict[object, distributed.Future] = {}
        self._playing: dict[asyncio.Task[None], Future[list[PlayedRun]]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._hushed = contextlib.ExitStack()
        if self._address is not None:
            # At once, because a cluster that is not there should be known before anything is computed; a local one
            # is started when there is something to play.
            self._open(partial(self._connect, self._address))

    @property
    def width(self) -> int:
        """The threads of all workers, which may come and go; never none, because work must be at hand for the next."""
        return self._jobs if self._address is None else max(1, self._threads)

    def submit(self, cell: Cell, numbers: Sequence[int]) -> Future[list[PlayedRun]]:
        if cell.trace:
            raise ProblemError("traces are too large to send over a cluster; leave out trace, or take another engine")
        if self._client is None:
            self._open(self._start)
        promised: Future[list[PlayedRun]] = Future()
        # Dask does not tell which pieces have begun, and one that has should be awaited for a while after a Ctrl-C.
        promised.set_running_or_notify_cancel()
        self._client.loop.add_callback(self._begin, promised, cell, list(numbers))
        return promised

    def close(self) -> None:
        """Give up what is being played; a local cluster ends."""
        ends = [] if self._client is None else [partial(self._client.sync, self._end, callback_timeout=CLOSE_SECONDS)]
        ends += [partial(one.close, timeout=CLOSE_SECONDS) for one in (self._client, self._cluster) if one is not None]
        try:
            for end in ends:
                with contextlib.suppress(Exception):
                    end()
        finally:
            self._hushed.close()

    def _open(self, connect: Callable[[], None]) -> None:
        self._hushed.enter_context(_hushed())
        try:
            connect()
            self._client.sync(self._begin_watch)
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        settings = {
            # Dask's own measurements take a few percent of what they measure.
            "distributed.worker.profile.enabled": False,
            "distributed.admin.system-monitor.gil.enabled": False,
        }
        # It may have something to say of a worker that ends after the pool, when all else has its old level again.
        logging.getLogger("distributed.process").setLevel(logging.CRITICAL + 1)
        # What is started with Ctrl-C held back never sees it, and a Ctrl-C that comes now is seen when all is there.
        with _held_back(), dask.config.set(settings):
            try:
                self._cluster = distributed.LocalCluster(
                    n_workers=self._jobs,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    # Any free port, because Dask opens one even for no dashboard, and warns if its usual one is taken.
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                    memory_limit=0,
                    silence_logs=logging.CRITICAL + 1,
                    preload=[__name__],
                )
                self._client = distributed.Client(self._cluster, timeout=CONNECT_SECONDS, set_as_default=False)
            except (OSError, RuntimeError, TimeoutError) as error:
                raise ProblemError(
                    f"no local cluster can be started: {_line(error)}; take the engine processes instead"
                ) from None

    def _connect(self, address: str) -> None:
        """Find the scheduler, and workers that play as we do."""
        within = {"distributed.comm.timeouts.connect": CONNECT_SECONDS}
        with dask.config.set(within), warnings.catch_warnings():
            # Of the versions that matter here, a worker is asked below.
            warnings.simplefilter("ignore", VersionMismatchWarning)
            try:
                # Asked first, in a loop of its own: Dask's client waits for ever for one who listens and is mute.
                with ThreadPoolExecutor(1) as apart:
                    found = apart.submit(asyncio.run, _who_is_at(address)).result()
                if found.get("type") != "Scheduler":
                    raise OSError(f"but a Dask {found.get('type', 'something')} does")
                self._client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
            except Exception as error:  # every transport has classes of its own, and all of them mean this
                raise ProblemError(
                    f"no Dask scheduler answers at {address} within {CONNECT_SECONDS:g} s ({_line(error)}); "
                    "check the address, or start one with: dask scheduler"
                ) from None
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            raise ProblemError(
                f"the scheduler at {address} has had no worker for {CONNECT_SECONDS:g} s; "
                f"start one with: dask worker {address}"
            ) from None
        self._threads = sum(self._client.ncores().values())
        for worker, answer in self._client.run(eval, ASK, on_error="return").items():
            if isinstance(answer, OSError):
                continue  # It has gone since.
            if isinstance(answer, Exception):
                raise ProblemError(
                    f"the worker {worker} cannot load restless-bandits {__version__} ({_line(answer)}); "
                    "install there what is installed here"
                )
            _compare(versions(), answer, worker)

    async def _begin_watch(self) -> None:
        self._watch = asyncio.create_task(self._look_after())

    def _begin(self, promised: Future[list[PlayedRun]], cell: Cell, numbers: list[int]) -> None:
        task = asyncio.create_task(self._keep(promised, cell, numbers))
        self._playing[task] = promised
        task.add_done_callback(lambda done: self._playing.pop(done, None))

    async def _keep(self, promised: Future[list[PlayedRun]], cell: Cell, numbers: list[int]) -> None:
        try:
            played = await self._played(cell, numbers)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            _break(promised, error)
        else:
            if not promised.done():
                promised.set_result(played)

    async def _played(self, cell: Cell, numbers: list[int]) -> list[PlayedRun]:
        number = next(self._count)
        rest = {name: value for name, value in vars(cell).items() if name != "problem"}
        for _ in range(1 + SENT_AGAIN):
            names = {
                "wanted": versions(),
                "problem": self._once(cell.problem, cell.problem),
                "rest": self._once(cell, rest),
                "numbers": numbers,
            }
            try:
                # In the order in which pieces were asked for, which the way to the scheduler does not keep.
                piece = self._client.submit(eval, PLAY, names, key=f"play-{uuid.uuid4()}", priority=-number)
                played: list[PlayedRun] = await piece
                return played
            except distributed.KilledWorker:
                # What the piece needs may be what Dask has given up on.
                self._sent.clear()
            except (CancelledError, CommClosedError, ClosedClientError):
                raise ProblemError(
                    f"the connection to {self._scheduler} is lost, or somebody has restarted it; "
                    "what was finished is kept, see to the cluster and run the same again"
                ) from None
            except ImportError as error:
                raise ProblemError(
                    f"a worker cannot load what it is to play ({_line(error)}); install there what is installed here"
                ) from None
        raise ProblemError(
            f"every worker that took up run {numbers[0]} of {cell.label} has died, {1 + SENT_AGAIN} times over; "
            "see the workers' logs for why, memory being the usual reason"
        )

    def _once(self, which: object, what: object) -> distributed.Future:
        """Send something that many pieces need, unless it has been sent."""
        if which not in self._sent:
            with warnings.catch_warnings():
                # A large problem is large; it goes over once.
                warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
                self._sent[which] = self._client.submit(bytes, _pickled(what), key=f"bytes-{uuid.uuid4()}")
        return self._sent[which]

    async def _look_after(self) -> None:
        """Count the workers, and break all promises when there have been none for long."""
        seen = time.monotonic()
        while True:
            try:
                running = await asyncio.wait_for(self._client.scheduler.ncores_running(), WORKERLESS_SECONDS)
                self._threads, why = sum(running.values()), "has had no worker"
            except (OSError, TimeoutError):
                self._threads, why = 0, "has not answered"
            if self._threads or not self._playing:
                seen = time.monotonic()
            elif time.monotonic() - seen >= WORKERLESS_SECONDS:
                error = ProblemError(
                    f"{self._scheduler} {why} for {WORKERLESS_SECONDS:g} s; "
                    "what was finished is kept, see to the cluster and run the same again"
                )
                for promised in list(self._playing.values()):
                    _break(promised, error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _end(self) -> None:
        tasks = [*self._playing, *([self._watch] if self._watch is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._sent.clear()


async def _who_is_at(address: str) -> dict[str, Any]:
    async with (
        asyncio.timeout(CONNECT_SECONDS),
        distributed.rpc(address, connection_args=distributed.Security().get_connection_args("client")) as it,
    ):
        found: dict[str, Any] = await it.identity()
        return found


def play_piece(wanted: dict[str, str], problem: bytes, rest: bytes, numbers: Sequence[int]) -> list[PlayedRun]:
    _compare(wanted, versions(), distributed.get_worker().address)
    return play_runs(Cell(_loaded(problem), **_loaded(rest)), numbers)


@lru_cache(maxsize=64)
def _loaded(content: bytes) -> Any:
    """Return what some bytes stand for, the same object for many pieces."""
    return pickle.loads(content)


def _pickled(what: object) -> bytes:
    """Return a problem or the rest of a cell as bytes, with the module of a learner that is nowhere installed."""
    classes = type(what["learner"]).__mro__ if isinstance(what, dict) else ()
    modules = {sys.modules[one.__module__] for one in classes if is_foreign(one) and one.__module__ != "__main__"}
    along = [module for module in modules if not is_installed(module)]
    for module in along:
        cloudpickle.register_pickle_by_value(module)
    try:
        content: bytes = cloudpickle.dumps(what)
        return content
    finally:
        for module in along:
            cloudpickle.unregister_pickle_by_value(module)


def _break(promised: Future[list[PlayedRun]], error: BaseException) -> None:
    if not promised.done():
        promised.set_exception(error)


def _checked(address: object) -> str:
    found = ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if not isinstance(address, str) or found is None or not 0 < int(found[1]) < 65536:
        raise ProblemError(f"address is {address!r}; give that of a Dask scheduler, such as tcp://127.0.0.1:8786")
    return address if "://" in address else f"tcp://{address}"


def _compare(wanted: dict[str, str], found: dict[str, str], worker: str) -> None:
    for name, mine in wanted.items():
        if found.get(name) != mine:
            raise ProblemError(
                f"the worker {worker} has {name} {found.get(name)} where here is {mine}, and its numbers could differ; "
                "install the same there"
            )


def _line(error: BaseException) -> str:
    """The first line of an error, or its name where it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Keep Dask's log off stderr: what of it matters to the user is an error here."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Hold Ctrl-C back in this thread and in all that it starts, where the system can."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
