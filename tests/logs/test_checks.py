"""Each way to be no Markov chain is found and named, and true chains are left in peace."""

import dataclasses

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.logs.checks import DOUBTFUL, holm, summaries
from restless_bandits.logs.clocks import Clock
from tests.logs.logs import THREE, logged, paths

SLOTS = 3000


def kinds(found):
    return {finding.kind for finding in found.findings}


def trace_of(states, reward=None, share=1.0, seed=0, clock=None):
    """The trace of arms in columns, looked at in a share of the slots."""
    rng = np.random.default_rng(seed)
    times, arms = np.nonzero(rng.random(states.shape) < share)
    paid = None if reward is None else reward[times, arms]
    names = np.array([f"arm {i}" for i in range(states.shape[1])])
    made = rb.data.trace(times, names[arms], state=states[times, arms], reward=paid)
    return dataclasses.replace(made, clock=clock)


def moved(chance_of_bad, arms=1, seed=0, slots=SLOTS):
    """Two states, each arm in the bad one with a chance that depends on the slot, the last two states, and the arm."""
    rng = np.random.default_rng(seed)
    states = np.zeros((slots, arms), dtype=np.int64)
    for t, draws in enumerate(rng.random((slots, arms))):
        for i in range(arms):
            before, last = (0, 0) if t < 2 else (int(states[t - 2, i]), int(states[t - 1, i]))
            states[t, i] = draws[i] < chance_of_bad(t, before, last)
    return states


def plain(_, before, last):
    return 0.7 if last else 0.3


def test_true_chains_are_not_rejected():
    # 40 logs of two arms, half of them with gaps, all with rewards and a clock: each is rejected with a chance of
    # 0.001, and four of them with one below 1e-7, 91 390 · 1e-12.
    rejected = 0
    for seed in range(40):
        trace = logged(THREE, paths(THREE, 500, seed=100 + seed), seed=seed, share=1.0 if seed % 2 else 0.5)
        found = rb.data.fit(dataclasses.replace(trace, clock=Clock(3600.0)))
        assert {test.kind for test in found.tests} >= {"memory", "day", "drift", "dependence", "reward-moves"}
        rejected += bool(found.findings)
        assert (found.problem.findings.rejected is not None) == bool(found.findings)
    assert rejected < 4


def test_memory():
    states = moved(lambda _, before, last: (0.7 if last else 0.3) + (0.15 if before else -0.15), seed=1)
    found = rb.data.fit(trace_of(states, share=0.8))
    assert "memory" in kinds(found)
    assert not kinds(found) - {"memory", "laws"}
    (finding,) = (one for one in found.findings if one.kind == "memory")
    assert finding.arm == "arm 0"
    assert "if it had been in state 1 before" in finding.sentence
    assert finding.remedy == "try more states, or shorter slots"
    assert finding.effect == pytest.approx(0.33, abs=0.1)
    assert finding.adjusted >= finding.p_value


def test_hours_and_weekdays():
    clock = Clock(3600.0, np.datetime64("2024-01-01T00:00:00", "us"), "UTC")
    daily = moved(lambda t, _, last: (0.7 if last else 0.3) + (0.2 if t % 24 in range(8, 16) else -0.2), seed=2)
    found = rb.data.fit(trace_of(daily, clock=clock))
    assert found.findings[0].kind == "day"
    assert "--season 24h" in found.findings[0].remedy
    assert "period" not in {test.kind for test in found.tests}
    bad = lambda t, _, last: (0.7 if last else 0.3) + (0.2 if t // 24 % 7 < 5 else -0.2)  # noqa: E731
    weekly = rb.data.fit(trace_of(moved(bad, seed=3), clock=clock))
    (finding,) = (one for one in weekly.findings if one.kind == "week")
    assert "on Saturdays" in finding.sentence or "on Sundays" in finding.sentence
    assert "day" not in kinds(weekly)


def test_a_period_that_no_clock_tells():
    states = moved(lambda t, _, last: (0.6 if last else 0.4) + 0.3 * np.cos(2 * np.pi * t / 17), seed=4)
    found = rb.data.fit(trace_of(states, share=0.9))
    (finding,) = (one for one in found.findings if one.kind == "period")
    assert "every 17 slots" in finding.sentence
    assert finding.remedy == "--season 17 fits a chain for each part of it"


def test_drift():
    states = moved(lambda t, _, last: (0.7 if last else 0.3) + 0.2 * (2 * t / SLOTS - 1), seed=5)
    found = rb.data.fit(trace_of(states))
    assert found.findings[0].kind == "drift"
    assert "in slots 0 to" in found.findings[0].sentence
    assert "memory=" in found.findings[0].remedy


@pytest.mark.parametrize("together", [True, False])
def test_arms_that_move_together_or_against_each_other(together):
    rng = np.random.default_rng(6)
    states = np.zeros((SLOTS, 3), dtype=np.int64)
    for t in range(1, SLOTS):
        draws = rng.random(3)
        # A fifth of the moves of the second arm go with those of the first.
        if rng.random() < 0.2:
            draws[1] = draws[0] if together else 1 - draws[0]
        states[t] = draws < np.where(states[t - 1], 0.7, 0.3)
    found = rb.data.fit(trace_of(states))
    assert kinds(found) == {"dependence"}
    (finding,) = found.findings
    assert finding.arm is None
    way = "together" if together else "against each other"
    assert f"arms 'arm 0' and 'arm 1' move {way}: the correlation" in finding.sentence
    assert ("gains less" if together else "gains more") in finding.remedy
    assert finding.effect == pytest.approx(0.2, abs=0.1)


def test_rewards():
    # Of the state alone; of the state before; of the part of the log; and one that tells where the arm goes next.
    rng = np.random.default_rng(7)
    states = moved(plain, arms=1, seed=8)
    noise = rng.random(states.shape)
    before, after = np.roll(states, 1, axis=0), np.roll(states, -1, axis=0)
    early = np.arange(SLOTS)[:, None] < SLOTS // 2
    means = {
        "": 0.6 - 0.3 * states,
        "reward-memory": 0.6 - 0.3 * states - 0.15 * before,
        "reward-drift": 0.6 - 0.3 * states + 0.15 * early,
        "reward-moves": 0.6 - 0.3 * states - 0.15 * after,
    }
    for kind, mean in means.items():
        for reward in (mean + 0.2 * noise, (noise < mean).astype(float)):
            found = rb.data.fit(trace_of(states, reward=reward))
            assert kinds(found) == ({kind} if kind else set())


def test_rewards_by_the_hour():
    clock = Clock(3600.0, np.datetime64("2024-01-01T00:00:00", "us"), "UTC")
    states = moved(plain, seed=9)
    noon = (np.arange(SLOTS) % 24 == 12)[:, None]
    reward = 0.5 - 0.3 * states + 0.2 * noon + 0.2 * np.random.default_rng(10).random(states.shape)
    found = rb.data.fit(trace_of(states, reward=reward, clock=clock))
    assert kinds(found) == {"reward-day"}
    assert "from 12:00 to 13:00" in found.findings[0].sentence


def test_jumps_have_their_own_remedy():
    rng = np.random.default_rng(11)
    chain = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]).cumsum(axis=1)
    states = [0]
    for draw in rng.random(SLOTS):
        states.append(int((draw > chain[states[-1]]).sum()))
    trace = trace_of(np.array(states)[:, None])
    (finding,) = rb.data.fit(trace).findings
    assert finding.kind == "laws"
    assert "of its steps jump over a state" in finding.remedy
    assert "--shape free" in finding.remedy
    assert not rb.data.fit(trace, shape="free").findings


def test_holm_and_sentences():
    assert holm([]) == []
    assert holm([0.02, 0.01, 1.0]) == pytest.approx([0.04, 0.03, 1.0])
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    finding = rb.data.Finding("memory", "x", 1e-9, 0.3, "arm 'x': remembers", "try more states", adjusted=1e-8)
    other = dataclasses.replace(finding, arm="y", sentence="arm 'y': remembers")
    quiet = dataclasses.replace(other, adjusted=DOUBTFUL)
    assert not quiet.rejects
    assert summaries([finding, quiet]) == ["arm 'x': remembers; try more states"]
    assert summaries([finding, other]) == ["arm 'x': remembers, and so it is with 1 other arm; try more states"]


def test_tests_can_be_left_out():
    trace = trace_of(moved(plain, slots=200))
    assert rb.data.fit(trace, tests=False).tests == ()
    assert rb.data.fit(trace).as_dict()["tests"]


def test_findings_of_a_problem_are_sentences():
    assert rb.Findings(findings=["one"]).findings == ("one",)
    for bad in ("one", 3, [3]):
        with pytest.raises(rb.ProblemError, match="fit: findings"):
            rb.Findings(findings=bad)
