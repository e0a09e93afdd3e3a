import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from restless_bandits import Arm, Problem, ProblemError
from restless_bandits.learning.learners import colored_kernels as kernels
from restless_bandits.learning.learners import colored_ucrl2 as module
from restless_bandits.learning.learners.colored_ucrl2 import ColoredUCRL2, extended_value_iteration
from restless_bandits.learning.learners.simple import RoundRobin
from restless_bandits.model.record import Record
from restless_bandits.policies import CountDoubled, IndexPolicy, JointPolicy, SingleArm
from restless_bandits.policies.plans import RuleWatch
from restless_bandits.simulation.engine import World, play_run

RNG = np.random.default_rng(7)


def random_balls(n_states, caps, rng, spread=0.5):
    """Confidence sets around random laws, as the learner would make them."""
    widest, most = max(n * c for n, c in zip(n_states, caps, strict=True)) + 1, max(n_states)
    estimate, half = np.zeros((len(caps), widest, most)), rng.random((len(caps), widest)) * spread
    for i, n in enumerate(n_states):
        estimate[i, :, :n] = rng.dirichlet(np.ones(n), size=widest)
    best = estimate[:, :, 0]
    reward = rng.random((len(caps), most))
    return kernels.Balls(estimate, half, np.maximum(best - half, 0), np.minimum(best + half, 1), reward)


def layout_of(n_states, caps, unseen=None, ties=True):
    unseen = unseen or (False,) * len(caps)
    return module.table_layout(tuple(n_states), (0,) * len(caps), tuple(caps), tuple(unseen), ties)


def slow_most(estimate, half, payoffs):
    """The inner maximisation as UCRL2 writes it down."""
    distribution = np.array(estimate, dtype=float)
    best = int(np.argmax(payoffs))
    distribution[best] = min(1.0, distribution[best] + half)
    for k in np.argsort(payoffs):
        if distribution.sum() <= 1:
            break
        if k != best:
            distribution[k] = max(0.0, distribution[k] - (distribution.sum() - 1))
    return float(distribution @ payoffs)


def slow_gain(n_states, caps, balls, tolerance, unseen=None, sweeps=20_000):
    """Extended value iteration over tuples of (s, τ), straight from the definition; s = n stands for never seen."""
    singles = []
    for i, (n, cap) in enumerate(zip(n_states, caps, strict=True)):
        beliefs = [(s, tau) for s in range(n) for tau in range(1, cap + 1)]
        singles.append([*beliefs, (n, 1)] if unseen and unseen[i] else beliefs)
    joint = [
        z for z in itertools.product(*singles) if any(tau == 1 and s < n_states[i] for i, (s, tau) in enumerate(z))
    ]
    values = dict.fromkeys(joint, 0.0)

    def wait(i, belief):
        s, tau = belief
        return belief if s == n_states[i] else (s, min(tau + 1, caps[i]))

    def value(z, i):
        s, tau = z[i]
        colour = n_states[i] * caps[i] if s == n_states[i] else (tau - 1) * n_states[i] + s
        payoffs = []
        for k in range(n_states[i]):
            after = tuple((k, 1) if j == i else wait(j, belief) for j, belief in enumerate(z))
            payoffs.append(balls.reward[i, k] + values[after])
        return slow_most(balls.estimate[i, colour, : n_states[i]], balls.half[i, colour], np.array(payoffs))

    for _ in range(sweeps):
        found = {z: max(value(z, i) for i in range(len(caps))) for z in joint}
        change = [found[z] - values[z] for z in joint]
        if max(change) - min(change) <= tolerance:
            return min(change), max(change)
        values = {z: values[z] + 0.9 * (found[z] - values[z] - min(change)) for z in joint}
    raise AssertionError("no end")


def test_most_expected_is_the_linear_program():
    for _ in range(60):
        n = int(RNG.integers(1, 6))
        estimate, payoffs, half = RNG.dirichlet(np.ones(n)), RNG.normal(size=n), RNG.random()
        found = kernels.most_expected(estimate, half, payoffs, np.arange(n), n)
        # Variables: the law, and the absolute differences from the estimate.
        above = np.block([[np.eye(n), -np.eye(n)], [-np.eye(n), -np.eye(n)], [np.zeros((1, n)), np.ones((1, n))]])
        program = linprog(
            np.concatenate([-payoffs, np.zeros(n)]),
            A_ub=above,
            b_ub=np.concatenate([estimate, -estimate, [2 * half]]),
            A_eq=np.concatenate([np.ones(n), np.zeros(n)])[None],
            b_eq=[1.0],
        )
        assert found == pytest.approx(-program.fun, abs=1e-9)
        assert found == pytest.approx(slow_most(estimate, half, payoffs), abs=1e-12)


@pytest.mark.parametrize(
    ("n_states", "caps", "unseen"),
    [
        ((2, 2), (3, 4), None),
        ((3, 2), (2, 3), None),
        ((2, 2, 2), (2, 3, 2), None),
        ((3, 1, 2), (2, 2, 1), None),
        ((2, 2), (3, 2), (True, False)),
    ],
)
def test_extended_value_iteration_matches_its_definition(n_states, caps, unseen):
    rng = np.random.default_rng(len(n_states) + sum(caps))
    balls = random_balls(n_states, caps, rng)
    found = extended_value_iteration(layout_of(n_states, caps, unseen), balls, 1e-6)
    low, high = slow_gain(n_states, caps, balls, 1e-6, unseen)
    assert found.upper - found.lower <= 1e-6
    assert max(found.lower, low) <= min(found.upper, high) + 1e-9


def test_leaving_ties_out_changes_nothing_that_can_be_reached():
    for n_states, caps in [((2, 2, 2), (5, 5, 5)), ((2, 3, 2), (4, 2, 5)), ((2, 2, 2, 2), (3, 4, 1, 4))]:
        balls = random_balls(n_states, caps, RNG)
        every = extended_value_iteration(layout_of(n_states, caps, ties=True), balls, 1e-9)
        some = extended_value_iteration(layout_of(n_states, caps, ties=False), balls, 1e-9)
        assert some.lower == pytest.approx(every.lower, abs=2e-9)
        last, elapsed = walk(every.policy, n_states, 300)
        same = every.policy.choose(last, elapsed) == some.policy.choose(last, elapsed)
        # Equally good choices may fall either way: one in a hundred would be a coincidence.
        assert same.mean() > 0.99


def walk(policy, n_states, slots):
    """Situations met with random pulls and states, from the slot on in which every arm has been pulled."""
    n = len(n_states)
    last, slot_of = [0] * n, [-i for i in range(n)]
    rows = []
    for slot in range(1, slots):
        rows.append((list(last), [slot - seen for seen in slot_of]))
        arm = int(RNG.integers(n))
        last[arm], slot_of[arm] = int(RNG.integers(n_states[arm])), slot
    return np.array([row[0] for row in rows]), np.array([row[1] for row in rows])


def test_threads_change_nothing(monkeypatch):
    n_states, caps = (2, 3, 2), (5, 4, 6)
    balls = random_balls(n_states, caps, RNG)
    layout = layout_of(n_states, caps, ties=False)
    plain = extended_value_iteration(layout, balls, 1e-4)
    monkeypatch.setattr(module, "THREADED", 1)
    for cores in (1, 3):
        monkeypatch.setattr(module.os, "cpu_count", lambda cores=cores: cores)
        threaded = extended_value_iteration(layout, balls, 1e-4)
        assert (threaded.lower, threaded.upper, threaded.sweeps) == (plain.lower, plain.upper, plain.sweeps)
        np.testing.assert_array_equal(threaded.policy.action, plain.policy.action)
        np.testing.assert_array_equal(threaded.policy.bias, plain.policy.bias)


def test_the_optimistic_gain_is_above_the_truth_and_falls_to_it():
    rng = np.random.default_rng(3)
    n_states, caps = (2, 3), (4, 3)
    truth = random_balls(n_states, caps, rng, spread=0.0)
    layout = layout_of(n_states, caps)
    exact = extended_value_iteration(layout, truth, 1e-9)
    gains = []
    for radius in (0.4, 0.1, 0.02, 0.0):
        # Estimates off the truth by as much as the ball allows still contain it.
        estimate = truth.estimate.copy()
        for i, n in enumerate(n_states):
            other = rng.dirichlet(np.ones(n), size=estimate.shape[1])
            estimate[i, :, :n] = (1 - radius / 2) * estimate[i, :, :n] + radius / 2 * other
        half = np.full(truth.half.shape, radius / 2)
        best = estimate[:, :, 0]
        least, most = np.maximum(best - half, 0), np.minimum(best + half, 1)
        balls = kernels.Balls(estimate, half, least, most, truth.reward + radius / 10)
        gains.append(extended_value_iteration(layout, balls, 1e-9).upper)
        assert gains[-1] >= exact.lower
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] == pytest.approx(exact.upper, abs=2e-9)
    assert gains[0] > gains[-1] + 0.05


def test_confidence_sets_pool_beyond_the_cap_and_narrow_as_they_should():
    problem = Problem([Arm.two_state(0.7, 0.8, initial=1), Arm.two_state(0.5, 0.6, initial=1)])
    task = problem.task(horizon=10_000)
    record = Record.of(task)
    counts = record.counts(0)
    counts[1, 1] = [30, 10]
    counts[1, 2:5] = [[10, 0], [20, 0], [0, 10]]
    counts[1, 600] = [10, 50]
    record.seen(0)[:] = [70, 70]
    record.reward_sums(0)[:] = [7.0, 70.0]
    record.slots = 140
    learner = ColoredUCRL2(cap=3, law_width=0.2, reward_width=0.3, delta=0.01)
    balls = learner.confidence_sets(record.frozen(), task)
    log = np.log(2 * 12 * 141 / 0.01)
    # Colours of arm 0 run (τ, s): (2, 1) is 3, (3, 1) is 5.
    np.testing.assert_allclose(balls.estimate[0, 3], [0.75, 0.25])
    np.testing.assert_allclose(balls.estimate[0, 5], [0.4, 0.6])
    assert balls.half[0, 3] == pytest.approx(0.5 * (0.01 + np.sqrt(0.2 * 2 * log / 40)))
    assert balls.half[0, 5] == pytest.approx(0.5 * (0.01 + np.sqrt(0.2 * 2 * log / 100)))
    assert (balls.half[0, [0, 1, 2, 4]] == 1).all()
    assert (balls.half[1] == 1).all()
    np.testing.assert_allclose(balls.reward[0], [0.1 + np.sqrt(0.3 * log / 70), 1.0])
    known = ColoredUCRL2(cap=3, rewards="known")
    assert known.needs == {"rewards"}
    told = known.confidence_sets(record.frozen(), problem.task(10_000, reveal=known.needs))
    np.testing.assert_array_equal(told.reward, [[1, 0], [1, 0]])


def test_plans_without_a_table_are_those_with_one():
    problem = Problem.builtin("table-3")
    learner = ColoredUCRL2(cap=4)
    task = problem.task(horizon=3000)
    run = play_run(learner, World(problem), 3000, np.array([3000]), seed=0, run=0)
    balls = learner.confidence_sets(run.record.frozen(), task)
    plan = learner.plan(run.record.frozen(), task, RNG)
    assert isinstance(plan.policy, IndexPolicy)
    joint = extended_value_iteration(layout_of((2, 2, 2), (4, 4, 4)), balls, 2.0).policy
    # Where every promise is the same, so is every choice.
    last, elapsed = walk(joint, (2, 2, 2), 200)
    np.testing.assert_array_equal(plan.policy.choose(last, elapsed), joint.choose(last, elapsed))


def tight(**options):
    """Narrow sets, so that short runs get past the stage where nothing is known."""
    return ColoredUCRL2(**{"law_width": 0.05, "reward_width": 0.05, **options})


@pytest.mark.parametrize("initial", [0, None])
def test_episodes_end_when_a_count_has_doubled(initial):
    arms = [Arm.two_state(0.7, 0.8, initial=initial), Arm.two_state(0.5, 0.6, rewards=(0.8, 0), initial=initial)]
    problem = Problem(arms)
    learner = tight(cap=3)
    run = play_run(learner, World(problem), 400, np.array([400]), seed=1, run=0, trace=True)
    # The same slots again, with the rule followed in plain Python.
    record, lengths, length = Record.of(learner.task(problem, 400)), [], 0
    watch = RuleWatch(CountDoubled(cap=3), record)
    for slot in range(400):
        arm, state = int(run.trace.arms[slot, 0]), int(run.trace.states[slot, 0])
        previous = [(int(record.last_state[arm]), int(record.elapsed[arm]))]
        record.observe([arm], [state], [float(run.trace.rewards[slot, 0])])
        length += 1
        if watch.met(record, [arm], previous) or slot == 399:
            lengths.append(length)
            length = 0
            watch = RuleWatch(CountDoubled(cap=3), record)
    assert run.record.plan_lengths == lengths
    assert len(lengths) > 10


@pytest.mark.parametrize("horizon", [1, 2, 7, 3000])
def test_runs_of_any_shape_reach_the_horizon(horizon):
    chain = [[0.8, 0.2, 0.0], [0.3, 0.4, 0.3], [0.0, 0.5, 0.5]]
    arms = [Arm(chain, [1, 0.5, 0.1]), Arm.two_state(0.5, 0.6, initial=1), Arm([[1.0]], [0.4])]
    for problem in (Problem(arms), Problem(arms[:2]), Problem(arms[:1])):
        for learner in (tight(cap=4), tight(cap=1, rewards="known"), ColoredUCRL2()):
            run = play_run(learner, World(problem), horizon, np.array([horizon]), seed=0, run=0)
            assert run.record.slots == horizon


def test_with_narrow_sets_the_plan_is_a_table_and_one_arm_needs_none():
    problem = Problem.builtin("paper-1")
    learner = tight(cap=5)
    run = play_run(learner, World(problem), 5000, np.array([5000]), seed=0, run=0)
    plan = learner.plan(run.record.frozen(), problem.task(5000), RNG)
    assert isinstance(plan.policy, JointPolicy)
    assert plan.until == CountDoubled(cap=5)
    # After slots in which nothing was pulled the table has no entry, but there is an answer.
    assert plan.policy([0, 1], [4, 7]) in (0, 1)
    one = Problem([Arm.two_state(0.7, 0.8)])
    assert learner.plan(Record.of(one.task(10)).frozen(), one.task(10), RNG).policy == SingleArm(0)


def test_a_plan_depends_on_the_record_alone():
    problem = Problem.builtin("table-3")
    learner = tight(cap=4)
    world = World(problem)
    first, second = (play_run(learner, world, 4000, np.array([4000]), seed=5, run=2, trace=True) for _ in range(2))
    np.testing.assert_array_equal(first.trace.arms, second.trace.arms)
    task = problem.task(4000)
    stored = Record.from_dict(task, first.record.to_dict())
    module.table_layout.cache_clear()
    one, other = learner.plan(first.record.frozen(), task, RNG).policy, learner.plan(stored.frozen(), task, RNG).policy
    assert isinstance(one, JointPolicy)
    np.testing.assert_array_equal(one.action, other.action)
    np.testing.assert_array_equal(one.bias, other.bias)


def test_caps_come_from_mixing_times():
    problem = Problem.builtin("paper-1")
    learner = ColoredUCRL2()
    assert learner.needs == {"mixing"}
    assert learner.caps(learner.task(problem, 100_000)) == (9, 3)
    assert ColoredUCRL2(cap=3).needs == frozenset()


def test_refusals_name_the_culprit():
    flip = Arm([[0.0, 1.0], [1.0, 0.0]], [1, 0], name="flip", initial=0)
    with pytest.raises(ProblemError, match="'flip' never mixes"):
        ColoredUCRL2().task(Problem([flip, Arm.two_state(0.7, 0.8)]), 100)
    ColoredUCRL2(cap=2).task(Problem([flip, Arm.two_state(0.7, 0.8)]), 100)
    with pytest.raises(ProblemError, match="needs to know the horizon"):
        ColoredUCRL2(cap=2).task(Problem.builtin("paper-1"), None)
    with pytest.raises(ProblemError, match="plays = 2"):
        ColoredUCRL2(cap=2).task(Problem([Arm.two_state(0.7, 0.8)] * 3, plays=2), 100)
    with pytest.raises(ProblemError, match=r"reveal=\['mixing'\]"):
        ColoredUCRL2().check(Problem.builtin("paper-1").task(100))
    many = Problem([Arm.two_state(0.7, 0.8, initial=1)] * 6)
    # 6 arms × 2 states × (2 cap)^5: 38 400 000 with cap 10, 22 674 816 with cap 9, 12 582 912 with cap 8.
    with pytest.raises(ProblemError, match=r"38,400,000 joint beliefs.*cap of at most 8"):
        ColoredUCRL2(cap=10).task(many, 100)
    ColoredUCRL2(cap=8).task(many, 100)
    with pytest.raises(ProblemError, match="too many arms"):
        ColoredUCRL2(cap=1).task(Problem([Arm.two_state(0.7, 0.8, initial=1)] * 30), 100)
    for options in ({"cap": 0}, {"cap": 2.5}, {"delta": 0.0}, {"law_width": -1.0}, {"rewards": "guessed"}):
        with pytest.raises(ProblemError, match=next(iter(options))):
            ColoredUCRL2(**options)


def test_spec_round_trips():
    assert ColoredUCRL2(cap=10).spec == "colored-ucrl2:cap=10"
    assert ColoredUCRL2(cap=3, rewards="known", law_width=1.0).spec == "colored-ucrl2:cap=3,law_width=1,rewards=known"


def test_regret_grows_slower_than_time():
    problem = Problem.builtin("paper-1")
    world = World(problem)
    gain, marks = 0.456464072292, np.array([50_000, 100_000])

    def regrets(learner):
        earned = np.array(
            [play_run(learner, world, 100_000, marks, seed=0, run=run).totals.at[:, 1] for run in range(4)]
        )
        return np.diff(gain * marks - earned, axis=1, prepend=0).mean(axis=0)

    # Regret in the two halves over 40 runs: round-robin 3934 and 3934 (sd 26 a run), with the paper's widths 991 and
    # 2444 (total sd 200), since most colours are still unknown then, with narrow ones 782 and 277 (sd 110 each). The
    # means of four runs are 6 standard deviations and more from the limits below: false alarms under 1e-9 a seed.
    robin, paper = regrets(RoundRobin()), regrets(ColoredUCRL2(cap=10))
    narrow = regrets(ColoredUCRL2(cap=10, law_width=0.5, reward_width=0.5))
    assert paper.sum() < 0.7 * robin.sum()
    assert narrow[1] < narrow[0]
    assert narrow.sum() < 0.25 * robin.sum()
