"""A chain for each phase of a season: which slot lies where, what is fitted, and whether it is enough."""

import dataclasses

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.logs.clocks import Clock
from restless_bandits.logs.seasons import season_of
from tests.logs.logs import BEYOND
from tests.logs.test_checks import kinds, moved, plain, trace_of

HOURLY = Clock(3600.0, np.datetime64("2024-01-01T05:00:00", "us"), "UTC")
"""A Monday, from five o'clock on."""


def daily(seed=1, slots=4000, clock=HOURLY):
    """Bad by day and good by night, and otherwise a chain."""

    def bad(t, _, last):
        # The step into slot t begins in the slot before.
        day = 8 <= (t + 4) % 24 < 20
        return (0.8 if last else 0.5) if day else (0.5 if last else 0.1)

    return trace_of(moved(bad, arms=2, seed=seed, slots=slots), clock=clock, share=0.9)


def test_phases_by_the_clock():
    trace = daily(slots=200)
    four = season_of(trace, "24h")
    assert four.labels == ("0000-0600", "0600-1200", "1200-1800", "1800-2400")
    # Slot 0 is five o'clock: an hour of the night is left.
    assert four.phases_of(np.arange(26)).tolist() == [0] + [1] * 6 + [2] * 6 + [3] * 6 + [0] * 6 + [1]
    night = season_of(trace, "1d", [1 / 3, 5 / 6])
    assert night.names == ("from 08:00 to 20:00", "from 20:00 to 08:00")
    assert night.phases_of(np.arange(24)).tolist() == [1] * 3 + [0] * 12 + [1] * 9
    visits = night.visits_of(np.arange(48))
    assert np.flatnonzero(np.diff(visits)).tolist() == [2, 14, 26, 38]
    week = season_of(daily(slots=400), "7d", 7)
    assert week.phases_of(np.arange(0, 168, 24)).tolist() == list(range(7))
    assert season_of(trace, 10, 2).phases_of(np.arange(12)).tolist() == [0] * 5 + [1] * 5 + [0] * 2


def test_waits_within_a_phase():
    lies = season_of(daily(slots=100, clock=None), 10, 2).inside(0)
    starts = np.array([0, 3, 4, 4, 0, 5, 3])
    ends = np.array([1, 5, 5, 6, 10, 6, 14])
    assert lies(starts, ends).tolist() == [True, True, True, False, False, False, False]


def test_chains_of_day_and_night():
    # Five standard errors, false alarms below 6e-7 each.
    found = rb.data.fit_season(daily(), "24h", phases=[8, 20])
    assert found.labels == ("0800-2000", "2000-0800")
    truth = [[[0.5, 0.5], [0.2, 0.8]], [[0.9, 0.1], [0.5, 0.5]]]
    for one, chain in zip(found.fits, truth, strict=True):
        for arm in one.arms:
            assert (np.abs(arm.transitions - chain) < BEYOND * arm.standard_errors).all()
            assert arm.standard_errors.max() < 0.05
    assert "day" in kinds(found.plain)
    assert not found.findings
    assert found.fits[0].problem.findings == rb.Findings()
    assert "with a chain for each none of " in found.notes[-1]
    steps = sum(arm.steps for one in found.fits for arm in one.arms)
    looks = sum(arm.looks for one in found.fits for arm in one.arms)
    assert looks == len(found.plain.trace)
    # Hourly steps all lie within a phase: a step belongs to where it begins.
    assert steps == sum(arm.steps for arm in found.plain.arms)
    assert found.as_dict()["season"] == {"slots": 24.0, "starts": [8 / 24, 20 / 24], "phases": list(found.labels)}


def test_rewards_by_phase():
    # Rewards that differ between the phases alone are no finding once the phase is known.
    states = moved(plain, seed=9)
    day = (((np.arange(len(states)) + 5) % 24 >= 8) & ((np.arange(len(states)) + 5) % 24 < 20))[:, None]
    reward = 0.5 - 0.3 * states + 0.2 * day + 0.2 * np.random.default_rng(10).random(states.shape)
    found = rb.data.fit_season(trace_of(states, reward=reward, clock=HOURLY), "24h", phases=[8, 20])
    assert kinds(found.plain) == {"reward-day"}
    assert not found.findings
    day, night = (one.arms[0].rewards for one in found.fits)
    assert day - night == pytest.approx([0.2, 0.2], abs=0.02)


def test_phases_that_are_too_long_are_told():
    found = rb.data.fit_season(daily(), "24h", phases=2)
    assert found.fits[0].problem.findings.rejected
    (finding,) = (one for one in found.findings if one.kind == "day" and one.arm == "arm 0")
    assert finding.remedy == "give more --phases"


def test_one_problem_that_goes_through_the_phases():
    found = rb.data.fit_season(daily(), "24h", phases=[8, 20])
    problem = found.problem(cycles=3)
    assert [piece.first for piece in problem.pieces] == [1, 13, 25, 37, 49, 61]
    for piece, phase in zip(problem.pieces, [0, 1] * 3, strict=True):
        assert piece.problem.arms[0].transitions.tolist() == found.fits[phase].arms[0].transitions.tolist()
    played = rb.simulate(problem, "round-robin", 70, runs=2, jobs=1)
    assert played.problem == problem.name
    with pytest.raises(rb.ProblemError, match="needs a fit of each and phases of whole slots"):
        rb.data.fit_season(daily(), "24h", phases=[8, 20.5]).problem(2)
    with pytest.raises(rb.ProblemError, match="cycles is 1000000, which makes more than 100000 changes"):
        found.problem(10**6)


def test_states_that_are_not_seen_in_a_phase():
    # Never bad by night: the arm is constant then.
    states = moved(lambda t, _, last: (0.6 if last else 0.3) if 8 <= (t + 4) % 24 < 20 else 0.0, seed=3)
    found = rb.data.fit_season(trace_of(states, clock=HOURLY), "24h", phases=[8, 21])
    assert [one.arms[0].states for one in found.fits] == [(0, 1), (0, 0)]
    assert found.fits[1].problem.arms[0].n_states == 1
    assert "in state 0 only, and is taken for constant" in found.fits[1].notes[0]
    with pytest.raises(rb.ProblemError, match="arm 'arm 0' has other states or rewards in other phases"):
        found.problem(2)


def test_closed_hours_have_no_fit():
    trace = daily()
    hours = (trace.times + 5) % 24
    there = hours >= 6
    columns = (trace.times, trace.arms, trace.states, trace.rewards)
    times, arms, states, rewards = (column[there] for column in columns)
    closed = dataclasses.replace(trace, times=times, arms=arms, states=states, rewards=rewards)
    found = rb.data.fit_season(closed, "24h", phases=[0, 6, 8, 20])
    assert found.labels == ("0600-0800", "0800-2000", "2000-2400")
    assert "from 00:00 to 06:00 nothing is fitted: all arms are without consecutive observations" in found.notes
    with pytest.raises(rb.ProblemError, match="needs a fit of each"):
        found.problem(2)


@pytest.mark.parametrize(
    ("season", "phases", "message"),
    [
        ("24h", 4, "season is '24h', but it is not known how long a slot lasts; give a number of slots"),
        ("soon", 4, "season is 'soon'; give a number and a unit"),
        (0, 4, "season is 0"),
        (3, 4, "season is 3, which is 3 slots for 4 phases; use fewer phases"),
        (24, 1, "phases is 1"),
        (24, [6, 3], "phases is [6, 3]; give their number, or where they begin within 24"),
        (24, [6, 30], "phases is [6, 30]"),
        (5000, 4, "season is 5000, and the log has 200 slots, less than two of it"),
    ],
)
def test_bad_seasons(season, phases, message):
    with pytest.raises(rb.ProblemError) as refused:
        rb.data.fit_season(daily(slots=200, clock=None), season, phases=phases)
    assert message in str(refused.value)


def test_too_few_steps_in_a_phase():
    states = np.tile([0, 0, 1, 0], 60)[:, None]
    with pytest.raises(
        rb.NotIdentified, match="steps in part 1 of 2 of 4 slots are too few to estimate its transitions"
    ):
        rb.data.fit_season(trace_of(states), 4, phases=2)
