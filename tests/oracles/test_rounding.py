"""Brackets hold to the last bit: ends against exact rational arithmetic, where rounding is largest."""

import contextlib
import importlib
import itertools
import json
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError, TableArm
from restless_bandits.cli import main
from restless_bandits.oracles import find_oracle
from restless_bandits.oracles.lagrangian import relax
from restless_bandits.oracles.normalization import lower_of, upper_of
from tests.reference import rational_average, rational_gain

ORACLES = ("exact", "whittle", "myopic", "relaxation", "best-arm", "auto")
LEAKS = st.floats(3, 16).map(lambda digits: 10.0**-digits)


def rational_rows(rows):
    return [
        {k: Fraction(p) / sum(map(Fraction, row)) for k, p in enumerate(row) if p} for row in np.asarray(rows).tolist()
    ]


def pulled_always(*arms):
    """What arms with one class each earn a slot if all of them are pulled, in fractions."""
    return sum(
        rational_average(rational_rows(arm.transitions), list(map(Fraction, arm.rewards.tolist()))) for arm in arms
    )


def assert_holds(solution, gain):
    assert Fraction(solution.lower) <= gain <= Fraction(solution.upper), solution


@pytest.mark.parametrize("name", ORACLES)
def test_a_chain_that_hardly_moves(name):
    """The gain of both arms was 8e-6 too high, and so was the lower end of whittle and myopic."""
    slow = Arm([[1 - 3.141e-13, 3.141e-13], [2.279e-13, 1 - 2.279e-13]], [0.48844922708552385, 0.07708380850053875])
    constant = Arm([[1.0]], [0.21283099534033434])
    solution = rb.oracles.oracle(name)(Problem([slow, constant], plays=2))
    assert_holds(solution, pulled_always(slow, constant))
    assert solution.width < 1e-12


@pytest.mark.parametrize(("low", "width"), [(0.0, 7.0), (1e6, 7.0), (1e9, 1e5), (-1e12, 1e7)])
@pytest.mark.parametrize("name", ["whittle", "best-arm"])
def test_units(low, width, name):
    rewards = [low + 0.9 * width, low + 0.3 * width], [low + 0.7 * width, low]
    chains = [[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.5], [1 / 3, 2 / 3]]
    arms = [
        Arm(c, r, reward_range=(low, low + width), reward_law="bernoulli") for c, r in zip(chains, rewards, strict=True)
    ]
    problem, gain = Problem(arms, plays=2), pulled_always(*arms)
    solution = rb.oracles.oracle(name)(problem)
    assert_holds(solution, gain)
    assert solution.width <= 1e-12 * width + 8 * np.spacing(abs(low) + width)
    found = rb.evaluate(problem, solution.policy)
    assert abs(Fraction(found.gain) - gain) <= Fraction(found.error) + Fraction(found.rounding)
    assert Fraction(rb.oracles.relaxation_bound(problem)) >= gain


@given(st.floats(-1e9, 1e9), st.floats(1e4, 1e12), st.floats(0, 1), st.integers(1, 3))
def test_units_are_rounded_outward(low, width, share, plays):
    problem = Problem(
        [Arm([[1.0]], [low], reward_range=(low, low + width), reward_law="bernoulli")] * plays, plays=plays
    )
    low, high = map(Fraction, problem.reward_range)
    gain = plays * (low + (high - low) * Fraction(share))
    lower, upper = Fraction(lower_of(problem, plays * share)), Fraction(upper_of(problem, plays * share))
    assert lower <= gain <= upper
    last_digit = Fraction(np.spacing(float(plays * max(abs(low), abs(high)))))
    assert upper - lower <= plays * (high - low) * Fraction(1e-14) + 4 * last_digit


def leaky(rng, leaks):
    """A chain of two or three states with one class, of rows that hardly move, cross at once, or anything between."""
    n = int(rng.integers(2, 4))
    chain = np.zeros((n, n))
    for j in range(n):
        chain[j, (j + 1) % n] = leaks[j]
        chain[j, (j + 2) % n] += leaks[-1] if rng.random() < 0.5 else 0.0
        chain[j, j if rng.random() < 0.7 else (j + 1) % n] += 1.0
    return chain / chain.sum(axis=1, keepdims=True)


# The indices of three states that hardly move take seconds.
@pytest.mark.parametrize("names", [("myopic", "best-arm"), pytest.param(("whittle",), marks=pytest.mark.slow)])
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.lists(LEAKS, min_size=4, max_size=4))
def test_all_arms_pulled(names, seed, leaks):
    """One policy, whose gain is known in fractions; two of the arms are equal."""
    rng = np.random.default_rng(seed)
    chains = [leaky(rng, leaks) for _ in range(2)]
    arms = [Arm(chain, np.sort(rng.random(len(chain)))[::-1]) for chain in chains]
    arms.append(arms[0])
    problem, gain = Problem(arms, plays=3), pulled_always(*arms)
    for name in names:
        assert_holds(rb.oracles.oracle(name)(problem), gain)
    assert Fraction(relax(problem).above) >= gain


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10**6), st.lists(LEAKS, min_size=4, max_size=4), st.integers(1, 2))
def test_laws_that_are_the_same_after_every_wait(seed, leaks, plays):
    """Optima over all stationary policies, in fractions, against every oracle's bracket and evaluation."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(2):
        distribution = leaky(rng, leaks)
        parts.append((distribution.tolist(), np.sort(rng.random(len(distribution)))[::-1].tolist(), 0))
    laws, rewards, starts = zip(*parts, strict=True)
    gain = rational_gain(laws, rewards, starts, plays)
    arms = [
        TableArm([np.eye(len(distribution)), distribution], pays, initial=start) for distribution, pays, start in parts
    ]
    for name in ("exact", "whittle", "myopic", "relaxation", "best-arm"):
        assert_holds(find_oracle(name)(Problem(arms, plays=plays)), gain)


CHANCES = st.sampled_from([0.0, 1.0, 0.5, 1e-8, 1e-16, 1e-17, 1e-20, 1e-150, 1e-300])


@st.composite
def nearly_reducible(draw, n_states):
    n = draw(st.integers(2, n_states))
    rows = []
    for j in range(n):
        row = [draw(CHANCES) for _ in range(n)]
        if sum(row) < 0.1:
            row[j] = 1.0
        rows.append((np.array(row) / sum(row)).tolist())
    return Arm(rows, np.linspace(1, 0, n), initial=draw(st.sampled_from([None, 0])))


@pytest.mark.parametrize("n_states", [2, pytest.param(3, marks=pytest.mark.slow)])
@settings(max_examples=4, deadline=None)
@given(st.data())
def test_nearly_reducible_chains_are_answered(n_states, data):
    """Answers or a ``ProblemError``, never another error; the chain of a leak of 1e-17 ended in a LinAlgError."""
    problem = Problem([data.draw(nearly_reducible(n_states)) for _ in range(2)])
    tasks = (
        lambda: rb.check(problem),
        lambda: [rb.oracles.whittle_index(arm) for arm in problem.arms],
        lambda: rb.simulate(problem, "round-robin", horizon=20, runs=1, comparator=0.5, engine="threads"),
        lambda: rb.theory.exploration_length(problem, 5),
    )
    for task in tasks:
        with contextlib.suppress(ProblemError):
            task()


def test_a_long_exploration():
    """The second arm is explored after 1e130 slots, for which powers without normalized rows overflow."""
    first = Arm([[1.0, 1e-20], [1e-150, 1.0]], [1, 0])
    second = Arm([[1.0, 0.0, 1e-16], [1e-16, 1.0, 0.0], [0.0, 1e-16, 1.0]], [1, 0.5, 0], initial=0)
    assert rb.theory.exploration_length(Problem([first, second]), 5).lower > 1e100


def test_a_leak_below_rounding():
    problem = Problem([Arm([[1.0, 1e-17], [0.0, 1.0]], [1, 0]), Arm([[0.7, 0.3], [0.2, 0.8]], [0.6, 0.1])])
    assert rb.oracles.best_arm(problem).lower > 0.29
    assert rb.check(problem).assumptions


SLOW = Problem(
    [
        Arm([[1.0, 0.0], [1.1e-8, 1 - 1.1e-8]], [0.67, 0.55]),
        Arm([[1.0]], [0.4]),
        Arm([[1 - 1.8e-12, 1.8e-12], [0.0, 1.0]], [0.46, 0.42]),
    ],
    plays=2,
)


def test_exact_gives_up_where_its_residual_stalls(monkeypatch):
    sweeps = []
    level = importlib.import_module("restless_bandits.oracles.exact").TruncationLevel
    original = level.sweep

    def counted(self, *args):
        sweeps.append(self.joint.size * self.outcomes)
        return original(self, *args)

    monkeypatch.setattr(level, "sweep", counted)
    solution = rb.oracles.exact(SLOW)
    assert not solution.certified
    assert 0.0 <= solution.lower <= solution.upper <= 2.0
    assert sum(sweeps) < 2e9


def counted_work(monkeypatch):
    """Lists that grow with each sweep of value iteration, of both kinds, and with each policy solved for."""
    exact, explicit = (
        importlib.import_module(f"restless_bandits.oracles.{name}") for name in ("exact", "explicit_chains")
    )
    work, swept, solved = [], [], []
    sweep, staying, settled = exact.TruncationLevel.sweep, explicit.EndComponents.staying, explicit.settled_policy

    def one_sweep(self, *args):
        work.append(self.joint.size * self.outcomes)
        return sweep(self, *args)

    def one_step(self, bias):
        swept.append(self.explored.size)
        return staying(self, bias)

    def one_policy(parts, *args):
        solved.append(parts.explored.size)
        return settled(parts, *args)

    monkeypatch.setattr(exact.TruncationLevel, "sweep", one_sweep)
    monkeypatch.setattr(explicit.EndComponents, "staying", one_step)
    monkeypatch.setattr(explicit, "settled_policy", one_policy)
    return work, swept, solved


@pytest.mark.parametrize("name", ["best-arm", "exact", "whittle"])
@pytest.mark.parametrize("leak", [1e-14, 1e-17])
def test_arms_that_never_seem_to_leave_take_little_work(name, leak, monkeypatch):
    """Absorbing arms with tiny leaks: value iteration went on for 900 seconds and did not settle."""
    slow = Arm([[1 - leak, leak], [0.0, 1.0]], [0.9, 0.5], initial=0)
    other = Arm([[1 - leak, 0.0, leak], [0.0, 1.0, 0.0], [leak, leak, 1 - 2 * leak]], [0.7, 0.65, 0.1], initial=0)
    work, swept, solved = counted_work(monkeypatch)
    solution = rb.oracles.oracle(name)(Problem([slow, other]))
    assert 0.0 <= solution.lower <= solution.upper <= 0.9 + 1e-15
    assert sum(work) < 1e9
    assert len(swept) < 60 * 2000
    assert len(solved) < 60 * 30


@pytest.mark.parametrize("forward", [1e-14, 3e-14, 2e-9])
def test_two_arms_that_leak_against_fractions(forward):
    arms = [
        Arm([[1 - forward, forward], [1e-14, 1 - 1e-14]], [0.9, 0.2]),
        Arm([[1 - 1e-14, 1e-14], [forward, 1 - forward]], [0.6, 0.1]),
    ]
    assert_holds(rb.oracles.best_arm(Problem(arms, plays=2)), pulled_always(*arms))
    solution = rb.oracles.best_arm(Problem(arms))
    best = max(pulled_always(arm) for arm in arms)
    assert solution.lower <= best <= solution.upper
    assert best - Fraction(solution.lower) < Fraction(1, 10**12)


def test_fixed_arms_that_the_relaxation_proves_optimal_take_no_large_table(monkeypatch):
    """A table of 33 million joint beliefs was swept forty times, to end without a certificate."""
    work, _, _ = counted_work(monkeypatch)
    slow = Arm([[1 - 1e-12, 1e-12], [1e-11, 1 - 1e-11]], [0.9, 0.9])
    arms = [slow, Arm([[0.99, 0.01], [0.02, 0.98]], [0.3, 0.1]), Arm([[0.98, 0.02], [0.04, 0.96]], [0.3, 0.2])]
    solution = rb.oracles.exact(Problem(arms))
    assert solution.certified
    assert_holds(solution, pulled_always(slow))
    assert sum(work) < 2e9


@pytest.mark.parametrize(
    ("oracle", "leak"),
    [
        *itertools.product(["exact", "whittle", "best-arm"], [1e-14, 1e-17]),
        ("auto", 1e-17),
        pytest.param("auto", 1e-14, marks=pytest.mark.slow),
    ],
)
def test_nearly_reducible_chains_on_the_command_line(oracle, leak, tmp_path, capsys, monkeypatch):
    arms = Arm([[1.0, leak], [0.0, 1.0]], [1, 0]), Arm([[0.7, 0.3], [0.2, 0.8]], [0.6, 0.1])
    Problem(arms, name="leaks").save(tmp_path / "leaks.toml")
    command = ["restless", "solve", str(tmp_path / "leaks.toml"), "--oracle", oracle, "--json"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert 0.0 <= found["lower"] <= found["upper"] <= 1.0
