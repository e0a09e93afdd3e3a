"""The choice of a pool: by name, or a pool of the caller."""

from __future__ import annotations

import ast
import pickle
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from restless_bandits._internal.errors import ProblemError, check_known
from restless_bandits.learning.learners.base import Learner
from restless_bandits.registry import ENGINES
from restless_bandits.simulation.pools import Pool, ProcessPool, ThreadPool, cores


@contextmanager
def open_pool(
    engine: str | Pool,
    jobs: int | None = None,
    address: str | None = None,
    *,
    often: bool = False,
    learners: Iterable[Learner] = (),
) -> Iterator[Pool]:
    """Open a pool by its name, and close the pool in the end; a pool of the caller stays open.

    ``auto`` is the cluster if an address is given. Otherwise ``auto`` is processes if the learners make plans
    ``often``, there is more than one job, and processes are safe; else threads. By default jobs are all cores.
    """
    if not isinstance(engine, str) and isinstance(engine, Pool):
        if jobs is not None or address is not None:
            raise ProblemError("engine is a pool, which has its own workers; leave out jobs and address")
        yield engine
        return
    check_known(engine, ENGINES, "there is no engine")
    if address is not None and engine not in ("dask", "auto"):
        raise ProblemError(f"address is {address!r}, but the engine is {engine}; an address goes with the engine dask")
    if address is not None and jobs is not None:
        raise ProblemError(f"jobs is {jobs}, but the cluster at {address} brings its own workers; leave out jobs")
    jobs = cores() if jobs is None else jobs
    pool: Pool
    if engine == "dask" or address is not None:
        # Dask is an optional dependency, and takes a second to load.
        from restless_bandits.simulation.dask_pool import DaskPool

        pool = DaskPool(address, jobs)
    else:
        safe = engine == "auto" and often and jobs > 1 and script_is_guarded() and all(map(_can_travel, learners))
        pool = ProcessPool(jobs) if engine == "processes" or safe else ThreadPool(jobs)
    try:
        yield pool
    finally:
        pool.close()


def script_is_guarded() -> bool:
    """Whether new processes would not run the main script again.

    A new process imports the main script first. Sessions without a script are safe, such as notebooks, and so are
    scripts whose main part, the origin of this call, stands under ``if __name__ == "__main__":``.
    """
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None:
        return True
    frame: FrameType | None = sys._getframe()
    while frame is not None and not (frame.f_globals is vars(main) and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    if frame is None:
        return False
    try:
        top_level = ast.parse(Path(path).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    return any(
        isinstance(part, ast.If)
        and isinstance(part.test, ast.Compare)
        and {ast.unparse(part.test.left), ast.unparse(part.test.comparators[0])} == {"__name__", "'__main__'"}
        and part.body[0].lineno <= frame.f_lineno <= (part.body[-1].end_lineno or 0)
        for part in top_level
    )


def _can_travel(learner: Learner) -> bool:
    """Whether a learner can be sent to another process: a learner of a class typed into a notebook cannot."""
    if type(learner).__module__ == "__main__" and getattr(sys.modules["__main__"], "__file__", None) is None:
        return False
    try:
        pickle.dumps(learner)
    except Exception:  # an option may be anything, and fail in any way
        return False
    return True
