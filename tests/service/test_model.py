"""An agent in memory, from a snapshot and the log after it, and from its whole log is the same after every step.

Two keepers on one store carry out random operations, refused ones among them, under clocks of both kinds.
"""

import json
import shutil
import tempfile
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from restless_bandits._internal import background
from restless_bandits.service import agent, agent_cache, planning
from restless_bandits.service.agent import ServiceAgent
from restless_bandits.service.agent_cache import of_snapshot, snapshot_of
from restless_bandits.service.audit import audit, first_difference
from restless_bandits.service.operations import Ask, Patch, ServiceError, Skip, Tell
from restless_bandits.service.planning import Planner
from restless_bandits.service.quotas import Quotas
from tests.service.one_agent import SECOND, Kept

LEARNERS = ("ucb1", "likelihood-ucb", "round-robin", "ts")
NAMES = ("w", "x", "y", "z")


class Slow(Future):
    """A plan that is there at once, and seems not to be the first few times that somebody asks."""

    def __init__(self, times):
        super().__init__()
        self.times = times

    def done(self):
        self.times -= 1
        return self.times < 0


def plan_slowly(work, *given):
    promise = Slow(len(given[1].plan_lengths) % 4)
    try:
        promise.set_result(background.with_warnings(work, *given))
    except Exception as error:
        promise.set_exception(error)
    return promise


def as_json(agent):
    return json.loads(json.dumps(agent.to_dict()))


tells = st.tuples(
    st.integers(0, 12),
    st.integers(0, 1),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([None, None, None, "x", "y", "nobody"]),
    st.booleans(),
)
patches = st.dictionaries(
    st.sampled_from(["learner", "late", "on_change", "add_arm", "retire_arm", "restore_arm"]), st.none(), min_size=1
).flatmap(
    lambda fields: st.fixed_dictionaries(
        {
            field: {
                "learner": st.sampled_from(LEARNERS),
                "late": st.integers(0, 12),
                "on_change": st.sampled_from(["warn", "forget", "forget-all", "ignore"]),
            }.get(field, st.sampled_from(NAMES))
            for field in fields
        }
    )
)
operations = st.one_of(
    st.tuples(st.just("ask"), st.booleans()),
    st.tuples(st.just("tell"), tells),
    st.tuples(st.just("skip"), st.one_of(st.integers(1, 30), st.integers(1, 900))),
    st.tuples(st.just("patch"), patches),
)


class Model(RuleBasedStateMachine):
    @initialize(
        clock=st.sampled_from(["ask", "20ms", "1s"]),
        late=st.integers(0, 12),
        learner=st.sampled_from(LEARNERS),
        plays=st.sampled_from([1, 1, 2]),
        distribution=st.sampled_from(["bernoulli", "fixed"]),
        on_change=st.sampled_from(["warn", "forget", "forget-all", "ignore"]),
        memory=st.sampled_from([None, None, 512]),
        every=st.sampled_from([1, 7, 1000]),
        aside=st.booleans(),
    )
    def begin(self, clock, late, learner, plays, distribution, on_change, memory, every, aside):
        self.patch = pytest.MonkeyPatch()
        if aside:
            # As if every agent took long to load.
            self.patch.setattr(agent_cache, "QUICK_EVENTS", -1)
            self.patch.setattr(agent, "LARGE", 3)
        self.patch.setattr(planning.background, "submit", plan_slowly)
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        given = {"snapshot_every": every, "quotas": Quotas(open_decisions=9, arms=4)}
        self.ours = [Kept(self.folder / "s.db", **given), Kept(self.folder / "s.db", **given)]
        settings = {"late": late, "learner": learner, "plays": plays, "reward_law": distribution}
        self.one.create(arms="xyz", clock=clock, on_change=on_change, memory=memory, **settings)
        self.plays, self.length = plays, {"ask": 0, "20ms": 20_000, "1s": SECOND}[clock]
        self.decisions, self.requests, self.snapshots = [], 0, []

    @property
    def one(self):
        return self.ours[0]

    def do(self, *operations):
        """The answers, None where the operations are refused; then nothing has changed."""
        before = self.memory(self.one)
        self.ours.reverse()
        try:
            return self.one.do(*operations)
        except ServiceError as error:
            refusal = error
        assert refusal.status < 500, refusal
        assert self.memory(self.one) == before
        return None

    def memory(self, kept):
        return kept.writer.read("a", as_json)

    def made(self, kind, given):
        """The operation that is meant."""
        if kind == "ask":
            self.requests += not (given and self.requests)
            return Ask(f"r{self.requests}")
        if kind == "tell":
            back, state, reward, arm, lost = given
            decision = self.decisions[-1 - back % len(self.decisions)] if self.decisions else "1-1"
            if lost:
                return Tell(decision, lost=True, arm=arm)
            several = self.plays > 1 and arm is None
            return Tell(
                decision, state=[state] * 2 if several else state, reward=[reward] * 2 if several else reward, arm=arm
            )
        return Skip(given, None) if kind == "skip" else Patch(given)

    def note(self, answers):
        self.decisions += [answer["decision"] for answer in answers or () if "arms" in answer and "decision" in answer]

    @rule(operation=operations)
    def operate(self, operation):
        self.note(self.do(self.made(*operation)))

    @rule()
    def ask(self):
        self.note(self.do(self.made("ask", False)))

    @rule(told=tells)
    def tell(self, told):
        self.do(self.made("tell", told))

    @rule(several=st.lists(operations, min_size=2, max_size=5))
    def batch(self, several):
        self.note(self.do(*(self.made(*operation) for operation in several)))

    @precondition(lambda self: self.length)
    @rule(share=st.one_of(st.floats(-3.0, 30.0), st.floats(0.0, 900.0)))
    def wait(self, share):
        for kept in self.ours:
            kept.time += int(share * self.length)

    @rule()
    def keep_snapshot(self):
        self.snapshots.append(self.one.writer.read("a", lambda agent: (agent.to_dict(), as_json(agent))))

    @rule()
    def reopen(self):
        self.one.reopen()

    @invariant()
    def every_way_is_the_same(self):
        first = self.memory(self.one)
        with self.one.store.reading() as session:
            planner = Planner(session.plan)
            events = list(session.events(1))
            kept = session.snapshot(1)
            ways = [ServiceAgent.created_by(1, "a", events[0], planner)]
            # A snapshot is taken at once and written later.
            assert all(first_difference(json.loads(json.dumps(taken)), then) is None for taken, then in self.snapshots)
            snapshots = [snapshot_of(taken) for taken, _ in self.snapshots[-3:]]
            ways += [of_snapshot(1, one, planner) for one in [*snapshots, *([kept] if kept else [])]]
            for way in ways:
                for event in events[way.seq :]:
                    assert way.repeat(event, check=True)
                assert first_difference(as_json(way), first) is None
        assert first_difference(self.memory(self.ours[1]), first) is None

    def teardown(self):
        if hasattr(self, "ours"):
            found = audit(self.one.store)
            for kept in self.ours:
                assert kept.writer.stats().get("snapshots_refused_total", 0) == 0
                kept.close()
            shutil.rmtree(self.folder)
            self.patch.undo()
            assert found.same, found.sentence


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=20, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
