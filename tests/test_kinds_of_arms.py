"""Who plays which kind of arm: every use of a problem works, or refuses in one sentence.

``USES`` has the rows of the table and ``PROBLEMS`` the columns. A cell that is missing in ``REFUSED`` works.
"""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import restless_bandits as rb
from restless_bandits import oracles
from restless_bandits.cli.app import app
from tests.optional import needed
from tests.service.clients import Inside

PASSIVE, ACTIVE = (
    ([[0.9, 0.1], [0.4, 0.6]], [[0.8, 0.2], [0.3, 0.7]]),
    ([[0.3, 0.7], [0.1, 0.9]], [[0.5, 0.5], [0.2, 0.8]]),
)
REWARDS = [1, 0], [0.75, 0.25]


def problem(reacts, observed="pulled"):
    arms = [
        rb.Arm(passive, rewards, active_transitions=active if reacts else None, name=name)
        for passive, active, rewards, name in zip(PASSIVE, ACTIVE, REWARDS, "ab", strict=True)
    ]
    return rb.Problem(arms, observed=observed, name="two")


PROBLEMS = {"uncontrolled": problem(False), "reacting": problem(True), "observed": problem(True, "all")}


def exact(problem, _):
    found = rb.solve(problem, "exact")
    assert found.certified
    assert found.lower <= found.gain <= found.upper < found.lower + 1e-9


def index(problem, _):
    for arm in problem.arms:
        found = oracles.whittle_index(arm, observed=problem.observed)
        assert found.indexable
        assert found.table.shape[1] == 1 if found.observed else found.table.shape[1] > 5


def bound(problem, _):
    upper = oracles.relaxation_bound(problem)
    assert rb.solve(problem, "exact").lower <= upper < 2


def simulate(problem, _):
    result = rb.simulate(problem, ["whittle", "myopic"], 200, runs=3, seed=1)
    assert result.comparator.kind == "exact"
    assert np.isfinite(result.regret()).all()


def learn(problem, _):
    result = rb.simulate(problem, [rb.default_learner(problem.task())], 200, runs=2, seed=1)
    assert np.isfinite(result.regret()).all()


def paper(problem, _):
    rb.simulate(problem, "likelihood-ucb", 50, runs=1)


def agent(problem, _):
    one = rb.Agent("myopic", problem.task(reveal=["problem"]), seed=1)
    seen = problem.observed == "all"
    for slot in range(1, 9):
        states = [slot % 2, slot // 2 % 2]
        arm = one.ask(states=states) if seen else one.ask()
        assert arm in (0, 1)
        if seen:
            one.tell(rewards=[1.0 - state for state in states])
        elif slot == 4:
            one.tell(lost=True)
        else:
            one.tell(states[arm], 1.0 - states[arm])
    assert one.slots == 8


def service(problem, folder):
    seen = problem.observed == "all"
    inside = Inside(folder)
    try:
        arms = [{"name": arm.name, "reacts": arm.reacts} for arm in problem.arms]
        given = {"name": "a", "arms": arms, "learner": "round-robin", "seed": 1}
        if seen:
            given |= {"arms": [arm.name for arm in problem.arms], "learner": "posterior", "observed": "all"}
        reply = inside("POST", "/agents", given)
        for slot in range(3 if reply.status == 201 else 0):
            asked = {"request": str(slot)} | ({"states": [0, 1]} if seen else {})
            reply = inside("POST", "/agents/a/ask", asked, role="play")
            told = {"rewards": [1.0, 0.0]} if seen else {"lost": True} if slot else {"state": 0, "reward": 1.0}
            reply = inside("POST", "/agents/a/tell", {"decision": reply.json()["decision"]} | told, role="play")
        if reply.status >= 400:
            raise rb.ProblemError(reply.json()["error"])
    finally:
        inside.close()


def log_of(problem, *, complete=False, slots=600):
    """A log of random pulls: with actions where arms react, and with all states where they are seen."""
    rng, lines, seen = np.random.default_rng(3), [], complete or problem.observed == "all"
    states = [0, 0]
    for slot in range(slots):
        pulled = int(rng.integers(2))
        for arm, state in enumerate(states):
            if seen or arm == pulled:
                lines.append((slot, problem.arms[arm].name, float(state), int(arm == pulled)))
            chain = (problem.arms[arm].chain, problem.arms[arm].active_chain)[int(arm == pulled)]
            states[arm] = int(rng.random() >= chain[state, 0])
    names = ("time", "arm", "state", "action")[: 4 if problem.reacts else 3]
    return rb.data.read_trace({name: [line[k] for line in lines] for k, name in enumerate(names)})


def fit(problem, _):
    found = rb.data.fit(log_of(problem))
    assert (found.problem.reacts, found.problem.observed) == (problem.reacts, problem.observed)
    for fitted, arm in zip(found.problem.arms, problem.arms, strict=True):
        assert np.abs(fitted.transitions - arm.transitions).max() < 0.3
        assert np.abs(fitted.active_chain - arm.active_chain).max() < 0.3


def replay(problem, _):
    (found,) = rb.data.replay(log_of(problem, complete=True), ["round-robin"], runs=1).learners
    assert found.rewards.shape == (1, 600)


def evaluate_log(problem, _):
    (found,) = rb.data.evaluate_policy(log_of(problem), ["best-arm"], draws=10).policies
    assert 0 < found.model.gain < 1


def evaluate(problem, _):
    policy = oracles.policy("myopic", problem)
    found = rb.evaluate(problem, policy, simulate=problem.observed == "all")
    assert 0 < found.gain < rb.solve(problem, "exact").upper + 5 * (found.stderr or 0)


def gymnasium(problem, _):
    needed("gymnasium")
    env = rb.gym.RestlessBanditEnv(problem, horizon=20)
    shown, _ = env.reset(seed=1)
    assert ("state" in shown) == (problem.observed == "all")
    ended = False
    while not ended:
        shown, reward, _, ended, _ = env.step(env.action_space.sample())
        assert 0 <= reward <= 2


def command(*words):
    def use(problem, folder):
        problem.save(folder / "two.toml")
        name, *others = words
        done = CliRunner().invoke(app, [name, str(folder / "two.toml"), *others, "--json"])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert json.loads(done.stdout)

    return use


USES = {
    "exact": exact,
    "index": index,
    "bound": bound,
    "simulate": simulate,
    "the default learner": learn,
    "a learner of the paper": paper,
    "agent": agent,
    "service": service,
    "fit": fit,
    "replay": replay,
    "evaluate a log": evaluate_log,
    "evaluate": evaluate,
    "gymnasium": gymnasium,
    "restless check": command("check"),
    "restless index": command("index"),
    "restless solve": command("solve"),
    "restless simulate": command("simulate", "--horizon", "50", "--runs", "1", "--learner", "whittle"),
    "restless solve --discount": command("solve", "--discount", "0.9"),
    "at most": lambda problem, folder: exact(rb.Problem(problem.arms, observed=problem.observed, at_most=True), folder),
}
OTHER_PULLS = "says nothing of the states that these pulls would have made; fit the log, and"
REFUSED = {
    (
        "a learner of the paper",
        "reacting",
    ): "arm 'a' has active_transitions, and likelihood-ucb plays uncontrolled arms",
    ("a learner of the paper", "observed"): "likelihood-ucb cannot play arms that are all observed",
    ("replay", "reacting"): OTHER_PULLS + " simulate",
    ("replay", "observed"): OTHER_PULLS + " simulate",
    ("evaluate a log", "reacting"): OTHER_PULLS + " evaluate",
    ("restless solve --discount", "uncontrolled"): "a discount is for problems with observed = 'all'",
    ("restless solve --discount", "reacting"): "a discount is for problems with observed = 'all'",
    ("at most", "uncontrolled"): "has at_most = True, which the oracle exact does not support",
    ("at most", "reacting"): "has at_most = True, which the oracle exact does not support",
}
"""Cells that refuse, by use and problem, with a part of their sentence."""


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_cell_works_or_refuses_in_one_sentence(use, kind, tmp_path):
    sentence = REFUSED.get((use, kind))
    if sentence is None:
        USES[use](PROBLEMS[kind], tmp_path)
        return
    with pytest.raises(rb.ProblemError) as caught:
        USES[use](PROBLEMS[kind], tmp_path)
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message


def test_every_refusal_is_a_cell():
    assert {use for use, _ in REFUSED} <= set(USES)
    assert {kind for _, kind in REFUSED} <= set(PROBLEMS)
