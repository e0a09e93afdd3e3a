"""Answers that come late, twice, in any order, or never: the record is what the right order would have left."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits import Agent, Problem, ProblemError
from restless_bandits._internal.random_streams import world_words
from restless_bandits.agent.agent import Decision
from restless_bandits.agent.delayed_feedback import FeedbackBuffer
from restless_bandits.learning.learners.violations import warn_of_violations
from restless_bandits.model.record import Record
from tests import reference

PAPER = Problem.builtin("paper-1")
THREE = Problem.random(3, [2, 3, 2], seed=4, plays=2, initial="unknown")
PLAIN = Problem.random(3, [2, 2, 2], seed=4, plays=2)
SPECS = ["likelihood-ucb", "ts-9", "rca", "dsee", "restless-ucb:anytime=yes", "ucb1", "likelihood-dominance"]


def agent(spec="round-robin", problem=PAPER, horizon=None, **options):
    learner = rb.learner(spec)
    return Agent(learner, problem.task(horizon, reveal=learner.needs), **options)


def seen_of(one):
    """The record without the lengths and notes of plans, which depend on when answers came."""
    return seen_of_record(one.record)


def seen_of_record(record):
    return {key: value for key, value in record.to_dict().items() if key not in ("plan_lengths", "notes")}


def same_as_anew(record, task):
    """Visits and sights follow from counts; ``from_dict`` derives them anew and holds everything against the rest."""
    other = Record.from_dict(task, json.loads(json.dumps(record.to_dict())))
    for name in ("flat_visits", "flat_seen", "flat_counts"):
        np.testing.assert_array_equal(getattr(record, name), getattr(other, name))


@st.composite
def deliveries(draw, task, rewards, duplicates=True):
    """How far answers may be late, and for every slot what arrives in it: (slot, arm, state, reward), in some order.

    No more arms than are pulled are seen in a slot. Some slots are never heard of.
    """
    late, slots = draw(st.integers(0, 9)), draw(st.integers(1, 30))
    arriving = [[] for _ in range(slots + late)]
    for slot in range(1, slots + 1):
        arms = draw(st.sets(st.integers(0, task.n_arms - 1), max_size=task.plays))
        for arm in sorted(arms):
            answer = slot, arm, draw(st.integers(0, task.n_states[arm] - 1)), draw(rewards)
            for delay in draw(st.lists(st.integers(0, late), min_size=1, max_size=1 + duplicates)):
                arriving[slot + delay - 1].append(answer)
    return late, [draw(st.permutations(answers)) for answers in arriving]


def in_order(task, arriving):
    """The record of the same answers, each in its own slot."""
    known = {answer for answers in arriving for answer in answers}
    record = Record.of(task)
    for slot in range(1, len(arriving) + 1):
        own = [rest for at, *rest in sorted(known) if at == slot]
        record.observe(*([seen[k] for seen in own] for k in range(3)))
    return record


@settings(max_examples=100)
@given(deliveries(THREE.task(), st.floats(0, 1), duplicates=False))
def test_a_late_answer_is_entered_at_its_own_slot(delivered):
    """Whatever the rewards: sums are added in the order of slots, to the last bit."""
    late, arriving = delivered
    task = THREE.task()
    record = Record.of(task)
    buffer = FeedbackBuffer(record, late)
    for present, answers in enumerate(arriving, start=1):
        now = [answer[1:] for answer in answers if answer[0] == present]
        columns = [[seen[k] for seen in now] for k in range(3)]
        record.observe(*columns)
        buffer.note(record, *columns)
        for answer in answers:
            if answer[0] < present:
                buffer.enter(record, *answer)
        buffer.finalize(record)
        again = FeedbackBuffer.from_dict(task, record, json.loads(json.dumps(buffer.to_dict())))
        assert list(again.observations()) == list(buffer.observations())
    expected = in_order(task, arriving)
    assert record.to_dict() == expected.to_dict()
    same_as_anew(record, task)


@settings(max_examples=60)
@given(delivered=deliveries(PLAIN.task(), st.sampled_from([0.0, 1.0])), spec=st.sampled_from(["ts-4", "round-robin"]))
def test_an_agent_told_in_any_order_has_the_record_of_the_right_one(delivered, spec):
    """Answers are permuted, doubled, delayed, told arm by arm, and told by name or number."""
    late, arriving = delivered
    one = agent(spec, PLAIN, late=late)
    for present, answers in enumerate(arriving, start=1):
        if present % 3:
            one.ask()
        passed = False
        # Those of earlier slots first: telling the present one lets it pass. Without a window nothing can be told then.
        for at, arm, state, reward in sorted(answers, key=lambda answer: answer[0] == present) if late else ():
            one.tell(state, reward, PLAIN.arms[arm].name if present % 2 else arm, slot=at)
            passed |= at == present
        if answers and not late:
            _, arms, states, rewards = (list(column) for column in zip(*dict.fromkeys(answers), strict=True))
            one.tell(states, rewards, arms)
        elif not passed:
            one.skip()
        assert one.slots == present
    assert seen_of(one) == seen_of_record(in_order(PLAIN.task(), arriving))
    same_as_anew(one.record, one.task)


class TestWhatIsOpen:
    def test_decisions_without_an_answer(self):
        one = agent("round-robin", late=3)
        assert one.open == []
        assert one.ask() == 0
        assert one.open == [Decision(1, (0,), ("arm 1",))]
        one.skip()
        assert [decision.slot for decision in one.open] == [1]
        one.ask()
        one.tell(lost=True)
        assert [decision.slot for decision in one.open] == [1]
        one.ask()
        assert [decision.slot for decision in one.open] == [1, 3]
        one.tell(0, 1, slot=1)
        one.tell(1, 0, slot=3)
        assert one.open == []
        assert one.slots == 3
        one.tell(0, 1, arm="arm 2", slot=2)  # what was given up came all the same
        assert one.record.pulls.tolist() == [1, 2] or one.record.pulls.tolist() == [2, 1]

    def test_the_window_closes(self):
        one = agent(late=3)
        one.ask()
        one.skip(3)
        assert [decision.slot for decision in one.open] == [1]
        one.skip()
        assert one.open == []
        with pytest.raises(ProblemError, match="slot 1 is too long ago: feedback may come 3 slots late, and slot 2 is"):
            one.tell(0, 1, arm=0, slot=1)
        one.tell(0, 1, arm=0, slot=2)

    def test_part_of_a_decision(self):
        one = agent(problem=PLAIN)
        assert one.ask() == (0, 1)
        one.tell(0, 1.0, "arm 2", slot=1)
        assert one.open == [Decision(1, (0,), ("arm 1",))]
        one.tell(arm=0, slot=1, lost=True)
        assert one.open == []
        one.tell([1, 0], [0.0, 1.0], slot=1)
        assert one.record.pulls.tolist() == [1, 1, 0]

    def test_an_override_answers_the_decision(self):
        one = agent()
        one.ask()
        one.skip()
        one.tell(0, 1, arm="arm 2", slot=1)
        assert one.open == []
        with pytest.raises(ProblemError, match="slot 1 has its answer, of 'arm 2'; one arm is pulled a slot"):
            one.tell(0, 1, slot=1)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (dict(state=0, reward=1, slot=9), "slot 9 is in the future; the present slot is 4"),
        (dict(state=0, reward=1, slot=0), "slot is 0; it must be a positive whole number"),
        (dict(state=0, reward=1, slot=1.5), "slot is 1.5"),
        (dict(state=0, reward=1, slot=3), "no decision was asked for in slot 3; name the arm that was pulled"),
        (
            dict(state=1, reward=0, slot=1),
            "slot 1: arm 'arm 1' was reported in state 0 with reward 1, and now in state 1",
        ),
        (
            dict(state=0, reward=0, slot=1, arm=0),
            "with reward 1, and now in state 0 with reward 0; the first report",
        ),
        (dict(state=0, reward=1, slot=1, arm=1), "slot 1 has its answer, of 'arm 1'"),
        (dict(lost=True, slot=1, arm=0), "slot 1: arm 'arm 1' was told before, so its answer is not lost"),
        (dict(lost=True, slot=2, arm=0), "slot 2: arm 'arm 1' was not asked for"),
        (dict(lost=True, state=0), "lost feedback has no state"),
        (dict(state=0, reward=1, arm="arm3"), "there is no arm 'arm3'; did you mean"),
        (dict(state=0), "reward None is not a number"),
    ],
)
def test_impossible_tells_change_nothing(told, message):
    one = agent()
    one.ask()
    one.tell(0, 1)
    one.ask()
    one.skip()
    one.skip()
    one.ask()
    before = json.dumps(one.to_dict())
    with pytest.raises(ProblemError, match=message):
        one.tell(**told)
    assert json.dumps(one.to_dict()) == before


@pytest.mark.parametrize("spec", SPECS)
def test_a_saved_agent_goes_on_with_the_same_decisions(spec, tmp_path):
    """Answers late and lost; saved and loaded at every seventh slot, twins decide alike."""
    rng = np.random.default_rng(3)
    world = reference.World(PAPER, world_words(1, PAPER.content, 0))
    one, other = (agent(spec, seed=4, late=6) for _ in range(2))
    underway = []
    for slot in range(1, 151):
        arm = one.ask()
        assert other.ask() == arm
        (state,), (reward,) = world.pull([arm])
        fate = rng.random()
        if fate < 0.5:
            for each in (one, other):
                each.tell(state, reward)
        elif fate < 0.6:
            for each in (one, other):
                each.tell(lost=True)
        else:
            for each in (one, other):
                each.skip()
            underway.append((slot + int(rng.integers(1, 6)), dict(state=state, reward=reward, slot=slot)))
        for _, answer in [late for late in underway if late[0] == slot]:
            for each in (one, other):
                each.tell(**answer)
        if slot % 7 == 0:
            other.save(tmp_path / f"{slot}.json")
            other = Agent.load(tmp_path / f"{slot}.json")
            assert other.open == one.open
    assert json.dumps(other.to_dict()) == json.dumps(one.to_dict())


def test_a_late_answer_ends_the_plan_with_the_slot_in_which_it_came(tmp_path):
    one = agent("restless-ucb:m=1", horizon=1000)
    one.tell(0, 1, arm=0)
    one.ask()
    one.skip()
    one.tell(0, 1, arm=0)
    assert one.record.plans == 0
    one.tell(1, 0, arm=0, slot=2)  # Both states were left within a slot now.
    assert one.record.plans == 0
    one.save(tmp_path / "agent.json")
    for each in (one, Agent.load(tmp_path / "agent.json")):
        each.skip()
        assert each.record.plan_lengths == [4]


def test_what_was_seen_after_a_slot():
    one = agent(late=3)
    for slot in range(1, 8):
        one.tell(slot % 2, 0, arm=slot % 2)
    one.skip()
    assert [tuple(observation) for observation in one.observations()] == [(6, 0, 0, 2, 0, 0.0), (7, 1, 1, 2, 1, 0.0)]
    assert [observation.slot for observation in one.observations(since=6)] == [7]


def test_a_record_filled_by_hand_is_settled():
    one = agent()
    one.record.observe([0, 1], [0, 1], [1.0, 0.0])
    with pytest.raises(ProblemError, match="slot 1 is too long ago"):
        one.tell(0, 1, arm=0, slot=1)
    one.tell(0, 1, arm=0)
    one.skip()
    one.tell(1, 0, arm=0, slot=3)
    assert one.record.transitions(0).tolist() == [[1, 1], [1, 0]]


def test_every_change_of_an_arm_changes_its_pulls():
    """By which learners see that it must be fitted anew, though its last slot stays."""
    one = agent()
    one.skip()
    one.tell(0, 1, arm=0)
    last, pulls = one.record.last_slot.tolist(), one.record.pulls.tolist()
    one.tell(1, 0, arm=0, slot=1)
    assert one.record.last_slot.tolist() == last
    assert one.record.pulls.tolist() == [pulls[0] + 1, pulls[1]]


def test_a_jump_that_a_late_answer_shows_is_told():
    """The arm was not pulled since the last look."""
    problem = Problem.random(2, 3, seed=1)
    task = problem.task()
    record = Record.of(task)
    buffer = FeedbackBuffer(record, 100)
    for slot in range(1, 9):
        arm = int(slot > 4)
        record.observe([arm], [0], [1.0]) if slot != 3 else record.skip(1)
        if slot != 3:
            buffer.note(record, [arm], [0], [1.0])
    record.plan_lengths = [1, 7]
    record.remember(warn_of_violations("name", record.frozen(), task))
    buffer.enter(record, 3, 0, 2, 1.0)
    record.skip(2)
    record.plan_lengths = [1, 7, 1, 1]
    with pytest.warns(
        RuntimeWarning, match="'arm 1' violates Assumption 2: it was seen to jump from state 0 to state 2"
    ):
        warn_of_violations("name", record.frozen(), task)


def test_the_window_may_be_changed_at_any_slot(tmp_path):
    one = agent(history=tmp_path / "h.jsonl")
    for _ in range(10):
        one.ask()
        one.skip()
    one.late = 4
    with pytest.raises(ProblemError, match="slot 6 is too long ago"):
        one.tell(0, 1.0, slot=6)
    one.tell(0, 1.0, slot=7)
    one.late = 100
    with pytest.raises(ProblemError, match="slot 7 is the first that still accepts feedback"):
        one.tell(0, 1.0, slot=2)
    with pytest.raises(ProblemError, match="late is -1"):
        one.late = -1
    again = Agent.replay(tmp_path / "h.jsonl")
    assert again.late == 100
    assert again.to_dict() == one.to_dict()
    forgetful = agent(memory=512, late=100)
    with pytest.raises(ProblemError, match="too few for feedback that may come"):
        forgetful.late = 512
