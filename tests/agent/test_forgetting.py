"""Agents whose arms change: alarms, forgetting, a memory, and that all of it is stored and replayed."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits.learning.change_detection.detector import LEAST_MEMORY, MEMORY_BLOCKS, stretch_of
from restless_bandits.model.record import Record
from restless_bandits.policies import Cycle, Forever, Plan
from restless_bandits.registry import LEARNERS

BEFORE, AFTER = ([[0.7, 0.3], [0.2, 0.8]], [[0.95, 0.05], [0.6, 0.4]])


def task(n_states=(2, 2), laws=None, **more):
    n = len(n_states)
    return rb.Task(
        n_states=n_states,
        plays=1,
        reward_laws=laws or ("bernoulli",) * n,
        initial=(None,) * n,
        names=tuple("abcd"[:n]),
        **more,
    )


def first_remembered(slots, memory):
    """The first slot within a memory, which forgets whole blocks."""
    return max(1, (slots // stretch_of(memory) - MEMORY_BLOCKS + 1) * stretch_of(memory) + 1)


class World:
    """Arms of two states that drift on whether they are seen or not; rewards are 0.9 and 0.1 unless said otherwise."""

    def __init__(self, seed, n_arms=2, rewards=(0.9, 0.1)):
        self.rng = np.random.default_rng(seed)
        self.chains = [np.array(BEFORE)] * n_arms
        self.rewards = [rewards] * n_arms
        self.states = [0] * n_arms

    def use(self, arm):
        draws = self.rng.random(len(self.states) + 1)
        self.states = [int(u >= chain[s, 0]) for u, s, chain in zip(draws, self.states, self.chains, strict=False)]
        state = self.states[arm]
        return state, float(draws[-1] < self.rewards[arm][state])


def play(agent, world, slots):
    for _ in range(slots):
        agent.tell(*world.use(agent.ask()))


def told_since(agent, observations, since):
    """The record of somebody who was never told what came before ``since[arm]``."""
    record = Record.of(agent.task)
    for slot, arm, state, reward in observations:
        record.slots = slot
        if slot >= since[arm]:
            record.see(arm, slot, state, reward)
    record.slots = agent.slots
    return record


def same_counts(one, other):
    names = ("flat_counts", "flat_visits", "flat_seen", "flat_rewards", "last_state", "last_slot")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


class TestAlarms:
    def test_warns_and_goes_on(self):
        agent, world = rb.Agent("round-robin", task(), seed=1), World(1)
        play(agent, world, 1000)
        assert agent.alarms == ()
        world.chains[1] = np.array(AFTER)
        with pytest.warns(RuntimeWarning, match="arm 'b' has changed its chain since about slot"):
            play(agent, world, 600)
        (alarm,) = agent.alarms
        assert (alarm.arm, alarm.name, alarm.what) == (1, "b", "chain")
        assert 800 <= alarm.since <= 1200 < alarm.slot + 100
        assert alarm.p_value < 1e-4
        assert agent.record.pulls.sum() == 1600, "nothing was forgotten"

    def test_nothing_is_tested_where_changes_are_ignored(self):
        agent, world = rb.Agent("round-robin", task(), seed=1, on_change="ignore"), World(1)
        play(agent, world, 500)
        world.chains[1] = np.array(AFTER)
        play(agent, world, 1000)
        assert agent.alarms == ()
        agent.on_change = "warn"
        play(agent, world, 500)
        assert agent.alarms == (), "a test begins where it is asked for, and nothing has changed since"

    @pytest.mark.parametrize("late", [0, 64, 1024])
    def test_forgets_what_came_before(self, late):
        agent, world = rb.Agent("round-robin", task(), seed=1, on_change="forget", late=late), World(2)
        observations = []

        def step(slots):
            for _ in range(slots):
                arm = agent.ask()
                state, reward = world.use(arm)
                agent.tell(state, reward)
                observations.append((agent.slots, arm, state, reward))

        step(900)
        world.chains[0] = np.array(AFTER)
        step(700)
        (alarm,) = agent.alarms
        assert alarm.arm == 0
        assert same_counts(agent.record, told_since(agent, observations, {0: alarm.since, 1: 1}))
        assert agent.record.forgotten.tolist() == [True, False]
        step(100)
        assert same_counts(agent.record, told_since(agent, observations, {0: alarm.since, 1: 1}))

    @pytest.mark.parametrize("late", [0, 1024])
    def test_forgets_all_arms(self, late):
        agent, world = rb.Agent("round-robin", task(), seed=1, on_change="forget-all", late=late), World(2)
        play(agent, world, 900)
        world.rewards[0] = (0.1, 0.9)
        play(agent, world, 400)
        (alarm,) = agent.alarms
        assert alarm.arm == 0
        kept = agent.slots - alarm.since + 1
        assert agent.record.forgotten.all()
        # Of the other arm, sights may have been gathered across the slot of the change: these are gone as well.
        assert 0 <= kept - agent.record.pulls.sum() <= 32
        stored = json.loads(json.dumps(agent.to_dict()))
        assert rb.Agent.from_dict(stored, None, trust_modules=False).to_dict() == agent.to_dict()

    def test_answers_that_are_always_late_count(self):
        agent, world, delay = rb.Agent("round-robin", task(), seed=1, on_change="forget", late=10), World(2), 3
        told = {}
        for slot in range(1, 1601):
            if slot == 900:
                world.chains[0] = np.array(AFTER)
            told[slot] = world.use(agent.ask())
            if slot > delay:
                agent.tell(*told.pop(slot - delay), slot=slot - delay)
            agent.skip()
        (alarm,) = agent.alarms
        assert alarm.arm == 0
        assert abs(alarm.since - 900) < 150

    def test_the_plan_ends_and_the_learner_begins_anew(self):
        seen = []

        class Watcher(rb.Learner):
            name = "watcher"

            def plan(self, record, task, rng):
                seen.append((record.slots, record.plans, dict(record.notes), record.elapsed.tolist()))
                return Plan(Cycle(), until=Forever(), notes={"plan": len(seen)})

        agent, world = rb.Agent(Watcher(), task(), on_change="forget"), World(3)
        play(agent, world, 600)
        assert len(seen) == 1
        world.rewards[0] = (0.1, 0.9)
        play(agent, world, 400)
        (alarm,) = agent.alarms
        assert len(seen) == 2
        slots, plans, notes, elapsed = seen[1]
        assert slots == alarm.slot - alarm.since + 1
        assert (plans, notes) == (0, {})
        assert sorted(elapsed) == [1, 2]
        assert agent.record.restarted == (alarm.since - 1, 1)

    def test_a_fixed_reward_that_differs(self):
        fixed = task(laws=("fixed", "fixed"))
        agent = rb.Agent("round-robin", fixed, on_change="warn")
        agent.ask()
        agent.tell(0, 0.7)
        agent.ask()
        agent.tell(0, 0.5)
        agent.ask()
        with pytest.raises(rb.ProblemError, match="on_change='forget' treats the difference as a change"):
            agent.tell(0, 0.6)
        agent.on_change = "forget"
        agent.tell(0, 0.6)
        (alarm,) = agent.alarms
        assert (alarm.arm, alarm.slot, alarm.since, alarm.evidence, alarm.what) == (0, 3, 3, math.inf, "rewards")
        assert alarm.p_value == 0
        assert agent.record.mean_rewards(0, 0.0)[0] == 0.6
        assert agent.record.mean_rewards(1, 0.0)[0] == 0.5
        agent.skip(2)
        with pytest.raises(rb.ProblemError, match="in the present slot"):
            agent.tell(0, 0.1, arm=1, slot=4)

    def test_rewards_in_their_own_units(self):
        agent = rb.Agent("round-robin", task(laws=("bounded",) * 2, reward_ranges=((0, 54), (-500, 0))), seed=1)
        world = World(4)

        def step(slots, second):
            for _ in range(slots):
                arm = agent.ask()
                state, luck = world.use(arm)
                agent.tell(state, 30.0 + 20 * luck if arm == 0 else second + 50 * luck)

        step(800, -400.0)
        with pytest.warns(RuntimeWarning, match="arm 'b' has changed its rewards"):
            step(400, -150.0)
        assert [alarm.arm for alarm in agent.alarms] == [1]

    def test_options_are_checked(self):
        for options, word in (
            ({"on_change": "panic"}, "panic"),
            ({"alarm_rate": 0.0}, "alarm_rate"),
            ({"memory": 100}, "memory"),
            ({"memory": 1024}, "late"),
        ):
            with pytest.raises(rb.ProblemError, match=word):
                rb.Agent("round-robin", task(), **options)


class TestMemory:
    @settings(max_examples=8)
    @given(st.integers(0, 10_000), st.sampled_from([0, 100]), st.integers(300, 1500))
    def test_counts_are_those_of_the_last_slots(self, seed, late, slots):
        memory = 3 * LEAST_MEMORY
        agent = rb.Agent("round-robin", task(), seed=seed, memory=memory, late=late, on_change="ignore")
        world, rng, observations = World(seed), np.random.default_rng(seed), []
        for _ in range(slots):
            if rng.random() < 0.1:
                agent.skip(int(rng.integers(1, 40)))
            arm = int(agent.ask()) if rng.random() < 0.8 else 0
            state, reward = world.use(arm)
            agent.tell(state, reward, arm=arm)
            observations.append((agent.slots, arm, state, reward))
        stretch = stretch_of(memory)
        first = max(1, (agent.slots // stretch - MEMORY_BLOCKS + 1) * stretch + 1)
        assert memory - stretch <= agent.slots - first + 1 <= memory or first == 1
        assert same_counts(agent.record, told_since(agent, observations, {0: first, 1: first}))

    def test_a_skip_longer_than_the_memory_forgets_all(self):
        agent, world = rb.Agent("round-robin", task(), memory=1000, late=10), World(1)
        play(agent, world, 400)
        agent.skip(5000)
        assert agent.record.pulls.tolist() == [0, 0]
        assert agent.record.last_states.tolist() == [-1, -1]
        play(agent, world, 50)
        assert agent.record.pulls.sum() == 50

    def test_a_test_that_begins_leaves_the_memory_alone(self):
        agent, world = rb.Agent("round-robin", task(), memory=1024, late=64, on_change="ignore"), World(1)
        play(agent, world, 700)
        agent.on_change = "forget"
        play(agent, world, 200)
        assert agent.record.pulls.sum() == 900 - first_remembered(900, 1024) + 1
        play(agent, world, 600)
        assert agent.record.pulls.sum() == 1500 - first_remembered(1500, 1024) + 1

    def test_with_changes(self):
        agent = rb.Agent("round-robin", task(), seed=1, memory=2048, on_change="forget", late=64)
        world = World(5)
        play(agent, world, 1500)
        world.chains[0] = np.array(AFTER)
        play(agent, world, 3000)
        assert [alarm.arm for alarm in agent.alarms] == [0]
        first = (agent.slots // 256 - MEMORY_BLOCKS + 1) * 256 + 1
        assert agent.record.pulls.sum() == agent.slots - first + 1

    @pytest.mark.parametrize("name", [name for name in sorted(LEARNERS) if "pulled" in rb.learner(name).observed])
    def test_every_learner_plays_with_it(self, name):
        problem = rb.Problem.builtin("paper-1")
        learner = rb.learner(name)
        agent = rb.Agent(learner, learner.task(problem, 2000), memory=256, late=16, on_change="forget")
        world = World(6, rewards=(1.0, 0.0))
        play(agent, world, 600)
        world.rewards[0] = (0.3, 0.0)
        play(agent, world, 400)
        assert agent.record.pulls.sum() <= 256
        assert agent.slots == 1000


class TestStorage:
    @settings(max_examples=6, deadline=None)
    @given(st.integers(0, 1000), st.integers(100, 1100), st.sampled_from([None, 512]), st.sampled_from([0, 50]))
    def test_a_stored_agent_goes_on_alike(self, tmp_path_factory, seed, moment, memory, late):
        folder = tmp_path_factory.mktemp("agents")
        options = {"seed": seed, "on_change": "forget", "memory": memory, "late": late}
        kept = {}
        for name in ("straight", "broken"):
            agent, world = rb.Agent("ts-4", task(), **options), World(seed)
            for slot in range(1300):
                if slot == 600:
                    world.rewards = [(0.1, 0.8)] * 2
                if slot == moment and name == "broken":
                    agent.save(folder / "agent.json")
                    agent = rb.Agent.load(folder / "agent.json")
                agent.tell(*world.use(agent.ask()))
            kept[name] = agent
        straight, broken = kept.values()
        assert straight.alarms == broken.alarms
        assert len(straight.alarms) >= 1
        assert straight.to_dict() == broken.to_dict()

    def test_certain_alarms_are_stored_as_json_knows_them(self, tmp_path):
        agent = rb.Agent("round-robin", task(laws=("fixed",) * 2), on_change="forget")
        for reward in (0.5, 0.5, 0.6):
            agent.tell(0, reward, arm="a")
        agent.save(tmp_path / "agent.json")
        text = (tmp_path / "agent.json").read_text()
        assert "Infinity" not in text
        json.loads(text, parse_constant=pytest.fail)
        assert rb.Agent.load(tmp_path / "agent.json").alarms == agent.alarms

    def test_a_replayed_agent_is_the_same(self, tmp_path):
        agent, world = rb.Agent("ts-4", task(), seed=3, on_change="forget", history=tmp_path / "events"), World(3)
        play(agent, world, 500)
        world.rewards = [(0.1, 0.8)] * 2
        play(agent, world, 400)
        agent.on_change = "ignore"
        play(agent, world, 10)
        assert agent.alarms
        again = rb.Agent.replay(tmp_path / "events")
        assert again.to_dict() == agent.to_dict()

    @settings(max_examples=25)
    @given(st.randoms(use_true_random=False), st.integers(1, 60))
    def test_late_answers_after_forgetting(self, random, late):
        # Answers come in any order; then something is forgotten, and more come, for slots before and after.
        told = rb.Agent("round-robin", task(), late=100, on_change="ignore", memory=256)
        slots = 80
        told.skip(slots)
        observations = {
            slot: (random.randrange(2), random.randrange(2), float(random.randrange(2))) for slot in range(1, 81)
        }
        order = list(observations)
        random.shuffle(order)
        since = random.randrange(1, slots)
        for number, slot in enumerate(order):
            if number == late:
                told._forget(0, since)
            arm, state, reward = observations[slot]
            told.tell(state, reward, arm=arm, slot=slot)
        expected = told_since(told, [(slot, *observations[slot]) for slot in sorted(observations)], {0: since, 1: 1})
        assert same_counts(told.record, expected)
        stored = json.loads(json.dumps(told.to_dict()))
        assert rb.Agent.from_dict(stored, None, trust_modules=False).to_dict() == told.to_dict()

    @pytest.mark.parametrize(
        ("damage", "word"),
        [
            (lambda data: data["lookouts"].pop(), "lookouts"),
            (lambda data: data["lookouts"][0].update(begun=-1), "begun"),
            (lambda data: data["window"].update(since=[0, 1]), "since"),
            (lambda data: data["record"].update(forgotten=[7]), "forgotten"),
            (lambda data: data["record"].update(restarted=[1 << 40, 0]), "restarted"),
            (lambda data: data["record"].update(restarted=[0, 99]), "plans"),
            (lambda data: data.update(on_change="often"), "on_change"),
            (lambda data: data.update(memory=3), "memory"),
        ],
    )
    def test_damage_is_refused(self, damage, word):
        agent, world = rb.Agent("round-robin", task(), on_change="forget", memory=1024, late=64), World(7)
        play(agent, world, 1500)
        data = json.loads(json.dumps(agent.to_dict()))
        damage(data)
        with pytest.raises(rb.ProblemError, match=word):
            rb.Agent.from_dict(data, None, trust_modules=False)
