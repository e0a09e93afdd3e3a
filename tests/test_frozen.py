"""What earlier versions wrote can still be read: agents go on with the decisions that they would have made then.

``tests/frozen`` was written before plans had notes: agents in the middle of a plan with the next eighty
decisions of theirs, a result with its regret, and two policies. ``decisions.json`` has the next eighty decisions of
those of the agents whose learner has since become another one, as that one makes them; ``agents_2.json`` has agents of
format 2 on three arms. Learners may change on purpose: the decisions are then written anew, and the changelog says so.
"""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

import restless_bandits as rb
from tests.optional import needed

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


class TestFilesOfFormerModules:
    """Files written when the package was 43 modules in a row: a file of each kind."""

    FOLDER = FROZEN / "modules"

    @pytest.mark.parametrize("spec", ["likelihood-dominance", "likelihood-ucb", "restless-ucb", "ts-9"])
    def test_agents(self, spec, tmp_path):
        agent = rb.Agent.load(self.FOLDER / f"agent-{spec}.json")
        assert agent.learner.name == rb.learner(spec).name
        agent.save(tmp_path / "again.json")
        again = rb.Agent.load(tmp_path / "again.json")
        for one in (agent, again):
            one.ask()
        assert agent.ask() == again.ask()
        assert agent.slots == again.slots > 0

    @pytest.mark.parametrize("spec", ["likelihood-ucb", "ts-9"])
    def test_histories(self, spec, tmp_path):
        path = tmp_path / "history.jsonl"
        path.write_bytes((self.FOLDER / f"history-{spec}.jsonl").read_bytes())
        # A decision that differs from the file would be a RuntimeWarning, and so an error.
        agent, stored = rb.Agent.replay(path), rb.Agent.load(self.FOLDER / f"agent-{spec}.json")
        assert agent.slots == stored.slots
        assert agent.ask() == stored.ask()

    def test_problems(self):
        for name in ("problem", "fitted"):
            problem = rb.Problem.load(self.FOLDER / f"{name}.toml")
            assert rb.Problem.from_toml(problem.to_toml()) == problem

    @pytest.mark.parametrize("name", ["best-arm", "exact", "whittle"])
    def test_policies(self, name):
        policy = rb.load_policy(self.FOLDER / f"policy-{name}.npz")
        made = rb.solve(PAPER_1, name).policy
        for states, elapsed in (([0, 1], [3, 1]), ([1, 0], [1, 3]), ([1, 1], [1, 9])):
            assert policy(states, elapsed) == made(states, elapsed)

    def test_results(self):
        result = rb.SimulationResult.load(self.FOLDER / "result.npz")
        assert np.isfinite(result.regret()).all()

    def test_stores(self, tmp_path):
        needed("sqlalchemy")
        from restless_bandits.service.audit import audit
        from restless_bandits.service.storage.store import open_store

        path = tmp_path / "store.db"
        path.write_bytes(zlib.decompress((self.FOLDER / "store.db.z").read_bytes()))
        store = open_store(str(path))
        try:
            found = audit(store)
        finally:
            store.close()
        assert found.same, found.difference
        assert found.decisions > 0


class TestFilesThatTellPullsFromObservations:
    """Files of arms that react to pulls, with lost, late and missing feedback: a file of each kind."""

    FOLDER = FROZEN / "pulls"

    def test_agents_go_on(self):
        agent, pulled = rb.Agent.load(self.FOLDER / "agent.json"), []
        assert agent.record.unseen
        for slot in range(80):
            arm = agent.ask()
            pulled.append(arm)
            if slot % 5 == 0:
                agent.tell(lost=True)
            else:
                agent.tell(slot % 2, [1.0, 0.5][slot % 2] if arm == 1 else 1.0 - slot % 2)
        assert pulled == json.loads((self.FOLDER / "decisions.json").read_text())

    def test_histories(self, tmp_path):
        path = tmp_path / "history.jsonl"
        path.write_bytes((self.FOLDER / "history.jsonl").read_bytes())
        agent = rb.Agent.replay(path)
        assert {event.get("pulled") for event in agent.history() if event["kind"] == "lost"} == {None, False}
        assert agent.task.reacts == (True, True, False, True)
        assert agent.slots == 60

    def test_stores(self, tmp_path):
        needed("sqlalchemy")
        from restless_bandits.service.audit import audit
        from restless_bandits.service.storage.store import open_store

        path = tmp_path / "store.db"
        path.write_bytes(zlib.decompress((self.FOLDER / "store.db.z").read_bytes()))
        store = open_store(str(path))
        try:
            found = audit(store)
        finally:
            store.close()
        assert found.same, found.difference
        assert found.decisions > 0
        assert found.snapshots == 1
