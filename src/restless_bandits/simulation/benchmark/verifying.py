"""A second look at a submission: a random tenth of its runs is played again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.progress import Report
from restless_bandits.simulation.benchmark.processes import TimeLimits
from restless_bandits.simulation.benchmark.running import jobs_of, play
from restless_bandits.simulation.benchmark.submissions import Entrant, Seeds, Submission, same

SHARE = 0.1
"""The share of the runs that are played again."""


@dataclass(frozen=True)
class Verification:
    """The runs played again, and a sentence for each difference."""

    runs: int
    differences: tuple[str, ...]
    same_code: bool

    @property
    def agrees(self) -> bool:
        return not self.differences


def verify(
    submission: Submission,
    entrant: Entrant,
    *,
    seeds: Seeds | None = None,
    seed: int | None = None,
    time_limits: TimeLimits | None = None,
    report: Report | None = None,
) -> Verification:
    """Play a random tenth of the runs of a submission again, and compare rewards.

    ``seed`` is that of the choice of runs; by default the choice is new each time.
    """
    seeds = seeds or Seeds()
    if seeds.label != submission.seeds:
        raise ProblemError(
            f"the submission's seeds are {submission.seeds}, and those given {seeds.label}; give their file with "
            "--held-out"
            if submission.seeds != "public"
            else "the submission's seeds are public; leave out --held-out"
        )
    if entrant.as_dict() != dict(submission.entrant):
        raise ProblemError(f"the submission is of {submission.name}, and the entrant given is {entrant.name}")
    every = jobs_of(submission.track, submission.full, seeds)
    rows = {(row.instance, row.seed): row for row in submission.rows}
    count = max(1, math.ceil(SHARE * len(every)))
    chosen = sorted(np.random.default_rng(seed).permutation(len(every))[:count].tolist())
    differences: list[str] = []
    for number, place in enumerate(chosen, 1):
        job = every[place]
        row, again = (
            rows[job.instance.name, job.number],
            play(job, entrant, submission.full, time_limits or TimeLimits()),
        )
        differences += _differences(row.reward, again.reward, row.error, again.error, job.instance.name, job.number)
        differences += [
            f"{job.instance.name}: the value of {what} is {said:.9g}, and was computed as {found:.9g}"
            for what, said, found in (("random play", row.random, again.random), ("the best", row.best, again.best))
            if not same(said, found)
        ]
        if report is not None:
            report(f"{number} of {count}: {job.instance.name}, seed {job.number + 1}")
    return Verification(count, tuple(differences), entrant.code == submission.code)


def _differences(said: float, found: float, error: str, error_now: str, name: str, number: int) -> Sequence[str]:
    where = f"{name}, seed {number + 1}"
    if bool(error) != bool(error_now):
        return [f"{where}: {error_now or 'it plays now'}, and the submission says {error or 'that it played'}"]
    if not same(said, found):
        return [f"{where}: reward {found:.9g}, and the submission says {said:.9g}"]
    return []
