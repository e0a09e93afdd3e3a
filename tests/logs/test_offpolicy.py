"""What another policy would have earned, from pulls that somebody else chose: held against the truth by simulation."""

import math

import numpy as np
import pytest
from scipy import stats

import restless_bandits as rb
from restless_bandits.logs import posterior_problems, weighting
from restless_bandits.oracles.evaluation import arm_average
from tests.logs.logs import BEYOND, paths

PAIR = rb.Problem(
    [
        rb.Arm([[0.9, 0.1], [0.05, 0.95]], [0.9, 0.1], name="a"),
        rb.Arm([[0.8, 0.2], [0.2, 0.8]], [0.8, 0.2], name="b"),
    ]
)


def pulled(problem, slots, seed, explore=1.0, chances=True, **others):
    """The log of a policy that stays with a good arm and leaves a bad one, or, with a chance, draws any arm."""
    rng = np.random.default_rng(seed)
    states, n = paths(problem, slots, seed + 10**6), problem.n_arms
    draws, explores = rng.integers(0, n, slots), rng.random(slots) < explore
    arms, likely, arm = np.empty(slots, dtype=np.int64), np.empty(slots), 0
    for t in range(slots):
        greedy = arm if t == 0 or states[t - 1, arm] == 0 else (arm + 1) % n
        arm = t if t < n else int(draws[t]) if explores[t] else greedy  # each arm once, in their order
        arms[t], likely[t] = arm, 1.0 if t < n else explore / n + (1 - explore) * (arm == greedy)
    seen = states[np.arange(slots), arms]
    means = np.array([arm.rewards for arm in problem.arms])[arms, seen]
    return rb.data.trace(
        np.arange(slots),
        np.array([arm.name for arm in problem.arms])[arms],
        state=seen,
        reward=(rng.random(slots) < means).astype(float),
        probability=likely if chances else None,
        **others,
    )


def test_intervals_hold_the_truth():
    """Of 12 intervals of 95 % seven or more miss with a chance of 5e-7; the mean error is beyond 5 of its standard
    errors with one of 6e-7. ``benchmarks.offpolicy`` counts on 100 logs each.
    """
    misses, off = {"model": 0, "above": 0, "weighted": 0}, {"model": [], "weighted": []}
    for seed in range(12):
        trace = pulled(PAIR, 1500, seed, explore=1.0 if seed % 2 else 0.4)
        found = rb.data.evaluate_policy(trace, "whittle", draws=12, seed=seed)
        policy = rb.oracles.policy("whittle", found.fit.problem)
        truth = rb.evaluate(PAIR, policy).gain
        one = found.policies[0]
        above = truth - arm_average(PAIR.arms[trace.names.index(found.best_arm)])
        for name, value, (low, high) in (
            ("model", truth, one.model.interval),
            ("above", above, one.model.above_interval),
            ("weighted", truth, one.weighted.interval),
        ):
            misses[name] += not low <= value <= high
            if name in off:
                off[name].append((0.5 * (low + high) - value) / (0.5 * (high - low)))
    assert stats.binom.sf(6, 12, 0.05) < 1e-6
    assert max(misses.values()) < 7, misses
    for name, errors in off.items():
        # In units of half an interval, which is two standard errors of about normal variables or more.
        assert abs(np.mean(errors)) < BEYOND / 1.96 / math.sqrt(12), name


def test_fixed_arms_are_known_in_closed_form():
    trace = pulled(PAIR, 4000, 5)
    found = rb.data.evaluate_policy(trace, ["best-arm", rb.policies.SingleArm(0)], draws=30)
    best, other = found.policies
    assert best.label == f"best-arm, {found.best_arm!r}"
    assert np.array_equal(best.model.above, np.zeros(30))
    assert best.weighted.window == 1, "what a fixed arm earns does not depend on what is known"
    low, high = other.model.interval
    assert low < 11 / 30 < high
    assert found.logged == trace.rewards.mean()


def test_the_same_numbers_again_and_others_with_another_seed():
    trace = pulled(PAIR, 1500, 3)
    one, same, other = (rb.data.evaluate_policy(trace, "whittle", draws=10, seed=seed).as_dict() for seed in (1, 1, 2))
    assert one == same
    assert one["policies"] != other["policies"]


def test_learners_play_the_drawn_problems():
    trace = pulled(PAIR, 1000, 4)
    found = rb.data.evaluate_policy(trace, ["ucb1", "round-robin"], horizon=300, draws=10)
    assert [one.horizon for one in found.policies] == [300, 300]
    assert all("learner" in one.weighted.reason for one in found.policies)
    turn = found.policies[1].model
    even = np.mean([arm_average(arm) for arm in found.fit.problem.arms])
    assert abs(turn.gain - even) < (turn.interval[1] - turn.interval[0])


def test_policies_that_solve_has_stored(tmp_path):
    trace = pulled(PAIR, 1000, 4)
    stored = tmp_path / "mine.npz"
    rb.oracles.policy("myopic", PAIR).save(stored)
    found = rb.data.evaluate_policy(trace, [str(stored), rb.oracles.policy("myopic", PAIR)], draws=10)
    assert found.policies[0].model.gain == found.policies[1].model.gain


def test_weights_by_hand():
    """Choices a b a b …, chances ½, and a policy that always pulls a: every second pull counts, twice."""
    n = 1600
    rewards = np.random.default_rng(0).random(n)
    trace = rb.data.trace(
        np.arange(n), ["a", "b"] * (n // 2), state=np.arange(n) // 2 % 2, reward=rewards,
        probability=np.full(n, 0.5), reward_range=(0, 1),
    )  # fmt: skip
    found = weighting.situations(trace)
    assert found.arms[:4].tolist() == [0, 1, 0, 1]
    assert found.elapsed[0].tolist() == [2, 1]
    assert found.last_states[2].tolist() == [1, 1], "the states of slots 2 and 3"
    even = rb.Problem([rb.Arm(arm.transitions, [0.5, 0.5]) for arm in PAIR.arms])
    weighted = weighting.weigh(trace, rb.policies.SingleArm(0), even, 0.5, np.random.default_rng(0), 0.95)
    assert weighted.gain == pytest.approx(rewards[2::2].mean())
    assert weighted.window == 1
    assert weighted.effective == pytest.approx(n / 2 - 1)
    assert weighted.mean_ratio == pytest.approx(1.0)


def test_wrong_chances_are_noticed():
    trace = pulled(PAIR, 2000, 7, explore=0.1)
    claimed = rb.data.trace(
        trace.times, np.array(trace.names)[trace.arms], state=trace.states, reward=trace.rewards,
        probability=np.full(len(trace), 0.5),
    )  # fmt: skip
    found = rb.data.evaluate_policy(claimed, rb.policies.Cycle(), draws=10).policies[0].weighted
    assert found.gain is None
    assert "are not the probabilities of the choices" in found.reason


def test_no_number_where_hardly_a_pull_speaks_for_it():
    """A logger that leaves an arm one time in fifty says little of a policy that changes arms in every slot."""
    trace = pulled(PAIR, 1500, 8, explore=0.02)
    found = rb.data.evaluate_policy(trace, rb.policies.Cycle(), draws=10).policies[0]
    assert found.weighted.gain is None
    assert found.weighted.interval is None
    assert found.weighted.reason
    assert found.as_dict()["weighting"]["reward_mean"] is None
    assert found.model.gain > 0, "the model answers all the same"


def test_logs_that_cannot_be_weighted():
    without = pulled(PAIR, 1000, 1, chances=False)
    assert "no column probability" in weighting.situations(without)
    several = rb.data.trace([0, 0, 1], ["a", "b", "a"], state=[0, 1, 1], probability=[0.5, 0.5, 1])
    assert "slot 0 has several arms" in weighting.situations(several)
    short = rb.data.evaluate_policy(pulled(PAIR, 500, 1), "best-arm", draws=10)
    assert "498 pulls are too few" in short.policies[0].weighted.reason, "all but those before each arm was seen"
    assert short.logged_interval is None


def test_whole_logs_are_for_replay():
    states = paths(PAIR, 50, 0)
    whole = rb.data.trace(np.repeat(np.arange(50), 2), ["a", "b"] * 50, state=states.ravel())
    with pytest.raises(rb.ProblemError, match="has all 2 arms, so nothing has to be guessed; use replay"):
        rb.data.evaluate_policy(whole, "whittle")
    alone = rb.data.trace(np.arange(50), ["a"] * 50, state=states[:, 0])
    with pytest.raises(rb.ProblemError, match="one arm"):
        rb.data.evaluate_policy(alone, "whittle")


def test_several_arms_in_a_slot_are_told_or_refused():
    def crowded(extra):
        rng = np.random.default_rng(5)
        times = np.arange(300)
        first = rng.integers(0, 2, 300)
        times, arms = np.append(times, times[:extra]), np.append(first, 1 - first[:extra])
        return rb.data.trace(times, arms, state=rng.integers(0, 2, len(times)))

    few = rb.data.evaluate_policy(crowded(6), "best-arm", draws=10)
    assert any(note.startswith("2.0% of the slots have lines of several arms") for note in few.notes)
    assert not rb.data.evaluate_policy(crowded(0), "best-arm", draws=10).notes
    with pytest.raises(rb.ProblemError, match=r"33.3% of the slots have lines of several arms.*\(--slot\)"):
        rb.data.evaluate_policy(crowded(100), "best-arm", draws=10)


def test_bad_requests():
    trace = pulled(PAIR, 1000, 1)
    for wrong, message in (
        ({"draws": 3}, "draws is 3"),
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"horizon": 0}, "horizon is 0"),
        ({"policies": "whitle"}, "did you mean 'whittle'"),
        ({"policies": []}, "no policy is named"),
    ):
        with pytest.raises(rb.ProblemError, match=message):
            rb.data.evaluate_policy(trace, **{"policies": "best-arm"} | wrong)


def test_slots_without_a_pull_are_told():
    trace = pulled(PAIR, 1000, 1)
    half = rb.data.trace(2 * trace.times, np.array(trace.names)[trace.arms], state=trace.states, reward=trace.rewards)
    found = rb.data.evaluate_policy(half, "best-arm", draws=10)
    assert "nothing was pulled in 50.0% of the slots" in found.notes[0]


def test_redrawn_problems_spread_as_the_standard_errors_say():
    """Means and spreads of 400 draws within a quarter: five standard errors of a spread are 5/√800 = 0.18."""
    trace = pulled(PAIR, 4000, 2)
    found = rb.data.fit(trace)
    drawn = posterior_problems.posterior_problems(found, 400, np.random.default_rng(0))
    for number, arm in enumerate(found.arms):
        chains = np.array([problem.arms[number].transitions for problem in drawn])
        rewards = np.array([problem.arms[number].rewards for problem in drawn])
        assert chains.std(axis=0) == pytest.approx(arm.standard_errors, rel=0.25)
        assert np.abs(chains.mean(axis=0) - arm.transitions).max() < 0.5 * arm.standard_errors.max()
        assert rewards.std(axis=0) == pytest.approx(arm.reward_errors, rel=0.25)


def test_redrawn_rewards_of_one_look_are_not_taken_for_known():
    trace = rb.data.trace([0, 1, 2, 3], list("aaab"), state=[0, 1, 0, 0], reward=[0.5, 0.25, 0.75, 0.5])
    found = rb.data.fit(trace, strict=False)
    drawn = posterior_problems.posterior_problems(found, 50, np.random.default_rng(0))
    assert np.std([problem.arms[1].rewards[0] for problem in drawn]) > 0.1
    fixed = rb.data.fit(rb.data.trace([0, 1, 2, 3], list("aaab"), state=[0, 1, 0, 0]), strict=False)
    assert {
        tuple(one.arms[0].rewards) for one in posterior_problems.posterior_problems(fixed, 5, np.random.default_rng(0))
    } == {(1, 0)}


def test_free_chains_are_drawn_too():
    trace = pulled(PAIR, 3000, 9)
    found = rb.data.fit(trace, shape="free")
    drawn = posterior_problems.posterior_problems(found, 200, np.random.default_rng(1))
    spread = np.std([problem.arms[0].transitions for problem in drawn], axis=0)
    assert spread == pytest.approx(found.arms[0].standard_errors, rel=0.3)
