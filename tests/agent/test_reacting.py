"""Arms that react to pulls: a pull without an observation moves the arm, and late feedback repairs everything."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

import restless_bandits as rb
from restless_bandits import Agent, Arm, Problem, ProblemError
from restless_bandits.model import record as record_module
from restless_bandits.model.record import LOST, Record, UnseenPulls
from restless_bandits.model.support import REACTING
from restless_bandits.policies.plans import Forever, Plan
from restless_bandits.policies.policies import SingleArm

TWO = Arm([[0.9, 0.1], [0.4, 0.6]], [1, 0], active_transitions=[[0.3, 0.7], [0.1, 0.9]], name="a")
THREE = Arm(
    [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]],
    [1, 0.5, 0],
    active_transitions=[[0.2, 0.5, 0.3], [0.4, 0.2, 0.4], [0.9, 0.05, 0.05]],
    name="b",
    initial=2,
    reward_law="fixed",
)
PLAIN = Arm([[0.7, 0.3], [0.2, 0.8]], [1, 0], name="c")
PROBLEM = Problem([TWO, THREE, PLAIN])
PAIR = Problem([TWO, THREE, PLAIN], plays=2)


def agent(problem=PROBLEM, spec="round-robin", **options):
    learner = rb.learner(spec)
    return Agent(learner, problem.task(reveal=learner.needs), **{"on_change": "ignore"} | options)


def seen_of(record):
    return {key: value for key, value in record.to_dict().items() if key not in ("plan_lengths", "notes")}


@st.composite
def courses(draw, problem, slots=12):
    """What happens to the decision of each slot: (asked, late, what), where ``what`` has an entry for each arm.

    An entry is the observed state, ``lost`` or ``not pulled``; an arm without an entry is never reported.
    """
    n, course = problem.n_arms, []
    for slot in range(1, draw(st.integers(1, slots)) + 1):
        asked = draw(st.booleans()) or draw(st.booleans())
        fates = st.one_of(st.integers(0, 1), st.sampled_from(["lost", "not pulled", None]))
        overridden = draw(st.integers(0, 5)) == 0
        arms = draw(st.permutations(range(n)))[: problem.plays] if overridden else None
        course.append((slot, asked, [draw(fates) for _ in range(problem.plays)], draw(st.integers(0, 6)), arms))
    return course


def tell(one, slot, arms, fates):
    """Report the fates of the arms of a decision, each on its own."""
    for arm, fate in zip(arms, fates, strict=True):
        if fate in ("lost", "not pulled"):
            one.tell(arm=arm, slot=slot, lost=True, pulled=fate == "lost")
        elif fate is not None:
            one.tell(fate, 1.0 - fate if arm != 1 else [1, 0.5, 0][fate], arm=arm, slot=slot)


@settings(max_examples=150)
@given(course=courses(PROBLEM), pair=courses(PAIR), late=st.integers(7, 9))
def test_late_feedback_gives_the_record_of_the_right_order(course, pair, late):
    for problem, steps in ((PROBLEM, course), (PAIR, pair)):
        one, coming, known = agent(problem, late=late), {}, {}
        for slot, asked, fates, delay, override in steps:
            arms = tuple(np.atleast_1d(one.ask())) if asked else ()
            if override is not None and asked and all(isinstance(fate, int) for fate in fates):
                known[slot] = list(zip(override, fates, strict=True))
            elif asked:
                known[slot] = list(zip(arms, fates, strict=True))
            if asked:
                coming.setdefault(slot + delay, []).append(slot)
            one.skip()
            for of in reversed(coming.pop(slot, [])):
                tell(one, of, *zip(*known[of], strict=True))
            again = Agent.from_dict(json.loads(json.dumps(one.to_dict())), None, trust_modules=False)
            assert again.to_dict() == one.to_dict()
        while coming:
            one.skip()
            for of in coming.pop(one.slots, []):
                tell(one, of, *zip(*known[of], strict=True))
        expected = Record.of(problem.task())
        for slot in range(1, one.slots + 1):
            seen = sorted((arm, fate) for arm, fate in known.get(slot, ()) if isinstance(fate, int))
            rewards = [1.0 - fate if arm != 1 else [1, 0.5, 0][fate] for arm, fate in seen]
            expected.observe([arm for arm, _ in seen], [fate for _, fate in seen], rewards)
            for arm, fate in known.get(slot, ()):
                if fate in ("lost", None) and problem.arms[arm].reacts:
                    expected.lose(arm, slot)
        assert seen_of(one.record) == seen_of(expected)
        # What becomes final is the same again.
        one.skip(late + 1)
        expected.skip(late + 1)
        assert seen_of(one.record) == seen_of(expected)
        again = Agent.from_dict(json.loads(json.dumps(one.to_dict())), None, trust_modules=False)
        assert again.to_dict() == one.to_dict()


@dataclass(frozen=True)
class Always(rb.Learner):
    """Pull one arm in every slot."""

    arm: int = 0

    @property
    def features(self):
        return REACTING

    def plan(self, record, task, rng):
        return Plan(SingleArm(self.arm, task.plays), until=Forever())


def simulated(arm, start, events, present, rng, runs=40_000):
    """How many of many hidden chains are in each state in a slot: those that were seen in what was seen.

    ``events`` has the observed state of each slot with a pull, None for a pull without an observation.
    """
    step = np.array([arm.transitions, arm.active_transitions]).cumsum(axis=2)[:, :, :-1]
    states = rng.choice(arm.n_states, size=runs, p=start)
    for slot in range(present):
        states = (step[int(slot in events)][states] <= rng.random(len(states))[:, None]).sum(axis=1)
        if events.get(slot + 1) is not None:
            # All chains go on from the observed state: the past of a chain no longer matters.
            states = np.full(runs, events[slot + 1])
    return np.bincount(states, minlength=arm.n_states)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("events", "present"),
    [
        ({3: 1, 5: None}, 6),
        ({3: 0, 4: None, 5: None, 6: None}, 7),
        ({2: 0, 4: None, 6: 1, 7: None, 11: None, 12: None}, 15),
        ({1: None, 4: None}, 6),
        ({1: 1}, 2),
        ({2: 0}, 5),
        ({}, 4),
    ],
)
def test_the_belief_is_the_distribution_of_hidden_chains(number, events, present):
    """Reported, missing and late feedback alike. False alarms: 1e-8 for each of fourteen cases."""
    arm, rng = PROBLEM.arms[number], np.random.default_rng([number, present])
    one = Agent(Always(number), PROBLEM.task(reveal=["problem"]), on_change="ignore")
    for slot in range(1, present):
        if slot in events:
            one.ask()
        if slot in events and slot % 2:
            one.tell(lost=True)
        else:
            one.skip()
    for slot, state in events.items():
        if state is not None:
            one.tell(state, float(arm.rewards[state]), slot=slot)
    counts = simulated(arm, arm.initial_distribution, events, present, rng)
    expected = one.belief()[number] * counts.sum()
    assert expected.min() > 50
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-8, arm.n_states - 1)


def test_a_pull_without_an_observation_moves_the_belief_exactly():
    passive, active = np.array(TWO.transitions), np.array(TWO.active_transitions)
    one = Agent(Always(0), PROBLEM.task(reveal=["problem"]))
    one.ask()
    one.tell(1, 0.0)
    one.skip(2)
    one.ask()
    np.testing.assert_allclose(one.belief()[0], (active @ passive @ passive)[1], rtol=1e-12)
    one.tell(lost=True)
    one.skip()
    np.testing.assert_allclose(one.belief()[0], (active @ passive @ passive @ active @ passive)[1], rtol=1e-12)
    one.ask()
    one.tell(pulled=False)
    np.testing.assert_allclose(
        one.belief()[0], (active @ passive @ passive @ active @ passive @ passive)[1], rtol=1e-12
    )
    one.tell(0, 1.0, slot=4)
    np.testing.assert_allclose(one.belief()[0], (active @ passive @ passive)[0], rtol=1e-12)
    # An uncontrolled arm and another problem.
    np.testing.assert_allclose(one.belief()[2], PLAIN.stationary, rtol=1e-12)
    np.testing.assert_allclose(one.belief(PROBLEM)[0], one.belief()[0])


def test_policies_see_the_row_lost():
    one = agent(spec="round-robin")
    for lost in (False, True, False):
        one.ask()
        one.tell(lost=lost, **({} if lost else {"state": 0, "reward": 1.0 if one.slots == 0 else 0.0}))
    assert one.record.last_states.tolist() == [0, LOST, 0]
    assert one.record.elapsed.tolist() == [3, 2, 1]
    one.tell(2, 0.0, slot=2)
    assert one.record.last_states.tolist() == [0, 2, 0]


@pytest.mark.parametrize("oracle", ["myopic", "whittle", "exact"])
def test_decisions_follow_the_row_lost(oracle):
    """A policy takes an arm after a lost pull to have been in its stationary distribution when it was pulled."""
    problem = Problem([TWO, THREE])
    one = Agent(oracle, problem.task(reveal=["problem"]), on_change="ignore", late=3)
    policy = rb.oracles.policy(oracle, problem, slots=300)
    rng = np.random.default_rng(4)
    lost = [0, 0]
    for _ in range(300):
        known = one.record.last_states, one.record.elapsed
        arm = one.ask()
        assert arm == policy.choose(known[0][None], known[1][None])[0, 0]
        if oracle == "myopic":
            pays = []
            for number, kind in enumerate(problem.arms):
                state, tau = known[0][number], known[1][number]
                rest = np.linalg.matrix_power(kind.chain, tau if state == -1 else tau - 1)
                before = kind.initial_distribution if state == -1 else kind.stationary @ kind.active_chain
                pays.append((before if state < 0 else kind.active_chain[state]) @ rest @ kind.rewards)
            assert pays[arm] > max(pays) - 1e-9
        if rng.random() < 0.3:
            lost[arm] += 1
            if rng.random() < 0.5:
                one.tell(lost=True)
            else:
                one.skip()
        else:
            state = int(rng.choice(problem.arms[arm].n_states, p=one.belief()[arm]))
            reward = float(problem.arms[arm].rewards[state] > rng.random())
            one.tell(state, reward if arm == 0 else float(THREE.rewards[state]))
    assert min(lost) > 10
    assert min(counts := [int(one.record.counts(arm)[-1].sum()) for arm in (0, 1)]) > 5, counts


def test_no_transition_leads_across_a_lost_pull():
    one = Agent(Always(0), PROBLEM.task())
    for state, lost in [(0, False), (None, True), (1, False), (1, False)]:
        one.ask()
        one.tell(*(() if lost else (state, 0.0)), lost=lost)
    counts = one.record.counts(0)
    assert one.record.transitions(0).tolist() == [[0, 0], [0, 1]]
    assert counts[2].sum() == counts[3].sum() == 1
    assert counts[3, 0].tolist() == [0, 1]
    assert one.record.seen(0).tolist() == [1, 2]


def test_a_decision_that_was_not_carried_out():
    one = Agent(Always(0), PROBLEM.task(), late=2)
    one.ask()
    one.tell(pulled=False)
    assert one.record.last_states.tolist() == [-1, -1, -1]
    one.tell(pulled=False, slot=1)
    with pytest.raises(
        ProblemError, match="slot 1: arm 'a' was reported as not pulled before; the first report stands"
    ):
        one.tell(lost=True, slot=1, arm=0)
    one.tell(1, 0.0, slot=1)
    assert one.record.last_states.tolist() == [1, -1, -1]
    again = Agent.from_dict(json.loads(json.dumps(one.to_dict())), Always(0), trust_modules=False)
    assert again.to_dict() == one.to_dict()
    one.ask()
    one.tell(lost=True, arm="b")
    assert one.record.last_states.tolist() == [1, LOST, -1]
    with pytest.raises(ProblemError, match="slot 2 has its answer; one arm is pulled a slot"):
        one.tell(lost=True, slot=2, arm="a")
    one.ask()
    with pytest.raises(ProblemError, match="lost feedback has no state"):
        one.tell(0, 1.0, pulled=False)


def test_no_more_arms_are_pulled_than_plays():
    """Of two requested arms, one was replaced: the first without feedback counts as pulled, until more is known."""
    one = agent(Problem([TWO, THREE, TWO.named("c")], plays=2))
    assert one.ask() == (0, 1)
    one.tell(1, 0.0, arm="c")
    assert one.record.last_states.tolist() == [LOST, -1, 1]
    one.tell(2, 0.0, arm="b", slot=1)
    assert one.record.last_states.tolist() == [-1, 2, 1]


@pytest.mark.parametrize("spec", ["likelihood-ucb", "restless-ucb", "colored-ucrl2", "likelihood-dominance", "ts-9"])
def test_learners_that_assume_one_chain_refuse(spec):
    pattern = r"arm 'a' has active_transitions, and [a-z0-9-]+ plays uncontrolled arms only; .* are .*round-robin"
    with pytest.raises(ProblemError, match=pattern):
        Agent(spec, Problem([TWO, PLAIN]).task(1000))
    resting = Problem([Arm([[0.7, 0.3], [0.2, 0.8]], [1, 0], passive_rewards=[0.5, 0]), PLAIN])
    with pytest.raises(ProblemError, match="an arm has passive_rewards"):
        Agent(spec, resting.task(1000))
    one = Agent("round-robin", Problem([PLAIN, PLAIN.named("d")]).task(1000))
    one.add_arm("reacts", reacts=True)
    with pytest.raises(ProblemError, match="arm 'reacts' has active_transitions"):
        one.learner = spec


def test_observed_arms_are_refused():
    with pytest.raises(ProblemError, match="round-robin cannot play arms that are all observed"):
        Agent("round-robin", Problem([TWO, PLAIN], observed="all").task())


def test_only_the_latest_unseen_pulls_are_kept(monkeypatch):
    monkeypatch.setattr(record_module, "MOST_UNSEEN_PULLS", 3)
    one = Agent(Always(0), PROBLEM.task(reveal=["problem"]), late=4)
    one.ask()
    one.tell(0, 1.0)
    for _ in range(3):
        one.ask()
        one.tell(lost=True)
    assert one.record.unseen[0] == UnseenPulls(0, 1, (2, 3, 4))
    for _ in range(6):
        one.ask()
        one.tell(lost=True)
    assert one.record.unseen[0] == UnseenPulls(3, 8, (8, 9, 10))
    active = np.array(TWO.active_transitions)
    np.testing.assert_allclose(one.belief()[0], TWO.stationary @ active @ active @ active)
    again = Agent.from_dict(json.loads(json.dumps(one.to_dict())), Always(0), trust_modules=False)
    assert again.record.unseen == one.record.unseen


@pytest.mark.parametrize("options", [{"memory": 256, "late": 9}, {"on_change": "forget"}])
def test_forgetting(options):
    """What is forgotten are observations, not pulls."""
    rng = np.random.default_rng(3)
    one = agent(**options)
    for slot in range(1, 1500):
        arm = one.ask()
        lost = rng.random() < 0.2
        state = int(rng.integers(2)) if slot < 700 else 0
        if lost and slot % 2:
            one.tell(lost=True)
        elif lost:
            one.skip()
        else:
            one.tell(state, 1.0 - state if arm != 1 else [1, 0.5, 0][state])
        if slot % 50 == 0:
            again = Agent.from_dict(json.loads(json.dumps(one.to_dict())), None, trust_modules=False)
            assert again.to_dict() == one.to_dict()
            assert all(belief.sum() == pytest.approx(1) for belief in one.belief(PROBLEM))
    assert one.alarms or "memory" in options
    assert one.record.forgotten.any()


def test_a_reacting_arm_raises_no_alarm():
    """Two chains are no change: false alarms in 1e-3 of runs, as evidence 20 is asked for."""
    rng = np.random.default_rng(8)
    problem = Problem([TWO, PLAIN, PLAIN.named("d")])
    one = Agent("round-robin", problem.task(), on_change="warn", alarm_rate=1e-7)
    states = np.zeros(3, dtype=int)
    for slot in range(3000):
        arm = one.ask() if slot % 3 else 0
        states = np.array(
            [
                int(rng.random() >= (active if number == arm else passive)[state][0])
                for number, (state, passive, active) in enumerate(
                    (state, kind.chain, kind.active_chain) for state, kind in zip(states, problem.arms, strict=True)
                )
            ]
        )
        one.tell(int(states[arm]), float(states[arm] == 0), arm=arm)
    assert not one.alarms


def test_a_history_is_replayed(tmp_path):
    one = agent(history=tmp_path / "log.jsonl", late=8)
    for slot in range(40):
        arm = one.ask()
        if slot % 4 == 1:
            one.tell(lost=True, pulled=slot % 8 == 1)
        elif slot % 4 == 2:
            one.skip()
        else:
            one.tell(slot % 2, 1.0 - slot % 2 if arm != 1 else [1, 0.5][slot % 2])
        if slot % 8 == 5:
            one.tell(0, 1.0, slot=slot - 2)
        if slot == 20:
            one.add_arm("e", reacts=True, passive_rewards=[0.25, 0.5], setup_cost=0.125)
    again = Agent.replay(tmp_path / "log.jsonl")
    assert again.to_dict() == one.to_dict()
    assert again.task.reacts == (True, True, False, True)
    assert again.task.passive_rewards[3] == (0.25, 0.5)
    assert again.task.setup_costs == (0, 0, 0, 0.125)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["record"]["unseen"][0][3].clear(),
        lambda data: data["record"]["unseen"][0].__setitem__(1, 3),
        lambda data: data["record"].pop("unseen"),
        lambda data: data["record"]["unseen"][0].__setitem__(0, 2),
        lambda data: data["window"]["slots"].clear(),
        lambda data: data["task"].__setitem__("reacts", [False, True, False]),
    ],
)
def test_impossible_pulls_are_refused(change):
    one = Agent(Always(0), PROBLEM.task())
    for lost in (False, True, True):
        one.ask()
        one.tell(*(() if lost else (0, 1.0)), lost=lost)
    data = json.loads(json.dumps(one.to_dict()))
    Agent.from_dict(data, Always(0), trust_modules=False)
    change(data)
    with pytest.raises((ProblemError, LookupError, ValueError)):
        Agent.from_dict(data, Always(0), trust_modules=False)
