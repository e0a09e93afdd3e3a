"""What earlier versions wrote can still be read: agents go on with the decisions that they would have made then.

``tests/frozen`` was written before plans had notes: agents in the middle of a plan with the next eighty
decisions of theirs, a result with its regret, and two policies. ``decisions.json`` has the next eighty decisions of
those of the agents whose learner has since become another one, as that one makes them; ``agents_2.json`` has agents of
format 2 on three arms. Learners may change on purpose: the decisions are then written anew, and the changelog says so.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import restless_bandits as rb

FROZEN = Path(__file__).parent / "frozen"
AGENTS = json.loads((FROZEN / "agents.json").read_text())
DECISIONS = json.loads((FROZEN / "decisions.json").read_text())
AGENTS_2 = json.loads((FROZEN / "agents_2.json").read_text())
RENAMED = {"dominance-ucb": "likelihood-dominance"}
"""Learners that have another name than when the agents were stored."""
PAPER_1, RF_3 = rb.Problem.builtin("paper-1"), rb.Problem.builtin("rf-3")


def goes_on(stored, path, problem, state_in):
    """Return a stored agent, loaded, after eighty slots more, and what it pulled in them."""
    path.write_text(json.dumps(stored))
    agent, pulled = rb.Agent.load(path), []
    for slot in range(80):
        arm = agent.ask()
        pulled.append(arm)
        state = state_in(slot, arm)
        pays = problem.arms[arm].rewards[state] > 0
        agent.tell(state, float(slot % 3 == 0) if pays else 0.0)
    return agent, pulled


@pytest.mark.parametrize("spec", AGENTS)
def test_agents_go_on(spec, tmp_path):
    agent, pulled = goes_on(AGENTS[spec]["agent"], tmp_path / "agent.json", PAPER_1, lambda slot, _: slot % 2)
    assert agent.learner == rb.learner(RENAMED.get(spec, spec))
    assert pulled == DECISIONS.get(spec, AGENTS[spec]["next"])


def test_only_learners_that_have_changed_have_other_decisions():
    assert set(DECISIONS) == {"likelihood-ucb", *RENAMED}
    assert all(AGENTS[spec]["next"] != pulled for spec, pulled in DECISIONS.items())


@pytest.mark.parametrize("which", AGENTS_2)
def test_agents_of_format_2_go_on(which, tmp_path):
    agent, pulled = goes_on(
        AGENTS_2[which]["agent"], tmp_path / "agent.json", RF_3, lambda slot, arm: (slot // 4 + slot // 7 + arm) % 2
    )
    assert agent.learner == rb.learner(which.partition(" ")[0])
    assert pulled == AGENTS_2[which]["next"]


def test_the_default_learner_is_pinned():
    pulled = [stored["next"] for which, stored in AGENTS_2.items() if which.startswith(f"{rb.learners.DEFAULT} after ")]
    assert len(pulled) == 2
    assert all(len(set(arms)) == RF_3.n_arms for arms in pulled)


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
