"""Arms that come, go and come back; learners exchanged at any slot; plans made in another process."""

import json
import pickle
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Future

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Agent, Problem, ProblemError, Task
from restless_bandits._internal import background
from restless_bandits._internal.random_streams import world_words
from restless_bandits.model.record import Record
from restless_bandits.policies import EmpiricalUCB, EveryStateSeen, Forever, SeenIn, Slots
from restless_bandits.policies.plans import renumbered
from restless_bandits.registry import OBSERVED_ORACLES, learner_names
from tests import reference

FOUR = Problem.random(4, 2, seed=8)
SPECS = [
    *(
        name
        for name in learner_names()
        if name not in ("colored-ucrl2", "informed", "dominance-ucb", *OBSERVED_ORACLES)
        and "pulled" in rb.learner(name).observed
    ),
    "colored-ucrl2:cap=4",
    "restless-ucb:rewards=known,m=3",
]


def agent(spec="round-robin", problem=FOUR, horizon=2000, **options):
    learner = rb.learner(spec)
    return Agent(learner, problem.task(horizon, reveal=learner.needs), **options)


def play(one, world, slots, at=None):
    """Drive an agent through a world whose arms carry numbers of their own where ``at`` says so; the arms pulled."""
    pulled = []
    for _ in range(slots):
        arm = one.ask()
        (state,), (reward,) = world.pull([arm if at is None else at[arm]])
        one.tell(state, reward)
        pulled.append(arm)
    return pulled


def world():
    return reference.World(FOUR, world_words(1, FOUR.content, 0))


@pytest.mark.parametrize("spec", SPECS)
def test_a_retired_arm_is_not_pulled_and_comes_back_with_its_record(spec, tmp_path):
    one, available = agent(spec, seed=3), world()
    play(one, available, 60)
    known = one.record.counts(1).copy()
    one.retire_arm("arm 2")
    one.save(tmp_path / "agent.json")
    again = Agent.load(tmp_path / "agent.json")
    assert again.in_service == one.in_service == ("arm 1", "arm 3", "arm 4")
    assert again.ask() == one.ask()
    assert 1 not in play(one, available, 60)
    np.testing.assert_array_equal(one.record.counts(1), known)
    one.restore_arm(1)
    play(one, available, 60)
    assert one.slots == 180
    one.save(tmp_path / "later.json")
    assert Agent.load(tmp_path / "later.json").record.to_dict() == one.record.to_dict()


SLOW = ("restless-ucb", "colored-ucrl2:cap=4")
"""They know next to nothing of any arm after hundreds of slots, and see no difference in a new one."""


@pytest.mark.parametrize(
    "spec", [spec for spec in SPECS if spec not in SLOW and not rb.learner(spec).needs & {"problem"}]
)
def test_an_added_arm_is_explored(spec, tmp_path):
    three = Problem(FOUR.arms[:3])
    one, available = agent(spec, three, seed=3), world()
    play(one, available, 80)
    before = [one.record.counts(arm).copy() for arm in range(3)]
    given = {"rewards": FOUR.arms[3].rewards} if one.task.rewards is not None else {}
    assert one.add_arm("new", **given) == 3
    for arm in range(3):
        np.testing.assert_array_equal(one.record.counts(arm), before[arm])
    one.save(tmp_path / "agent.json")
    assert Agent.load(tmp_path / "agent.json").task == one.task
    assert 3 in play(one, available, 400)


def test_what_is_planned_is_what_an_agent_of_those_arms_alone_would_plan():
    """The learner sees the arms in service only: same record, same decisions."""
    part = Problem([FOUR.arms[arm] for arm in (0, 2, 3)])
    for spec in ("likelihood-ucb", "ts-9", "restless-ucb:m=3", "ucb1", "whittle"):
        one, other = agent(spec, seed=2), agent(spec, part, seed=2)
        one.retire_arm(1)
        pulled = play(one, world(), 150)
        assert pulled == [(0, 2, 3)[arm] for arm in play(other, world(), 150, at=(0, 2, 3))]
        assert one.record.only([0, 2, 3]).to_dict() == other.record.to_dict()


def test_policies_are_asked_with_the_record_of_the_arms_in_service(monkeypatch):
    """After feedback in order, late feedback, lost feedback, and feedback of a retired arm."""
    records, scores_now = [], EmpiricalUCB.scores_now

    def noting(policy, record):
        records.append(seen_of(record))
        return scores_now(policy, record)

    monkeypatch.setattr(EmpiricalUCB, "scores_now", noting)
    one = agent("ucb1")
    one.retire_arm(1)
    rng = np.random.default_rng(2)
    for _ in range(120):
        one.ask()
        assert records.pop() == seen_of(one.record.only([0, 2, 3]))
        fate = rng.integers(5)
        if fate < 2:
            one.tell(int(rng.integers(2)), 1.0)
        elif fate == 2:
            one.tell(0, 0.0, arm=1)
        else:
            one.skip(int(fate))
            one.tell(1, 0.0, slot=one.open[0].slot)


def seen_of(record):
    return {key: value for key, value in record.to_dict().items() if key not in ("plan_lengths", "notes")}


class TestRefusals:
    def test_arms(self):
        one = agent(problem=Problem(FOUR.arms[:2]))
        with pytest.raises(ProblemError, match="there is an arm 'arm 1' already; give another name"):
            one.add_arm("arm 1")
        with pytest.raises(ProblemError, match="is in service already"):
            one.restore_arm("arm 1")
        one.retire_arm("arm 1")
        with pytest.raises(ProblemError, match="there is an arm 'arm 1' already; restore_arm brings it back"):
            one.add_arm("arm 1")
        with pytest.raises(ProblemError, match="is out of service already"):
            one.retire_arm("arm 1")
        with pytest.raises(
            ProblemError, match="cannot be retired: one arm is pulled a slot and no more are in service"
        ):
            one.retire_arm("arm 2")
        with pytest.raises(ProblemError, match="there is no arm 'arm 3'"):
            one.retire_arm("arm 3")
        with pytest.raises(ProblemError, match=r"n_states\[2\] is 0"):
            one.add_arm("arm 3", n_states=0)
        with pytest.raises(ProblemError, match="take more counts than fit into memory"):
            one.add_arm("arm 3", n_states=10**6)
        with pytest.raises(ProblemError, match="rewards of the other arms are not revealed"):
            one.add_arm("arm 3", rewards=(1, 0))
        assert one.task.n_arms == one.record.n_arms == 2

    def test_what_a_learner_must_know(self):
        one = agent("restless-ucb:rewards=known,m=3")
        with pytest.raises(ProblemError, match="rewards of the other arms are told; give those of the new one"):
            one.add_arm("new")
        with pytest.raises(ProblemError, match="the task holds the whole problem"):
            agent("whittle").add_arm("new")
        with pytest.raises(ProblemError, match="has 3 states, but a grid is a support for two"):
            agent("ts-9").add_arm("new", n_states=3)

    def test_learners(self):
        one = agent()
        with pytest.raises(ProblemError, match="needs to be told problem"):
            one.learner = "whittle"
        assert one.learner == rb.learner("round-robin")

    def test_names(self):
        task = Task((2, 2), 1, ("bernoulli",) * 2, (None, None), ("a", "a"))
        with pytest.raises(ProblemError, match="two arms are called 'a'; give its number"):
            Agent("round-robin", task).tell(0, 1, "a")


def test_a_decision_that_was_asked_for_stands():
    one = agent()
    assert one.ask() == 0
    one.retire_arm(0)
    assert one.ask() == 0
    one.tell(0, 1)
    assert one.ask() == 1
    assert one.record.plans == 0  # The plan before was followed in no slot.
    one.skip()
    one.tell(0, 1, arm=0, slot=2)  # Whatever was pulled was pulled.
    assert one.record.pulls.tolist() == [2, 0, 0, 0]


def test_another_learner_goes_on_with_what_was_seen(tmp_path):
    one, available = agent("likelihood-ucb", seed=1), world()
    play(one, available, 100)
    seen = one.record.flat_counts.copy()
    one.learner = "ts-9"
    assert one.record.notes == {}
    np.testing.assert_array_equal(one.record.flat_counts, seen)
    assert sum(one.record.plan_lengths) == 100
    one.save(tmp_path / "agent.json")
    again = Agent.load(tmp_path / "agent.json")
    assert again.learner == rb.learner("ts-9")
    there_again = world()
    there_again.__dict__.update(json.loads(json.dumps({"last": available.last, "elapsed": available.elapsed})))
    there_again.draws.s = list(available.draws.s)
    assert play(again, there_again, 50) == play(one, available, 50)


def test_rules_of_arms_in_service_name_the_numbers_of_all():
    rule = EveryStateSeen(0, 3) | SeenIn(1, 0) | Slots(5)
    assert renumbered(rule, [2, 5]) == EveryStateSeen(2, 3) | SeenIn(5, 0) | Slots(5)
    assert renumbered(Forever(), [2]) == Forever()
    assert renumbered(SeenIn(0, 1), [2]) == SeenIn(2, 1)


def test_records_of_some_arms_and_of_one_more():
    record = Record((2, 3, 2), (0, None, 1))
    for slot in range(30):
        record.observe([slot % 3], [slot // 3 % 2], [slot / 30])
    part = record.only([2, 1])
    for mine, its in ((0, 2), (1, 1)):
        for what in ("counts", "visits", "seen", "reward_sums"):
            np.testing.assert_array_equal(getattr(part, what)(mine), getattr(record, what)(its))
    assert part.elapsed.tolist() == record.elapsed[[2, 1]].tolist()
    part.skip(1)
    part.observe([0], [0], [1.0])
    assert record.slots == 30
    whole = record.to_dict()
    sent = pickle.loads(pickle.dumps(record))
    assert sent.to_dict() == whole
    np.testing.assert_array_equal(sent.flat_visits, record.flat_visits)
    record.add_arm(4)
    assert record.only([0, 1, 2]).to_dict() == whole
    assert record.last_states.tolist()[3] == -1
    assert record.elapsed.tolist()[3] == 31


class Held(Future):
    """The promise of a plan that is kept when the test says so."""

    def __init__(self, work, given):
        super().__init__()
        self.work, self.given = work, given

    def keep(self):
        self.set_result((self.work(*self.given), []))


@pytest.fixture
def held(monkeypatch):
    """Promises in the place of a pool of processes."""
    promises = []

    def submit(work, *given):
        promises.append(Held(work, given))
        return promises[-1]

    monkeypatch.setattr(background, "submit", submit)
    return promises


class TestBackground:
    def test_the_old_plan_goes_on_until_the_new_one_is_there(self, held, tmp_path):
        one, available = agent("likelihood-ucb", seed=5, planning="background"), world()
        assert held == []
        while not held:
            play(one, available, 1)
        due = one.slots
        old = one.to_dict()["plan_record"]
        play(one, available, 7)
        assert one.to_dict()["plan_record"] == old
        assert len(held) == 1
        one.save(tmp_path / "due.json")
        held[0].keep()
        one.ask()
        assert one.to_dict()["plan_record"] != old
        assert one.to_dict()["plan_record"]["slots"] == due == sum(one.record.plan_lengths)

        again = Agent.load(tmp_path / "due.json")
        assert len(held) == 2  # What was not finished is made again, and it is the same plan.
        held[1].keep()
        assert again.ask() == one.ask()
        assert json.dumps(again.to_dict()) == json.dumps(one.to_dict())

    def test_plans_that_are_there_at_once_are_those_of_an_agent_that_waits(self, held):
        one, other = (agent("ts-9", seed=5, planning=how) for how in ("background", "blocking"))
        here, available = world(), world()
        for _ in range(120):
            for promise in held:
                if not promise.done():
                    promise.keep()
            assert play(one, here, 1) == play(other, available, 1)
        assert one.record.to_dict() == other.record.to_dict()

    def test_a_change_of_arms_ends_what_is_being_planned(self, held):
        one, available = agent("ts-9", seed=5, planning="background"), world()
        while not held:
            play(one, available, 1)
        play(one, available, 3)
        one.retire_arm(3)
        assert held[0].cancelled()
        assert sum(one.record.plan_lengths) == one.slots
        assert 3 not in play(one, available, 20)

    def test_a_worker_that_died_costs_time_only(self, held):
        one, other = (agent("ts-9", seed=5, planning="background") for _ in range(2))
        here, available = world(), world()
        for _ in range(60):
            for number, promise in enumerate(held):
                if not promise.done():
                    promise.keep() if number % 2 else promise.set_exception(BrokenExecutor("died"))
            assert play(one, here, 1) == play(other, available, 1)

    def test_what_a_learner_warns_of_is_told(self, held):
        one, available = agent("ts-9", seed=5, planning="background"), world()
        while not held:
            play(one, available, 1)
        held[0].set_result((held[0].work(*held[0].given), [("something", RuntimeWarning)]))
        with pytest.warns(RuntimeWarning, match="something"):
            one.ask()

    def test_refusals(self):
        with pytest.raises(ProblemError, match="planning is 'backgruond'; did you mean 'background'"):
            agent(planning="backgruond")
        with pytest.raises(ProblemError, match="cannot be sent to a worker that plans in the background"):
            Agent(rb.RestlessUCB(m=lambda horizon: 5), FOUR.task(100), planning="background")

    def test_a_process_of_its_own(self):
        """Two agents share the workers, which end with the program; nothing is left and nothing warned of."""
        done = subprocess.run(
            [sys.executable, "-Werror", "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        adopted, workers = map(int, done.stdout.split())
        assert adopted > 0
        assert 1 <= workers <= background.MOST_WORKERS


SCRIPT = """
import time
import restless_bandits as rb
from restless_bandits._internal import background

if __name__ == "__main__":
    agents = [rb.Agent("ts-9", rb.Problem.builtin("paper-1").task(), seed=s, planning="background") for s in (0, 1)]
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not all(agent.record.plans > 3 and agent._pending_plan is None for agent in
    agents):
        for agent in agents:
            agent.ask()
            agent.tell(agent.slots % 2, 0.0)
        time.sleep(0.005)  # for the workers, which plan meanwhile
    adopted = min(agent.record.plans for agent in agents)
    (pool,) = background._pools.values()
    print(adopted, background.workers())
"""


def test_no_process_is_started_for_an_agent_that_waits():
    # Another test may have left its workers to this process.
    background.close()
    play(agent("likelihood-ucb"), world(), 30)
    assert background.workers() == 0
