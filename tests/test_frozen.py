"""What earlier versions wrote can still be read: agents go on with the decisions they would have made then, unless
their learner has become another one.

``tests/frozen`` was written before plans had notes: agents in the middle of a plan with the next eighty
decisions of theirs, a result with its regret, and two policies.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import restless_bandits as rb

FROZEN = Path(__file__).parent / "frozen"
AGENTS = json.loads((FROZEN / "agents.json").read_text())
CHANGED = {"dominance-ucb": "likelihood-dominance", "likelihood-ucb": "likelihood-ucb"}
"""Learners that decide otherwise than when the agents were stored, and what they are now."""
PAPER_1 = rb.Problem.builtin("paper-1")


@pytest.mark.parametrize("spec", AGENTS)
def test_agents_go_on(spec, tmp_path):
    (tmp_path / "agent.json").write_text(json.dumps(AGENTS[spec]["agent"]))
    agent = rb.Agent.load(tmp_path / "agent.json")
    assert rb.learners.same_learner(agent.learner, rb.learner(spec))
    pulled = []
    for slot in range(80):
        arm = agent.ask()
        pulled.append(arm)
        pays = PAPER_1.arms[arm].rewards[slot % 2] > 0
        agent.tell(slot % 2, float(slot % 3 == 0) if pays else 0.0)
    if spec in CHANGED:
        assert agent.learner == rb.learner(CHANGED[spec])
        assert agent.record.plans > 0
    else:
        assert pulled == AGENTS[spec]["next"]


def test_results_are_read():
    found = rb.SimulationResult.load(FROZEN / "result.npz")
    written = json.loads((FROZEN / "result.json").read_text())
    np.testing.assert_array_equal(found.regret(), written["regret"])
    # Under the names of then; today what was asked for is what is printed.
    assert list(found.learners) == written["learners"] == ["restless-ucb", "ts"]


def test_policies_are_read():
    assert rb.load_policy(FROZEN / "whittle.npz") == rb.oracles.policy("whittle", PAPER_1)
    exact = rb.load_policy(FROZEN / "exact.npz")
    assert rb.evaluate(PAPER_1, exact).gain == pytest.approx(0.456464072292, abs=1e-3)
