"""A sweep with NumPy has the bits of the compiled one, and is taken where compiling would take longer."""

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.oracles.joint_arrays import ArraySweep
from restless_bandits.oracles.joint_kernels import Iterate, sweep_rows
from restless_bandits.processes.beliefs import joint_beliefs

exact_module = import_module("restless_bandits.oracles.exact")


def iterate_of(values):
    return Iterate(values.copy(), np.empty(len(values)), np.zeros(len(values), dtype=np.int16))


def compiled_sweep(joint, iterate, shift, side, distributions=None):
    distributions = joint.distributions if distributions is None else distributions
    found = []
    for block in range(len(joint.actions)):
        rows = int((joint.offsets[block + 1] - joint.offsets[block]) // joint.radix[block, joint.order[-1]])
        found.append(sweep_rows(iterate, block, 0, rows, shift, side, joint.table, distributions))
    least, most, lower, upper = zip(*found, strict=True)
    return min(least), max(most), min(lower), max(upper)


@pytest.mark.parametrize(
    ("arms", "states", "plays", "truncation"),
    [(1, 2, 1, 6), (2, 2, 1, 5), (2, 4, 1, 2), (3, 2, 1, 4), (3, 2, 3, 4), (3, 3, 2, 3), (4, 2, 2, 3)],
)
@pytest.mark.parametrize("side", [-1, 0, 1])
def test_bits_equal_those_of_the_compiled_sweep(arms, states, plays, truncation, side):
    problem = rb.Problem.random(n_arms=arms, n_states=states, seed=5, plays=plays)
    # Short truncations, so that the distance of truncated distributions matters; different ones, so that order matters.
    joint = joint_beliefs(problem, [truncation + i for i in range(arms)])
    assert joint.distributions.tv_error.max() > 0.0
    sweep = ArraySweep(joint)
    rng = np.random.default_rng(1)
    for values in (np.zeros(joint.size), rng.random(joint.size), rng.integers(0, 2, joint.size).astype(float)):
        ours, theirs = iterate_of(values), iterate_of(values)
        assert sweep(ours, 0.3, side) == compiled_sweep(joint, theirs, 0.3, side)
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


def test_wider_deviations_than_those_of_the_table():
    joint = joint_beliefs(rb.Problem.builtin("paper-1"), [8, 5])
    distributions = joint.distributions._replace(tv_error=joint.distributions.tv_error + 1e-3)
    ours, theirs = iterate_of(np.arange(joint.size) * 0.01), iterate_of(np.arange(joint.size) * 0.01)
    found = ArraySweep(joint, distributions)(ours, 0.1, 1)
    assert found == compiled_sweep(joint, theirs, 0.1, 1, distributions)
    assert found != ArraySweep(joint)(iterate_of(ours.values), 0.1, 1)
    np.testing.assert_array_equal(ours.improved, theirs.improved)


def test_table_arms_and_remembering_arms():
    table = rb.TableArm(np.random.default_rng(2).dirichlet(np.ones(2), size=(6, 2)), [1.0, 0.0], initial=0)
    joint = joint_beliefs(rb.Problem([table, rb.Arm([[0.9, 0.1], [0.4, 0.6]], [0.8, 0.1], initial=1)]), [4, 6])
    ours, theirs = iterate_of(np.arange(joint.size) * 0.01), iterate_of(np.arange(joint.size) * 0.01)
    assert ArraySweep(joint)(ours, 0.0, 0) == compiled_sweep(joint, theirs, 0.0, 0)
    np.testing.assert_array_equal(ours.improved, theirs.improved)


@pytest.mark.parametrize("name", ["paper-1", "rf-2"])
def test_solutions_do_not_depend_on_the_way(name, monkeypatch):
    problem = rb.Problem.builtin(name)
    found = []
    # Never with NumPy, always, and first with NumPy and then not.
    for most in (0, 10**12, 300_000):
        monkeypatch.setattr(exact_module.TruncationLevel, "array_work", 0)
        monkeypatch.setattr(exact_module, "is_loaded", lambda kernel: False)
        monkeypatch.setattr(exact_module, "MOST_ARRAY_WORK", most)
        found.append(rb.oracles.exact(problem))
        done = exact_module.TruncationLevel.array_work
        assert (done > 0) == (most > 0)
        assert done < 2 * most + 1
    for other in found[1:]:
        assert (other.lower, other.upper, other.details["levels"]) == (
            found[0].lower,
            found[0].upper,
            found[0].details["levels"],
        )
        np.testing.assert_array_equal(other.policy.action, found[0].policy.action)


def test_a_small_problem_is_solved_without_numba():
    code = (
        "import sys\nimport restless_bandits as rb\n"
        "for name in ('paper-1', 'paper-2', 'lms-urban-s', 'rf-2'):\n"
        "    assert rb.solve(rb.Problem.builtin(name)).certified\n"
        "print(sorted({'numba', 'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
