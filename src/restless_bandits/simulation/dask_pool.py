"""A pool of the workers of a Dask cluster, on this machine or on others.

Messages are text, bytes and numbers: the scheduler needs only Dask, and a worker reports bytes that it cannot decode. A
problem and a cell are sent once each, as separate tasks; a piece names both and adds only the numbers of its runs. A
worker without the problem fetches its data from another worker, or from the scheduler if the other worker has died.

Failures on the way to equal numbers, and their treatment:

* A worker dies. Dask gives its pieces to other workers. After the death of several workers under a piece, Dask gives up
  on the piece, as a possible cause. On preemptible machines innocent pieces are affected too: a piece is therefore sent
  again a few times before an error.
* A worker has another version of this package, or of a library that determines arithmetic or random streams.
  All workers are asked at the start, and every piece asks again, because workers come and go.
* A learner is third-party code. Its module is sent along unless installed.
* All workers or the scheduler are gone: the pieces under way fail with a sentence, and finished runs are stored.

Imported on demand only: Dask is an optional dependency.
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
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.optional_dependencies import missing_extra
from restless_bandits._internal.workers import begin_worker
from restless_bandits.registry import is_foreign, is_installed
from restless_bandits.simulation.jobs import PlayedRun, SimulationJob, play_runs
from restless_bandits.simulation.storage import fingerprint

try:
    import cloudpickle
    import dask
    import distributed
    from distributed.client import ClosedClientError
    from distributed.comm import CommClosedError
    from distributed.versions import VersionMismatchWarning
except ImportError as missing:
    raise ProblemError(missing_extra("the engine dask", str(missing.name), "dask")) from None

CONNECT_SECONDS = 10.0
"""Seconds to wait for an answer of the scheduler, and then for its first worker."""
WORKERLESS_SECONDS = 60.0
"""Seconds without workers, or without an answer of the scheduler, after which the simulation gives up."""
LOOK_SECONDS = 1.0
"""How often the workers are counted."""
CLOSE_SECONDS = 3.0
SENT_AGAIN = 3
"""The number of repetitions of a piece on which Dask has given up."""
ADDRESS = re.compile(r"(?:(?:tcp|tls|ws|wss)://)?(?:\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+):(\d{1,5})")
LOGGERS = ("distributed", "distributed.client", "distributed.gc", "tornado", "tornado.application")
"""Loggers to which Dask adds a handler on stderr."""
ASK = f"__import__({__name__!r}, fromlist=['versions']).versions()"
PLAY = f"__import__({__name__!r}, fromlist=['play_piece']).play_piece(wanted, problem, rest, numbers)"
"""The expression that workers evaluate."""


@cache
def versions() -> dict[str, str]:
    """Return the versions that the numbers of a run depend on."""
    found = {"restless-bandits": f"{__version__}, code {fingerprint()}"}
    found |= {name: version(name) for name in ("numpy", "scipy", "numba")}
    # cloudpickle turns a function among the options into bytecode.
    return found | {"Python": ".".join(platform.python_version_tuple()[:2])}


def dask_setup(_: object) -> None:
    """Start a worker of a local cluster: Dask calls this function by its name."""
    begin_worker()


class DaskPool:
    """The workers of a cluster; without an address a local cluster, in processes that end with this process.

    All messages and their states live in the event loop of Dask's client, in a separate thread; the methods here are
    called from other threads.
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
        self._running: dict[asyncio.Task[None], Future[list[PlayedRun]]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._hushed = contextlib.ExitStack()
        if self._address is not None:
            # At once: a missing cluster should be reported before any computation. A local cluster is started with the
            # first piece.
            self._open(partial(self._connect, self._address))

    @property
    def width(self) -> int:
        """The number of threads of all workers, which may come and go; at least 1, to keep work ready for the next
        worker.
        """
        return self._jobs if self._address is None else max(1, self._threads)

    def submit(self, job: SimulationJob, numbers: Sequence[int]) -> Future[list[PlayedRun]]:
        if job.trace:
            raise ProblemError("traces are too large to send over a cluster; leave out trace, or take another engine")
        if self._client is None:
            self._open(self._start)
        promised: Future[list[PlayedRun]] = Future()
        # Dask does not report the start of a piece, and a running piece is awaited for a while after Ctrl-C.
        promised.set_running_or_notify_cancel()
        self._client.loop.add_callback(self._begin, promised, job, list(numbers))
        return promised

    def close(self) -> None:
        """Abandon running pieces; a local cluster ends."""
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
            # Dask's own measurements cost a few percent of the run time.
            "distributed.worker.profile.enabled": False,
            "distributed.admin.system-monitor.gil.enabled": False,
        }
        # Its message about a worker that ends after the pool may come when all other loggers have their old levels
        # again.
        logging.getLogger("distributed.process").setLevel(logging.CRITICAL + 1)
        # Processes started during the block never receive Ctrl-C; a Ctrl-C during the block takes effect afterwards.
        with _held_back(), dask.config.set(settings):
            try:
                self._cluster = distributed.LocalCluster(
                    n_workers=self._jobs,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    # Any free port: Dask opens a port even without a dashboard, and warns if its usual port is taken.
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
        """Connect to the scheduler, and check that workers have the same versions."""
        within = {"distributed.comm.timeouts.connect": CONNECT_SECONDS}
        with dask.config.set(within), warnings.catch_warnings():
            # The check below covers the relevant versions of workers.
            warnings.simplefilter("ignore", VersionMismatchWarning)
            try:
                # Asked first, in a separate loop: Dask's client waits for ever for a listener that does not answer.
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

    def _begin(self, promised: Future[list[PlayedRun]], job: SimulationJob, numbers: list[int]) -> None:
        task = asyncio.create_task(self._keep(promised, job, numbers))
        self._running[task] = promised
        task.add_done_callback(lambda done: self._running.pop(done, None))

    async def _keep(self, promised: Future[list[PlayedRun]], job: SimulationJob, numbers: list[int]) -> None:
        try:
            played = await self._played(job, numbers)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            _break(promised, error)
        else:
            if not promised.done():
                promised.set_result(played)

    async def _played(self, job: SimulationJob, numbers: list[int]) -> list[PlayedRun]:
        number = next(self._count)
        rest = {name: value for name, value in vars(job).items() if name != "problem"}
        for _ in range(1 + SENT_AGAIN):
            names = {
                "wanted": versions(),
                "problem": self._once(job.problem, job.problem),
                "rest": self._once(job, rest),
                "numbers": numbers,
            }
            try:
                # In order of submission; the connection to the scheduler does not keep the order.
                piece = self._client.submit(eval, PLAY, names, key=f"play-{uuid.uuid4()}", priority=-number)
                played: list[PlayedRun] = await piece
                return played
            except distributed.KilledWorker:
                # Dask may have given up on the inputs of the piece.
                self._sent.clear()
            except (CancelledError, CommClosedError, ClosedClientError):
                raise ProblemError(
                    f"the connection to {self._scheduler} is lost, or the scheduler was restarted; "
                    "finished runs are kept; check the cluster and run the same again"
                ) from None
            except ImportError as error:
                raise ProblemError(
                    f"a worker cannot load its task ({_line(error)}); install there what is installed here"
                ) from None
        raise ProblemError(
            f"every worker that took up run {numbers[0]} of {job.label} has died, {1 + SENT_AGAIN} times over; "
            "see the workers' logs for why, memory being the usual reason"
        )

    def _once(self, which: object, what: object) -> distributed.Future:
        """Send an input of many pieces, unless sent before."""
        if which not in self._sent:
            with warnings.catch_warnings():
                # A large problem is sent once; the warning does not apply.
                warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
                self._sent[which] = self._client.submit(bytes, _pickled(what), key=f"bytes-{uuid.uuid4()}")
        return self._sent[which]

    async def _look_after(self) -> None:
        """Count the workers, and fail all futures after a long time without workers."""
        seen = time.monotonic()
        while True:
            try:
                running = await asyncio.wait_for(self._client.scheduler.ncores_running(), WORKERLESS_SECONDS)
                self._threads, why = sum(running.values()), "has had no worker"
            except (OSError, TimeoutError):
                self._threads, why = 0, "has not answered"
            if self._threads or not self._running:
                seen = time.monotonic()
            elif time.monotonic() - seen >= WORKERLESS_SECONDS:
                error = ProblemError(
                    f"{self._scheduler} {why} for {WORKERLESS_SECONDS:g} s; "
                    "finished runs are kept; check the cluster and run the same again"
                )
                for promised in list(self._running.values()):
                    _break(promised, error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _end(self) -> None:
        tasks = [*self._running, *([self._watch] if self._watch is not None else [])]
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
    return play_runs(SimulationJob(_loaded(problem), **_loaded(rest)), numbers)


@lru_cache(maxsize=64)
def _loaded(content: bytes) -> Any:
    """Return the object of some bytes, the same object for many pieces."""
    return pickle.loads(content)


def _pickled(what: object) -> bytes:
    """Return a problem or the rest of a cell as bytes, with the module of a learner that is not installed."""
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
    """The first line of an error, or the name of an error without text."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Keep Dask's log off stderr: messages relevant to the user are errors here."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Hold Ctrl-C back in this thread and in its new processes, if the system can."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
