"""Plays cells in a pool, and keeps their accounts.

The calling thread alone enters finished runs and writes to the disk. Groups of cells are played one after the other.
The cells of a group are played side by side, run by run: at an interrupt all learners have finished about the same
runs.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field

from restless_bandits._internal.errors import ProblemError
from restless_bandits.simulation import world_kernels as kernels
from restless_bandits.simulation.jobs import PlayedRun, SimulationJob
from restless_bandits.simulation.pools import Pool
from restless_bandits.simulation.results import Outcomes
from restless_bandits.simulation.storage import RunStore

RUNS_PER_FILE = 25
"""The number of runs of a cell in a stored block, and the largest piece."""
STORE_INTERVAL_SECONDS = 5.0
"""Seconds after which finished runs are stored even as an incomplete block."""
PIECE_SECONDS = 0.2
"""The approximate duration of a piece of a cell in seconds."""
LAST_WAIT = 1.0
"""Seconds that an interrupted simulation waits for nearly finished runs."""


@dataclass(eq=False)
class JobResults:
    """A cell with its finished runs."""

    job: SimulationJob
    store: RunStore | None = None
    finished: dict[int, Outcomes] = field(default_factory=dict)
    traces: dict[int, kernels.Trajectory] = field(default_factory=dict)
    _unstored: dict[int, Outcomes] = field(default_factory=dict)
    _stored_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if self.store is not None:
            self.finished |= self.store.load(self.job.runs)

    @property
    def missing(self) -> list[int]:
        return [run for run in range(self.job.runs) if run not in self.finished]

    @property
    def seconds_a_run(self) -> float | None:
        """The mean seconds of a finished run, if any."""
        if not self.finished:
            return None
        return sum(float(one.seconds[0]) for one in self.finished.values()) / len(self.finished)

    def enter(self, played: PlayedRun) -> None:
        self.finished[played.number] = played.outcome
        if played.trace is not None:
            self.traces[played.number] = played.trace
        if self.store is not None:
            self._unstored[played.number] = played.outcome
            whole = len(self.finished) == self.job.runs
            if (
                whole
                or len(self._unstored) >= RUNS_PER_FILE
                or time.monotonic() - self._stored_at > STORE_INTERVAL_SECONDS
            ):
                self.save()

    def save(self) -> None:
        """Store all runs that are not yet stored."""
        if self.store is not None and self._unstored:
            self.store.save(self._unstored)
            self._unstored = {}
        self._stored_at = time.monotonic()

    def outcomes(self, runs: int) -> Outcomes:
        """Return the first runs."""
        return Outcomes.stack([self.finished[run] for run in range(runs)])


def play_jobs(
    groups: Sequence[Sequence[JobResults]],
    pool: Pool,
    entered: Callable[[JobResults], None] | None = None,
    look: Callable[[], None] | None = None,
) -> None:
    """Play all missing runs; ``entered`` is called with each book that has new runs.

    ``look`` is called about twice a second during play.

    Finished runs are stored in all cases: after an interrupt, an error in a run, a full disk.
    """
    all_results = [job_results for group in groups for job_results in group]
    playing: dict[Future[list[PlayedRun]], JobResults] = {}
    pieces = _pieces(groups)
    try:
        while True:
            # Twice the number of parallel pieces: no worker waits for the next piece.
            while len(playing) < 2 * pool.width and (piece := next(pieces, None)) is not None:
                job_results, numbers = piece
                playing[pool.submit(job_results.job, numbers)] = job_results
            if not playing:
                break
            # With a timeout, because on some systems an unlimited wait cannot be interrupted.
            done, _ = wait(playing, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                job_results = playing.pop(future)
                for played in future.result():
                    job_results.enter(played)
                if entered is not None:
                    entered(job_results)
            if look is not None and playing:
                look()
        for job_results in all_results:
            job_results.save()
    except KeyboardInterrupt:
        begun = [future for future in playing if not future.cancel()]
        done, _ = wait(begun, timeout=LAST_WAIT)
        for future in done:
            if future.exception() is None:
                for played in future.result():
                    playing[future].enter(played)
        for job_results in all_results:
            job_results.save()
        raise
    except BaseException:
        for future in playing:
            future.cancel()
        # The first error is reported; a full disk stays full.
        with contextlib.suppress(ProblemError):
            for job_results in all_results:
                job_results.save()
        raise


def _pieces(groups: Sequence[Sequence[JobResults]]) -> Iterator[tuple[JobResults, list[int]]]:
    """The missing runs, in pieces that grow to ``PIECE_SECONDS`` by the measured duration of a run."""
    for group in groups:
        waiting = [(job_results, deque(job_results.missing)) for job_results in group]
        while any(numbers for _, numbers in waiting):
            for job_results, numbers in waiting:
                seconds = job_results.seconds_a_run
                size = 1 if seconds is None else int(max(1.0, min(RUNS_PER_FILE, PIECE_SECONDS / max(seconds, 1e-6))))
                piece = [numbers.popleft() for _ in range(min(size, len(numbers)))]
                if piece:
                    yield job_results, piece
