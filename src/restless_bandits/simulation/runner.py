"""Many learners, many runs, all cores.

Run r of a learner depends on the seed, the problem's content and r alone. Numbers are therefore independent of the
number of threads, processes or machines, of stored runs, and of the other learners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from restless_bandits._internal.compiling import is_kept
from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.progress import Report, warning
from restless_bandits._internal.validation import IntArray, check_int, number_of, positive
from restless_bandits.learning.learners import Learner, by_label
from restless_bandits.model.checks import check_length
from restless_bandits.model.problem import AnyProblem, as_problem, warn_of_rising_rewards
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.exact import cost
from restless_bandits.simulation.comparator import Comparator, comparator_over
from restless_bandits.simulation.engines import open_pool
from restless_bandits.simulation.feedback_delays import FeedbackDelays
from restless_bandits.simulation.jobs import MOST_RUNS, SimulationJob, check_playable, is_priced, pull_columns
from restless_bandits.simulation.pools import Pool, ProcessPool
from restless_bandits.simulation.results import LARGEST_RATIO, SimulationResult, Trajectories
from restless_bandits.simulation.scheduler import JobResults, play_jobs
from restless_bandits.simulation.storage import RunStore, open_folder
from restless_bandits.simulation.time_estimates import TimeEstimate, play_beginning
from restless_bandits.simulation.world_kernels import run_plan

MOST_CHECKPOINTS = 1_000_000
MOST_NUMBERS = 200_000_000
"""The largest number of values in a result: 1.6 GB."""
MANY_SLOTS = 1_000_000
"""Slots of all runs of a learner from which on processes pay off."""

MANY_ANSWERS = 20_000
"""The same for runs of agents, which hold the interpreter's lock all the time."""


class SimulationInterrupted(KeyboardInterrupt):
    """Ctrl-C in the middle of a simulation, with the finished runs.

    ``result`` holds the first runs finished by every learner, or None without any; ``finished`` counts the finished
    runs of each learner.
    """

    def __init__(self, finished: dict[str, int], total: int, result: SimulationResult | None, out: Path | None) -> None:
        self.finished, self.total, self.result, self.out = finished, total, result, out
        stored = "" if out is None else f" and stored in {out}; the same again resumes"
        super().__init__(f"Interrupted: {sum(finished.values())} of {total} runs are finished{stored}")


def simulate(
    problem: AnyProblem,
    learners: Learner | str | Iterable[Learner | str],
    horizon: int,
    *,
    runs: int = 100,
    seed: int = 0,
    jobs: int | None = None,
    engine: str | Pool = "auto",
    address: str | None = None,
    checkpoints: int | str | Sequence[int] = 10,
    comparator: str | float = "auto",
    ratio: float = 1.0,
    trace: bool = False,
    lost: float = 0.0,
    late: int = 0,
    out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    announce: Report | None = None,
) -> SimulationResult:
    """Run learners on a problem.

    Parameters
    ----------
    problem
        The problem, the name of a built-in problem, or the path of a TOML file.
    learners
        Learners, or specs such as ``"restless-ucb:radius=none"``; one or several.
    horizon
        Slots of every run.
    runs
        Runs of every learner. Run r does not depend on the number of runs or the other learners.
    seed
        The seed of the simulation.
    jobs
        The number of parallel runs; all cores by default.
    engine
        ``threads``; ``processes``, with a slower start and more speed for learners with thousands of plans a run;
        ``dask``, a cluster; or ``auto``: the cluster if an address is given, processes if they pay off and are safe,
        else threads. A script that asks for processes, or for a cluster without an address, must guard its main part by
        ``if __name__ == "__main__":``; without the guard ``auto`` takes threads. A ``Pool`` of your own is accepted as
        well, and stays open.
    address
        The scheduler of a Dask cluster, as in ``tcp://127.0.0.1:8786``. The cluster brings its own workers: ``jobs``
        does not apply. The engine ``dask`` without an address starts a local cluster with ``jobs`` workers.
    checkpoints
        The number of checkpoints, evenly spaced up to the horizon; ``"log:20"`` for logarithmic spacing; or a list of
        slots, to which the horizon is added.
    comparator
        The reference of regret: ``auto`` (the optimum, or its bracket), ``exact``, ``whittle``, ``myopic``,
        ``guha``, ``best-arm``, ``lp-index``, or a number. The gain of a policy of observed arms is simulated.
    ratio
        Approximation regret: ``ratio · t · gain − Σ reward``.
    trace
        Keep every slot in ``result.traces``.
    lost, late
        The probability that the feedback of a slot is lost, and the largest delay in slots; delays are uniform up to
        the largest (``simulation.answers``). An ``Agent`` plays such runs, thousands of slots a second instead of
        millions, against the same comparator, which has immediate feedback.
    out
        A folder for finished runs; a repeated call resumes, and a call with more runs uses the stored runs.
    progress
        A function of the numbers of finished runs and of all runs.
    announce
        A function for a line of immediate interest: the expected duration of the simulation, if long, and the cautions
        of learners (``Learner.caution``). Without ``announce``, a single run longer than a minute is a
        ``RuntimeWarning``.

    """
    problem = as_problem(problem)
    warn_of_rising_rewards(problem)
    problem.require_drawn()
    refuse_unsupported(problem, "simulate")
    horizon = check_int("horizon", horizon)
    check_length(horizon)
    runs = check_int("runs", runs, 1, MOST_RUNS)
    seed = check_int("seed", seed, 0)
    jobs = None if jobs is None else check_int("jobs", jobs)
    ratio = positive("ratio", ratio, LARGEST_RATIO)
    if trace and out is not None:
        raise ProblemError("traces are not stored; leave out either trace or out")
    answers = FeedbackDelays(lost, late)
    marks = checkpoint_slots(checkpoints, horizon)
    players = by_label(learners)
    kept = 3 * runs * len(players) * (len(marks) + (horizon * problem.plays if trace else 0))
    kept += runs * len(players) * len(pull_columns(problem))
    if kept > MOST_NUMBERS:
        what = "with traces" if trace else f"with {len(marks)} checkpoints"
        raise ProblemError(f"{runs} runs {what} leave {kept:.1g} numbers, too many to hold; give fewer of them")
    # A learner that cannot play this problem raises before any work is done.
    for player in players.values():
        check_playable(problem, player, horizon, answers, trace=trace)
        if problem.observed == "all":
            continue
        caution = player.caution(player.task(problem, horizon), problem)
        if announce is not None and caution is not None:
            announce(caution)
    if answers.prompt:
        often = any(player.plans_often for player in players.values()) and runs * horizon >= MANY_SLOTS
    else:
        often = runs * horizon >= MANY_ANSWERS
    with open_pool(engine, jobs, address, often=often, learners=players.values()) as pool:
        folder = None if out is None else open_folder(out)
        if announce is not None and comparator == "exact" and (line := warning(cost(problem).seconds, "exact")):
            announce(line)
        compared = comparator_over(problem, comparator, horizon)
        all_results = []
        for label, player in players.items():
            job = SimulationJob(problem, player, label, horizon, tuple(marks.tolist()), seed, runs, trace, answers)
            all_results.append(JobResults(job, None if folder is None else RunStore.open(folder, job)))

        def tell(_: JobResults | None = None) -> None:
            if progress is not None:
                progress(sum(len(job_results.finished) for job_results in all_results), runs * len(all_results))

        tell()
        try:
            if isinstance(pool, ProcessPool) and problem.observed == "pulled" and not is_kept(run_plan):
                # Compile here the code with the longest compile time; all workers then load the code from disk.
                play_beginning(all_results[0].job)
            play_jobs([all_results], pool, tell, TimeEstimate(all_results, pool.width, announce).look)
        except KeyboardInterrupt:
            counts = {job_results.job.label: len(job_results.finished) for job_results in all_results}
            common = min(min(job_results.missing, default=runs) for job_results in all_results)
            part = collect(all_results, common, compared, ratio) if common else None
            raise SimulationInterrupted(counts, runs * len(all_results), part, folder) from None
    return collect(all_results, runs, compared, ratio)


def collect(
    all_results: Sequence[JobResults], runs: int, comparator: Comparator, ratio: float = 1.0
) -> SimulationResult:
    """Return the first runs of some cells of equal problem, seed, horizon and checkpoints as a result."""
    first = all_results[0].job
    traces = {}
    for job_results in all_results if first.trace else ():
        columns = zip(*(job_results.traces[run] for run in range(runs)), strict=True)
        traces[job_results.job.label] = Trajectories(*map(np.stack, columns))
    return SimulationResult(
        problem=first.problem.name,
        content=first.problem.content,
        arms=tuple(pull_columns(first.problem)),
        learners=tuple(job_results.job.label for job_results in all_results),
        horizon=first.horizon,
        seed=first.seed,
        checkpoints=np.array(first.checkpoints, dtype=np.int64),
        comparator=comparator,
        ratio=ratio,
        priced=is_priced(first.problem),
        outcomes=tuple(job_results.outcomes(runs) for job_results in all_results),
        traces=traces,
        findings=first.problem.findings,
        lost=first.answers.lost,
        late=first.answers.late,
        reward_range=first.problem.reward_range,
        in_costs=first.problem.in_costs,
        slot_range=first.problem.slot_range,
    )


def checkpoint_slots(checkpoints: int | str | Sequence[int], horizon: int) -> IntArray:
    """Return checkpoints as ascending slots that end at the horizon.

    >>> checkpoint_slots(4, 1000).tolist()
    [250, 500, 750, 1000]
    >>> checkpoint_slots("log:4", 1000).tolist()
    [1, 10, 100, 1000]
    """
    if isinstance(checkpoints, str):
        kind, _, count = checkpoints.rpartition(":")
        number = number_of(count)
        if kind not in ("", "log") or number is None:
            remedy = "give a number, or log: and a number as in log:20"
            raise ProblemError(f"checkpoints is {shortened(checkpoints)}; {remedy}")
        if kind == "log":
            check_int("checkpoints", number, 1, MOST_CHECKPOINTS)
            spaced = np.geomspace(1, horizon, number) if number > 1 else np.array([horizon])
            return _ascending(np.rint(spaced).astype(np.int64), horizon)
        checkpoints = number
    if isinstance(checkpoints, int | np.integer):
        count_of = min(check_int("checkpoints", checkpoints, 1, MOST_CHECKPOINTS), horizon)
        return _ascending(np.array([-(-horizon * k // count_of) for k in range(1, count_of + 1)]), horizon)
    slots = [check_int("a checkpoint", slot) for slot in checkpoints]
    beyond = [slot for slot in slots if slot > horizon]
    if beyond:
        raise ProblemError(f"checkpoint {beyond[0]} lies beyond the horizon {horizon}; leave it out")
    return _ascending(np.array(slots, dtype=np.int64), horizon)


def _ascending(slots: IntArray, horizon: int) -> IntArray:
    return np.union1d(np.clip(slots, 1, horizon), [horizon]).astype(np.int64)
