"""The contract of the service, a class for each subject: clock, ask, tell, late and lost feedback, arms, batches."""

import json
import threading

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.model.tasks import Task
from restless_bandits.service import clock
from restless_bandits.service.agent import ServiceAgent
from restless_bandits.service.audit import audit
from restless_bandits.service.operations import Ask, Create, Patch, ServiceError, Skip, Tell
from restless_bandits.service.quotas import Quotas
from restless_bandits.service.views import belief_of, encoded, estimate_of
from tests.service.one_agent import GUARD, SECOND, Kept


def refused(status, fields=None):
    return pytest.raises(
        ServiceError, check=lambda error: error.status == status and error.field in (fields or [error.field])
    )


@pytest.fixture
def a(kept):
    agent = kept()
    agent.create()
    return agent


class TestClock:
    """Slots follow the asks, or the time since the agent was made."""

    def test_by_asking_every_new_decision_is_the_next_slot(self, a):
        assert [a.ask()["slot"] for _ in range(4)] == [1, 2, 3, 4]
        assert a.read()["slots"] == 3

    def test_a_slot_that_is_told_passes_too(self, a):
        a.tell(a.ask(), state=0, reward=1.0)
        assert a.read()["slots"] == 1
        assert a.ask()["slot"] == 2

    def test_slots_follow_the_time_since_the_agent_was_made(self, kept):
        a = kept()
        a.create(clock="1s")
        assert a.ask()["slot"] == 1
        a.time += 2 * SECOND + 1
        assert a.ask()["slot"] == 3
        a.time += SECOND - 2
        assert a.ask()["slot"] == 3, "the third second is not over"

    def test_an_ask_in_a_slot_that_has_its_decision_returns_it(self, kept):
        a = kept()
        a.create(clock="1s")
        first = a.ask("one")
        assert a.ask("two") == first
        a.tell(first, state=1, reward=0.0)
        assert a.ask("three") == first, "its answer came within the slot"
        a.time += 10 * SECOND
        later = a.ask("four")
        assert later["slot"] == 11
        a.reopen()
        assert [a.ask(request) for request in ("one", "two", "three", "four")] == [first, first, first, later]

    def test_slots_nobody_asked_in_pass_as_skipped(self, kept):
        a = kept()
        a.create(clock="250ms")
        first = a.ask()
        a.time += 5 * SECOND
        a.ask()
        assert [event["slots"] for event in a.log() if event["kind"] == "skip"] == [20]
        assert a.tell(first, state=0, reward=1.0)["used"], "late, but within the window"

    def test_time_that_goes_backwards_never_makes_a_slot_go_backwards(self, kept):
        a = kept()
        a.create(clock="1s")
        a.time += 50 * SECOND
        far = a.ask()
        a.time -= 30 * SECOND
        assert a.ask() == far
        a.tell(far, state=0, reward=1.0)
        assert a.ask() == far
        a.time += 31 * SECOND
        assert a.ask()["slot"] == 52

    @pytest.mark.parametrize("years", [1, -1])
    def test_a_clock_that_jumps_by_a_year_and_back_costs_nothing(self, kept, caplog, years):
        a = kept()
        started, slots, jump = a.time, [], 0
        a.create(clock="1s")
        a.writer.clock = clock.BoundedClock(lambda: a.time + jump, lambda: a.time - started)
        for jump in (0, 0, years * 366 * 86400 * SECOND, years * 366 * 86400 * SECOND, 0, 0):
            a.time += SECOND
            slots.append(a.ask()["slot"])
            assert a.writer.health()["clock_jump"] == a.writer.stats()["clock_jump_seconds"] == jump / SECOND
            assert a.writer.health()["status"] == ("degraded" if jump else "ok")
        assert slots == [2, 3, 4, 5, 6, 7]
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
        assert "jumped by" in caplog.text

    def test_an_agent_that_played_under_a_clock_ahead_is_named(self, kept, caplog):
        a = kept()
        a.create(clock="1s")
        a.time += 366 * 86400 * SECOND
        slot = a.ask()["slot"]
        a.tell(slot=slot, state=0, reward=1.0)
        assert a.writer.health()["status"] == "ok"
        a.time -= 366 * 86400 * SECOND
        a.reopen()
        assert a.read()["slots"] == slot
        assert a.ask()["slot"] == slot
        health = a.writer.health()
        assert (health["status"], health["ahead_of_clock"]) == ("degraded", ["a"])
        assert a.writer.stats()["agents_ahead"] == 1
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "ahead of the clock" in caplog.text
        a.delete()
        assert a.writer.submit("a", [Ask("1")]).exception(GUARD).status == 404
        assert a.writer.health()["status"] == "ok"

    @pytest.mark.parametrize("length", ["1ms", "366d"])
    def test_an_agent_in_the_slot_of_its_clock_is_not_ahead(self, kept, length):
        a = kept()
        a.create(clock=length)
        for _ in range(3):
            decision = a.ask()
            a.tell(decision, state=0, reward=1.0)
            a.time += clock.slot_length(length)
            a.read()
            assert a.writer.health()["ahead_of_clock"] == []

    def test_a_clock_is_followed_in_steps(self):
        wall, passed = [5 * SECOND], [0]
        bounded = clock.BoundedClock(lambda: wall[0], lambda: passed[0])
        for step in (1, 599 * SECOND, 3, -599 * SECOND, clock.LONGEST_JUMP):
            passed[0] += SECOND
            wall[0] += SECOND + step
            assert bounded() == wall[0]
            assert not bounded.jump
        wall[0] += clock.LONGEST_JUMP + 1
        assert bounded() == wall[0] - clock.LONGEST_JUMP - 1
        assert bounded.jump == clock.LONGEST_JUMP + 1

    def test_time_since_the_start_never_goes_backwards(self):
        times = [clock.steady() for _ in range(100)]
        assert times == sorted(times)

    def test_answers_are_late_by_the_clock_even_where_nobody_asks(self, kept):
        a = kept()
        a.create(clock="1s", late=5)
        first = a.ask()
        a.time += 7 * SECOND
        assert not a.tell(first, state=0, reward=1.0)["used"]

    def test_slots_that_pass_before_a_late_answer_are_in_the_log(self, kept):
        """Under a snapshot at every event: a skip that is only in memory would be in it and again in the log."""
        a = kept(snapshot_every=1)
        a.create(clock="20ms", late=100)
        decisions = []
        for _ in range(12):
            decisions.append(a.ask())
            a.time += 45_000
        a.time += 4 * SECOND
        for decision in decisions:
            assert not a.tell(decision, state=0, reward=1.0)["used"]
            assert [event["kind"] for event in a.log()].count("skip") == 12
        later, before = a.ask(), a.read()
        a.reopen()
        assert a.read() == before
        assert a.tell(later, state=0, reward=1.0)["used"]
        assert audit(a.store).same

    def test_nobody_skips_what_the_clock_lets_pass(self, kept):
        a = kept()
        a.create(clock="1s")
        with refused(409):
            a.skip()

    @pytest.mark.parametrize("bad", ["1", "s", "0s", "-1s", "1y", "400d", "1e3s", "", "ask ", "٣s"])
    def test_what_is_no_clock(self, kept, bad):
        with refused(422):
            kept().create(clock=bad)

    def test_lengths(self):
        lengths = [clock.slot_length(text) for text in ("1ms", "1.5s", "2m", "1h", "1d", "ask")]
        assert lengths == [1_000, 1_500_000, 120_000_000, 3_600_000_000, 86_400_000_000, None]


class TestAsk:
    """One request id has one decision."""

    def test_the_same_id_gets_the_same_decision_for_ever(self, a):
        first = a.ask("mine")
        others = [a.ask() for _ in range(300)]
        assert a.ask("mine") == first
        a.reopen()
        assert a.ask("mine") == first
        assert len({other["decision"] for other in [first, *others]}) == 301

    def test_it_answers_decision_slot_arms_and_plan(self, a):
        answer = a.ask()
        assert answer == {"decision": "1-1", "slot": 1, "arms": ["x"], "numbers": [0], "plan": 1}
        plan = next(event for event in a.log() if event["kind"] == "plan")
        assert (plan["plan"], plan["slot"]) == (1, 1)

    def test_several_plays(self, kept):
        a = kept()
        a.create(arms="xyz", plays=2)
        answer = a.ask()
        assert answer["arms"] == ["x", "y"]
        assert answer["numbers"] == [0, 1]

    def test_an_id_that_was_no_ask_is_refused(self, a):
        a.skip(2, "mine")
        with refused(409):
            a.ask("mine")

    def test_decisions_are_those_of_an_agent_in_a_loop(self, a):
        task = Task(("x", "y") and (2, 2), 1, ("bernoulli",) * 2, (None, None), ("x", "y"))
        twin = rb.Agent("ucb1", task, seed=5)
        draws = np.random.default_rng(3)
        for _ in range(60):
            answer = a.ask()
            assert answer["numbers"] == [twin.ask()]
            seen = {"state": int(draws.integers(2)), "reward": float(draws.integers(2))}
            a.tell(answer, **seen)
            twin.tell(**seen)
        assert a.record() == twin.record.to_dict()


class TestTell:
    """Equal feedback for a decision is a duplicate, other feedback a conflict."""

    def test_the_identical_message_again_gets_the_stored_answer(self, a):
        decision = a.ask()
        answer = a.tell(decision, state=1, reward=0.0)
        assert answer == {"decision": "1-1", "slot": 1, "used": True}
        count = len(a.log())
        assert a.tell(decision, state=1, reward=0.0) == answer
        a.reopen()
        assert a.tell(decision, state=1, reward=0) == answer
        assert len(a.log()) == count

    def test_other_content_is_refused_and_changes_nothing(self, a):
        decision = a.ask()
        a.tell(decision, state=1, reward=0.0)
        before = a.log(), a.record()
        for other in (
            {"state": 0, "reward": 0.0},
            {"state": 1, "reward": 1.0},
            {"lost": True},
            {"state": 1, "reward": 0.0, "arm": "y"},
        ):
            with refused(409):
                a.tell(decision, **other)
        assert (a.log(), a.record()) == before

    def test_the_slot_may_be_named_instead(self, a):
        a.ask()
        assert a.tell(slot=1, state=1, reward=0.0)["decision"] == "1-1"

    def test_what_was_really_pulled(self, a):
        decision = a.ask()
        assert decision["arms"] == ["x"]
        a.tell(decision, state=1, reward=1.0, arm="y")
        assert [arm["pulls"] for arm in a.read()["task"]["arms"]] == [0, 1]
        assert a.read()["open"] == []
        assert a.tell(decision, state=1, reward=1.0, arm=1)["used"], "the same arm, by its number"

    def test_several_plays_may_be_told_one_by_one(self, kept):
        a = kept()
        a.create(arms="xyz", plays=2)
        decision = a.ask()
        a.tell(decision, state=1, reward=1.0, arm="y")
        assert [one["arms"] for one in a.read()["open"]] == [["x"]]
        a.tell(decision, state=0, reward=0.0, arm="x")
        assert a.read()["open"] == []
        a.tell(a.ask(), state=[0, 1], reward=[1.0, 0.0])
        assert a.read()["told"] == 4

    @pytest.mark.parametrize(
        "decision", ["1-2", "2-1", "1-0", "1-01", "1", "-1", "1-", "1--1", "1-1 ", "x", "", "1-٣", "9" * 99]
    )
    def test_there_is_no_such_decision(self, a, decision):
        a.ask()
        with refused(404, ["decision"]):
            a.tell(decision, state=0, reward=0.0)

    def test_neither_decision_nor_slot(self, a):
        with refused(422, ["decision"]):
            a.tell(state=0, reward=0.0)

    def test_a_slot_that_is_not_that_of_the_decision(self, a):
        a.ask()
        with refused(422, ["slot"]):
            a.tell("1-1", slot=2, state=0, reward=0.0)

    @pytest.mark.parametrize(
        "seen",
        [
            {},
            {"state": 2, "reward": 0.0},
            {"state": -1, "reward": 0.0},
            {"state": 0},
            {"state": 0, "reward": 0.5},
            {"state": 0, "reward": 0.0, "arm": "z"},
            {"state": 0, "reward": 0.0, "arm": 2},
            {"state": [0], "reward": [0.0]},
            {"state": 0, "reward": 0.0, "lost": True},
        ],
    )
    def test_what_cannot_have_been_seen(self, a, seen):
        decision, before = a.ask(), a.log()
        with refused(422):
            a.tell(decision, **seen)
        assert a.log() == [*before, *a.log()[len(before) :]]
        assert "tell" not in a.kinds()


class TestLate:
    """Late feedback counts at its own slot, or is kept unused; test_order.py is about the order."""

    def test_older_ones_are_kept_marked_and_the_answer_says_so(self, kept):
        a = kept()
        a.create(late=3)
        first, second, third = (a.ask() for _ in range(3))
        for _ in range(4):
            a.ask()
        before = a.record()
        answer = a.tell(first, state=1, reward=1.0)
        assert answer["used"] is False
        assert "more than 3 slots ago" in answer["reason"]
        assert a.record() == before
        assert a.log()[-1] == {
            "seq": len(a.log()),
            "kind": "tell",
            "slot": 1,
            "arms": [0],
            "states": [1],
            "rewards": [1.0],
            "unused": True,
            "late": 3,
            "decision": "1-1",
        }
        count = len(a.log())
        a.reopen()
        assert a.tell(first, state=1, reward=1.0) == answer, "the same again: the stored answer"
        with refused(409):
            a.tell(first, state=0, reward=1.0)
        with refused(409):
            a.tell(first, lost=True)
        with refused(422):
            a.tell(second, state=7, reward=1.0)
        assert len(a.log()) == count
        assert a.tell(second, lost=True)["used"] is False
        assert a.tell(second, lost=True)["used"] is False
        assert a.tell(third, state=1, reward=1.0, arm="y")["used"] is False
        assert a.read()["unused"] == 2
        a.patch(late=2)
        assert a.tell(first, state=1, reward=1.0) == answer, "in the words of that time"
        assert audit(a.store).same

    def test_what_was_told_in_time_stays_so(self, kept):
        a = kept()
        a.create(late=2)
        first = a.ask()
        answer = a.tell(first, state=1, reward=1.0)
        for _ in range(5):
            a.ask()
        assert a.tell(first, state=1, reward=1.0) == answer
        with refused(409):
            a.tell(first, state=0, reward=1.0)

    def test_an_answer_to_a_slot_nobody_asked_in(self, kept):
        a = kept()
        a.create(late=2)
        a.skip(5)
        with refused(404):
            a.tell(slot=1, state=0, reward=0.0)
        assert a.tell(slot=1, state=0, reward=0.0, arm="x")["used"] is False
        assert a.tell(slot=5, state=0, reward=0.0, arm="x")["used"] is True

    def test_the_window_is_1024_slots_and_can_be_changed(self, a):
        assert a.read()["late"] == 1024
        decisions = [a.ask() for _ in range(12)]
        a.patch(late=5)
        assert a.tell(decisions[5], state=0, reward=0.0)["used"] is False
        assert a.tell(decisions[6], state=0, reward=0.0)["used"] is True
        a.patch(late=100)
        assert a.tell(decisions[4], state=0, reward=0.0)["used"] is False, "what is settled stays so"
        a.reopen()
        assert a.read()["late"] == 100


class TestLost:
    """Lost feedback changes no estimate, and slots go on."""

    def test_it_teaches_nothing_and_slots_go_on(self, a):
        decision = a.ask()
        assert a.tell(decision, lost=True) == {"decision": "1-1", "slot": 1, "used": True}
        record = a.record()
        assert record["slots"] == 1
        assert record["counts"] == [[], []]
        assert record["rewards"] == [0.0] * 4
        assert a.read()["open"] == []
        assert a.tell(decision, lost=True)["used"]
        assert a.kinds() == ["ask", "lost"]

    def test_it_may_come_all_the_same(self, a):
        decision = a.ask()
        a.tell(decision, lost=True)
        a.ask()
        a.tell(decision, state=1, reward=1.0)
        assert a.read()["told"] == 1

    @pytest.mark.parametrize("late", [100, 1])
    @pytest.mark.parametrize("arm", [None, "x"])
    def test_the_same_again_gets_the_stored_answer_whatever_came_since(self, kept, late, arm):
        a = kept()
        a.create(late=late)
        decision = a.ask()
        assert decision["arms"] == ["x"]
        answer = a.tell(decision, lost=True, arm=arm)
        a.tell(decision, state=1, reward=1.0)
        count = len(a.log())
        for _ in range(2):
            assert a.tell(decision, lost=True, arm=arm) == answer
            a.reopen()
        with refused(409):
            a.tell(decision, lost=True, arm="y")
        assert len(a.log()) == count
        for _ in range(3):
            a.ask()
        assert a.tell(decision, lost=True, arm=arm) == answer

    def test_what_was_told_and_never_lost_is_not_lost(self, kept):
        a = kept()
        a.create(arms="xyz", plays=2)
        decision = a.ask()
        a.tell(decision, lost=True, arm=decision["arms"][0])
        a.tell(decision, state=1, reward=1.0, arm=decision["arms"][1])
        a.tell(decision, state=1, reward=1.0, arm=decision["arms"][0])
        assert a.tell(decision, lost=True, arm=decision["arms"][0])["used"]
        with refused(409):
            a.tell(decision, lost=True, arm=decision["arms"][1])

    def test_no_answer_at_all(self, a):
        for _ in range(20):
            a.ask()
        assert a.record()["rewards"] == [0.0] * 4
        assert len(a.read()["open"]) == 20


class TestArms:
    """Arms come and go while the agent runs."""

    def test_what_is_known_of_the_others_stays(self, a):
        for _ in range(20):
            a.tell(a.ask(), state=1, reward=1.0)
        pulls = [arm["pulls"] for arm in a.read()["task"]["arms"]]
        a.patch(add_arm={"name": "z", "n_states": 3})
        assert [arm["pulls"] for arm in a.read()["task"]["arms"]] == [*pulls, 0]
        assert a.ask()["arms"] == ["z"], "ucb1 pulls what it has never pulled"

    def test_a_retired_arm_comes_back_with_its_record(self, a):
        for _ in range(10):
            a.tell(a.ask(), state=1, reward=1.0)
        a.patch(retire_arm="x")
        assert {a.ask()["arms"][0] for _ in range(10)} == {"y"}
        a.reopen()
        a.patch(restore_arm="x")
        assert [arm["pulls"] for arm in a.read()["task"]["arms"]] == [5, 5]
        assert audit(a.store).same

    def test_the_same_again_is_no_mistake(self, a):
        a.patch(add_arm="z")
        a.patch(retire_arm="x")
        count = len(a.log())
        a.patch(add_arm="z")
        a.patch(retire_arm="x")
        assert len(a.log()) == count
        with refused(422, ["add_arm"]):
            a.patch(add_arm={"name": "z", "n_states": 3})
        with refused(422, ["add_arm"]):
            a.patch(add_arm="x")

    def test_too_few_would_stay(self, a):
        a.patch(retire_arm="x")
        with refused(422, ["retire_arm"]):
            a.patch(retire_arm="y")
        with refused(422, ["restore_arm"]):
            a.patch(restore_arm="nobody")

    def test_a_change_that_fails_leaves_none_of_the_others(self, a):
        before = a.read()
        with refused(422):
            a.patch(late=7, on_change="forget", retire_arm="nobody")
        assert a.read() == before


class TestLearner:
    """A new learner reads the whole record."""

    def test_it_may_be_exchanged_at_any_time(self, a):
        for _ in range(10):
            a.tell(a.ask(), state=1, reward=1.0)
        assert a.patch(learner="round-robin")["learner"] == "round-robin"
        assert a.patch(on_change="forget")["on_change"] == "forget"
        arms = []
        for _ in range(4):
            decision = a.ask()
            arms += decision["arms"]
            a.tell(decision, state=1, reward=1.0)
        assert arms in (["x", "y", "x", "y"], ["y", "x", "y", "x"])
        assert [event for event in a.kinds() if event == "learner"] == ["learner"] * 2
        a.reopen()
        assert a.read()["learner"] == "round-robin"
        assert audit(a.store).same

    def test_one_that_cannot_play_is_refused(self, a):
        with refused(422, ["learner"]):
            a.patch(learner="informed")
        with refused(422, ["learner"]):
            a.patch(learner="nobody")
        with refused(422, ["colour"]):
            a.patch(colour="red")


class TestBatch:
    """A batch takes effect as a whole, or not at all."""

    def test_many_asks_and_tells(self, a):
        answers = a.do(Ask("1"), Ask("2"), Tell("1-1", state=0, reward=1.0), Ask("3"), Tell("1-2", lost=True), Skip(2))
        assert [answer.get("slot", answer.get("slots")) for answer in answers] == [1, 2, 1, 3, 2, 4]
        assert a.do(Ask("1"), Ask("2"))[1]["slot"] == 2

    def test_all_or_nothing(self, a):
        a.tell(a.ask(), state=0, reward=1.0)
        before = a.read(), a.log(), a.record()
        with refused(404):
            a.do(Ask("p"), Tell("1-2", state=0, reward=0.0), Patch({"late": 9}), Tell("1-77", state=0, reward=0.0))
        with refused(422):
            a.do(Ask("p"), Tell("1-2", state=0, reward=0.3))
        with refused(409):
            a.do(Ask("p"), Tell("1-1", state=1, reward=0.0))
        assert (a.read(), a.log(), a.record()) == before
        assert a.ask("p")["slot"] == 2

    def test_others_of_the_group_are_not_undone(self, a):
        good = [a.writer.submit("a", [Ask(f"good {i}")]) for i in range(5)]
        bad = a.writer.submit("a", [Ask("bad"), Tell("1-999", state=0, reward=0.0)])
        more = [a.writer.submit("a", [Ask(f"more {i}")]) for i in range(5)]
        slots = [future.result(GUARD)[0]["slot"] for future in good + more]
        with refused(404):
            bad.result(GUARD)
        assert slots == list(range(1, 11))
        assert audit(a.store).same

    def test_a_batch_may_begin_with_the_agent(self, kept):
        a = kept()
        with refused(404):
            a.do(Create("a", ["x", "y"], learner="ucb1"), Ask("1"), Tell("1-9", state=0, reward=0.0))
        with refused(404):
            a.read()
        answers = a.do(Create("a", ["x", "y"], learner="ucb1"), Ask("1"))
        assert answers[1]["slot"] == 1


class TestAudit:
    """9; what differs is the matter of test_audit.py"""

    def test_the_whole_log_is_played_again(self, a):
        for i in range(30):
            decision = a.ask()
            if i % 3:
                a.tell(decision, state=i % 2, reward=1.0)
        found = audit(a.store)
        assert found.same
        assert (found.agents, found.events, found.decisions) == (1, len(a.log()), 30)


class TestAgents:
    def test_the_same_words_again_make_no_second_agent(self, a):
        assert a.create()["seq"] == 1
        for other in ({"seed": 6}, {"late": 3}, {"arms": "xz"}, {"learner": "round-robin"}):
            with refused(409, ["name"]):
                a.create(**other)
        b = a.do(Create("a", ["x", "y"], learner="ucb1", seed=5))
        assert b[0]["seed"] == 5

    def test_without_a_seed_one_is_drawn(self, kept):
        a = kept()
        made = a.create(seed=None)
        assert a.create(seed=None)["seed"] == made["seed"]
        a.delete()
        assert a.create(seed=None)["seed"] != made["seed"]

    def test_a_name_may_be_used_again(self, a):
        old = a.ask("mine")
        a.delete()
        for look in (a.read, a.log, a.ask):
            with refused(404):
                look()
        a.create()
        new = a.ask("mine")
        assert new["decision"] != old["decision"]
        with refused(404):
            a.tell(old, state=0, reward=0.0)
        assert audit(a.store).agents == 2

    def test_delete_and_create_at_once(self, a):
        from restless_bandits.service.operations import Delete

        futures = [a.writer.submit("a", [Delete()]), a.writer.submit("a", [Create("a", ["p", "q"], learner="ucb1")])]
        assert futures[0].result(GUARD) == [{"deleted": "a"}]
        assert [arm["name"] for arm in futures[1].result(GUARD)[0]["task"]["arms"]] == ["p", "q"]

    def test_nobody_of_this_name(self, a):
        with refused(404):
            a.writer.agent("b")
        with refused(404):
            a.writer.events("b")
        with refused(404):
            a.writer.submit("b", [Ask("1")]).result(GUARD)

    def test_the_list(self, a):
        a.writer.submit("b", [Create("b", ["x"], learner="round-robin", clock="1m")]).result(GUARD)
        a.ask()
        assert [(one["name"], one["clock"], one["arms"], one["seq"]) for one in a.writer.agents()] == [
            ("a", "ask", 2, 3),
            ("b", "1m", 1, 1),
        ]

    @pytest.mark.parametrize(
        "bad",
        [
            {"arms": ()},
            {"arms": "xx"},
            {"arms": [""]},
            {"arms": [{"name": "x", "reward_law": "odd"}]},
            {"plays": 3},
            {"learner": "nobody"},
            {"learner": "informed"},
            {"late": -1},
            {"on_change": "cry"},
            {"memory": 3},
            {"reward_range": (1.0, 0.0)},
            {"n_states": 0},
            {"n_states": 101},
            {"horizon": 0},
        ],
    )
    def test_what_cannot_be_made_leaves_nothing(self, kept, bad):
        a = kept()
        with refused(422):
            a.create(**bad)
        assert a.writer.agents() == []

    def test_arms_of_several_kinds(self, kept):
        a = kept()
        made = a.create(arms=[{"name": "x", "n_states": 3}, "y"], reward_law="bounded", reward_range=(-1.0, 2.0))
        assert [arm["n_states"] for arm in made["task"]["arms"]] == [3, 2]
        a.tell(a.ask(), state=2, reward=-0.5)
        assert a.read()["reward"] == -0.5


class TestLimits:
    def test_each_is_refused_in_a_sentence(self, kept):
        a = kept(quotas=Quotas(agents=1, arms=3, open_decisions=4, batch=5))
        with refused(422, ["arms"]):
            a.create(arms="wxyz")
        a.create(arms="xyz")
        with refused(429):
            a.writer.submit("b", [Create("b", ["x"], learner="ucb1")]).result(GUARD)
        with refused(422, ["add_arm"]):
            a.patch(add_arm="w")
        with refused(413):
            a.do(*[Ask(str(i)) for i in range(6)])
        decisions = [a.ask() for _ in range(4)]
        with refused(429) as caught:
            a.ask()
        assert caught.value.retry_after
        a.tell(decisions[1], lost=True)
        assert a.ask()["slot"] == 5

    def test_decisions_that_are_too_old_are_no_longer_open(self, kept):
        a = kept(quotas=Quotas(open_decisions=4))
        a.create(late=3)
        assert [a.ask()["slot"] for _ in range(20)] == list(range(1, 21))
        a.reopen()
        assert a.ask()["slot"] == 21

    @pytest.mark.parametrize("word", ["", "x" * 201, "a\0b", "\ud800"])
    def test_words_that_no_database_can_hold(self, a, word):
        before = a.log()
        for operation in (Ask(word), Skip(1, word)):
            with refused(422, ["request"]):
                a.do(operation)
        with refused(404):
            a.writer.submit(word, [Ask("1")]).result(GUARD)
        with refused(404):
            a.writer.agent(word)
        with refused(404):
            a.writer.events(word)
        assert a.log() == before

    def test_a_window_that_would_take_all_memory(self, kept):
        a = kept()
        with refused(422, ["late"]):
            a.create(late=10**9)
        a.create()
        with refused(422, ["late"]):
            a.patch(late=10**9)


class TestWatching:
    def test_events_come_in_pages(self, a):
        for _ in range(5):
            a.tell(a.ask(), state=0, reward=0.0)
        first = a.writer.events("a", limit=4)
        assert [event["seq"] for event in first["events"]] == [1, 2, 3, 4]
        rest = a.writer.events("a", after=first["next"])
        assert [event["seq"] for event in rest["events"]] == list(range(5, 13))
        assert a.writer.events("a", after=rest["next"]) == {"events": [], "next": 12}

    def test_listeners_hear_of_every_commit(self, a):
        heard = []
        stop = a.writer.listen("a", heard.append)
        a.ask()
        a.ask("again")
        a.ask("again")
        a.read()
        stop()
        a.ask()
        # Somebody who has only begun to listen may be told where the log is.
        assert [seq for seq in dict.fromkeys(heard) if seq > 1] == [3, 5]

    def test_listeners_hear_of_what_another_process_does(self, a):
        heard = threading.Semaphore(0)
        seqs = []
        stop = a.writer.listen("a", lambda seq: (seqs.append(seq), heard.release()))
        other = Kept(a.where)
        other.ask()
        while 3 not in seqs:
            assert heard.acquire(timeout=GUARD)
        stop()
        other.close()

    def test_estimates_and_beliefs(self, a):
        def seen(view):
            return json.loads(encoded(view, a.writer.read("a", ServiceAgent.packed_known)))["arms"]

        for i in range(40):
            a.tell(a.ask(), state=i // 2 % 2, reward=1.0)
        found = seen(estimate_of)
        assert [arm["observations"] for arm in found] == [19, 19], (
            "the first time an arm is seen says nothing of its moves"
        )
        assert np.allclose(np.sum(found[0]["transitions"], axis=1), 1)
        distribution = seen(belief_of)[1]["law"]
        assert np.isclose(sum(distribution), 1)
        a.patch(add_arm="z")
        assert seen(belief_of)[2]["law"] is None

    def test_numbers_for_those_who_watch(self, a):
        a.ask()
        stats = a.writer.stats()
        assert stats["commits_total"] == 2
        assert stats["events_total"] == 3
        assert a.writer.health()["status"] == "ok"


def test_a_keeper_that_has_ended_says_so(tmp_path, at_once):
    a = Kept(tmp_path / "s.db")
    a.create()
    a.writer.stop()
    with refused(503):
        a.ask()
    with refused(503):
        a.read()
    with refused(503):
        a.writer.health()
    a.store.close()
