from dataclasses import dataclass
from threading import Event
from types import SimpleNamespace
from typing import ClassVar

import pytest

import restless_bandits as rb
from restless_bandits._internal import progress
from restless_bandits.paper import theory
from restless_bandits.policies import Cycle, Plan, Slots
from restless_bandits.simulation import time_estimates
from restless_bandits.simulation.jobs import SimulationJob
from restless_bandits.simulation.time_estimates import TimeEstimate, seconds_by_trial

PAPER = rb.Problem.builtin("paper-1")


class Clock:
    """A time that passes only when somebody says so."""

    now = 0.0

    def read(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(time_estimates, "time", SimpleNamespace(monotonic=made.read, thread_time=made.read))
    return made


@pytest.fixture(autouse=True)
def compiling(monkeypatch):
    flag = Event()
    monkeypatch.setattr(time_estimates, "compiling", flag)
    return flag


@dataclass(frozen=True, eq=False)
class Slow(rb.Learner):
    """Thinks for an eighth of a second, and plays for so many slots, or for as long as it has played."""

    name: ClassVar[str] = "slow"
    clock: Clock
    slots: int = 0

    def plan(self, record, task, rng):
        self.clock.now += 0.125
        return Plan(Cycle(), Slots(self.slots or max(1, record.slots)))


def cell_of(learner, horizon):
    return SimulationJob(PAPER, learner, learner.name, horizon, (horizon,), 0, 5)


class TestTrial:
    def test_a_run_that_is_played_to_its_end(self, clock):
        assert seconds_by_trial(cell_of(Slow(clock), 100)) == pytest.approx(1.0)

    def test_plans_that_get_rarer_take_the_time_that_is_left_to_them(self, clock):
        """Eight plans in the first second, 128 slots: 2^20 slots take 21 plans, and what is guessed is no power."""
        assert 21 / 8 < seconds_by_trial(cell_of(Slow(clock), 2**20)) < 3 * 21 / 8

    def test_plans_that_go_on_are_not_taken_for_more_than_a_power(self, clock):
        found = seconds_by_trial(cell_of(Slow(clock, 10), 100_000))
        assert found == pytest.approx(0.125 + 0.875 * 1250**time_estimates.PLANS_POWER)

    def test_a_single_plan_ends_the_trial_soon(self, clock):
        assert seconds_by_trial(cell_of(Slow(clock, 10**9), 10**9)) == pytest.approx(0.125)


def job_results(seconds=(), runs=5, label="x"):
    finished = {n: SimpleNamespace(seconds=[one]) for n, one in enumerate(seconds)}
    job = SimpleNamespace(runs=runs, label=label)
    return SimpleNamespace(job=job, finished=finished, missing=list(range(len(seconds), runs)))


class TestOutlook:
    def test_says_once_what_takes_long(self, clock):
        lines = []
        all_results = [job_results([1.0], label="quick"), job_results([30.0, 50.0], label="slow")]
        looking = TimeEstimate(all_results, 2, lines.append)
        clock.now = 50.0
        looking.look()
        looking.look()
        # 50 s so far, four runs of a second and three of 40 s are left for two.
        assert lines == ["this will take about 112 s: 5 runs of slow, 40 s each"]

    def test_a_run_is_not_shared(self, clock):
        lines = []
        TimeEstimate([job_results([30.0], runs=2)], 8, lines.append).look()
        assert lines == ["this will take about 30 s: 2 runs of x, 30 s each"]

    def test_short_ones_say_nothing(self, clock):
        lines = []
        looking = TimeEstimate([job_results([1.0], runs=9)], 1, lines.append)
        looking.look()
        assert lines == []
        clock.now = 5.0
        looking.look()
        assert len(lines) == 1

    def test_whoever_has_finished_nothing_is_tried_after_a_while(self, clock, monkeypatch):
        monkeypatch.setattr(time_estimates, "seconds_by_trial", lambda job: 600.0)
        lines = []
        looking = TimeEstimate([job_results(runs=1)], 2, lines.append)
        looking.look()
        assert lines == []
        clock.now = time_estimates.TRIAL_AFTER_SECONDS + 0.1
        looking.look()
        assert lines == ["this will take about 10 min: 1 run of x, 10 min each"]

    def test_what_is_compiled_is_not_charged(self, clock, compiling, monkeypatch):
        monkeypatch.setattr(time_estimates, "seconds_by_trial", None)
        compiling.set()
        lines = []
        for seconds in ([], [30.0], [30.0, 0.1]):
            looking = TimeEstimate([job_results(seconds)], 1, lines.append)
            clock.now += 2.0
            looking.look()
        assert lines == []

    def test_without_a_report_minutes_are_a_warning(self, clock):
        TimeEstimate([job_results([30.0])], 1, None).look()
        with pytest.warns(RuntimeWarning, match=r"about 4\.1 min: 5 runs of x, 61 s each"):
            TimeEstimate([job_results([61.0])], 1, None).look()


class TestCaution:
    def test_restless_ucb_tells_how_long_it_explores(self):
        many = rb.Problem.random(12, 2, seed=11)
        lines = []
        rb.simulate(many, "restless-ucb", 100, runs=1, comparator=0.5, announce=lines.append)
        assert len(lines) == 1
        moves = [(arm.chain[0, 1], arm.chain[1, 0]) for arm in many.arms]
        slots = 22 * sum((down + up) / min(down, up) for down, up in moves)
        needs = f"it needs about {slots:,.0f} before it plays by what it has seen"
        assert lines[0] == f"restless-ucb will explore all the 100 slots: {needs}"

    @pytest.mark.parametrize("horizon", [100, 10_000])
    def test_about_what_the_theory_says(self, horizon):
        shares = [min(rb.check(PAPER).arms[i].stationary) for i in range(2)]
        mine = theory.exploration_length(PAPER, horizon).observations * sum(1 / share for share in shares)
        assert 0.8 < mine / theory.exploration_length(PAPER, horizon).expected < 1.1

    def test_who_does_not_know_the_problem_counts_states(self):
        learner = rb.RestlessUCB(m=50)
        assert "at least 200 before" in learner.caution(PAPER.task(199))
        assert learner.caution(PAPER.task(200)) is None
        assert "about 238 before" in learner.caution(PAPER.task(200), PAPER)

    def test_nothing_to_tell(self):
        assert rb.RestlessUCB().caution(PAPER.task()) is None
        assert rb.RestlessUCB(anytime=True).caution(PAPER.task(10)) is None
        assert rb.LikelihoodUCB().caution(PAPER.task(10), PAPER) is None

    def test_states_that_are_never_seen_again(self):
        problem = rb.Problem([rb.Arm([[1, 0], [0.5, 0.5]], [1, 0])])
        assert "for ever" in rb.RestlessUCB().caution(problem.task(1000), problem)


def test_the_runner_looks(monkeypatch):
    monkeypatch.setattr(progress, "LONG_SECONDS", 0.0)
    lines = []
    rb.simulate(PAPER, "ucb1", 1000, runs=40, jobs=1, announce=lines.append)
    assert len(lines) == 1
    assert "40 runs of ucb1" in lines[0]
    rb.simulate(PAPER, "ucb1", 1000, runs=1, jobs=1, comparator="exact", announce=lines.append)
    assert lines[1].endswith(": exact")
