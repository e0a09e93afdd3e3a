"""Agents of observed arms: the choices of the simulator, missing states, feedback, arms that come and go, files."""

import json

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits._internal.random_streams import world_generator, world_words
from restless_bandits.agent import ObservedAgent
from restless_bandits.agent.packing import packed, packed_change, unpacked, unpacked_change
from restless_bandits.oracles.observed.rollout import ObservedWorld
from restless_bandits.oracles.observed.rollout_kernels import step_pulled
from restless_bandits.simulation.observed_engine import learn_observed
from restless_bandits.testing import SEED, played_on_observed
from tests.simulation.observed_arms import drawn, ragged

LEARNERS = (
    "posterior",
    "posterior:rewards=known",
    "certainty-equivalent",
    "random",
    "tsde",
    "wiql",
    "wibql",
    "ucwhittle",
    "informed:oracle=lp-index",
)
PROBLEMS = {"two states": drawn(), "at most": drawn(at_most=True), "ragged": ragged()}


class World:
    """The arms of a run of the simulator: states before the choice, rewards after."""

    def __init__(self, problem, seed=0, run=0):
        self._world = ObservedWorld(problem)
        self._words = world_words(seed, problem.content, run)
        self.states = self._world.first_states(world_generator(seed, problem.content, run)).astype(np.uint16)

    def step(self, arms):
        """Return the rewards of the slot, and let all arms step."""
        world, pulled = self._world, np.isin(np.arange(len(self.states)), arms)
        paid = world.reward[2 * (world.layout.first + self.states) + pulled]
        step_pulled(self._words, world.arms, world.draws, self.states, pulled, np.zeros(2))
        return paid


def agent_of(problem, spec="posterior", slots=None, **options):
    player = rb.learner(spec)
    return rb.Agent(player, player.task(problem, slots), content=problem.content, **options)


def play(agent, world, slots, *, hide=0.0, told=True):
    """Return the decisions of some slots; a share of the states is not shown."""
    path, rng = [], np.random.default_rng(agent.slots)
    for _ in range(slots):
        hidden = rng.random(len(world.states)) < hide
        arms = np.atleast_1d(agent.ask([None if h else int(s) for h, s in zip(hidden, world.states, strict=True)]))
        path.append(arms.tolist())
        paid = world.step(arms)
        if told:
            agent.tell(paid)
    return path


@pytest.mark.parametrize(
    ("spec", "name"),
    [(spec, name) for spec in LEARNERS for name in PROBLEMS if name != "ragged" or "wi" not in spec[:3]],
)
def test_the_agent_makes_the_choices_of_the_simulator(spec, name):
    problem, player = PROBLEMS[name], rb.learner(spec)
    path, _ = played_on_observed(player, problem, 80)
    run = learn_observed(player, ObservedWorld(problem), 80, np.array([80]), seed=SEED, run=0)
    agent = agent_of(problem, spec, 80, seed=SEED)
    assert isinstance(agent, ObservedAgent)
    assert play(agent, World(problem, seed=SEED), 80) == path
    for column in ("pulls", "paid", "flat_rewards", "last_pulled", "last_rewards"):
        assert np.array_equal(getattr(agent.record, column), getattr(run.record, column)), column
    assert agent.record.plan_lengths == run.record.plan_lengths[:-1]


@pytest.mark.parametrize("spec", ["posterior", "random", "tsde", "ucwhittle", "wibql"])
def test_a_saved_agent_and_its_history_decide_identically(spec, tmp_path):
    problem = drawn()
    agent = agent_of(problem, spec, history=tmp_path / "h.jsonl")
    world = World(problem)
    play(agent, world, 23, hide=0.2)
    agent.ask([None, *world.states[1:].tolist()], exclude=[7])
    agent.tell(pulled=[0, 1])
    agent.save(tmp_path / "a.json")
    twins = [rb.Agent.load(tmp_path / "a.json"), rb.Agent.replay(tmp_path / "h.jsonl")]
    assert all(isinstance(twin, ObservedAgent) for twin in twins)
    assert twins[0].to_dict() == agent.to_dict() == twins[1].to_dict()
    paths = [play(one, World(problem, seed=4), 40, hide=0.2) for one in (agent, twins[0])]
    assert paths[0] == paths[1]
    # The history goes on where it ended.
    assert [event["kind"] for event in agent.history(since=1)][:2] == ["ask", "tell"]
    with pytest.raises(rb.ProblemError, match="holds another agent"):
        agent_of(problem).save(tmp_path / "a.json")


def test_a_damaged_file_is_refused(tmp_path):
    agent = agent_of(drawn())
    play(agent, World(drawn()), 5)
    data = agent.to_dict()
    for key, value in {
        "record": data["record"] | {"visits": packed(np.zeros(32, dtype=np.int64))},
        "missing": packed(np.array([3, 2])),
        "decision": packed(np.array([99])),
        "retired": packed(np.arange(7)),
    }.items():
        with pytest.raises(rb.ProblemError):
            ObservedAgent.from_dict(json.loads(json.dumps(data | {key: value})))
    (tmp_path / "a.json").write_text(json.dumps(data | {"digest": "0"}))
    with pytest.raises(rb.ProblemError, match="is damaged: it does not hold what was written"):
        rb.Agent.load(tmp_path / "a.json")


def test_missing_states_have_beliefs_by_the_actions_taken():
    problem = drawn()
    agent = agent_of(problem, "certainty-equivalent")
    world = World(problem)
    play(agent, world, 30)
    states = world.states.astype(int).tolist()
    agent.ask(states)
    taken, rows = agent.record.last_pulled.astype(int), {}
    agent.tell(world.step(np.flatnonzero(taken)))
    agent.ask([None, None, *world.states[2:].tolist()])
    for arm in (0, 1):
        counts = agent.record.counts(arm) + 1.0
        rows[arm] = counts / counts.sum(axis=2, keepdims=True)
        assert agent.belief()[arm] == pytest.approx(rows[arm][states[arm], taken[arm]])
    again = agent.record.last_pulled.astype(int)
    before = agent.belief()
    world.step(np.flatnonzero(again))
    agent.ask({f"arm {k + 1}": int(world.states[k]) for k in range(2, 8)})
    for arm in (0, 1):
        counts = agent.record.counts(arm) + 1.0
        rows = counts / counts.sum(axis=2, keepdims=True)
        assert agent.belief()[arm] == pytest.approx(before[arm] @ rows[:, again[arm]])
    assert agent.belief()[2:].max(axis=1).tolist() == [1.0] * 6
    # Unseen steps are not counted, and the others are.
    assert agent.record.counts(0).sum() == 30
    assert agent.record.counts(2).sum() == 32


def test_a_missing_arm_scores_the_mean_of_its_indices():
    problem = drawn(12, plays=3)
    agent = agent_of(problem, "informed:oracle=lp-index")
    world = World(problem)
    play(agent, world, 3)
    states = world.states.astype(int).tolist()
    whole = agent.rank(states)
    hidden = agent.rank([None, *states[1:]])
    score = {(name, state): value for name, state, value in whole.rows()}
    index = {name: value for name, _, value in hidden.rows()}
    both = [agent.rank([state, *states[1:]]) for state in (0, 1)]
    of_state = [dict(zip(one.names, one.scores, strict=True))["arm 1"] for one in both]
    arm, last = problem.arms[0], int(agent.record.last_states[0])
    row = (arm.active_transitions if agent.record.last_pulled[0] else arm.transitions)[last]
    assert index["arm 1"] == pytest.approx(row @ of_state)
    assert all(index[name] == score[name, states[int(name[4:]) - 1]] for name in index if name != "arm 1")
    assert list(hidden.scores) == sorted(hidden.scores, reverse=True)
    at_random = agent_of(problem, "random")
    drawn_arms = at_random.ask(states)
    listed = at_random.rank(top=2)
    assert (listed.arms.tolist(), np.isnan(listed.scores).all()) == (list(drawn_arms[:2]), True)
    # The decision takes the first of the list.
    assert sorted(hidden.arms[:3].tolist()) == list(agent.ask([None, *states[1:]]))
    assert len(agent.rank(top=4)) == 4
    assert "arm 2" not in agent.rank(exclude=["arm 2"]).names
    assert hidden.to_csv().startswith("rank,name,state,index\n1,")


def test_feedback_is_checked_and_counts_once():
    agent = agent_of(drawn(4, plays=1))
    with pytest.raises(rb.ProblemError, match="ask with the states"):
        agent.tell([0.1] * 4)
    with pytest.raises(rb.ProblemError, match="ask needs the states of all arms"):
        agent.ask()
    arm = agent.ask([0, 1, 0, 1])
    assert agent.ask() == arm
    assert [(one.slot, one.arms) for one in agent.open] == [(1, (arm,))]
    agent.tell({"arm 1": 0.5})
    agent.tell({"arm 1": 0.5, "arm 2": 0.25})
    agent.tell([0.5, 0.25, None, np.nan])
    assert agent.open == []
    assert (agent.record.paid.sum(), agent.record.flat_rewards.sum()) == (2, 0.75)
    with pytest.raises(rb.ProblemError, match="arm 'arm 1': different feedback for this slot was told before"):
        agent.tell({"arm 1": 0.6})
    with pytest.raises(rb.ProblemError, match="rewards were told for other pulls"):
        agent.tell(pulled=[(arm + 1) % 4])
    with pytest.raises(rb.ProblemError, match=r"arm 'arm 3': reward 1.5 is not between 0 and 1"):
        agent.tell({"arm 3": 1.5})
    for states, why in (
        ([0, 1, 0], "give the state of each of 4 arms"),
        ([0, 1, 2, 0], "arm 'arm 3' has no state 2"),
        ([0, 1, 0.5, 0], "arm 'arm 3': state 0.5 is no whole number"),
        ({"arm 9": 0}, "there is no arm 'arm 9'"),
    ):
        with pytest.raises(rb.ProblemError, match=why):
            agent.ask(states)
    assert agent.slots == 1


def test_what_was_really_pulled_counts():
    agent = agent_of(drawn(4, plays=1), "random")
    agent.ask([0, 0, 0, 0])
    agent.tell(pulled=["arm 1", "arm 3"])
    agent.ask([1, 1, 1, 1])
    counts = [agent.record.counts(arm)[0, :, 1].tolist() for arm in range(4)]
    assert counts == [[0, 1], [1, 0], [0, 1], [1, 0]]
    assert agent.record.pulls.sum() == 3


def test_arms_come_and_go_and_a_new_arm_knows_its_kind():
    kinds = ["a", "b"] * 4
    agent = rb.Agent(arms=[f"p{k}" for k in range(8)], observed="all", n_states=2, plays=2, kinds=kinds, seed=1)
    rng = np.random.default_rng(0)
    for _ in range(30):
        agent.ask(rng.integers(0, 2, 8).tolist())
    before = agent.record.counts(0).copy()
    assert agent.add_arm("new", "a") == 8
    assert agent.task.kinds[8] == 0
    assert (agent.record.counts(0) == before).all()
    agent.ask([0] * 9)
    agent.retire_arm("p0")
    for _ in range(20):
        chosen = agent.ask(dict.fromkeys(agent.in_service, 0))
        assert 0 not in chosen
    assert np.isnan(agent.belief()[0]).all()
    with pytest.raises(rb.ProblemError, match="'p0' is out of service; leave it out"):
        agent.ask({"p0": 1})
    agent.restore_arm("p0")
    assert agent.belief()[0].tolist() == [0.5, 0.5]
    assert agent.rank().names
    agent.ask([0] * 9)
    assert agent.add_arm("other", "c", n_states=3) == 9
    assert agent.ask([0] * 9 + [2])
    assert agent.estimate().arms[2].transitions.shape == (3, 3)
    with pytest.raises(rb.ProblemError, match="there is an arm 'new' already"):
        agent.add_arm("new")
    twin = ObservedAgent.from_dict(json.loads(json.dumps(agent.to_dict())))
    states = rng.integers(0, 2, (10, 10)).tolist()
    assert [agent.ask(row) for row in states] == [twin.ask(row) for row in states]


def test_slots_pass_without_states():
    agent = agent_of(drawn())
    play(agent, World(drawn()), 5)
    agent.skip(3)
    assert agent.slots == 8
    assert agent.record.visits.sum() == 4 * 8
    assert agent.belief().sum(axis=1) == pytest.approx(np.ones(8))
    assert agent.ask([0] * 8)


def test_states_have_names_and_rewards_may_be_costs():
    agent = rb.Agent(
        arms=["x", "y"], observed="all", n_states=2, state_names=["good", "bad"], cost_range=(0, 50), kinds=[0, 0]
    )
    agent.ask(["good", "bad"])
    agent.tell(costs=[10, 40])
    assert agent.record.flat_rewards.tolist().count(0.0) == 2
    assert sorted(agent.record.flat_rewards.tolist())[:2] == [-40, -10]


def test_what_is_for_pulled_arms_is_refused():
    with pytest.raises(rb.ProblemError, match="late is for arms that are seen when pulled"):
        rb.Agent(arms=["a"], observed="all", late=3)
    with pytest.raises(rb.ProblemError, match="restless-ucb cannot play arms that are all observed"):
        rb.Agent("restless-ucb", arms=["a", "b"], observed="all")
    with pytest.raises(rb.ProblemError, match="kinds is for arms that are all observed"):
        rb.Agent(arms=["a", "b"], kinds=[0, 0])
    with pytest.raises(rb.ProblemError, match="give arms="):
        rb.Agent(observed="all")


def test_packed_columns_come_back():
    rng = np.random.default_rng(1)
    for column in (np.array([-1, 5, 300]), np.zeros((0, 3)), rng.random((4, 2)), np.array([True, False])):
        again = unpacked(packed(column))
        assert again.shape == column.shape
        assert np.array_equal(again, column)
    before = rng.integers(-1, 3, 1000)
    after = before.copy()
    after[[3, 500, 999]] = 7
    assert np.array_equal(unpacked_change(before, packed_change(before, after)), after)
    assert len(json.dumps(packed_change(before, after))) < 200
    for wrong in ("u1 3 x", "u1 999 eJw=", 5, "f8 1,2", packed(before)[:-9]):
        with pytest.raises(rb.ProblemError, match="no packed array"):
            unpacked(wrong)
