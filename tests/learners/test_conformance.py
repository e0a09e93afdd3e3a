"""What every learner promises, whoever wrote it."""

import json

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Agent, Problem, ProblemError
from restless_bandits.learners import ALIASES, LEARNERS
from restless_bandits.simulation.engine import World, play_run
from restless_bandits.streams import world_words
from tests import reference

SPECS = [
    *(name for name in LEARNERS if name != "colored-ucrl2"),
    *(["colored-ucrl2:cap=4"] if "colored-ucrl2" in LEARNERS else []),
    *ALIASES,
    "restless-ucb:rewards=known,radius=none,m=7",
    "restless-ucb:oracle=exact,m=4,radius=counts",
    "restless-ucb:anytime=yes,oracle=auto",
]

PROBLEMS = {
    "paper": Problem.builtin("paper-1"),
    "three arms": Problem.builtin("table-3"),
    "unknown start": Problem.random(2, 2, seed=3, initial="unknown"),
    "mixed states": Problem.random(2, [2, 3], seed=4),
    "fixed rewards": Problem.random(2, 2, seed=5, reward_law="fixed"),
    "two plays": Problem.random(3, 2, seed=6, plays=2),
}


def willing(spec, problem, horizon=400):
    """The learner, or None where it refuses the problem with one clear sentence."""
    learner = rb.learner(spec)
    refusal = ""
    try:
        learner.task(problem, horizon)
    except ProblemError as error:
        refusal = str(error)
    assert "\n" not in refusal
    return None if refusal else learner


@pytest.fixture(params=PROBLEMS, ids=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param]


def simulated(learner, problem, horizon, seed=1, run=2):
    return play_run(learner, World(problem), horizon, np.array([horizon]), seed=seed, run=run, trace=True)


def history(run):
    return [
        (tuple(arms), tuple(states), tuple(rewards))
        for arms, states, rewards in zip(*(part.tolist() for part in run.trace), strict=True)
    ]


@pytest.mark.parametrize("spec", SPECS)
def test_simulator_and_agent_take_the_same_path(spec, problem):
    learner = willing(spec, problem)
    if learner is None:
        return
    run = simulated(learner, problem, 400)
    agent = Agent(learner, learner.task(problem, 400), seed=1, run=2, content=problem.content)
    world = reference.World(problem, world_words(1, problem.content, 2))
    reference.play_with_agent(agent, world, 400)
    assert world.history == history(run)
    np.testing.assert_array_equal(agent.record.flat_counts, run.record.flat_counts)


@pytest.mark.parametrize("spec", SPECS)
def test_saving_and_loading_changes_nothing(spec, problem, tmp_path):
    """Stored and read again after 1, 57 and 300 slots, in the middle of plans, before and after asking."""
    learner = willing(spec, problem)
    if learner is None:
        return
    path = tmp_path / "agent.json"
    agent = Agent(learner, learner.task(problem, 400), seed=1, run=2, content=problem.content)
    world = reference.World(problem, world_words(1, problem.content, 2))
    done = 0
    for stop in (1, 57, 300, 400):
        reference.play_with_agent(agent, world, stop - done)
        done = stop
        if stop == 57:
            agent.ask()
        agent.save(path)
        json.loads(path.read_text())
        agent = Agent.load(path)
    assert world.history == history(simulated(learner, problem, 400))


@pytest.mark.parametrize("spec", SPECS)
def test_same_seed_same_run_and_other_seeds_differ(spec):
    problem = PROBLEMS["paper"]
    learner = rb.learner(spec)
    one, again = simulated(learner, problem, 300), simulated(learner, problem, 300)
    assert history(one) == history(again)
    assert history(one) != history(simulated(learner, problem, 300, seed=2))
    assert history(one) != history(simulated(learner, problem, 300, run=3))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("horizon", [1, 2, 13])
def test_short_horizons_are_no_error(spec, horizon):
    run = simulated(rb.learner(spec), PROBLEMS["paper"], horizon)
    assert run.record.slots == horizon
    assert sum(run.record.plan_lengths) == horizon


@pytest.mark.parametrize("spec", SPECS)
def test_spec_round_trip(spec):
    learner = rb.learner(spec)
    assert rb.learner(learner.spec) == learner
    assert hash(learner) == hash(rb.learner(learner.spec))
    with pytest.raises(AttributeError):
        learner.name_of_nothing = 1


@pytest.mark.parametrize("spec", SPECS)
def test_a_learner_keeps_nothing(spec):
    """The same record gives the same plan, whatever the learner was asked before."""
    problem = PROBLEMS["paper"]
    learner = rb.learner(spec)
    task = learner.task(problem, 400)
    run = simulated(learner, problem, 200)
    plans = []
    for _ in range(2):
        record = run.record.copy()
        plans.append(learner.plan(record, task, np.random.default_rng(1)))
        learner.plan(rb.record.Record.of(task), task, np.random.default_rng(9))
    states = np.array([[s, k] for s in range(2) for k in range(2)] * 3)
    slots = np.array([[1, 2]] * 4 + [[4, 1]] * 4 + [[1, 9]] * 4)
    assert plans[0].until == plans[1].until
    assert type(plans[0].policy) is type(plans[1].policy)
    if not isinstance(plans[0].policy, rb.policies.EmpiricalUCB):
        np.testing.assert_array_equal(plans[0].policy.choose(states, slots), plans[1].policy.choose(states, slots))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("restles-ucb", "did you mean 'restless-ucb'"),
        ("restless-ucb:radus=0", "has no option 'radus'; did you mean 'radius'"),
        ("restless-ucb:radius", "not of the form key=value"),
        ("restless-ucb:radius=papr", "did you mean 'paper'"),
        ("restless-ucb:radius=-1", "must not be negative"),
        ("restless-ucb:rewards=learnt", "did you mean 'learned'"),
        ("restless-ucb:m=0", "m is 0"),
        ("restless-ucb:oracle=whitle", "did you mean 'whittle'"),
        ("restless-ucb:m=3,m=4", "given twice"),
        ("round-robin:speed=3", "it has no options"),
        ("ucb1:width=-2", "must not be negative"),
        ("restless-ucb:m=[3,4", "lacks its closing bracket"),
    ],
)
def test_bad_specs(spec, message):
    with pytest.raises(ProblemError, match=message):
        rb.learner(spec)
