"""The value of another policy, from a log of the pulled arms alone.

    found = rb.data.evaluate_policy(trace, ["whittle", "best-arm", "likelihood-ucb"])
    found.policies[0].model.gain, found.policies[0].model.interval, found.policies[0].weighted.gain

*By the fitted model.* A fit needs observations only, whatever the logging policy. The interval comes from the
posterior: problems are drawn that explain the log equally well (see ``redraws``), the policy plays each problem, and
the mean and the spread of its gains are reported. An oracle's policy is made once, for the fitted problem, and then
held fixed, as in later use of the policy. The policy is too good on the fitted problem, because both come from the same
log; the bias does not matter here, since the fitted problem is not played. A learner starts anew on each problem and
plays for ``horizon`` slots; its interval includes the randomness of single runs.

*By weighting*, for logs with choice probabilities: see ``weighting``. Learners depend on more than weights can follow.

The model's value is for a pull in every slot for ever; a log with slots without a pull gets a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.compiling import clock
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.progress import Report, paced
from restless_bandits._internal.random_streams import check_generator, world_words
from restless_bandits._internal.validation import Array, check_int
from restless_bandits.learning.learners import Learner, learner
from restless_bandits.learning.learners.simple import Informed
from restless_bandits.logs.fitting import Fit, fit
from restless_bandits.logs.model_values import CONFIDENCE, DRAWS, FEWEST_DRAWS, MOST_DRAWS, REDRAW, Modelled
from restless_bandits.logs.observed_offpolicy import ObservedOffPolicy, evaluate_observed
from restless_bandits.logs.posterior_problems import posterior_problems
from restless_bandits.logs.traces import OTHER_PULLS, Trace
from restless_bandits.logs.weighting import NO_PROBABILITIES, Weighted, mean_of_log, weigh
from restless_bandits.model.checks import check_length
from restless_bandits.model.problem import Problem
from restless_bandits.oracles.evaluation import arm_average, check_policy
from restless_bandits.oracles.solution import Oracle
from restless_bandits.policies.plans import Forever, Plan
from restless_bandits.policies.policies import Policy, SingleArm, load_policy
from restless_bandits.registry import ORACLES
from restless_bandits.simulation.engine import EXPECTED, Run, World, play_run

LEARNS = "a learner depends on more than weights can follow"
SLOTS, LONGER, LONGEST = 20_000, 4, 16
"""Slots of a policy on each drawn problem, and the factors of their extension while simulation noise matters."""
RANDOM_SHARE = 0.1
"""The largest share of the simulation in the spread, as a variance."""
MOST_SHARED = 0.05
"""The largest share of slots with lines of several arms."""
MOST_HORIZON = 10_000
"""The default horizon of a learner for longer logs."""
WEIGH = 12
"""The number of the stream of random draws of weighting."""

Given = Policy | Learner | Oracle | str | Callable[[Problem], Policy]


MODEL_ASSUMES = (
    "each arm moves by itself along a chain of the fitted shape, observed or not, its rewards depend on its state "
    "alone, and one arm is pulled in every slot"
)


@dataclass(frozen=True, eq=False)
class EvaluatedPolicy:
    """The values of a policy or learner."""

    label: str
    horizon: int | None
    """The horizon of a learner; None for a policy with its long-run gain."""
    model: Modelled
    weighted: Weighted

    def as_dict(self) -> dict[str, Any]:
        model = self.model
        return {
            "policy": self.label,
            "horizon": self.horizon,
            "model": {
                "reward_mean": model.gain,
                "interval": model.interval,
                "above_best_arm": model.above_best_arm,
                "above_best_arm_interval": model.above_interval,
                "assumes": MODEL_ASSUMES,
            },
            "weighting": self.weighted.as_dict(),
        }


@dataclass(frozen=True, eq=False)
class OffPolicy:
    """Values of policies other than the policy of the log."""

    policies: tuple[EvaluatedPolicy, ...]
    fit: Fit
    best_arm: str
    """The best fixed arm of the fit."""
    logged: float
    """The mean logged reward."""
    logged_interval: tuple[float, float] | None
    draws: int
    confidence: float
    seed: int
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields in the form of ``restless evaluate --json``."""
        trace = self.fit.trace
        return {
            "trace": trace.source,
            "pulls": len(trace),
            "first_slot": int(trace.times[0]),
            "last_slot": int(trace.times[-1]),
            "arms": list(trace.names),
            "best_arm": self.best_arm,
            "draws": self.draws,
            "confidence": self.confidence,
            "seed": self.seed,
            "logged": {"reward_mean": self.logged, "interval": self.logged_interval},
            "policies": [one.as_dict() for one in self.policies],
            "notes": list(self.notes),
            "fit": self.fit.problem.findings.as_dict(),
        }

    def __repr__(self) -> str:
        lines = [f"<OffPolicy: {self.fit.trace.source or 'trace'}, {len(self.fit.trace)} pulls"]
        for one in self.policies:
            low, high = one.model.interval
            weighted = one.weighted.gain
            told = "" if weighted is None else f", weighted {weighted:.4g}"
            lines.append(f"  {one.label}  {one.model.gain:.4g} [{low:.4g}, {high:.4g}]{told}")
        lines.append(f"  as logged  {self.logged:.4g}")
        return "\n".join(lines) + ">"


def evaluate_policy(
    trace: Trace,
    policies: Given | Iterable[Given],
    *,
    shape: str = "birth-death",
    draws: int = DRAWS,
    horizon: int | None = None,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    report: Report | None = None,
    announce: Report | None = None,
    observed: Literal["all", "pulled"] | None = None,
    by: Literal["kind", "arm", "all"] | None = None,
) -> OffPolicy | ObservedOffPolicy:
    """Return the values of policies, from a log of the pulled arms alone, or of observed arms.

    Parameters
    ----------
    trace
        The log, with choice probabilities, if any, in ``trace.probabilities``.
    policies
        Names of oracles (``whittle``, ``best-arm``, …), whose policies are made for the fitted problem, specs of
        learners, files of stored policies (``….npz``); or a ``Policy``, a ``Learner``, an ``Oracle``; one or several.
    shape
        The shape of the chains: see ``fit``.
    draws
        The number of problems drawn for the interval of the model.
    horizon
        The horizon of a learner; by default the length of the log, at most 10 000.
    confidence, seed
        The confidence level of all intervals, and the seed of draws.
    report, announce
        Functions for a line before each policy, and for a line with the expected duration, if long.
    observed, by
        Of a log with actions: as for ``fit``. Arms that are all observed have values of their own: see
        ``observed_offpolicy``. Policies are then oracles of such problems, and ``random`` for pulls at random.

    """
    draws, seed = check_int("draws", draws, FEWEST_DRAWS, MOST_DRAWS), check_int("seed", seed, 0)
    if not 0.5 <= confidence < 1:
        raise ProblemError(f"confidence is {confidence!r}; give a number from 0.5 to below 1, such as 0.95")
    if trace.actions is not None and (trace.is_all_observed if observed is None else observed == "all"):
        given: dict[str, Any] = {"draws": draws, "confidence": confidence, "seed": seed, "report": report}
        return evaluate_observed(trace, policies, by=by, observed=observed, **given)
    trace.refuse_actions(f"{OTHER_PULLS}; fit the log, and evaluate policies on the fitted problem")
    _refuse_whole_logs(trace)
    found = fit(trace, shape=shape, announce=announce)
    slots = int(trace.times[-1] - trace.times[0]) + 1
    horizon = min(slots, MOST_HORIZON) if horizon is None else check_int("horizon", horizon)
    check_length(horizon)
    several = policies if isinstance(policies, Iterable) and not isinstance(policies, str) else [policies]
    players = [_labelled(given, found.problem, trace) for given in several]
    if not players:
        raise ProblemError("no policy is named; give at least one, such as 'whittle'")
    rng = check_generator(seed, trace.content, REDRAW)
    problems = posterior_problems(found, draws, rng)
    averages = np.array([arm_average(arm) for arm in found.problem.arms])
    best = int(averages.argmax())
    fixed = np.array([arm_average(problem.arms[best]) for problem in problems])
    worlds = [World(problem) for problem in problems]
    evaluated = []
    for label, player in players:
        if report is not None:
            report(f"{label}: {draws} problems that explain the log")
        weighted = Weighted(reason=NO_PROBABILITIES if trace.probabilities is None else LEARNS)
        if isinstance(player, Learner):
            gains = _learned(player, worlds, horizon, seed, label, announce)
        else:
            check_policy(found.problem, player)
            if isinstance(player, SingleArm):
                gains = np.array([arm_average(problem.arms[player.arm]) for problem in problems])
                there = averages[player.arm]
            else:
                gains = followed(player, worlds, seed)
                there = followed(player, [World(found.problem)], seed, LONGEST)[0]
            weighing = check_generator(seed, trace.content, WEIGH)
            weighted = weigh(trace, player, found.problem, float(there), weighing, confidence)
        model = Modelled(gains, gains - fixed, confidence, trace.reward_range)
        evaluated.append(EvaluatedPolicy(label, horizon if isinstance(player, Learner) else None, model, weighted))
    logged, interval = mean_of_log(trace, confidence)
    notes = tuple(_notes(trace, slots, evaluated))
    return OffPolicy(tuple(evaluated), found, trace.names[best], logged, interval, draws, confidence, seed, notes)


def _refuse_whole_logs(trace: Trace) -> None:
    if trace.n_arms == 1:
        raise ProblemError("the log has one arm, so there is nothing to choose; log the pulls of several")
    if len(trace) == trace.n_arms * len(np.unique(trace.times)):
        raise ProblemError(
            f"every slot of the log has all {trace.n_arms} arms, so nothing has to be guessed; use replay, which lets "
            "learners and policies play the log itself"
        )
    shared = _shared_slots(trace)
    if shared > MOST_SHARED:
        raise ProblemError(
            f"{shared:.1%} of the slots have lines of several arms, and evaluation takes one pull a slot; make slots "
            "shorter (--slot), or fit the log and evaluate policies on the fitted problem"
        )


def _shared_slots(trace: Trace) -> float:
    """The share of the logged slots that have lines of several arms."""
    return float((np.unique(trace.times, return_counts=True)[1] > 1).mean())


def _labelled(given: Given, problem: Problem, trace: Trace) -> tuple[str, Policy | Learner]:
    """A policy for the fitted problem, or a learner, and its label."""
    if isinstance(given, str) and given.endswith(".npz"):
        return given, load_policy(given)
    if isinstance(given, str) and given.replace("_", "-") not in ORACLES:
        given = learner(given)
    if isinstance(given, Informed):
        given = given.oracle
    if isinstance(given, Learner):
        return given.label, given
    if isinstance(given, Policy):
        return type(given).__name__, given
    oracle = oracles.find_oracle(given)
    policy = oracles.policy(oracle, problem)
    if oracle.name == "best-arm":
        arm = policy([None] * problem.n_arms, [1] * problem.n_arms)
        assert isinstance(arm, int)
        return f"best-arm, {trace.names[arm]!r}", SingleArm(arm)
    return oracle.name, policy


def followed(policy: Policy, worlds: list[World], seed: int, longer: int = 1) -> Array:
    """Return a policy's gain in each world, from simulations long enough to add little to the spread."""
    slots = longer * SLOTS
    while True:
        marks = np.array([slots // 10, slots // 10 + (slots - slots // 10) // 2, slots])
        halves = np.empty((len(worlds), 2))
        for number, world in enumerate(worlds):
            run = Run(world, slots, marks, world_words(seed, world.problem.content, number))
            run.play(Plan(policy, Forever()))
            halves[number] = np.diff(run.totals.at[:, EXPECTED]) / np.diff(marks)
        gains = np.asarray(halves.mean(axis=1))
        by_simulation = float((np.diff(halves, axis=1) ** 2).mean()) / 4
        if len(worlds) == 1 or slots >= LONGEST * SLOTS or by_simulation <= RANDOM_SHARE * float(gains.var(ddof=1)):
            return gains
        slots *= LONGER


def _learned(
    player: Learner, worlds: list[World], horizon: int, seed: int, label: str, announce: Report | None
) -> Array:
    """A learner's reward a slot in each world, up to the horizon."""
    gains = []
    for number, world in paced(list(enumerate(worlds)), f"{label} on {len(worlds)} problems", announce, clock):
        run = play_run(player, world, horizon, np.array([horizon]), seed=seed, run=number)
        gains.append(run.totals.at[-1, EXPECTED] / horizon)
    return np.array(gains)


def _notes(trace: Trace, slots: int, evaluated: list[EvaluatedPolicy]) -> list[str]:
    notes = []
    used, shared = len(np.unique(trace.times)), _shared_slots(trace)
    if shared:
        notes.append(
            f"{shared:.1%} of the slots have lines of several arms; values are for one pull a slot, and the logged "
            "reward is a mean over lines"
        )
    if used < slots:
        notes.append(
            f"nothing was pulled in {1 - used / slots:.1%} of the slots, and the model's answers are for a pull in "
            "each; the chains move meanwhile, so rewards a pull are not the same as rewards a slot"
        )
    for one in evaluated:
        there = one.weighted.interval
        if there is not None and (there[0] > one.model.interval[1] or there[1] < one.model.interval[0]):
            notes.append(
                f"{one.label}: the model and the weights do not agree; if the probabilities in the log are right, "
                "the model is not, and the weights are to be believed"
            )
    return notes
