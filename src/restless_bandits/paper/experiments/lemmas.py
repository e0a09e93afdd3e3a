"""What the paper proves, computed: one check for each lemma or theorem of the ledger, on the problems of the figures.

A check takes a problem and gives findings, as the tests of ``verdicts`` do from curves. Another one is a function here,
entered into ``CHECKS`` under its name by ``check``, and an entry of ``claims.toml`` with ``test = "theory"`` and that
name as ``check``. Lemmas about the event E are checked at the first T that the proof covers, rad(T) ≤ c1/3, where the
radius is largest, on the farthest chains that E allows and on some drawn among all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial, wraps
from typing import Any

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.random_streams import check_generator
from restless_bandits._internal.validation import Array
from restless_bandits.model import markov
from restless_bandits.model.arms import AnyArm, Arm
from restless_bandits.model.optimism import optimistic_chain, optimistic_rewards
from restless_bandits.model.problem import Problem
from restless_bandits.oracles.relaxation import relaxation_bound
from restless_bandits.paper import theory
from restless_bandits.paper.experiments.items import Item, Part, Work
from restless_bandits.paper.experiments.verdicts import FAILS, FROM, UNDECIDED, UNVIOLATED, ClaimFinding, Evidence
from restless_bandits.paper.experiments.writing import amount, slots
from restless_bandits.paper.theory.event import estimate_within
from restless_bandits.simulation.comparator import certified_gains

STREAM = 2
LONGEST_ELAPSED = 2000
"""Elapsed slots up to which distributions are compared, where they have not long settled before."""
MOST_SMALL = 2
"""Arms up to which a problem is small enough to be solved here, if its arms have two states."""
ALLOWED_STANDARD_ERRORS = 6.0
"""Standard errors by which a simulated mean may be off: with 50 runs and more a false alarm of about 1e-6."""
ORDER = 2.0
"""How many times N m(T) / d_min the proved bound of the exploration phase may be, at the shortest horizon."""


@dataclass(frozen=True)
class Lemmas(Item):
    """The lemmas and theorems: on which problems, at which horizons, with how many draws."""

    problems: tuple[str, ...]
    horizons: tuple[int, ...]
    event_runs: int
    exploration_runs: int
    estimates: int
    """Draws of estimated chains that the event E allows, for every arm."""
    coupling_slots: int

    def begin(self, work: Work) -> Callable[[], Part]:
        """Return the function that makes all checks; findings are the only result, and stand in the ledger."""

        def part() -> Part:
            work.say(self.name)
            return Part(Evidence(theory=check_all(self, work.seed)))

        return part


def check_all(item: Lemmas, seed: int = 0) -> dict[str, list[ClaimFinding]]:
    """Make all checks; findings by the name of the check."""
    cases = [Case(Problem.builtin(name), seed) for name in item.problems]
    return {name: made(item, cases) for name, made in CHECKS.items()}


@dataclass(frozen=True, eq=False)
class Case:
    """A problem, and what several checks need of it."""

    problem: Problem
    seed: int

    @property
    def name(self) -> str:
        return self.problem.name

    @cached_property
    def lambda_bounds(self) -> tuple[float, float]:
        bounds = theory.lambda_max_bounds(self.problem)
        assert bounds is not None
        return bounds

    @cached_property
    def horizon(self) -> int:
        """The first T with rad(T) ≤ c1/3."""
        found = theory.radius_below_from(theory.neighbour_distance(self.problem) / 2)
        assert found is not None
        return found

    @cached_property
    def most(self) -> tuple[float, str]:
        """The optimal gain, or an upper bound of it."""
        known = certified_gains().get(self.problem.content)
        if known is not None:
            return float(known["gain"]), "μ*"
        return relaxation_bound(self.problem), "a bound of μ*"

    @cached_property
    def small(self) -> bool:
        return self.problem.n_arms <= MOST_SMALL and max(self.problem.n_states) == 2

    def optimistic(self, estimates: int) -> Iterator[tuple[Arm, Arm]]:
        """Every arm with what Algorithm 1 may make of it on the event E: the farthest, and some that are drawn."""
        rad = theory.radius(self.horizon)
        rng = check_generator(self.seed, self.problem.content, STREAM)
        for arm in self.problem.arms:
            assert isinstance(arm, Arm)
            yield arm, _made(arm, arm.chain, arm.rewards, 2 * rad)
            for _ in range(estimates):
                rewards = arm.rewards + rng.uniform(-rad, rad, arm.n_states)
                yield arm, _made(arm, estimate_within(arm.chain, rad, rng), rewards, rad)


def _made(arm: AnyArm, chain: Array, rewards: Array, rad: float, initial: int | None = None) -> Arm:
    """What Algorithm 1 makes of estimates of an arm."""
    radii = np.full(arm.n_states, rad)
    better = np.maximum(0.0, optimistic_rewards(rewards, radii))
    return Arm(optimistic_chain(chain, radii), better, name=arm.name, initial=initial)


def _farthest(problem: Problem, horizon: int) -> Problem:
    """R' from the estimates of a problem that are farthest off on the event E."""
    rad = theory.radius(horizon)
    arms = [_made(arm, arm.one_step, arm.rewards, 2 * rad, arm.initial) for arm in problem.arms]
    return Problem(arms, name=f"{problem.name}, optimistic")


CHECKS: dict[str, Callable[[Lemmas, list[Case]], list[ClaimFinding]]] = {}


def check(made: Callable[[Lemmas, Case], Iterable[ClaimFinding]]) -> Callable[[Lemmas, Case], Iterable[ClaimFinding]]:
    """Enter a check of one problem, to be made of all of them."""
    CHECKS[made.__name__] = lambda item, cases: [finding for case in cases for finding in made(item, case)]
    return made


def small(made: Callable[[Lemmas, Case], Iterable[ClaimFinding]]) -> Callable[[Lemmas, Case], Iterable[ClaimFinding]]:
    """Leave a check at the problems that can be solved here."""
    return wraps(made)(lambda item, case: made(item, case) if case.small else ())


def _finding(where: str, holds: bool, text: str, tried: int = 1, /, **numbers: Any) -> ClaimFinding:
    return ClaimFinding(where, UNVIOLATED if holds else FAILS, text, numbers, tried=tried)


@check
def neighbours(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    low, high = case.lambda_bounds
    own = max(abs(markov.second_eigenvalue(arm.one_step)) for arm in case.problem.arms)
    between = f"{high:.6f}" if high - low < 1e-9 else f"between {low:.6f} and {high:.6f}"
    text = f"λ_max is {between}, the largest |λ₂| of the chains themselves {own:.6f}"
    outcome = UNVIOLATED if high < 1 else FAILS if low >= 1 else UNDECIDED
    yield ClaimFinding(case.name, outcome, text, {"lower": low, "upper": high, "own": own})


def _says(case: Case, first: int | None, bound: Callable[[int], theory.RegretBound], more: str) -> ClaimFinding:
    """From which T on a bound is below all that there is to lose."""
    gain, what = case.most
    numbers = {"vacuous_until": None if first is None else float(first), "gain": gain}
    if first is None:
        return ClaimFinding(case.name, FAILS, f"not below T times {what} = {gain:.4f} up to T = 1e36{more}", numbers)
    found = bound(first)
    largest = max(found.terms, key=lambda name: found.terms[name])
    text = (
        f"below T times {what} = {gain:.4f} from T ≈ {slots(first)} on, where {found.terms[largest] / found.total:.0%} "
        f"of it come from {largest}{more}"
    )
    return ClaimFinding(case.name, FROM, text, numbers | {"terms": found.terms}, float(first))


@check
def theorem_1(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    problem, gain, rate = case.problem, case.most[0], case.lambda_bounds[1]
    proved = theory.regret_bound_from(problem, gain, constants="proved")
    more = "" if proved is None else f"; with the constants that are proved from T ≈ {slots(proved)} on"
    first = theory.regret_bound_from(problem, gain, lambda_max=rate)
    found = _says(case, first, partial(theory.regret_bound, problem, lambda_max=rate), more)
    until = None if proved is None else float(proved)
    yield replace(found, numbers={**found.numbers, "proved_vacuous_until": until})


@check
@small
def theorem_2(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    problem, gain, rate = case.problem, case.most[0], case.lambda_bounds[1]
    spans = [
        theory.policy_bias_span(one, oracles.policy("whittle", one, slots=case.horizon))
        for one in (problem, _farthest(problem, case.horizon))
    ]
    span = max(spans)
    first = theory.approximation_bound_from(problem, gain, span, lambda_max=rate)
    more = f"; the span of the Whittle policy's bias is {spans[0]:.3f}, in R' {spans[1]:.3f}"
    yield _says(case, first, partial(theory.approximation_bound, problem, span=span, lambda_max=rate), more)


@check
@small
def lemma_1(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    found = theory.lemma_1(case.problem, case.horizon)
    text = (
        f"μ* = {found.lower:.6f} in R and at least {found.optimistic_lower:.6f} in R' at T = {slots(case.horizon)}: "
        f"{found.verdict}"
    )
    outcome = {"certified": UNVIOLATED, "refuted": FAILS, "undecided": UNDECIDED}[found.verdict]
    yield ClaimFinding(case.name, outcome, text, {"upper": found.upper, "optimistic_lower": found.optimistic_lower})


@check
def coupling(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    found = theory.check_coupling(case.problem, case.horizon, case.seed, slots=item.coupling_slots)
    fit = found.virtual_fit
    text = (
        f"virtual state better in {found.violations} of {found.coupling.slots} slots, worse in "
        f"{int(found.coupling.setbacks.sum())}; mean rewards {found.real_mean:.4f} real, {found.virtual_mean:.4f} "
        f"virtual; virtual states against R: √n·D = {fit.statistic:.2f}, an alarm from {fit.alarm:.2f} on"
    )
    numbers = {"violations": found.violations, "statistic": fit.statistic, "alarm": fit.alarm}
    yield _finding(case.name, found.holds, text, **numbers)


@check
@small
def slot_loss(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    loss = theory.slot_loss(case.problem, _farthest(case.problem, case.horizon))
    printed = theory.regret_bound(case.problem, case.horizon, lambda_max=case.lambda_bounds[0]).per_slot
    proved = theory.regret_bound(case.problem, case.horizon, constants="proved").per_slot
    text = (
        f"{loss:.4f} a slot at T = {slots(case.horizon)}; allowed are {printed:.1f}, and {proved:.2f} by the "
        "constants that are proved"
    )
    yield _finding(case.name, loss <= min(printed, proved), text, loss=loss, bound=printed, proved=proved)


@check
def order(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    margins = [
        theory.power_margins(better.chain, arm.chain, _length(arm))[1:]
        for arm, better in case.optimistic(item.estimates)
    ]
    rows, powers = min(float(one[0]) for one in margins), min(float(one.min()) for one in margins)
    monotone = min(theory.monotone_margin(arm.one_step) for arm in case.problem.arms)
    text = (
        f"least margins at T = {slots(case.horizon)}: of rows of P' over P {rows:.2g}, of rows of P over the next "
        f"{monotone:.2g}, of powers {powers:.2g}"
    )
    holds = min(rows, monotone, powers) >= -1e-12
    yield _finding(case.name, holds, text, len(margins), rows=rows, monotone=monotone, powers=powers)


def _length(arm: Arm) -> int:
    """Elapsed slots after which nothing changes any more, or as many as are looked at."""
    return min(LONGEST_ELAPSED, markov.mixing_time(arm.chain, 1e-9) or LONGEST_ELAPSED)


@check
def law_gap(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    rad, rate = theory.radius(case.horizon), case.lambda_bounds[0]
    worst: dict[str, float] = {}
    pairs = list(case.optimistic(item.estimates))
    for arm, better in pairs:
        length = _length(arm)
        pair = arm.chain, better.chain
        found = {
            "Lemma 9": theory.linear_law_gap(*pair, rad, length),
            "Lemma 10": theory.settled_law_gap(*pair, case.horizon, rate, length),
            "Lemma 11": theory.any_law_gap(*pair, case.horizon, rate, length),
            "proved": theory.proved_law_gap(*pair, rad, length),
        }
        worst = {name: max(worst.get(name, 0.0), one.worst) for name, one in found.items()}
    shares = ", ".join(f"{share:.2g} of {name}" for name, share in worst.items() if name != "proved")
    text = f"at T = {slots(case.horizon)} at most {shares}, and {worst['proved']:.2g} of the bound that is proved"
    yield _finding(case.name, max(worst.values()) <= 1 + 1e-9, text, len(pairs), shares=worst)


@check
def reward_gap(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    found = [
        theory.reward_gap(arm, better, case.horizon, case.lambda_bounds[0], _length(arm))
        for arm, better in case.optimistic(item.estimates)
    ]
    worst = max(one.worst for one in found)
    largest = max(float(one.measured.max()) for one in found)
    text = f"at T = {slots(case.horizon)} at most {largest:.3g}, {worst:.2g} of what the lemma allows"
    yield _finding(case.name, worst <= 1, text, len(found), share=worst, largest=largest)


def forgetting(item: Lemmas, cases: list[Case]) -> list[ClaimFinding]:
    """On the chains of all problems, and on three that refute it."""
    known = [(case.name, [arm.one_step for arm in case.problem.arms], case.lambda_bounds[0]) for case in cases]
    for n in (3, 4, 5):
        # A chain that hurries to its best state meets all assumptions, and refutes the inequality of Lemma 13.
        steps = np.diag(np.full(n - 1, 0.01), 1) + np.diag(np.full(n - 1, 0.98), -1)
        chain = steps + np.diag(1 - steps.sum(axis=1))
        high = markov.neighbour_eigenvalue_bounds(chain, 2 * chain[chain > 0].min() / 3)[1]
        known.append((f"drift over {n} states", [chain], high))
    findings = []
    for name, chains, rate in known:
        found = [theory.forgetting(chain, rate, 60) for chain in chains]
        share, tau = max((one.worst, one.worst_at) for one in found)
        text = f"the distance from the limit is up to {share:.3g} times M λ_max^τ of what it was, at τ = {tau}"
        findings.append(_finding(name, share <= 1 + 1e-9, text, len(chains), share=share, elapsed=tau))
    return findings


CHECKS["forgetting"] = forgetting


@check
def bias(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    problem = case.problem
    if max(problem.n_states) > 2:
        # The whole problem is too large to solve; two of its arms are a problem with as many states.
        problem = Problem(problem.arms[:2], name=f"{problem.name}, two arms")
    elif problem.n_arms > MOST_SMALL:
        return
    bound = theory.bias_bound(problem)
    both = (problem, _farthest(problem, case.horizon))
    here, there = (theory.bias_between_successors(oracles.exact(one)) for one in both)
    text = f"{here:.4f}, and {there:.4f} in R' at T = {slots(case.horizon)}, where {bound:.1f} is allowed"
    yield _finding(
        problem.name, max(here, there) <= bound, text, len(both), measured=here, optimistic=there, bound=bound
    )


@check
def exploration(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    horizon = item.horizons[0]
    found = theory.exploration_length(case.problem, horizon)
    lengths, _ = theory.simulate_exploration(case.problem, horizon, item.exploration_runs, case.seed)
    total = lengths.sum(axis=1)
    mean, error = float(total.mean()), float(total.std(ddof=1)) / math.sqrt(len(total))
    exact = not math.isnan(found.expected)
    low, high = (found.expected, found.expected) if exact else (found.lower, found.upper)
    agrees = low - ALLOWED_STANDARD_ERRORS * error <= mean <= high + ALLOWED_STANDARD_ERRORS * error
    what = f"{amount(found.expected)} slots" if exact else f"{amount(low)} to {amount(high)} slots"
    text = (
        f"{what} at T = {slots(horizon)}, simulated {amount(mean)} ± {error:.2g}; N m(T) / d_min = "
        f"{amount(found.fact_1)}, proved upper bound {amount(found.upper)}"
    )
    numbers = {name: getattr(found, name) for name in ("expected", "lower", "upper", "fact_1")}
    numbers |= {"simulated": {"mean": mean, "stderr": error, "runs": len(total)}}
    yield _finding(case.name, agrees and found.upper <= ORDER * found.fact_1, text, **numbers)


@check
def event(item: Lemmas, case: Case) -> Iterator[ClaimFinding]:
    for horizon in item.horizons:
        found = theory.check_event(case.problem, horizon, item.event_runs, case.seed)
        text = (
            f"T = {slots(horizon)}: held in {found.held} of {found.runs} runs, computed {found.probability:.6f}, "
            f"at least {found.bound:.6f} by the lemma"
        )
        holds = found.probability >= found.bound and found.agrees and not found.refuted
        numbers = {"horizon": horizon, "share": found.share, "probability": found.probability, "bound": found.bound}
        yield _finding(case.name, holds, text, **numbers)
