"""The file of all events of an agent, and the agent that is made of it again."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Agent, Problem, ProblemError
from restless_bandits._internal import background
from restless_bandits._internal.random_streams import world_words
from restless_bandits.agent.agent import make_plan
from tests import reference

THREE = Problem.random(3, 2, seed=8)


def lived(path, spec="likelihood-ucb", slots=80, **options):
    """An agent with all that can happen to one."""
    one = Agent(spec, THREE.task(), seed=6, late=9, history=path, **options)
    world = reference.World(THREE, world_words(2, THREE.content, 0))
    rng = np.random.default_rng(1)
    waiting = []
    for slot in range(1, slots + 1):
        if slot == 30:
            one.retire_arm("arm 2")
        if slot == 50:
            one.restore_arm(1)
            one.add_arm("new", n_states=3)
        if slot == 60:
            one.learner = "posterior"
        arm = one.ask()
        (state,), (reward,) = world.pull([min(arm, 2)])
        if rng.random() < 0.6:
            one.tell(state, reward)
        elif rng.random() < 0.3:
            one.tell(lost=True)
        else:
            one.skip()
            waiting.append((state, reward, slot))
        if len(waiting) > 3:
            state, reward, late = waiting.pop(int(rng.integers(len(waiting))))
            if late > one.slots - 9:
                one.tell(state, reward, slot=late)
                one.tell(state, reward, slot=late)
    return one


def whole(one):
    return json.dumps(one.to_dict())


def test_replay_makes_the_same_agent(tmp_path):
    path = tmp_path / "agent.jsonl"
    one = lived(path)
    again = Agent.replay(path)
    assert whole(again) == whole(one)
    assert again.open == one.open
    kinds = [event["kind"] for event in one.history()]
    assert kinds[0] == "create"
    assert set(kinds) == {"create", "ask", "tell", "lost", "skip", "arm", "learner"}
    assert [event["seq"] for event in one.history(since=3)] == list(range(4, len(kinds) + 1))
    one.ask()
    assert Agent.replay(path).open == one.open


def test_a_history_begins_at_any_slot(tmp_path):
    one = lived(tmp_path / "first.jsonl")
    one.save(tmp_path / "agent.json")
    again = Agent.load(tmp_path / "agent.json")
    again.keep_history(tmp_path / "second.jsonl")
    again.ask()
    again.tell(0, 1)
    assert whole(Agent.replay(tmp_path / "second.jsonl")) == whole(again)


def test_who_replays_goes_on_writing(tmp_path):
    path = tmp_path / "agent.jsonl"
    one = lived(path, slots=20)
    again = Agent.replay(path)
    with pytest.raises(ProblemError, match="another process is writing to the file; let one process at a time write"):
        again.skip()
    slots = one.slots
    assert again.slots == slots
    del one
    again.skip()
    third = Agent.replay(path)
    assert third.slots == slots + 1
    again.skip()
    del again
    with pytest.raises(ProblemError, match="was written to by another process since this agent read it"):
        third.skip()


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    path = tmp_path / "agent.jsonl"
    del_me = lived(path, slots=3)
    content = path.read_bytes()
    del del_me
    with pytest.raises(ProblemError, match=r"is not empty; go on from what it holds with Agent\.replay"):
        Agent("round-robin", THREE.task(), history=path)
    assert path.read_bytes() == content
    with pytest.raises(ProblemError, match="this agent has no history"):
        Agent("round-robin", THREE.task()).history()
    with pytest.raises(ProblemError, match="a learner without a spec, and a history needs a spec"):
        Agent(rb.RestlessUCB(m=lambda horizon: 5), THREE.task(9), history=tmp_path / "b")


def test_a_line_that_was_torn_never_happened(tmp_path):
    """Whatever part of the last line is there: the events before it are kept, and the next one takes its place."""
    path = tmp_path / "agent.jsonl"
    one = lived(path, slots=10)
    before = whole(one)
    kept = path.read_bytes()
    one.ask()
    one.tell(1, 0.0)
    lines = path.read_bytes()[len(kept) :].splitlines(keepends=True)
    del one
    for length in range(len(lines[0])):
        path.write_bytes(kept + lines[0][:length])
        assert whole(Agent.replay(path)) == before
    again = Agent.replay(path)
    again.ask()
    again.tell(1, 0.0)
    assert path.read_bytes() == kept + b"".join(lines)


def test_damage_in_the_middle_is_refused(tmp_path):
    path = tmp_path / "agent.jsonl"
    lived(path, slots=10)
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = {
        "a number": [*lines[:5], lines[5].replace(b'"slot": ', b'"slot": 1'), *lines[6:]],
        "a line that is missing": [*lines[:5], *lines[6:]],
        "lines that changed places": [*lines[:5], lines[6], lines[5], *lines[7:]],
        "a torn line": [*lines[:5], lines[5][:20] + b"\n", *lines[6:]],
        "a line that is none": [*lines, b"\n"],
    }
    for content in damaged.values():
        path.write_bytes(b"".join(content))
        with pytest.raises(ProblemError, match=r"is damaged in line \d+: it does not hold what was written"):
            Agent.replay(path)
    for content in (b"", lines[0][:50]):
        path.write_bytes(content)
        with pytest.raises(ProblemError, match="is not the history of an agent"):
            Agent.replay(path)


def test_a_disk_that_is_full_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "agent.jsonl"
    one = lived(path, slots=5)
    one.ask()
    before, content = whole(one), path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:7]))
    for attempt in (lambda: one.tell(0, 1), one.skip, lambda: one.add_arm("x"), lambda: one.tell(lost=True)):
        with pytest.raises(ProblemError, match=r"cannot write .*agent\.jsonl: the disk is full"):
            attempt()
    assert (whole(one), path.read_bytes()) == (before, content)
    monkeypatch.undo()
    one.tell(0, 1)
    assert Agent.replay(path).slots == one.slots


def test_decisions_of_the_file_stand(tmp_path, monkeypatch):
    """As they must where another release decides otherwise."""
    path = tmp_path / "agent.jsonl"
    one = lived(path, "ts-9", slots=25)
    other = rb.learner("ts-9:schedule=doubling")
    monkeypatch.setattr("restless_bandits.learning.learners.thompson.ThompsonSampling.plan", type(other).plan)
    monkeypatch.setattr(
        "restless_bandits.agent.core.plan_generator",
        lambda *coordinates: np.random.default_rng(sum(coordinates[-1:]) + 99),
    )
    with pytest.warns(RuntimeWarning, match=r"slot \d+ is decided otherwise today, maybe by another release"):
        again = Agent.replay(path)
    assert again.record.to_dict()["counts"] == one.record.to_dict()["counts"]
    assert [decision.slot for decision in again.open] == [decision.slot for decision in one.open]


def test_plans_made_in_the_background_take_effect_where_they_did(tmp_path, monkeypatch):
    path = tmp_path / "agent.jsonl"
    delayed = []

    class Later:
        """A promise that is kept when it was asked for a few times."""

        def __init__(self, given):
            self.given, self.asked = given, 0
            delayed.append(self)

        def done(self):
            self.asked += 1
            return self.asked > len(delayed) % 4

        def result(self):
            return make_plan(*self.given), []

        def cancel(self):
            self.asked = -(10**9)

    monkeypatch.setattr(background, "submit", lambda work, *given: Later(given))
    one = lived(path, planning="background", slots=78)
    plans = [event for event in one.history() if event["kind"] == "plan"]
    assert len(plans) > 5
    assert sorted(plans[0]) == ["kind", "plan", "seq", "slot"]
    again = Agent.replay(path)
    assert whole(again) == whole(one)


def test_a_process_that_is_killed_leaves_what_it_acknowledged(tmp_path):
    """Whenever it dies, what it had printed is in the history, and at most one event more."""
    path = tmp_path / "agent.jsonl"
    script = (
        "import sys, restless_bandits as rb\n"
        "agent = rb.Agent('round-robin', rb.Problem.builtin('paper-1').task(), history=sys.argv[1])\n"
        "while True:\n"
        "    agent.ask(); agent.tell(0, 1); print(agent.slots, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.05)
    process.kill()
    acknowledged = process.stdout.read().split()
    process.wait()
    process.stdout.close()
    slots = Agent.replay(path).slots
    assert slots - int(acknowledged[-1] if acknowledged else 1) in (0, 1)
