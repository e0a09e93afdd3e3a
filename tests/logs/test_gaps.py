"""Replays of logs with holes: by hand, against a slow loop, and yardsticks against all that could have been done."""

import itertools

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits._internal.validation import to_jsonable
from restless_bandits.logs import baselines
from tests.logs.logs import THREE, logged, paths

SLOTS = {
    # Slot 12 lacks b, slots 13 and 14 are closed, slot 15 lacks a.
    10: {"a": 0.5, "b": 0.25},
    11: {"a": 0.0, "b": 1.0},
    12: {"a": 0.75},
    15: {"b": 0.5},
    16: {"a": 1.0, "b": 0.0},
}


def trace_of(slots, **options):
    """A trace of rewards by slot and arm; the states are 0 for those of a half and more."""
    lines = [(slot, arm, int(reward < 0.5), reward) for slot, there in slots.items() for arm, reward in there.items()]
    times, arms, states, rewards = zip(*lines, strict=True)
    return rb.data.trace(times, arms, state=states, reward=rewards, **options)


def with_holes(seed, n_arms=3, slots=60, share=0.6):
    """Rewards by slot and arm, drawn; in some slots nobody was logged."""
    rng = np.random.default_rng(seed)
    found = {}
    for slot in range(slots):
        there = {f"arm {i}": round(float(rng.random()), 3) for i in range(n_arms) if rng.random() < share}
        if there and rng.random() < 0.8:
            found[slot] = there
    found[slots] = {f"arm {i}": i / n_arms for i in range(n_arms)}
    return found


def slow_replay(slots, names, learner, task, content, missing, closed, seed=0, run=0, lowest=0.0):
    """What a learner earns and pulls, from a table of what was logged."""
    agent = rb.Agent(learner, task, seed=seed, run=run, content=content, on_change="ignore")
    total, pulls, lost, last = 0.0, [0] * len(names), 0, None
    for slot in sorted(slots):
        if last is not None and closed == "passes" and slot - last > 1:
            agent.skip(slot - last - 1)
        last = slot
        arm = agent.ask(None if missing == "lost" else list(slots[slot]))
        pulls[arm] += 1
        if names[arm] in slots[slot]:
            reward = slots[slot][names[arm]]
            agent.tell(int(reward < 0.5), reward)
            total += reward
        else:
            agent.tell(lost=True)
            total += lowest
            lost += 1
    return total, pulls, lost


def test_by_hand():
    trace = trace_of(SLOTS)
    found = rb.data.replay(trace, "round-robin")
    assert (found.first, found.last, found.slots, found.skipped, found.used) == (10, 16, 5, 2, 1.0)
    # a, b, then a alone, b alone, and a, which has waited longer.
    assert found.learners[0].pulls.tolist() == [[3, 2]]
    assert found.learners[0].totals == pytest.approx([0.5 + 1.0 + 0.75 + 0.5 + 1.0])
    assert found.arm_totals == pytest.approx([0.5 + 0.0 + 0.75 + 0.5 + 1.0, 0.25 + 1.0 + 0.75 + 0.5 + 0.0])
    assert found.best_arm == "a"
    assert found.hindsight == pytest.approx(0.5 + 1.0 + 0.75 + 0.5 + 1.0)
    assert found.baselines.random == pytest.approx(0.375 + 0.5 + 0.75 + 0.5 + 0.5)
    assert (found.best_order, found.baselines.ordered) == (("a", "b"), pytest.approx(2.75))
    assert (found.baselines.incomplete, found.baselines.alone) == (2, 2)
    assert found.warning is None
    shown = found.as_dict()
    assert [arm["there"] for arm in shown["arms"]] == [4, 4]
    assert (shown["used"], shown["skipped"], shown["without_choice"]) == (1.0, 2, 2)


def test_lost_by_hand():
    found = rb.data.replay(trace_of(SLOTS), "round-robin", missing="lost")
    # a, b, a; b, which is there; a, which was seen in slot 12, as b was in 15.
    assert found.learners[0].pulls.tolist() == [[3, 2]]
    assert found.learners[0].lost.tolist() == [0]
    assert found.arm_totals == pytest.approx([0.5 + 0.0 + 0.75 + 0.0 + 1.0, 0.25 + 1.0 + 0.0 + 0.5 + 0.0])
    assert found.baselines.random == pytest.approx((2.25 + 1.75) / 2)
    assert found.hindsight == pytest.approx(3.75)
    shifted = {slot: {arm: reward - 1 for arm, reward in there.items()} for slot, there in SLOTS.items()}
    lines = [(slot, arm, int(r < -0.5), r) for slot, there in shifted.items() for arm, r in there.items()]
    times, arms, states, rewards = zip(*lines, strict=True)
    below = rb.data.trace(times, arms, state=states, reward=rewards, reward_range=(-2, 0))
    lost = rb.data.replay(below, "round-robin", missing="lost")
    # What was not logged pays −2, so that nobody gains by asking for it.
    assert lost.arm_totals == pytest.approx([-0.5 - 1 - 0.25 - 2 + 0, -0.75 - 0 - 2 - 0.5 - 1])


@pytest.mark.parametrize("missing", ["unavailable", "lost"])
@pytest.mark.parametrize("closed", ["passes", "stops"])
def test_against_a_slow_loop(missing, closed):
    slots = with_holes(seed=1)
    trace = trace_of(slots)
    learners = ["round-robin", "ucb1", "ts-9", "rca"]
    found = rb.data.replay(trace, learners, missing=missing, closed=closed, runs=2, seed=3)
    span = max(slots) - min(slots) + 1
    length = span if closed == "passes" else len(slots)
    task = rb.Task(trace.sizes, 1, trace.reward_laws, (None,) * 3, trace.names, length)
    losses = 0
    for one in found.learners:
        for run in range(one.runs):
            given = trace.content, missing, closed, 3, run
            total, pulls, lost = slow_replay(slots, trace.names, rb.learner(one.spec), task, *given)
            assert one.totals[run] == pytest.approx(total, abs=1e-9)
            assert one.pulls[run].tolist() == pulls
            assert one.lost[run] == lost
            losses += lost
    assert (losses > 0) == (missing == "lost")
    assert found.skipped == span - len(slots) > 0
    assert found.slots == len(slots)


def test_time_that_stops_is_stopped_for_those_who_know_too():
    # Twenty open slots, then eighty closed ones: an arm stays as it is over night.
    states = paths(THREE, 600, seed=5)
    times = np.arange(600) + 80 * (np.arange(600) // 20)
    slots, arms = np.divmod(np.arange(1200), 2)
    trace = rb.data.trace(times[slots], arms, state=states.ravel())
    together = rb.data.trace(slots, arms, state=states.ravel())
    stopped = rb.data.replay(trace, ["whittle", "round-robin"], closed="stops")
    plain = rb.data.replay(together, ["whittle", "round-robin"])
    assert [one.totals.tolist() for one in stopped.learners] == [one.totals.tolist() for one in plain.learners]
    passed = rb.data.replay(trace, "whittle")
    assert passed.learners[0].totals.tolist() != stopped.learners[0].totals.tolist()


def test_complete_logs_are_the_same_by_every_option():
    trace = logged(THREE, paths(THREE, 80, seed=6), seed=7)
    ways = [{"missing": missing} for missing in ("unavailable", "lost", "stretch")] + [{"closed": "stops"}]
    found = [rb.data.replay(trace, ["ucb1", "posterior"], runs=2, **way).as_dict() for way in ways]
    for one in found:
        one.pop("missing"), one.pop("closed"), one.pop("best_order")
    assert to_jsonable(found) == to_jsonable([found[0]] * 4)


@pytest.mark.parametrize("seed", range(6))
def test_yardsticks(seed):
    n_arms = 2 + seed % 3
    slots = with_holes(seed, n_arms)
    found = rb.data.replay(trace_of(slots), "round-robin").baselines
    names = rb.data.replay(trace_of(slots), "round-robin").names

    def first_there(order):
        return sum(next(there[names[arm]] for arm in order if names[arm] in there) for there in slots.values())

    best = max(itertools.permutations(range(n_arms)), key=first_there)
    assert found.exact
    assert found.ordered == pytest.approx(first_there(best))
    assert first_there(found.order) == pytest.approx(found.ordered)
    means = [sum(there.values()) / len(there) for there in slots.values()]
    assert found.random == pytest.approx(sum(means))
    for arm, name in enumerate(names):
        expected = sum(there.get(name, mean) for there, mean in zip(slots.values(), means, strict=True))
        assert found.arms[arm] == pytest.approx(expected)
        assert found.there[arm] == sum(name in there for there in slots.values())
    assert found.hindsight == pytest.approx(sum(max(there.values()) for there in slots.values()))
    # An arm drawn from those there is the first of an order drawn from all: an arm and chance are a mean of orders.
    assert found.hindsight >= found.ordered >= found.arms.max() - 1e-9


def test_orders_of_many_arms_go_by_means(monkeypatch):
    monkeypatch.setattr(baselines, "FEW_ARMS", 2)
    slots = with_holes(seed=9)
    found = rb.data.replay(trace_of(slots), "round-robin")
    means = {name: np.mean([there[name] for there in slots.values() if name in there]) for name in found.names}
    assert not found.baselines.exact
    assert found.best_order == tuple(sorted(means, key=means.get, reverse=True))


def test_how_much_was_used():
    trace = trace_of(SLOTS)
    short = rb.data.replay(trace, "round-robin", missing="stretch")
    assert (short.slots, short.used) == (2, 0.4)
    assert short.warning == (
        "only 2 of 5 slots with anything logged were played (40.0%), as arms are missing in the others; "
        "--missing unavailable plays them all"
    )
    assert short.warning in repr(short)
    pulls = rb.data.replay(trace, "round-robin", first=11, last=15)
    assert pulls.warning.startswith("2 of 3 slots have one arm logged (66.7%), so that little depends on choices")
    asked = rb.data.replay(trace, "round-robin", first=11, last=15, horizon=2)
    assert (asked.first, asked.last, asked.slots, asked.used, asked.warning) == (11, 12, 2, 0.4, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missing": "gone"}, "missing is 'gone'; choose from unavailable, lost, stretch"),
        ({"closed": "ends"}, "closed is 'ends'; choose from passes, stops"),
        ({"first": 13, "last": 14}, "nothing was logged from slot 13 to slot 14; the log has slots 10 to 16"),
        ({"first": 16, "last": 11}, "the stretch from slot 16 to slot 11 is empty"),
        (
            {"first": 12, "last": 15},
            "no slot has two arms logged, so there is nothing to choose between; restless eval",
        ),
        ({"horizon": 6}, "horizon is 6; it must be a whole number from 1 to 5, the slots in which anything was logged"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(rb.ProblemError) as refused:
        rb.data.replay(trace_of(SLOTS), "round-robin", **options)
    assert message in str(refused.value)
