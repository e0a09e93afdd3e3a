"""Runs of a track: each instance and seed in a process of its own, finished runs kept, the submission at the end."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restless_bandits._internal.errors import ProblemError, check_known
from restless_bandits._internal.files import check_writable, read_file, save_file
from restless_bandits._internal.progress import Report
from restless_bandits.simulation.benchmark.episodes import first_message, make_episode
from restless_bandits.simulation.benchmark.instances import TRACKS, Instance, instances_of
from restless_bandits.simulation.benchmark.messages import AnswerError
from restless_bandits.simulation.benchmark.processes import EntrantProcess, TimeLimits, reference_seconds
from restless_bandits.simulation.benchmark.submissions import Entrant, Row, Seeds, Submission, describe

KEPT = ".partial"
"""The end of the name of the file of finished runs of an interrupted command."""


@dataclass(frozen=True)
class BenchmarkJob:
    """A run: an instance and the number of its seed."""

    instance: Instance
    number: int
    seed: int


def jobs_of(track: str, full: bool, seeds: Seeds, only: Sequence[str] = ()) -> list[BenchmarkJob]:
    """Return the runs of a track in the order of a submission."""
    instances = instances_of(track)
    for name in only:
        check_known(name, [instance.name for instance in instances], f"track {track} has no instance")
    return [
        BenchmarkJob(instance, number, seed)
        for instance in instances
        if not only or instance.name in only
        for number, seed in enumerate(seeds.of(instance, full))
    ]


def play(
    job: BenchmarkJob, entrant: Entrant, full: bool, time_limits: TimeLimits, cancelled: threading.Event | None = None
) -> Row:
    """Play a run; a failure of the entrant is a row with the score of random play."""
    started = time.perf_counter()
    instance = job.instance
    reference = instance.reference(job.seed)
    cpu = math.nan
    error = ""
    reward = reference.random
    try:
        episode = make_episode(instance, job.seed, full, entrant.revealed, reference)
        with EntrantProcess(entrant.command, time_limits, cancelled) as process:
            message: dict[str, Any] | None = first_message(instance, episode)
            process.ask({"type": "hello", "track": instance.track, "view": instance.view})
            process.mark_start()
            unit = reference_seconds()
            while message is not None:
                message = episode.after(process.ask({"type": "slot"} | message))
            process.end()
            unit = 0.5 * (unit + reference_seconds())
            cpu = process.cpu_seconds / unit
        reward = episode.reward
    except AnswerError as problem:
        error = str(problem)
    seconds = time.perf_counter() - started
    return Row(instance.name, job.number, reward, reference.random, reference.best, cpu, seconds, error)


def run_track(
    track: str,
    entrant: Entrant,
    *,
    full: bool = False,
    seeds: Seeds | None = None,
    out: str | Path = "submission.json",
    jobs: int = 1,
    time_limits: TimeLimits | None = None,
    report: Report | None = None,
) -> Submission:
    """Play all runs of a track and write the submission.

    Finished runs are kept beside the submission until its end, and an interrupted command goes on with them.
    """
    check_known(track, TRACKS, "there is no track")
    seeds, time_limits = seeds or Seeds(), time_limits or TimeLimits()
    check_writable(out)
    every = jobs_of(track, full, seeds)
    if not every:
        raise ProblemError(f"track {track} has no instances yet")
    kept = Path(f"{out}{KEPT}")
    about = describe(track, entrant, full, seeds)
    rows = _kept_rows(kept, about)
    left = [job for job in every if (job.instance.name, job.number) not in rows]
    if report is not None and rows:
        report(f"{len(rows)} of {len(every)} runs are kept from before")
    lock, cancelled = threading.Lock(), threading.Event()
    with kept.open("a", encoding="utf-8") as file:
        if not rows:
            file.truncate(0)
            file.write(json.dumps(about) + "\n")

        def one(job: BenchmarkJob) -> Row:
            row = play(job, entrant, full, time_limits, cancelled)
            with lock:
                if cancelled.is_set():
                    return row
                file.write(json.dumps(row.as_dict()) + "\n")
                file.flush()
            return row

        for row in _in_threads(one, left, jobs, cancelled):
            rows[row.instance, row.seed] = row
            if report is not None:
                what = row.error or f"score {row.score:.4f}"
                report(f"{len(rows)} of {len(every)}: {row.instance}, seed {row.seed + 1}: {what}")
    made = Submission(**about, rows=tuple(rows[job.instance.name, job.number] for job in every))
    save_file(out, made.to_json())
    kept.unlink(missing_ok=True)
    return made


def _in_threads(
    work: Callable[[BenchmarkJob], Row], left: Sequence[BenchmarkJob], jobs: int, cancelled: threading.Event
) -> Iterator[Row]:
    """Yield rows as they finish; an interruption ends the entrants that are running."""
    queue = list(left)
    pool = ThreadPoolExecutor(jobs)
    running: set[Future[Row]] = set()
    try:
        while queue or running:
            while queue and len(running) < jobs:
                running.add(pool.submit(work, queue.pop(0)))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BaseException:
        cancelled.set()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _kept_rows(kept: Path, about: dict[str, Any]) -> dict[tuple[str, int], Row]:
    """Return the finished runs of an interrupted command; runs of another command are refused."""
    if not kept.exists():
        return {}
    lines = read_file(kept).decode(errors="replace").splitlines()
    found: list[dict[str, Any]] = []
    for line in lines:
        # A line half written at the end is a run to play again.
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    if not found:
        return {}
    same = ("track", "entrant", "full", "seeds", "code")
    if any(found[0].get(key) != json.loads(json.dumps(about[key])) for key in same):
        raise ProblemError(
            f"{kept} has runs of another track, entrant, code or seeds; give another --out, or remove it"
        )
    rows = [Row.from_dict(row, str(kept)) for row in found[1:]]
    return {(row.instance, row.seed): row for row in rows}
