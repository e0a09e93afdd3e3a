"""Runs of learners on observed arms: the engine against a player in plain Python, storage, kinds, refusals."""

import json
from collections import Counter

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.learning.learners import bonus_posterior
from restless_bandits.learning.learners.observed_arms import mean_chains
from restless_bandits.model.observed_record import COUNTED, OF_ARMS, ObservedRecord
from restless_bandits.oracles.observed.rollout import ObservedWorld
from restless_bandits.policies.observed import UniformPolicy
from restless_bandits.simulation.observed_engine import learn_observed
from restless_bandits.testing import SEED, played_on_observed
from tests.simulation.observed_arms import drawn, ragged

LEARNERS = [
    "bonus-posterior",
    "bonus-posterior:rewards=known",
    "posterior:concentration=2",
    "tsde",
    "ucwhittle:scale=.1",
    "ucwhittle:form=extreme,rewards=known",
    "wiql",
    "wibql",
    "certainty-equivalent:rewards=known",
    "random",
]
PROBLEMS = {"two states": drawn(), "three": drawn(5, 3, plays=1), "at most": drawn(at_most=True), "ragged": ragged()}


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_engine_plays_what_a_player_in_python_plays(learner, name):
    problem, player = PROBLEMS[name], rb.learner(learner)
    if name == "ragged" and player.name in ("wiql", "wibql"):
        with pytest.raises(rb.ProblemError, match="has tables of one size"):
            player.task(problem, 150)
        return
    path, by_hand = played_on_observed(player, problem, 150)
    run = learn_observed(player, ObservedWorld(problem), 150, np.array([40, 150]), seed=SEED, run=0)
    for column in (*COUNTED, *OF_ARMS):
        assert np.array_equal(getattr(run.record, column), getattr(by_hand, column)), column
    assert run.record.plan_lengths == by_hand.plan_lengths
    assert {len(arms) for arms in path} == {problem.plays} or problem.at_most
    assert int(run.record.visits.sum()) == 150 * problem.n_arms


def test_few_arms_are_planned_exactly_after_a_while(monkeypatch):
    monkeypatch.setattr(bonus_posterior, "JOINT_SLOTS", 30)
    monkeypatch.setattr(bonus_posterior, "BONUS_SLOTS", 20)
    problem, player = drawn(3, 3, plays=1), rb.learner("bonus-posterior")
    _, by_hand = played_on_observed(player, problem, 120)
    run = learn_observed(player, ObservedWorld(problem), 120, np.array([120]), seed=SEED, run=0)
    for column in (*COUNTED, *OF_ARMS):
        assert np.array_equal(getattr(run.record, column), getattr(by_hand, column)), column


def test_uniform_draws_pull_every_set_of_arms_alike():
    policy = UniformPolicy(drawn(5, plays=2).task().layout, 2, seed=7)
    drawn_pairs = Counter(tuple(policy.arms_in(slot, np.zeros(5, dtype=int)).tolist()) for slot in range(1, 5001))
    assert len(drawn_pairs) == 10
    # A chi-square statistic of 9 degrees of freedom is above 33.7 with probability 1e-4.
    assert sum((count - 500) ** 2 / 500 for count in drawn_pairs.values()) < 33.7


def test_a_record_survives_storage_and_refuses_nonsense():
    problem = PROBLEMS["ragged"]
    _, record = played_on_observed(rb.learner("posterior"), problem, 60)
    task = problem.task()
    again = ObservedRecord.from_arrays(task, record.to_arrays(), json.loads(json.dumps(dict(record.notes))))
    for column in (*COUNTED, *OF_ARMS):
        assert np.array_equal(getattr(again, column), getattr(record, column))
    assert (again.slots, again.plan_lengths, again.observed) == (60, record.plan_lengths, True)
    wrong = record.to_arrays() | {"visits": record.visits + 1}
    with pytest.raises(ValueError, match="steps do not fit"):
        ObservedRecord.from_arrays(task, wrong, {})


def test_a_step_from_or_to_an_unseen_state_is_not_counted():
    record = ObservedRecord.of(drawn(2, plays=1).task())
    record.observe([0, 1])
    record.act(np.array([1]))
    record.pay(np.array([0.5, np.nan]))
    record.observe([-1, 0])
    record.act(np.array([0]))
    record.pay(np.array([0.25, 1.0]))
    record.observe([1, 1])
    assert record.counts(0).sum() == 0
    assert record.counts(1)[1, 1, 0] == 1
    assert record.counts(1)[0, 0, 1] == 1
    assert record.visits.sum() == 2
    assert record.paid.tolist() == [1, 0, 0, 0, 1, 0, 0, 0]
    assert record.flat_rewards.tolist() == [0.5, 0, 0, 0, 1.0, 0, 0, 0]


def test_many_arms_of_a_kind_step_by_numbers_and_are_counted():
    problem = drawn(3, 3, plays=40, count=50)
    world = ObservedWorld(problem)
    assert world.by_counts
    run = learn_observed(rb.learner("posterior"), world, 100, np.array([100]), seed=1, run=0)
    assert run.by_counts
    assert run.record.visits.sum() == run.record.paid.sum() == run.record.flat_counts.sum() == 100 * 150
    assert run.record.pulls.sum() == 100 * 40
    assert run.record.flat_rewards.sum() == pytest.approx(run.totals.at[-1, 0])
    # The frequencies of the steps are those of the kinds' chains.
    group = problem.groups[0]
    for kind in range(3):
        counts = run.record.counts(kind)
        rows = counts.sum(axis=2)
        for action, chains in enumerate((group.passive, group.active)):
            seen = rows[:, action] > 200
            found = counts[seen, action] / rows[seen, action, None]
            assert np.abs(found - chains[kind][seen]).max() < 5 * 0.5 / np.sqrt(rows[seen, action].min())


def test_results_are_stored_resumed_and_the_same_in_every_pool(tmp_path):
    problem = drawn(reward_law="bernoulli")
    first = rb.simulate(problem, LEARNERS, 60, runs=2, out=tmp_path / "runs", comparator=1.0)
    more = rb.simulate(problem, LEARNERS, 60, runs=4, out=tmp_path / "runs", comparator=1.0)
    assert (more.seconds[:, :2] == first.seconds).all()
    anew = rb.simulate(problem, LEARNERS, 60, runs=4, comparator=1.0, engine="processes", jobs=2)
    assert (more.realised_reward == anew.realised_reward).all()


def test_learners_of_other_arms_are_refused_in_a_sentence():
    with pytest.raises(rb.ProblemError, match=r"likelihood-ucb cannot play arms that are all observed; .* posterior"):
        rb.simulate(drawn(), "likelihood-ucb", 10)
    with pytest.raises(rb.ProblemError, match=r"random cannot play arms that are seen when pulled; .*likelihood-ucb"):
        rb.simulate("paper-1", "random", 10)


def test_shares_and_lifts_compare_rewards_on_the_same_draws():
    problem = drawn(12, plays=2)
    result = rb.simulate(
        problem, ["whittle", "random", "bonus-posterior:rewards=known"], 300, runs=3, comparator="whittle"
    )
    means = result.realised_reward.mean(axis=1)
    assert result.share() == pytest.approx(means / means[0])
    assert result.lift() == pytest.approx((means - means[1]) / (means[0] - means[1]))
    assert result.lift()[:2, -1].tolist() == [1.0, 0.0]
    assert 0.5 < result.lift()[2, -1] < 1.05
    summary = result.summary("bonus-posterior:rewards=known")
    assert summary["share"] == result.share()[2].tolist()
    assert "lift" not in rb.simulate(problem, ["whittle", "tsde"], 20, runs=2, comparator=1.0).summary("tsde")


def test_arms_of_a_kind_learn_together():
    """400 arms of four kinds learn in 12 slots what four arms learn in 1200."""
    chains, rewards = np.random.default_rng(2).dirichlet(np.ones(2), (4, 2, 2)), np.array([0.0, 1.0])
    learner, errors = rb.learner("bonus-posterior:rewards=known"), {}
    for count, plays, slots in ((100, 100, 12), (1, 1, 1200), (1, 1, 12)):
        problem = rb.Problem.from_arrays(chains, rewards, plays=plays, count=count)
        run = learn_observed(learner, ObservedWorld(problem), slots, np.array([slots]), seed=0, run=0)
        found = mean_chains(1.0 + run.record.group_counts(slice(0, 4), 2))
        errors[count, slots] = float(np.abs(found - chains).mean())
    assert errors[100, 12] < 1.5 * errors[1, 1200]
    assert errors[1, 12] > 3 * errors[100, 12]


def test_a_task_of_a_million_arms_names_them_on_demand():
    task = rb.ObservedTask.of_arms(1_000_000, 3, plays=1000, kinds=np.arange(1_000_000) % 50)
    assert (task.n_arms, len(task.layout.counts), task.names[999_999]) == (1_000_000, 50, "arm 1000000")
    assert rb.default_learner(task).name == "bonus-posterior"
    part = task.only([3, 53, 4])
    assert part.kinds.tolist() == [3, 3, 4]
    assert part.with_arm("new", kind="3").kinds.tolist() == [3, 3, 4, 3]
    with pytest.raises(rb.ProblemError, match="two arms are called 'b'"):
        rb.ObservedTask.of_arms(["a", "b", "b"])
    with pytest.raises(rb.ProblemError, match=r"arm 'b': reward 2\.0 is not between 0 and 1"):
        rb.ObservedTask.of_arms(["a", "b"]).check_reward(1, 2)
