"""The public conformance suites: what they pass, and the sentence with which they fail each kind of offender."""

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Problem, ProblemError
from restless_bandits.policies import (
    Cycle,
    EveryStateSeen,
    Forever,
    IndexPolicy,
    Plan,
    Policy,
    SeenIn,
    SingleArm,
    Slots,
)
from restless_bandits.testing import BrokenPromise, check_learner, check_oracle

PAPER = [Problem.builtin("paper-1")]


@dataclass(frozen=True)
class Honest(rb.Learner):
    """Counts its plans in its notes, and pulls arms in blocks that grow."""

    name: ClassVar[str] = "honest"
    growth: int = 3

    def plan(self, record, task, rng):
        count = record.notes.get("count", 0) + 1
        return Plan(SingleArm(int(rng.integers(task.n_arms)), task.plays), Slots(self.growth * count), {"count": count})


def test_registered_nowhere_is_no_fault():
    check_learner(Honest())
    # A class and a spec become the same learner, which one problem is enough to see.
    check_learner(Honest, PAPER)
    check_learner("tests.test_testing:Honest:growth=5", PAPER)

    class Inside(Honest):
        """A class that no spec can name."""

    check_learner(Inside())


def test_a_policy_of_ones_own_is_played_by_agent_alone():
    class LastFirst(Policy):
        def choose(self, last_states, elapsed):
            return np.full((len(elapsed), 1), elapsed.shape[1] - 1)

    class Own(rb.Learner):
        def plan(self, record, task, rng):
            return Plan(LastFirst(), Slots(7))

    check_learner(Own(), PAPER)


class Keeper(rb.Learner):
    """A learner with a memory outside of its notes."""

    def __init__(self):
        object.__setattr__(self, "memory", [])


def offender(plan, base=rb.Learner):
    kind = type("Offender", (base,), {"plan": plan})
    return kind()


def writes_notes(self, record, task, rng):
    record.notes["x"] = 1
    return Plan(Cycle(task.plays), Slots(5))


def writes_counts(self, record, task, rng):
    record.counts(0)[0, 0, 0] += 1
    return Plan(Cycle(task.plays), Slots(5))


def writes_slots(self, record, task, rng):
    record.slots += 1
    return Plan(Cycle(task.plays), Slots(5))


def writes_behind_the_view(self, record, task, rng):
    base = record.flat_counts.base
    base[0] += 1
    return Plan(Cycle(task.plays), Slots(5))


def draws_elsewhere(self, record, task, rng):
    return Plan(SingleArm(random.randrange(task.n_arms)), Slots(2))


def remembers_itself(self, record, task, rng):
    self.memory.append(record.slots) if record.slots not in self.memory else None
    return Plan(SingleArm(len(self.memory) % 2), Slots(5))


def names_a_stranger(self, record, task, rng):
    return Plan(SingleArm(task.n_arms), Forever())


def waits_for_a_stranger(self, record, task, rng):
    return Plan(SingleArm(0), EveryStateSeen(7, 3))


def waits_for_no_state(self, record, task, rng):
    return Plan(SingleArm(0), SeenIn(0, 9))


def plans_for_others(self, record, task, rng):
    return Plan(IndexPolicy((np.zeros((5, 1)),) * task.n_arms), Forever())


def pulls_too_many(self, record, task, rng):
    return Plan(Cycle(2), Forever())


def drops_notes(self, record, task, rng):
    return Plan(Cycle(), Slots(5), {"first": record.slots} if record.slots == 0 else {})


def notes_no_text(self, record, task, rng):
    return Plan(Cycle(), Slots(5), {"seen": {1: 2}})


def notes_what_json_lacks(self, record, task, rng):
    return Plan(Cycle(), Slots(5), {"seen": {1, 2}})


def answers_nothing(self, record, task, rng):
    return None


def fails(self, record, task, rng):
    return Plan(SingleArm(0), Slots(1 // (3 - record.slots)))


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (writes_notes, "writes to its record"),
        (writes_counts, "writes to its record"),
        (writes_slots, "writes to its record"),
        (writes_behind_the_view, "writes to its record in slot 1"),
        (draws_elsewhere, "is not deterministic"),
        (names_a_stranger, "plans with arm 2, but arms are numbered from 0 to 1"),
        (waits_for_a_stranger, "plans with arm 7"),
        (waits_for_no_state, "waits for state 9 of arm 0"),
        (plans_for_others, r"plans for arms of \(4, 4\) states"),
        (pulls_too_many, "plans to pull 2 arms a slot"),
        (drops_notes, r"loses notes: \['first'\]"),
        (notes_no_text, "loses notes: .* comes back from JSON as"),
        (notes_what_json_lacks, "cannot be stored as JSON"),
        (answers_nothing, "answered with None"),
        (fails, "fails in slot 4: ZeroDivisionError"),
    ],
)
def test_each_broken_promise_has_its_sentence(plan, sentence):
    with pytest.raises(BrokenPromise, match=sentence) as caught:
        check_learner(offender(plan), PAPER)
    assert str(caught.value).startswith("Offender")
    assert "\n" not in str(caught.value)


def test_memory_outside_of_the_notes():
    with pytest.raises(BrokenPromise, match=r"Offender (is not deterministic|has memory besides its notes)"):
        check_learner(offender(remembers_itself, Keeper), PAPER)


def test_what_is_no_learner():
    with pytest.raises(BrokenPromise, match="is no learner"):
        check_learner(object())
    with pytest.raises(BrokenPromise, match="defines no plan"):
        check_learner(type("Empty", (rb.Learner,), {})())


def test_a_learner_that_refuses_everything():
    def check(self, task):
        raise ProblemError("no")

    kind = type("Choosy", (Honest,), {"check": check})
    with pytest.raises(BrokenPromise, match="Choosy refuses every problem: no"):
        check_learner(kind())


def test_the_engine_and_agent_refuse_such_plans_too():
    for play in (
        lambda learner: rb.simulate(PAPER[0], learner, horizon=10, runs=1, engine="threads"),
        lambda learner: rb.Agent(learner, PAPER[0].task()).ask(),
    ):
        with pytest.raises(ProblemError, match="plans with arm 2"):
            play(offender(names_a_stranger))


def equal_indices(problem):
    return IndexPolicy(tuple(np.ones((n + 1, 1)) for n in problem.n_states), problem.plays)


def test_a_function_is_an_oracle():
    check_oracle(equal_indices)
    check_oracle("tests.test_testing:equal_indices", PAPER)
    check_oracle(rb.oracles.whittle)


def claims(**changes):
    from dataclasses import replace

    return lambda problem: replace(rb.oracles.whittle(problem), **changes)


@pytest.mark.parametrize(
    ("oracle", "sentence"),
    [
        (claims(lower=0.9, upper=0.95), r"claims the bracket \[0.9, 0.95\]"),
        (claims(gain=0.5), "claims a gain of 0.5"),
        (claims(problem=Problem.builtin("paper-2")), "with the solution of"),
        (lambda problem: 3, "refuses every problem: the oracle <lambda> answered with 3"),
        (lambda problem: 1 / 0, "fails on .* with ZeroDivisionError"),
        (lambda problem: IndexPolicy((np.random.default_rng().random((3, 1)),) * 2), "is not deterministic"),
    ],
)
def test_each_kind_of_bad_oracle_has_its_sentence(oracle, sentence):
    with pytest.raises(BrokenPromise, match=sentence):
        check_oracle(oracle, PAPER)


def test_a_certificate_must_hold():
    from dataclasses import replace

    with pytest.raises(BrokenPromise, match="certifies a policy"):
        check_oracle(lambda problem: replace(rb.oracles.best_arm(problem), certified=True), PAPER)


def test_equal_policies():
    one, other = equal_indices(PAPER[0]), equal_indices(PAPER[0])
    assert one == other
    assert hash(one) == hash(other)
    assert one != IndexPolicy((np.zeros((3, 1)),) * 2)
    assert rb.oracles.policy("exact", PAPER[0]) == rb.oracles.policy("exact", PAPER[0])
