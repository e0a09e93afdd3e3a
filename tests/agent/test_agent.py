import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Agent, Problem, ProblemError
from restless_bandits._internal import files
from restless_bandits._internal.random_streams import world_words
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

    def stored(self, tmp_path, digest=True):
        """A path, and what is stored there of an agent in the middle of a plan."""
        path = tmp_path / "a.json"
        one = agent("rca", Problem.random(2, 3, seed=2, initial="unknown"))
        for slot in range(40):
            one.ask()
            one.tell(slot % 3, slot % 2)
        one.skip(600)
        one.ask()
        one.save(path)
        data = json.loads(path.read_text())
        if not digest:  # as in files of earlier versions
            del data["digest"]
        return path, data

    @pytest.mark.parametrize(
        ("where", "value", "message"),
        [
            (("record", "slots"), 10**30, "slots is 1000.*below 2"),
            (("record", "slots"), 3, "counts hold more than can be seen in 3 slots"),
            (("record", "counts", 0, 0), 10**9, r"counts\[0\]\[0\] is 1000000000"),
            (("record", "counts", 0, 0), -1, r"counts\[0\]\[0\] is -1"),
            (("record", "counts", 1, 0), 17, "do not lead to last_state"),
            (("record", "last_state", 0), 2, "do not lead to last_state 2"),
            (("record", "last_state", 0), 9, "last_state.* from 0 to 3"),
            (("record", "last_slot", 0), 639, "do not add up to last_slot 639"),
            (("record", "rewards", 1), -1.0, "are not those of what was seen"),
            (("record", "rewards", 1), 1e9, "are not those of what was seen"),
            (("record", "plan_lengths", 0), 5, "plan_record does not lead to record"),
            (("record", "plan_lengths", 0), 10**9, "add up to more"),
            (("plan_record", "notes", "rca", "counted", 0), 10**12, "count more than was seen"),
            (("plan_record", "notes", "rca", "arm"), 7, "rca: arm is 7"),
            (("plan_record", "notes", "rca", "states", 0), 3, "rca: states.* from 0 to 2"),
            (("plan_record", "notes"), [], "the notes of a plan are"),
            (("window", "slots", -1, 1), [2], r"window: arms\[0\] is 2"),
            (("window", "slots", -1, 1), [0, 1], "slot 641 holds answers that it cannot have"),
            (("window", "slots", -1, 2), [[0, 0, 1.0]], "slot 641 holds answers that it cannot have"),
            (("window", "slots", 3, 3), [0], "slot 4 holds answers that it cannot have"),
            (("window", "slots", 3, 2, 0, 1), 2, "the window does not lead to record|counts"),
            (("window", "slots", 3, 2, 0, 2), 0.5, "the window does not lead to record"),
            (("window", "slots", 3, 2, 0, 2), float("nan"), "the window does not lead to record"),
            (("window", "slots", 3, 0), 9, "window: slot is 5"),
            (("window", "edge"), 641, "edge is 641"),
            (("window", "late"), -1, "late is -1"),
            (("window", "late"), 3, "edge is 0"),
            (("window", "last_state", 0), 9, "window: last_state"),
            (("window", "last_slot", 0), 1, "window: last_slot"),
            (("window", "rewards", 0), [0.0], "window: its rewards or states"),
            (("retired",), [0, 1], "the number of arms in service is 0"),
            (("planning",), "now", "planning is 'now'; choose from blocking, background"),
            (("due_record",), {}, "is damaged, or its learner fails on the content: KeyError"),
            (("task", "n_states", 0), 10**12, "take more counts than fit into memory"),
            (("task", "n_states"), [], "at least one arm"),
            (("task", "names"), ["a"], "names is .*; give an entry for each of 2 arms"),
            (("task", "plays"), 3, "plays is 3"),
            (("task", "horizon"), 0, "horizon is 0"),
            (("task", "initial", 0), 3, r"initial\[0\] is 3"),
            (("task", "reward_laws", 0), "poisson", "'poisson'; choose from bernoulli, fixed"),
            (("task", "rewards"), [[1, 0, 2], [1, 0, 0]], "a mean between 0 and 1"),
            (("learner",), 5, "5 is not a learner"),
            (("learner",), "rac", "there is no learner 'rac'"),
            (("seed",), -1, "seed is -1"),
            (("run",), 0.5, "run is 0.5"),
            (("content",), "xyz", "content is 'xyz'"),
            (("record",), 3, "is damaged, or its learner fails on the content: TypeError"),
        ],
    )
    def test_every_field_is_held_against_the_others(self, tmp_path, where, value, message):
        path, data = self.stored(tmp_path, digest=False)
        path.write_text(json.dumps(data))
        assert Agent.load(path).ask() == data["window"]["slots"][-1][1][0]
        inside = data
        for key in where[:-1]:
            inside = inside[key]
        inside[where[-1]] = value
        path.write_text(json.dumps(data))
        with pytest.raises(ProblemError, match=message):
            Agent.load(path)

    def test_plausible_damage_shows_by_the_digest(self, tmp_path):
        path, data = self.stored(tmp_path)
        data["record"]["rewards"][0] -= 1
        path.write_text(json.dumps(data))
        with pytest.raises(ProblemError, match="is damaged: it does not hold what was written"):
            Agent.load(path)

    def test_a_record_of_looks_at_all_arms_is_kept(self, tmp_path):
        """What an agent begins with may come from a log in which every arm was seen in every slot."""
        one, again = agent("likelihood-ucb", horizon=None), tmp_path / "a.json"
        for slot in range(20):
            one.record.observe([0, 1], [slot // 3 % 2, slot // 5 % 2], [0.5, 0.25])
        one.ask()
        one.save(again)
        assert Agent.load(again).record.to_dict() == one.record.to_dict()
        assert Agent.load(again).record.flat_seen.tolist() == one.record.flat_seen.tolist()

    def test_notes_follow_from_the_plan(self, tmp_path):
        path, data = self.stored(tmp_path, digest=False)
        noted = data["record"]["notes"]
        path.write_text(json.dumps(data | {"record": data["record"] | {"notes": {"rca": 0}}}))
        assert Agent.load(path).record.notes == noted

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (dict(seed=-1), "seed is -1"),
            (dict(run=True), "run is True"),
            (dict(content="0x1"), "give problem.content"),
            (dict(task=5), "task is 5; give a Task"),
            (dict(learner=5), "5 is not a learner"),
        ],
    )
    def test_agents_that_make_no_sense(self, options, message):
        with pytest.raises(ProblemError, match=message):
            Agent(**dict(learner="round-robin", task=PAPER.task()) | options)

    def test_waits_that_no_clock_counts(self):
        one = agent()
        with pytest.raises(ProblemError, match=r"slots to skip is 1.*below 2\^62"):
            one.skip(10**30)
        one.skip(2**61)
        one.ask()

    def test_a_learner_that_no_spec_can_name_is_handed_over(self, tmp_path):
        learner = rb.RestlessUCB(m=lambda horizon: 5)
        Agent(learner, PAPER.task(100)).save(tmp_path / "a.json")
        with pytest.raises(ProblemError, match="its learner has no spec"):
            Agent.load(tmp_path / "a.json")
        assert Agent.load(tmp_path / "a.json", learner=learner).learner is learner


class TestSavedByTwo:
    def two(self, path):
        agent("round-robin").save(path)
        return Agent.load(path), Agent.load(path)

    def test_the_second_is_told(self, tmp_path):
        path = tmp_path / "a.json"
        one, other = self.two(path)
        one.tell(0, 1, arm=0)
        one.save(path)
        one.tell(0, 1, arm=1)
        one.save(path)
        other.tell(1, 0, arm=1)
        with pytest.raises(ProblemError, match="was saved by another process since this agent read or wrote it"):
            other.save(path)
        assert Agent.load(path).slots == 2
        other.save(tmp_path / "b.json")
        other.save(path, overwrite=True)
        assert Agent.load(path).slots == 1
        with pytest.raises(ProblemError, match="was saved by another process"):
            one.save(path)
        path.unlink()
        one.save(path)

    def test_another_agent_is_not_replaced_by_a_fresh_one(self, tmp_path):
        path = tmp_path / "a.json"
        agent().save(path)
        with pytest.raises(ProblemError, match="holds another agent, and saving would lose"):
            agent().save(path)
        agent().save(path, overwrite=True)
        (tmp_path / "link").symlink_to(path)
        again = Agent.load(tmp_path / "link")
        again.skip()
        again.save(path)

    def test_of_many_at_once_one_is_saved(self, tmp_path):
        path = tmp_path / "a.json"
        agent("round-robin").save(path)
        many = [Agent.load(path) for _ in range(8)]
        ready = threading.Barrier(len(many))

        def save(number):
            many[number].skip(number + 1)
            ready.wait()
            try:
                many[number].save(path)
            except ProblemError:
                return 0
            return number + 1

        with ThreadPoolExecutor(len(many)) as pool:
            saved = [slots for slots in pool.map(save, range(len(many))) if slots]
        assert saved == [Agent.load(path).slots]
        assert list(tmp_path.iterdir()) == [path]

    def test_a_lock_that_a_dead_process_left_holds_nobody_up(self, tmp_path, monkeypatch):
        path = tmp_path / "a.json"
        (tmp_path / ".a.json.lock").touch()
        agent().save(path)
        assert list(tmp_path.iterdir()) == [path]
        monkeypatch.setattr(files, "LOCK_TIMEOUT_SECONDS", 0.05)
        with (
            files.locked(path),
            pytest.raises(ProblemError, match=r"another process has been writing the file for 0\.05 s"),
        ):
            agent().save(path, overwrite=True)
        agent().save(path, overwrite=True)
