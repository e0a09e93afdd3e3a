"""Runs with answers that are lost and late: played by agents, accounted by the engine."""

import json
import sys

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Problem, ProblemError
from restless_bandits._internal.random_streams import world_words
from restless_bandits.cli import main
from restless_bandits.model.record import LOST
from restless_bandits.policies.policies import Cycle
from restless_bandits.processes.beliefs import UNKNOWN
from restless_bandits.simulation.engine import play_run
from restless_bandits.simulation.feedback_delays import FeedbackDelays, play_answered
from restless_bandits.simulation.jobs import world_of
from tests import reference

PAPER = Problem.builtin("paper-1")
TWO_PLAYS = Problem.random(3, [2, 3, 2], seed=4, plays=2, initial="unknown")
REACTING = Problem(
    [
        rb.Arm([[0.9, 0.1], [0.4, 0.6]], [1, 0], active_transitions=[[0.3, 0.7], [0.1, 0.9]], initial=0),
        rb.Arm(
            [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]],
            [0.9, 0.5, 0],
            active_transitions=[[0.2, 0.5, 0.3], [0.4, 0.2, 0.4], [0.9, 0.05, 0.05]],
            passive_rewards=[0.1, 0.2, 0],
        ),
        rb.Arm([[0.7, 0.3], [0.2, 0.8]], [0.8, 0], setup_cost=0.1),
    ]
)


@pytest.mark.parametrize(
    ("problem", "spec"),
    [
        (PAPER, "likelihood-ucb"),
        (PAPER, "rca"),
        (PAPER, "ucb1"),
        (TWO_PLAYS, "likelihood-ucb"),
        (TWO_PLAYS, "ucb1"),
        (REACTING, "posterior"),
        (REACTING, "whittle"),
        (REACTING, "rca"),
    ],
)
def test_prompt_answers_give_the_run_of_the_engine(spec, problem):
    learner, world, marks = rb.learner(spec), world_of(problem), np.array([100, 300])
    one = play_run(learner, world, 300, marks, seed=2, run=1, trace=True)
    other = play_answered(learner, world, 300, marks, seed=2, run=1, answers=FeedbackDelays())
    np.testing.assert_array_equal(one.totals.at, other.totals.at)
    assert one.record.plan_lengths == other.record.plan_lengths
    for mine, its in zip(one.trace, other.trace, strict=True):
        np.testing.assert_array_equal(mine, its)


def test_what_an_agent_is_told_is_what_has_arrived():
    """Word for word in plain Python: decisions see the answers that have come, and no others."""
    answers = FeedbackDelays(lost=0.2, late=4)
    run = play_answered(rb.learner("ucb1"), world_of(PAPER), 200, np.array([200]), seed=3, run=0, answers=answers)
    fates = answers.fates(3, PAPER.content, 0, 200).tolist()
    world = reference.World(PAPER, world_words(3, PAPER.content, 0))
    for slot in range(1, 201):
        known = [t for t in range(1, slot) if fates[t - 1] >= 0 and t + fates[t - 1] < slot]
        pulls, earned = [0, 0], [0.0, 0.0]
        for t in known:
            (arm,), _, (reward,) = world.history[t - 1]
            pulls[arm] += 1
            earned[arm] += reward
        scores = [
            np.inf if n == 0 else total / n + np.sqrt(2 * np.log(slot) / n)
            for n, total in zip(pulls, earned, strict=True)
        ]
        world.pull([int(np.argmax(scores))])
    assert [history[0][0] for history in world.history] == run.trace.arms[:, 0].tolist()
    assert run.totals.at[-1, 0] == sum(history[2][0] for history in world.history)


@pytest.mark.parametrize("spec", ["whittle", "round-robin"])
def test_pulls_without_an_answer_move_arms_that_react(spec):
    """Word for word in plain Python: each arm's last pull, answered or not, and the slots since."""
    answers, learner = FeedbackDelays(lost=0.3, late=3), rb.learner(spec)
    run = play_answered(learner, world_of(REACTING), 300, np.array([300]), seed=3, run=0, answers=answers)
    fates = answers.fates(3, REACTING.content, 0, 300).tolist()
    policy = rb.oracles.policy("whittle", REACTING) if spec == "whittle" else Cycle()
    lost = 0
    for slot in range(1, 301):
        last, elapsed = [UNKNOWN] * 3, [slot] * 3
        for past in range(1, slot):
            arm, state, delay = run.trace.arms[past - 1, 0], run.trace.states[past - 1, 0], fates[past - 1]
            last[arm], elapsed[arm] = state if 0 <= delay < slot - past else LOST, slot - past
        lost += last.count(LOST)
        assert run.trace.arms[slot - 1] == policy.choose(np.array([last]), np.array([elapsed]))[0]
    assert lost > 100


@pytest.mark.parametrize(
    "spec", ["posterior", "ts:prior=continuous,oracle=whittle", "ts:prior=continuous,oracle=myopic"]
)
def test_plans_have_a_row_for_lost_pulls_of_every_arm_that_needs_it(spec):
    """An arm with a set-up cost needs the row as well, since its next pull is cheaper after a pull."""
    played = rb.simulate(REACTING, spec, 80, runs=1, lost=0.5, late=1, engine="threads")
    assert played.pulls.sum() == 80


def test_fates():
    """At a false-alarm rate of 1e-6: a normal law's bound of five standard errors, for shares of 20 000 draws."""
    fates = FeedbackDelays(lost=0.3, late=2).fates(1, PAPER.content, 0, 20_000)
    for value, share in ((-1, 0.3), (0, 0.7 / 3), (1, 0.7 / 3), (2, 0.7 / 3)):
        assert abs(np.mean(fates == value) - share) < 5 * np.sqrt(share * (1 - share) / 20_000)
    np.testing.assert_array_equal(FeedbackDelays(lost=0.3, late=2).fates(1, PAPER.content, 0, 50), fates[:50])
    assert (FeedbackDelays(lost=0.3, late=2).fates(1, PAPER.content, 1, 50) != fates[:50]).any()


def test_results_say_what_was_played(tmp_path):
    options = dict(horizon=60, runs=2, jobs=1, engine="threads")
    plain = rb.simulate(PAPER, "round-robin", **options, out=tmp_path / "runs")
    found = rb.simulate(PAPER, "round-robin", **options, lost=0.25, late=3, out=tmp_path / "runs")
    assert (plain.lost, plain.late, plain.how_answered) == (0.0, 0, "")
    assert found.as_dict()["lost"] == 0.25
    assert found.as_dict()["late"] == 3
    assert "25 % of answers lost, answers up to 3 slots late" in repr(found)
    assert len(list((tmp_path / "runs").iterdir())) == 3  # the manifest, and a folder for each
    found.save(tmp_path / "result.npz")
    again = rb.SimulationResult.load(tmp_path / "result.npz")
    assert json.dumps(again.as_dict()) == json.dumps(found.as_dict())
    # Who is told nothing sees every arm wait for the same time, and pulls the first.
    deaf = rb.simulate(PAPER, "round-robin", **options, lost=1.0)
    assert deaf.pulls.tolist() == [[[60, 0], [60, 0]]]


def test_the_command_line(capsys, monkeypatch):
    words = "restless simulate paper-1 --learner round-robin --horizon 20 --runs 2 --lost 0.5 --late 2 --json"
    monkeypatch.setattr(sys, "argv", words.split())
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = json.loads(capsys.readouterr().out)
    assert (stopped.value.code or 0, printed["lost"], printed["late"]) == (0, 0.5, 2)


def test_processes_play_the_same():
    options = dict(horizon=40, runs=2, lost=0.2, late=2)
    one = rb.simulate(PAPER, "ts-9", **options, engine="threads")
    other = rb.simulate(PAPER, "ts-9", **options, engine="processes", jobs=2)
    np.testing.assert_array_equal(one.realised_reward, other.realised_reward)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(lost=1.5), r"lost is 1\.5; a probability must lie between 0 and 1"),
        (dict(late=-1), "late is -1"),
        (dict(late=0.5), r"late is 0\.5"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ProblemError, match=message):
        rb.simulate(PAPER, "round-robin", 10, **options)
