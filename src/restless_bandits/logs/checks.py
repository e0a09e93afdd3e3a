"""Tests of the model: evidence of a log against a fitted problem, a test for each kind of violation.

Under the model the next state of an arm depends on its last state only. Each test asks whether the next observation,
given the last state and the wait, depends on another known quantity (``associations``):

- *memory*: the state before the last state;
- *day*, *week*: the hour and the day of the week, for slots on a clock; *period*: any other visible period;
- *drift*: the part of the log;
- *dependence*: the state of another arm in the same slot;
- *reward-moves*: the reward of the last observation. Rewards that vary within a state are also tested for dependence on
  the state before (*reward-memory*), the part of the log (*reward-drift*) or the hour (*reward-day*).

A further test is *laws*, the comparison by τ of the module ``distribution_checks``, without a particular alternative.
A test that rejects becomes a finding. The model is rejected if any test rejects. The false-alarm probability is at most
``DOUBTFUL`` for a log from the model: p-values are adjusted for the number of tests (Holm).

Each test asks a single question of a log that is otherwise assumed to be a chain. Several rejections may have the same
cause: a daily cycle unknown to the model makes states look remembered and arms dependent. A fit with a season repeats
the tests given the phase.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.logs.associations import Association, Contrast, association, line_in_spectrum, trend
from restless_bandits.logs.clocks import Clock, spell
from restless_bandits.logs.seasons import DAY, WEEK, Season, o_clock, wall_seconds
from restless_bandits.logs.traces import Trace

DOUBTFUL = 1e-3
"""The false-alarm probability: of a rejection for a log that follows the model."""
FEWEST_CYCLES = 4
"""The least number of days or weeks for tests of hours or weekdays: with fewer, they are parts of the log."""
LOOKS_A_PART = 100
"""Observations for each part of a log or a day."""
MOST_BLOCKS = 8
PARTS_OF_DAY = (24, 12, 8, 6, 4)
REWARD_BINS = 4
MOST_PAIRS = 300
"""The largest number of compared pairs of arms; with more arms, pairs among the first arms."""
MORE_PHASES = "give more --phases"
LAST = {"dependence": 1, "laws": 2}
"""Kinds reported after the others: frequent consequences of other kinds, and tests without a particular alternative."""
CYCLES = {"day": ("the hour of the day", "24h", DAY), "week": ("the day of the week", "7d", WEEK)}
"""Words, length and seconds of each cycle of the calendar."""
WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")

GroupName = Callable[[int], str]
"""The name of a group of observations, for a sentence."""


@dataclass(frozen=True)
class Finding:
    """The result of a test of a log: evidence against the model, if ``rejects``."""

    kind: str
    arm: str | None
    """None for findings about several arms."""
    p_value: float
    """The p-value of this test alone."""
    effect: float
    """The effect size, beyond randomness, on the scale of a correlation."""
    sentence: str
    remedy: str
    """Empty if no remedy is needed."""
    adjusted: float = math.nan
    """The p-value in the company of all tests of the fit (Holm)."""
    period: float | None = None
    """The detected period in slots, if any."""

    @property
    def rejects(self) -> bool:
        return self.adjusted < DOUBTFUL

    def __str__(self) -> str:
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"rejects": self.rejects}


@dataclass(frozen=True, eq=False)
class ObservedSteps:
    """Pairs of consecutive observations of an arm, with the information before the second of each pair."""

    name: str
    first_state: int
    """The common number of the arm's state 0."""
    n_states: int
    before: IntArray
    after: IntArray
    waits: IntArray
    starts: IntArray
    """The slot of the first observation."""
    previous: IntArray
    """The state one observation earlier, at the arm's usual wait; −1 for other waits."""
    kinds: IntArray
    """A number for each last state and wait."""
    strata: IntArray
    """The same with the phase of a season, if any: all that the next state depends on under the model."""
    places: IntArray
    """The state of the second observation and its phase, if any: all that its reward should depend on."""
    rewards: Array
    """Rewards of the second observation."""
    paid: IntArray
    """The part of its state's rewards with the reward of the first observation: 0 is the lowest."""
    earned: IntArray
    """The same for the second observation."""

    def state(self, own: int) -> int:
        return self.first_state + int(own)

    def of_stratum(self, stratum: int) -> tuple[int, int]:
        """Return the state and the wait of a stratum."""
        row = int(np.argmax(self.strata == stratum))
        return self.state(self.before[row]), int(self.waits[row])


def steps_of(trace: Trace, arm: int, season: Season | None = None) -> ObservedSteps:
    """Return the steps of an arm; with a season the steps within a phase."""
    times, states, rewards = trace.of_arm(arm)
    waits, n = np.diff(times), trace.sizes[arm]
    lengths, which, counts = np.unique(waits, return_inverse=True, return_counts=True)
    kinds = states[:-1] + n * which
    previous = np.full(len(waits), -1)
    if waits.size:
        close = np.flatnonzero(waits[:-1] == lengths[counts.argmax()]) + 1
        previous[close] = states[close - 1]
    paid = _reward_parts(states, rewards, n)
    keep = np.ones(len(waits), dtype=bool)
    if season is not None:
        keep = season.visits_of(times[:-1]) == season.visits_of(times[1:] - 1)
    strata, places = kinds, states[1:]
    if season is not None:
        strata = kinds + n * len(lengths) * season.phases_of(times[:-1])
        places = places + n * season.phases_of(times[1:])
    columns: Any = (
        states[:-1],
        states[1:],
        waits,
        times[:-1],
        previous,
        kinds,
        strata,
        places,
        rewards[1:],
        paid[:-1],
        paid[1:],
    )
    return ObservedSteps(trace.names[arm], trace.spans[arm][0], n, *(column[keep] for column in columns))


def _reward_parts(states: IntArray, rewards: Array, n: int) -> IntArray:
    """The quarter of its state's rewards for each reward; rewards of few kinds are kept apart instead."""
    parts = np.zeros(len(states), dtype=np.int64)
    for state in range(n):
        mine = np.flatnonzero(states == state)
        kinds, which = np.unique(rewards[mine], return_inverse=True)
        if len(kinds) > REWARD_BINS:
            cuts = np.unique(np.quantile(rewards[mine], np.arange(1, REWARD_BINS) / REWARD_BINS))
            which = np.searchsorted(cuts, rewards[mine], side="left")
        parts[mine] = which
    return parts


def findings_of(trace: Trace, comparisons: Sequence[Finding] = (), season: Season | None = None) -> tuple[Finding, ...]:
    """Return the results of all tests with enough data, with the given comparisons by τ: see ``ranked``."""
    arms = [steps_of(trace, arm, season) for arm in range(trace.n_arms)]
    found = [finding for arm, steps in enumerate(arms) for finding in _tests_of_arm(trace, arm, steps, season)]
    found += [*comparisons, *_dependence(arms)]
    return ranked(found, LAST)


def ranked(found: Sequence[Finding], last: Mapping[str, int]) -> tuple[Finding, ...]:
    """Return the tests with enough data, adjusted for their number: rejections first, sorted by effect.

    ``last`` has numbers of kinds that follow the others, as consequences or without a particular alternative.
    """
    made = [finding for finding in found if math.isfinite(finding.p_value)]
    adjusted = [
        dataclasses.replace(finding, adjusted=p)
        for finding, p in zip(made, holm([f.p_value for f in made]), strict=True)
    ]
    quiet = [dataclasses.replace(one, remedy="") for one in adjusted if not one.rejects]
    loud = sorted((one for one in adjusted if one.rejects), key=lambda one: (last.get(one.kind, 0), -one.effect))
    return (*loud, *quiet)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number.

    >>> holm([0.01, 0.5, 0.04])
    [0.03, 0.5, 0.08]
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.array(p_values, dtype=np.float64)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return [float(p) for p in adjusted]


def summaries(findings: Sequence[Finding]) -> list[str]:
    """Return a sentence with a remedy for each rejecting kind: the strongest finding, and the number of other arms
    with it.
    """
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.rejects:
            kinds.setdefault(finding.kind, []).append(finding)
    told = []
    for first, *others in kinds.values():
        case = "arm" if len({one.arm for one in (first, *others)}) > len(others) else "case"
        more = f", and so it is with {len(others)} other {case}{'s' * (len(others) > 1)}"
        told.append(str(dataclasses.replace(first, sentence=first.sentence + (more if others else ""))))
    return told


def rejection(findings: Sequence[Finding]) -> str | None:
    """Return the reason why the log rejects the model, if so: the first finding, and the number of other kinds."""
    told = summaries(findings)
    if len(told) < 2:
        return told[0] if told else None
    return f"{told[0]} ({len(told) - 1} more finding{'s' if len(told) > 2 else ''})"


def shown_probability(p_value: float) -> str:
    """Return a p-value as text."""
    return f"p = {p_value:.1g}" if p_value > 0 else "p below 1e-300"


def _tests_of_arm(trace: Trace, arm: int, steps: ObservedSteps, season: Season | None) -> Iterator[Finding]:
    """Tests of moves, and of rewards that vary within a state."""
    finer = "more states" if trace.edges is None else "more or other states (--states 2..5 --edges found)"
    parts = _parts(len(steps.before))
    part, recent = _part_name(trace, steps, parts), "fit a recent part of the log, and let agents forget (memory=)"

    def before(group: int) -> str:
        return f"if it had been in state {steps.state(group)} before"

    def after_reward(group: int) -> str:
        return f"after {'low' if group == 0 else 'high' if group == steps.paid.max() else 'middling'} rewards"

    def moves(kind: str, groups: IntArray, what: str, remedy: str, name: GroupName) -> Finding:
        known = groups >= 0
        found = association(steps.strata[known], groups[known], steps.after[known])
        return _finding(
            kind, steps, found, what, remedy, _moves(steps, found.contrast, name) if found.contrast else None
        )

    def pays(kind: str, groups: IntArray, what: str, remedy: str, name: GroupName) -> Finding:
        found = association(steps.places, groups, steps.earned)
        told = _payments(steps, groups, found.contrast, name) if found.contrast else None
        return _finding(kind, steps, found, f"what it pays in a state depends on {what}", remedy, told)

    several, varied = trace.sizes[arm] > 1, trace.reward_laws[arm] != "fixed"
    if several:
        what = "what it does depends on the state before the last"
        yield moves("memory", steps.previous, what, f"try {finer}, or shorter slots", before)
        cycles = []
        for kind, groups, name, _ in calendar_groups(trace.clock, steps.starts, len(steps.starts)):
            of, length, seconds = CYCLES[kind]
            remedy = f"--season {length} fits a chain for each part of the {kind}"
            remedy = MORE_PHASES if _is_season(season, seconds) else remedy
            cycles.append(moves(kind, groups, f"its moves depend on {of}", remedy, name))
        yield from cycles
        if not any(finding.p_value < DOUBTFUL for finding in cycles):
            yield _period(trace, steps)
        yield moves("drift", parts, "its moves are not the same in all parts of the log", recent, part)
    if several and varied:
        what = "where it goes depends on what it paid, beyond its state"
        yield moves("reward-moves", steps.paid, what, f"try {finer}", after_reward)
        yield pays("reward-memory", steps.before, "the state before", f"try {finer}", before)
    if varied:
        yield pays("reward-drift", parts, "the part of the log", recent, part)
        for kind, groups, name, _ in calendar_groups(trace.clock, steps.starts + steps.waits, len(steps.before)):
            if kind == "day":
                remedy = "--season 24h fits rewards for each part of the day"
                remedy = MORE_PHASES if _is_season(season, DAY) else remedy
                yield pays("reward-day", groups, CYCLES[kind][0], remedy, name)


def _is_season(season: Season | None, seconds: float) -> bool:
    """Whether a season is a day, or a week, already."""
    return (
        season is not None and season.clock is not None and math.isclose(season.length * season.clock.seconds, seconds)
    )


def calendar_groups(clock: Clock | None, slots: IntArray, looks: int) -> Iterator[tuple[str, IntArray, GroupName, int]]:
    """Yield hours and weekdays if slots are on a clock and the log is long enough.

    Each item has the kind, the groups, a function for group names, and the number of groups.
    """
    if clock is None or not slots.size:
        return
    span = float(slots.max() - slots.min() + 1) * clock.seconds
    seconds = slots * clock.seconds if clock.origin is None else wall_seconds(clock, slots)
    if clock.seconds <= DAY / 2 and span >= FEWEST_CYCLES * DAY:
        parts = next(
            (k for k in PARTS_OF_DAY if k * LOOKS_A_PART <= looks and k * clock.seconds <= DAY), PARTS_OF_DAY[-1]
        )
        parts = min(parts, int(DAY / clock.seconds))
        hours = 24 / parts

        def hour(group: int) -> str:
            return f"from {o_clock(group * hours)} to {o_clock((group + 1) * hours)}"

        # A millisecond more, as 24 / parts hours may have no exact double.
        yield "day", (np.mod(seconds + 1e-3, DAY) // (DAY / parts)).astype(np.int64), hour, parts
    if clock.seconds <= DAY and span >= FEWEST_CYCLES * WEEK:
        # The first of January 1970 was a Thursday.
        days = ((seconds + 1e-3) // DAY).astype(np.int64) + (3 if clock.origin is not None else 0)
        known = clock.origin is not None
        yield "week", days % 7, lambda day: f"on {WEEKDAYS[day]}" if known else f"on day {day + 1} of the week", 7


def _period(trace: Trace, steps: ObservedSteps) -> Finding:
    residuals = _residuals(steps, blocks=MOST_BLOCKS)
    ends = steps.starts + steps.waits
    period, p_value = line_in_spectrum(ends, residuals) if residuals.size else (math.nan, math.nan)
    effect, length = 0.0, ""
    if math.isfinite(p_value):
        turns = np.exp(2j * np.pi * (ends - ends[0]) / period)
        effect = float(np.sqrt(2) * abs((residuals * turns).mean()))
        length = f"{period:.3g}"
    on_clock = f" ({spell_about(period * trace.clock.seconds)})" if trace.clock is not None and length else ""
    sentence = (
        f"arm {steps.name!r}: its moves repeat every {length} slots or so{on_clock} ({shown_probability(p_value)})"
    )
    remedy = f"--season {length} fits a chain for each part of it"
    return Finding("period", steps.name, p_value, effect, sentence, remedy, period=period if length else None)


def spell_about(seconds: float) -> str:
    """Return a duration to the nearest minute, or unrounded below a few minutes."""
    return spell(float(round(seconds / 60) * 60) if seconds > 600 else float(f"{seconds:.2g}"))


def _residuals(steps: ObservedSteps, blocks: int = 1) -> Array:
    """Next states less their mean given the stratum, in units of the standard deviation; 0 for strata with few data.

    With blocks also less the mean of their part of the log.
    """
    _, which, counts = np.unique(steps.strata, return_inverse=True, return_counts=True)
    after = steps.after.astype(np.float64)
    means = np.bincount(which, weights=after) / counts if which.size else np.empty(0)
    gaps = after - means[which]
    spreads = np.sqrt(np.bincount(which, weights=gaps**2) / np.maximum(counts, 1)) if which.size else np.empty(0)
    useful = (counts >= 20) & (spreads > 0)
    found = np.where(useful[which], gaps / np.where(useful, spreads, 1.0)[which], 0.0)
    parts = np.arange(len(found)) * blocks // max(1, len(found))
    used = found != 0
    totals = np.bincount(parts[used], weights=found[used], minlength=blocks)
    numbers = np.maximum(np.bincount(parts[used], minlength=blocks), 1)
    return np.where(used, found - (totals / numbers)[parts], 0.0)


def _parts(looks: int) -> IntArray:
    """The part of the log of each observation, with about equal numbers of observations."""
    blocks = int(np.clip(looks // LOOKS_A_PART, 2, MOST_BLOCKS))
    return np.arange(looks) * blocks // max(1, looks)


def _part_name(trace: Trace, steps: ObservedSteps, parts: IntArray) -> GroupName:
    def name(part: int) -> str:
        inside = steps.starts[parts == part]
        first, last = int(inside[0]), int(inside[-1])
        if trace.clock is not None and trace.clock.origin is not None:
            dates = [str(day)[:10] for day in trace.clock.at(np.array([first, last]))]
            if dates[0] != dates[1]:
                return f"from {dates[0]} to {dates[1]}"
        return f"in slots {first} to {last}"

    return name


def _finding(
    kind: str, steps: ObservedSteps, found: Association, what: str, remedy: str, example: str | None
) -> Finding:
    sentence = ", ".join([f"arm {steps.name!r}: {what}", *([example] if example else [])])
    sentence += f" ({shown_probability(found.p_value)})"
    return Finding(kind, steps.name, found.p_value, found.effect, sentence, remedy)


def _payments(steps: ObservedSteps, groups: IntArray, contrast: Contrast, name: GroupName) -> str:
    """The difference of a state's mean rewards between groups, in words, for the state with the clearest difference."""
    here = steps.places == contrast.stratum
    chosen = contrast.most, contrast.least
    ends = [(float(steps.rewards[here & (groups == group)].mean()), name(group)) for group in chosen]
    (high, high_name), (low, low_name) = sorted(ends, reverse=True)
    state = steps.state(contrast.stratum % steps.n_states)
    return f"in state {state} it pays {high:.3g} {high_name} and {low:.3g} {low_name}"


def _moves(steps: ObservedSteps, contrast: Contrast, name: GroupName) -> str:
    """The difference of a state's moves between groups, in words."""
    state, wait = steps.of_stratum(contrast.stratum)
    target = steps.state(contrast.outcome)
    later = "" if wait == 1 else f" {wait} slots later"
    return (
        f"from state {state} it {'is still there' if target == state else f'is in state {target}'}{later} in "
        f"{contrast.most_share:.0%} of looks {name(contrast.most)} and in {contrast.least_share:.0%} "
        f"{name(contrast.least)}"
    )


def _dependence(arms: Sequence[ObservedSteps]) -> Iterator[Finding]:
    """Whether arms move together, given their own last states: a single finding for the clearest of all pairs."""
    able = [steps for steps in arms if steps.before.size and np.ptp(steps.after) > 0]
    most = int((1 + math.isqrt(1 + 8 * MOST_PAIRS)) // 2)
    found: list[tuple[float, float, str]] = []
    for i, other in enumerate(able[:most]):
        for one in able[:i]:
            ends = one.starts + one.waits, other.starts + other.waits
            _, mine, theirs = np.intersect1d(*ends, assume_unique=True, return_indices=True)
            both = one.strata[mine] * (int(other.strata.max()) + 1) + other.strata[theirs]
            p, correlation = trend(both, other.after[theirs], one.after[mine]) if mine.size else (math.nan, 0.0)
            if math.isfinite(p):
                found.append((p, correlation, f"arms {one.name!r} and {other.name!r}"))
    if not found:
        return
    p, correlation, pair_name = min(found, key=lambda pair: (pair[0], -abs(pair[1])))
    p = min(1.0, p * len(found))
    mean = float(np.mean([pair[1] for pair in found]))
    way = "together" if correlation >= 0 else "against each other"
    some = f" of the first {most} arms" if len(able) > most else ""
    others = f"; {mean:+.2f} on average over {len(found)} pairs{some}" if len(found) > 1 else ""
    sentence = (
        f"{pair_name} move {way}: the correlation of their states, given their own last ones, is {correlation:+.2f}"
        f"{others} ({shown_probability(p)})"
    )
    less = "less" if mean >= 0 else "more"
    remedy = (
        f"no learner here uses this, and switching between arms that move {way} gains {less} than a model of "
        "independent arms says: trust replay more than solve"
    )
    yield Finding("dependence", None, p, abs(correlation), sentence, remedy)
