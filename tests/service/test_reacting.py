"""Agents of the service whose arms react to pulls: pulls and observations are two events of the log."""

import json

import numpy as np
import pytest

from restless_bandits.service.agent import ServiceAgent
from restless_bandits.service.audit import audit
from restless_bandits.service.dashboard import analysis
from restless_bandits.service.dashboard.analysis import LogSummary, analyse, optimum
from restless_bandits.service.dashboard.executor import snapshot_of
from restless_bandits.service.dashboard.page import present_of, recent
from restless_bandits.service.operations import ServiceError
from restless_bandits.service.storage.schema import LOG_VERSION
from tests.service.clients import Inside

ARMS = [
    {"name": "x", "reacts": True, "passive_rewards": [0.5, 0.25]},
    {"name": "y", "reacts": True, "setup_cost": 0.125},
    "z",
]
AGENT = {"name": "a", "arms": ARMS, "learner": "round-robin", "seed": 5}


def played(a, slots=40):
    """Play with feedback in time, late, lost and missing, and with decisions that are not carried out."""
    late = {}
    for slot in range(1, slots):
        decision = a.ask()
        seen = {"state": slot // 3 % 2, "reward": float(slot % 2)}
        if slot % 7 == 0:
            a.tell(decision, lost=True)
        elif slot % 7 == 3:
            a.tell(decision, pulled=False)
        elif slot % 7 == 5:
            late[slot + 4] = decision, seen
        elif slot % 7 != 1:
            a.tell(decision, **seen)
        if slot in late:
            told, seen = late.pop(slot)
            a.tell(told, **seen)


@pytest.mark.parametrize("learner", ["round-robin", "posterior"])
def test_the_log_gives_the_same_agent_again(kept, learner):
    a = kept(snapshot_every=9)
    a.create(ARMS, learner=learner, on_change="ignore")
    played(a)
    a.patch(add_arm={"name": "w", "reacts": True, "passive_rewards": [0.0, 1.0]})
    a.patch(add_arm={"name": "w", "reacts": True, "passive_rewards": [0.0, 1.0]})
    a.patch(retire_arm="z")
    played(a, 20)
    before, record = a.read(), a.record()
    assert record["unseen"]
    taken = a.writer.read("a", lambda agent_state: agent_state.to_dict())
    again = ServiceAgent.from_dict(1, json.loads(json.dumps(taken)), a.writer.planner)
    assert again.to_dict() == taken
    a.reopen()
    assert a.read() == before
    assert a.record() == record
    found = audit(a.store)
    assert found.same, found.difference
    assert a.log()[0]["version"] == LOG_VERSION == 2
    assert {event.get("pulled") for event in a.log() if event["kind"] == "lost"} == {None, False}
    arms = {arm["name"]: arm for arm in before["task"]["arms"]}
    assert [arms[name]["reacts"] for name in "xyzw"] == [True, True, False, True]
    assert arms["w"]["passive_rewards"] == [0, 1]
    assert arms["y"]["setup_cost"] == 0.125


def test_reports_of_pulls(kept):
    a = kept()
    a.create(ARMS, learner="round-robin")
    first = a.ask()
    a.tell(first, pulled=False)
    assert a.tell(first, pulled=False)["used"]
    with pytest.raises(ServiceError, match="reported as not pulled before; the first report stands"):
        a.tell(first, lost=True)
    assert "unseen" not in a.record()
    second = a.ask()
    a.tell(second, lost=True)
    assert a.record()["unseen"] == [[first["numbers"][0], 2, 0, [2]]]
    with pytest.raises(ServiceError, match="lost feedback has no state and no reward"):
        a.tell(a.ask(), pulled=False, state=0, reward=1.0)


def test_the_page_follows_pulls(kept):
    a = kept()
    a.create(ARMS, learner="round-robin", late=6)
    played(a, 60)
    a.patch(late=3)
    a.patch(add_arm={"name": "w", "setup_cost": 1.0})
    played(a, 20)
    summary = LogSummary(1)
    for event in a.log():
        summary.take(event | {"at": 0})
    mine, known = summary.record, a.writer.read("a", lambda agent_state: agent_state.core.record.copy())
    assert mine.unseen == known.unseen
    for name in ("flat_counts", "flat_rewards", "last_state", "last_slot"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(known, name))
    present = a.writer.read("a", present_of)
    number = next(iter(known.unseen))
    state, slot, pulls = known.unseen[number]
    assert present["unseen"][str(number)] == [state, known.slots + 1 - slot, [known.slots + 1 - pull for pull in pulls]]
    assert {"lost": True} in [one for slot in recent(a.log()) for one in slot["arms"].values()]
    assert {"unpulled": True} in [one for slot in recent(a.log()) for one in slot["arms"].values()]


def test_the_page_shows_both_chains(kept, monkeypatch):
    """The learned problem has both chains of each arm, and is solved as such."""
    monkeypatch.setattr(analysis, "FEWEST_DRAWS", 2)
    monkeypatch.setattr(analysis, "DRAWING", 0.0)
    a = kept()
    a.create(ARMS, learner="round-robin", late=6)
    played(a, 120)
    snapshot = a.writer.read("a", snapshot_of)
    seen = analyse(str(a.store.engine.url), snapshot)
    x, y, z = seen["arms"]
    assert np.shape(x["active_transitions"]) == np.shape(x["active_errors"]) == (2, 2)
    assert "active_transitions" not in z
    assert (x["passive_rewards"], y["setup_cost"]) == ([0.5, 0.25], 0.125)
    # Rows of the states, of an arm never seen, and of one pulled without an answer.
    assert [len(arm["index"]) for arm in (x, y, z)] == [4, 4, 3]
    found = optimum(snapshot)
    assert found["lower"] <= found["gain"] <= found["upper"]
    assert found["low"] < found["high"]


class TestOverHTTP:
    @pytest.fixture
    def agent(self, tmp_path):
        inside = Inside(tmp_path)
        assert inside("POST", "/agents", AGENT).status == 201
        yield inside
        inside.close()

    def tell(self, agent, **seen):
        reply = agent("POST", "/agents/a/ask", {"request": str(len(seen)) + str(agent.counter)}, role="play").json()
        agent.counter += 1
        return agent("POST", "/agents/a/tell", {"decision": reply["decision"]} | seen, role="play")

    def test_beliefs_and_estimates(self, agent):
        agent.counter = 0
        for number in range(30):
            seen = {"lost": True} if number > 26 else {"state": number // 4 % 2, "reward": 1.0}
            assert self.tell(agent, **seen).status == 200
        assert self.tell(agent, pulled=False).status == 200
        x, _, z = agent("GET", "/agents/a/estimate", role="read").json()["arms"]
        passive, active = np.array(x["transitions"]), np.array(x["active_transitions"])
        assert passive.shape == active.shape == np.shape(x["active_standard_errors"]) == (2, 2)
        assert "active_transitions" not in z
        belief = agent("GET", "/agents/a/belief", role="read").json()["arms"]
        assert belief[0]["unseen_pulls"] == [28]
        assert (belief[0]["last_state"], belief[0]["elapsed"]) == (0, 7)
        expected = active @ passive @ passive @ active @ passive @ passive @ passive
        np.testing.assert_allclose(belief[0]["law"], expected[belief[0]["last_state"]], rtol=1e-9)
        assert "unseen_pulls" not in belief[2]

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"learner": "likelihood-ucb"}, "arm 'x' has active_transitions, and likelihood-ucb plays uncontrolled"),
            ({"arms": [{"name": "x", "reacts": 1}]}, "give true or false"),
            ({"arms": [{"name": "x", "passive_rewards": [1.0]}]}, "passive_rewards must be a mean for each state"),
            ({"arms": [{"name": "x", "setup_cost": -1.0}]}, "must be at least 0"),
            ({"arms": ["x", "y"], "reacts": True, "learner": "ts-9"}, "ts-9 plays uncontrolled"),
        ],
    )
    def test_refusals(self, agent, change, words):
        reply = agent("POST", "/agents", AGENT | {"name": "b"} | change)
        assert reply.status == 422
        assert words in reply.json()["error"]
