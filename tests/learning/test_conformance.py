"""What every learner promises, whoever wrote it."""

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Agent, ProblemError
from restless_bandits._internal.random_streams import world_words
from restless_bandits.registry import OBSERVED_ORACLES, learner_names
from restless_bandits.simulation.engine import World, play_run
from restless_bandits.testing import check_learner, observed_trial_problems, trial_problems
from tests import reference

SPECS = [
    *(
        name
        for name in learner_names()
        if name not in ("colored-ucrl2", "informed", "dominance-ucb", *OBSERVED_ORACLES)
        and "pulled" in rb.learner(name).observed
    ),
    "colored-ucrl2:cap=4",
    "restless-ucb:rewards=known,radius=none,m=7",
    "restless-ucb:oracle=exact,m=4,radius=counts",
    "restless-ucb:anytime=yes,oracle=auto",
]

PROBLEMS = trial_problems()
OBSERVED = observed_trial_problems()
ONLY_OBSERVED = [name for name in learner_names() if rb.learner(name).observed == {"all"}]
OF_OBSERVED = [*ONLY_OBSERVED, "posterior", "tsde:rewards=known", "lp-index"]


def plays(spec, problem):
    """Whether a learner takes a problem; where it refuses, there is nothing to test."""
    try:
        rb.learner(spec).task(problem, 250)
    except ProblemError:
        return False
    return True


on_every_problem = pytest.mark.parametrize(
    ("problem", "spec"),
    [
        pytest.param(problem, spec, id=f"{name}-{spec}")
        for spec in SPECS
        for name, problem in PROBLEMS.items()
        if plays(spec, problem)
    ],
)


def simulated(learner, problem, horizon, seed=1, run=2):
    return play_run(learner, World(problem), horizon, np.array([horizon]), seed=seed, run=run, trace=True)


def history(run):
    return [
        (tuple(arms), tuple(states), tuple(rewards))
        for arms, states, rewards in zip(*(part.tolist() for part in run.trace), strict=True)
    ]


def test_few_are_refused():
    assert len(on_every_problem.args[1]) >= len(SPECS) * len(PROBLEMS) - 7


@on_every_problem
def test_simulator_and_agent_take_the_same_path(spec, problem):
    learner = rb.learner(spec)
    run = simulated(learner, problem, 250)
    agent = Agent(learner, learner.task(problem, 250), seed=1, run=2, content=problem.content)
    world = reference.World(problem, world_words(1, problem.content, 2))
    reference.play_with_agent(agent, world, 250)
    assert world.history == history(run)
    np.testing.assert_array_equal(agent.record.flat_counts, run.record.flat_counts)


@on_every_problem
def test_keeps_every_promise(spec, problem):
    check_learner(spec, [problem], horizon=120)


@pytest.mark.parametrize("spec", OF_OBSERVED)
def test_keeps_every_promise_on_observed_arms(spec):
    check_learner(spec, OBSERVED.values(), horizon=120)


@pytest.mark.parametrize("spec", ONLY_OBSERVED)
def test_learners_of_observed_arms_alone_refuse_the_others(spec):
    with pytest.raises(ProblemError, match=f"{spec} cannot play arms that are seen when pulled; .* likelihood-ucb"):
        check_learner(spec, PROBLEMS.values())


@pytest.mark.parametrize("spec", SPECS)
def test_same_seed_same_run_and_other_seeds_differ(spec):
    problem = PROBLEMS["paper"]
    learner = rb.learner(spec)
    one, again = simulated(learner, problem, 300), simulated(learner, problem, 300)
    assert history(one) == history(again)
    assert history(one) != history(simulated(learner, problem, 300, seed=2))
    assert history(one) != history(simulated(learner, problem, 300, run=3))


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
        ("restless-ucb:m=" + "[" * 2000 + "]" * 2000, "more than 10 brackets in each other"),
        ("restless-ucb:m=9223372036854775808", r"m is 9223372036854775808; .* below 2\^63"),
        ("restless-ucb:oracle=1e9", r"1000000000\.0 is no oracle"),
        ("ucb1:width=" + "9" * 400, r"width is '9+\.\.\.; it must be a number"),
        ("ts:pool=9223372036854775808", "pool is 9223372036854775808"),
    ],
)
def test_bad_specs(spec, message):
    with pytest.raises(ProblemError, match=message):
        rb.learner(spec)
