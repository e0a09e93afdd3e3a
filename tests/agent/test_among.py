"""Arms that are not there in a slot: what policies choose from the rest, and agents that are asked among some."""

import itertools

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.model.record import Record
from restless_bandits.policies import Cycle, EmpiricalUCB, Policy, SingleArm

PROBLEM = rb.Problem(
    [
        rb.Arm([[0.8, 0.2], [0.3, 0.7]], [1.0, 0.1], name="x"),
        rb.Arm([[0.6, 0.4], [0.1, 0.9]], [0.9, 0.2], name="y"),
        rb.Arm([[0.9, 0.1], [0.4, 0.6]], [0.7, 0.0], name="z"),
    ]
)
SUBSETS = [list(arms) for size in (1, 2) for arms in itertools.combinations(range(3), size)]


def seen(pulls):
    """The record of pulls (arm, state), one a slot; None for a slot that nobody played."""
    record = Record([2, 2, 2], [None] * 3)
    for pull in pulls:
        if pull is None:
            record.skip(1)
        else:
            record.observe([pull[0]], [pull[1]], [float(pull[1] == 0)])
    return record


RECORDS = [
    seen([(0, 0), (1, 1), (2, 0), (0, 1)]),
    seen([(0, 0), (1, 0), (2, 1), None, None, (1, 0)]),
    seen([(2, 0), (1, 0), (0, 0), None]),
    seen([(0, 1), (1, 1), (2, 1), (2, 1), (2, 0)]),
]


@pytest.mark.parametrize("record", RECORDS, ids=range(len(RECORDS)))
def test_the_best_of_those_there(record):
    whittle = rb.oracles.whittle(PROBLEM).policy
    elapsed = record.elapsed
    index = [
        whittle.tables[i][record.last_state[i], min(int(elapsed[i]), whittle.tables[i].shape[1]) - 1] for i in range(3)
    ]
    pulls = record.pulls
    means = [record.reward_sums(i).sum() / pulls[i] for i in range(3)]
    bounds = [means[i] + np.sqrt(2 * np.log(record.slots + 1) / pulls[i]) for i in range(3)]
    for arms in SUBSETS:
        assert whittle.choose_among(record, arms) == [max(arms, key=lambda i: index[i])]
        assert EmpiricalUCB().choose_among(record, arms) == [max(arms, key=lambda i: bounds[i])]
        longest = max(arms, key=lambda i: elapsed[i])
        assert Cycle().choose_among(record, arms) == [longest]
        assert SingleArm(1).choose_among(record, arms) == [1 if 1 in arms else longest]
    assert Cycle(2).choose_among(record, [0, 2]) == [0, 2]


@pytest.mark.parametrize("record", RECORDS, ids=range(len(RECORDS)))
def test_a_joint_table_looks_one_slot_ahead(record):
    policy = rb.oracles.exact(PROBLEM).policy

    def bias(last_states, elapsed):
        joint = policy.beliefs.locate(np.array([last_states]), np.array([elapsed]))
        return float(policy.bias[policy.beliefs.index(joint)[0]])

    def worth(arm):
        """The reward of one pull and what is expected of the table from then on."""
        last, waits = record.last_states.tolist(), record.elapsed.tolist()
        distribution = np.linalg.matrix_power(PROBLEM.arms[arm].transitions, waits[arm])[last[arm]]
        after = [1 if i == arm else waits[i] + 1 for i in range(3)]
        return sum(
            chance
            * (PROBLEM.arms[arm].rewards[state] + bias([state if i == arm else last[i] for i in range(3)], after))
            for state, chance in enumerate(distribution)
        )

    for arms in SUBSETS:
        assert policy.choose_among(record, arms) == [max(arms, key=worth)]


def test_any_other_policy_keeps_what_is_there():
    class Two(Policy):
        plays = 2

        def choose(self, last_states, elapsed):
            return np.array([[0, 1]] * len(last_states))

    record = seen([(0, 0), (2, 0), (1, 0)])
    assert Two().choose_among(record, [0, 1, 2]) == [0, 1]
    assert Two().choose_among(record, [1, 2]) == [1, 2]
    assert Two().choose_among(record, [0, 2]) == [0, 2]


def test_agents_are_asked_among_arms(tmp_path):
    history = tmp_path / "history.jsonl"
    agent = rb.Agent("round-robin", PROBLEM.task(), history=history)
    asked = []
    for among in (["y", "z"], [2], None, ["x"], None, ["z", "y"]):
        arm = agent.ask(among)
        assert agent.ask() == arm
        assert among is None or arm in [PROBLEM.arm_number(one) if isinstance(one, str) else one for one in among]
        asked.append(arm)
        agent.tell(0, 1.0)
    # By the longest wait; of arms never seen the lowest number.
    assert asked == [1, 2, 0, 0, 1, 2]
    again = rb.Agent.replay(history)
    assert again.record.to_dict() == agent.record.to_dict()


def test_agents_are_asked_among_arms_in_service():
    agent = rb.Agent("ucb1", PROBLEM.task())
    agent.retire_arm("y")
    assert agent.ask(["y", "z"]) == 2
    with pytest.raises(rb.ProblemError, match="slot 1 was asked for before, and the answer is not among the arms"):
        agent.ask(["x"])
    agent.tell(0, 1.0)
    with pytest.raises(rb.ProblemError, match="one arm is pulled a slot, and 0 in service are there; skip the slot"):
        agent.ask(["y"])
    with pytest.raises(rb.ProblemError, match="there is no arm 'q'"):
        agent.ask(["q"])
    assert agent.ask("x") == 0
