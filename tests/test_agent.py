import json

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Agent, Problem, ProblemError
from restless_bandits.streams import world_words
from tests import reference

PAPER = Problem.builtin("paper-1")


def agent(spec="restless-ucb:m=5", problem=PAPER, horizon=1000, **options):
    learner = rb.learner(spec)
    return Agent(learner, problem.task(horizon, reveal=learner.needs), **options)


def test_the_documented_example(tmp_path):
    one = Agent(rb.RestlessUCB(), PAPER.task(horizon=100_000), seed=7)
    assert one.ask() == 0
    one.tell(state=1, reward=0.0)
    one.skip(3)
    one.tell(state=0, reward=1.0, arm=1)
    one.save(tmp_path / "agent.json")
    again = Agent.load(tmp_path / "agent.json")
    assert again.ask() == one.ask()
    assert again.slots == one.slots == 5


def test_asking_again_repeats():
    one = agent("round-robin")
    assert one.ask() == one.ask() == 0
    one.tell(0, 1)
    assert one.ask() == 1


def test_skipped_slots_count_as_waiting():
    one = agent("whittle")
    one.tell(0, 1, arm=0)
    one.skip(4)
    assert one.record.elapsed.tolist() == [5, 6]
    one.tell(1, 0, arm=0)
    assert one.record.visits(0)[0, 4] == 1


def test_skipping_ends_a_plan_whose_time_is_up():
    one = agent("ts:support=4") if "ts" in rb.learners.LEARNERS else agent("round-robin")
    one.ask()
    one.skip(50)
    one.ask()
    assert one.slots == 50


def test_the_horizon_may_be_passed():
    one = agent(horizon=20)
    world = reference.World(PAPER, world_words(0, "", 0))
    reference.play_with_agent(one, world, 60)
    assert one.slots == 60


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (dict(state=2, reward=0), "arm 'arm 1' has no state 2; its states are 0 to 1"),
        (dict(state=-1, reward=0), "no state -1"),
        (dict(state=0.0, reward=0), r"no state 0\.0"),
        (dict(state=True, reward=0), "no state True"),
        (dict(state=0, reward=0.5), r"reward 0\.5 is neither 0 nor 1"),
        (dict(state=0, reward=float("nan")), "reward nan is neither"),
        (dict(state=0, reward="1"), "reward '1' is not a number"),
        (dict(state=0, reward=1, arm=2), "there is no arm 2; arms are 0 to 1"),
        (dict(state=[0, 1], reward=1), r"no state \[0, 1\]"),
    ],
)
def test_impossible_tells_change_nothing(told, message):
    one = agent()
    one.ask()
    before = json.dumps(one.record.to_dict())
    with pytest.raises(ProblemError, match=message):
        one.tell(**told)
    assert json.dumps(one.record.to_dict()) == before
    assert one.ask() == 0


def test_tell_without_ask():
    one = agent()
    with pytest.raises(ProblemError, match="tell without ask"):
        one.tell(0, 1)
    one.ask()
    one.tell(0, 1)
    with pytest.raises(ProblemError, match="tell without ask"):
        one.tell(0, 1)


@pytest.mark.parametrize("slots", [0, -1, 1.5, True])
def test_bad_skips(slots):
    with pytest.raises(ProblemError, match="slots to skip is"):
        agent().skip(slots)


def test_fixed_rewards_must_stay_the_same():
    problem = Problem.random(2, 2, seed=1, reward_law="fixed")
    one = agent("round-robin", problem)
    one.tell(0, 0.25, arm=0)
    with pytest.raises(ProblemError, match=r"state 0 gave 0\.25 before and 0\.5 now"):
        one.tell(0, 0.5, arm=0)
    with pytest.raises(ProblemError, match="not between 0 and 1"):
        one.tell(1, 1.5, arm=0)
    one.tell(0, 0.25, arm=0)


class TestSeveralPlays:
    problem = Problem.random(4, 2, seed=1, plays=2)

    def test_ask_and_tell_take_sequences(self):
        one = agent("round-robin", self.problem)
        assert one.ask() == (0, 1)
        one.tell([0, 1], [1, 0])
        assert one.ask() == (2, 3)
        one.tell(np.array([0, 1]), (1, 0), arm=[3, 0])
        assert one.record.last_state.tolist()[3] == 0
        assert one.record.last_state.tolist()[0] == 1

    def test_faults(self):
        one = agent("round-robin", self.problem)
        one.ask()
        with pytest.raises(ProblemError, match="state is 0; with 2 plays give a sequence"):
            one.tell(0, [1, 0])
        with pytest.raises(ProblemError, match="not distinct"):
            one.tell([0, 0], [1, 0], arm=[1, 1])


def test_what_must_be_revealed():
    with pytest.raises(ProblemError, match=r"needs to be told rewards; make its task with reveal=\['rewards'\]"):
        Agent("restless-ucb:rewards=known", PAPER.task(100))
    with pytest.raises(ProblemError, match="needs to know the horizon"):
        Agent("colored-ucrl2:cap=5", PAPER.task())
    with pytest.raises(ProblemError, match="did you mean 'restless-ucb'"):
        Agent("restles-ucb", PAPER.task(100))
    with pytest.raises(ProblemError, match=r"horizon is beyond 2\^62, which no run reaches"):
        Agent("restless-ucb", PAPER.task(10**30))


class TestStoredAgents:
    def test_is_json_without_surprises(self, tmp_path):
        one = agent("whittle")
        one.ask()
        one.save(tmp_path / "a.json")
        data = json.loads((tmp_path / "a.json").read_text())
        assert data["learner"] == "whittle"
        assert [path.name for path in tmp_path.iterdir()] == ["a.json"]

    def test_faults(self, tmp_path):
        path = tmp_path / "a.json"
        with pytest.raises(ProblemError, match="cannot read"):
            Agent.load(path)
        path.write_text("{")
        with pytest.raises(ProblemError, match="not a stored agent"):
            Agent.load(path)
        path.write_text("{}")
        with pytest.raises(ProblemError, match="not a stored agent of this version"):
            Agent.load(path)
        agent().save(path)
        data = json.loads(path.read_text())
        del data["record"]["slots"]
        path.write_text(json.dumps(data))
        with pytest.raises(ProblemError, match="is damaged"):
            Agent.load(path)
        with pytest.raises(ProblemError, match="cannot write"):
            agent().save(tmp_path / "no" / "a.json")

    def test_a_learner_that_no_spec_can_name_is_handed_over(self, tmp_path):
        learner = rb.RestlessUCB(m=lambda horizon: 5)
        Agent(learner, PAPER.task(100)).save(tmp_path / "a.json")
        with pytest.raises(ProblemError, match="has a learner that no spec can name"):
            Agent.load(tmp_path / "a.json")
        assert Agent.load(tmp_path / "a.json", learner=learner).learner is learner
