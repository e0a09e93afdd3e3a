"""Replays by hand and against a slow loop."""

import numpy as np
import pytest

import restless_bandits as rb
from tests.logs.logs import THREE, logged, paths


def slow_replay(trace, learner, first, slots, task, seed, run):
    """Look up every answer in the list of lines."""
    lines = {}
    for time, arm, state, reward in zip(trace.times, trace.arms, trace.states, trace.rewards, strict=True):
        lines[int(time), int(arm)] = int(state) - trace.spans[int(arm)][0], float(reward)
    agent = rb.Agent(learner, task, seed=seed, run=run, content=trace.content)
    total = 0.0
    for slot in range(first, first + slots):
        arm = agent.ask()
        state, reward = lines[slot, arm]
        agent.tell(state, reward)
        total += reward
    return total, agent.record.pulls


def test_by_hand():
    a, b = [0.9, 0.1, 0.4, 0.8], [0.3, 0.6, 0.4, 0.2]
    trace = rb.data.trace([5, 6, 7, 8] * 2, ["a"] * 4 + ["b"] * 4, state=[0, 3, 2, 1, 2, 0, 1, 3], reward=a + b)
    assert trace.reward_laws == ("fixed", "fixed")
    found = rb.data.replay(trace, "round-robin")
    assert (found.first, found.slots, found.best_arm) == (5, 4, "a")
    assert found.arm_totals == pytest.approx([2.2, 1.5])
    assert found.hindsight == pytest.approx(0.9 + 0.6 + 0.4 + 0.8)
    assert found.learners[0].totals == pytest.approx([0.9 + 0.6 + 0.4 + 0.2])
    assert found.learners[0].pulls.tolist() == [[2, 2]]
    short = rb.data.replay(trace, "round-robin", horizon=2)
    assert short.hindsight == pytest.approx(1.5)
    assert short.learners[0].totals == pytest.approx([1.5])


def test_against_a_slow_loop():
    problem = rb.Problem.builtin("paper-1")
    trace = logged(problem, paths(problem, 700, seed=11), seed=12)
    keep = ~((trace.times == 199) & (trace.arms == 1))
    names = [trace.names[arm] for arm in trace.arms[keep]]
    trace = rb.data.trace(trace.times[keep], names, state=trace.states[keep], reward=trace.rewards[keep])
    found = rb.data.replay(trace, ["ucb1", "ts-9", "whittle"], runs=2, seed=3, missing="stretch")
    assert (found.first, found.slots) == (200, 500)
    assert [one.runs for one in found.learners] == [1, 2, 1]
    problem = rb.data.fit(trace).problem
    for one in found.learners:
        learner = rb.learner(one.spec)
        for run, total in enumerate(one.totals):
            slow, pulls = slow_replay(trace, learner, 200, 500, learner.task(problem, 500), seed=3, run=run)
            assert total == slow
            assert one.pulls[run].tolist() == pulls.tolist()
    again = rb.data.replay(trace, "ts-9", runs=2, seed=3, missing="stretch").learners[0]
    assert again.totals.tolist() == found.learners[1].totals.tolist()


def test_rewards_are_told_as_they_were_logged():
    rng = np.random.default_rng(0)
    states = paths(THREE, 300, seed=13)
    rewards = np.clip(0.8 - 0.3 * states + 0.1 * rng.random(states.shape), 0, 1)
    times, arms = np.divmod(np.arange(600), 2)
    trace = rb.data.trace(times, arms, state=states.ravel(), reward=rewards.ravel())
    assert trace.reward_laws == ("bounded", "bounded")
    found = rb.data.replay(trace, ["round-robin", "likelihood-ucb"], runs=3)
    # Neither draws anything, and nor does the log: one run of each.
    expected = rewards[np.arange(300), np.arange(300) % 2].sum()
    assert found.learners[0].totals == pytest.approx([expected])
    agent = rb.Agent("likelihood-ucb", rb.Task(trace.sizes, 1, ("bounded",) * 2, (None,) * 2, trace.names, 300))
    earned = 0.0
    for slot in range(300):
        arm = agent.ask()
        agent.tell(int(states[slot, arm]) - trace.spans[arm][0], float(rewards[slot, arm]))
        earned += rewards[slot, arm]
    assert found.learners[1].totals == pytest.approx([earned])


def test_stretches():
    times = [0, 1, 2, 3, 4, 0, 1, 3, 4, 5]
    trace = rb.data.trace(times, list("aaaaabbbbb"), state=[0, 1] * 5)
    spans = [
        ({}, (0, 2)),
        ({"first": 3}, (3, 2)),
        ({"last": 3}, (3, 1)),
        ({"first": 1, "last": 1}, (1, 1)),
    ]
    for options, expected in spans:
        found = rb.data.replay(trace, "round-robin", missing="stretch", **options)
        assert (found.first, found.slots) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": 0, "last": 4}, "arm 'b' was not logged in slot 2, and the stretch that was asked for needs it"),
        ({"first": 2}, "arm 'b' was not logged in slot 2"),
        ({"last": 5}, "arm 'a' was not logged in slot 5"),
        ({"first": 5}, "no slot from 5 to 5 has all 2 arms logged"),
        ({"first": 4, "last": 3}, "the stretch from slot 4 to slot 3 is empty"),
        ({"horizon": 3}, "horizon is 3; it must be a whole number from 1 to 2, the slots of the complete stretch"),
        ({"horizon": 0}, "horizon is 0; it must be a whole number from 1 to 2"),
        ({"runs": 0}, "runs is 0; it must be a positive whole number"),
        ({"first": "x"}, "first is 'x'; it must be a whole number that is not negative and below 2^62"),
        ({"first": 1.7, "last": 4}, "first is 1.7; it must be a whole number that is not negative and below 2^62"),
        (
            {"last": 10**21},
            "last is 1000000000000000000000; it must be a whole number that is not negative and below 2^62",
        ),
        ({"learners": []}, "no learner is named"),
        ({"learners": [3]}, "3 is not a learner; give a spec"),
        ({"learners": 3}, "3 is not a learner; give a spec"),
        ({"learners": ["ucb1", "ucb1"]}, "learner 'ucb1' is given twice"),
        ({"learners": ["ucb"]}, "there is no learner 'ucb'; did you mean 'ucb1'"),
    ],
)
def test_refusals(options, message):
    times = [0, 1, 2, 3, 4, 0, 1, 3, 4, 5]
    trace = rb.data.trace(times, list("aaaaabbbbb"), state=[0, 1] * 5)
    with pytest.raises(rb.ProblemError) as refused:
        rb.data.replay(trace, **{"learners": ["round-robin"], "missing": "stretch", **options})
    assert message in str(refused.value)


def test_known_rewards_need_no_fit():
    # The log is far too short for chains.
    trace = rb.data.trace([0, 1, 0, 1], list("aabb"), state=[0, 1, 1, 0])
    found = rb.data.replay(trace, "likelihood-ucb:rewards=known")
    assert found.learners[0].totals[0] in (0.0, 1.0, 2.0)
    with pytest.raises(rb.NotIdentified, match="seen again after state"):
        rb.data.replay(trace, "whittle")
